"""What is known of the streams' rates before a join runs: said by its user, or found in the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.source.stream_source import UNANSWERED, sampled_rate
from streamjoin_ds.spec import BoundJoin, Stream
from streamjoin_ds.spec.member.stream import checked_rate

__all__ = ["KnownRates", "known_rates"]

# Found rates that differ by at most this factor are taken as equal: the noise of a first file must not turn a layout.
_NOISE = 1.2


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Rates of a join's streams, in their order.

    Attributes
    ----------
    per_s : tuple of float
        Tuples a second; all 1 where nothing is known of any stream.
    origins : tuple of str
        For each stream "said", "found" or "unknown". An unknown rate is taken as the mean of the others.
    unanswered : mapping of str to StreamJoinError
        The first stream whose source does not answer, or refuses to, and why; empty where all answer.
    """

    per_s: tuple[float, ...]
    origins: tuple[str, ...]
    unanswered: Mapping[str, StreamJoinError] = field(default_factory=dict)

    @property
    def are_known(self) -> bool:
        """Whether anything is known of any stream."""
        return any(origin != "unknown" for origin in self.origins)


def known_rates(bound: BoundJoin, given: Mapping[str, float] | None = None) -> KnownRates:
    """Return the rates that a layout is chosen by.

    Parameters
    ----------
    bound : BoundJoin
        A stream's own ``rate`` counts, or else what the first records of its input tell.
    given : mapping of str to float, optional
        Tuples a second by stream; these win.

    Raises
    ------
    ArgumentError
        A name is no stream's, or a rate is no positive number.
    """
    given = given or {}
    for name in given:
        if name not in bound.names:
            msg = f"a rate is given for {name}, which is not a stream of the join"
            raise ArgumentError(msg, name="rates", hint=f"its streams are {', '.join(bound.names)}")
    said = [checked_rate(given.get(stream.name, stream.rate), stream.name) for stream in bound.join.streams]
    unanswered: dict[str, StreamJoinError] = {}
    found = [
        rate if rate is not None or stream.source is None else _found(stream, schema, unanswered)
        for rate, stream, schema in zip(said, bound.join.streams, bound.schemas, strict=False)
    ]
    origins = tuple(
        "said" if one is not None else "unknown" if other is None else "found"
        for one, other in zip(said, found, strict=True)
    )
    known = [rate for rate in found if rate is not None]
    if not known:
        return KnownRates((1.0,) * len(found), origins, unanswered)
    mean = sum(known) / len(known)
    rates = [mean if rate is None else rate for rate in found]
    return KnownRates(tuple(rates if "said" in origins else _smoothed(rates)), origins, unanswered)


def _found(stream: Stream, schema: pa.Schema, unanswered: dict[str, StreamJoinError]) -> float | None:
    """Return the rate at which a stream's input begins; None where it cannot be told. Note why a source is silent.

    The input is read only for streams whose rate is not said: its files may be large, or far away. After one source
    that does not answer no other is asked: each may take as long.
    """
    if unanswered:
        return None
    try:
        return sampled_rate(stream, schema)
    except UNANSWERED as error:
        unanswered[stream.name] = error
        return None


def _smoothed(rates: Sequence[float]) -> list[float]:
    """Return the rates; where they are nearly equal, their mean for each stream."""
    if max(rates) <= min(rates) * _NOISE:
        return [sum(rates) / len(rates)] * len(rates)
    return list(rates)
