"""An exploration of a join: its curves, what its result would cost, which rows would be late, its layout."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.duration import duration_text
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.exploration.curves import Curve, Drawn, counted, curve_of, dimensions_of, drawn
from streamjoin_ds.exploration.exploration_page import bytes_text, page_of
from streamjoin_ds.exploration.sampled_streams import SampledStream, sampled_streams, stretch_of
from streamjoin_ds.sink.writer import TableWriter
from streamjoin_ds.spec import BoundJoin, Join
from streamjoin_ds.spec.columns import Int64
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.window import TimeWindow
from streamjoin_ds.survey.clock import moment

__all__ = ["ROWS", "Exploration", "explored"]

ROWS = 100_000
"""Records of each stream that are read, at most."""

_DAY_S = 86_400.0
_DELAYS_US = (0, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000)
_MOST_WRITTEN = 200_000  # matches that are written to see how many bytes they take


@dataclass(frozen=True)
class StreamSeen:
    """What was seen of a stream: its name, tuples that were read, tuples a second, the share that is late by delay."""

    name: str
    tuples: int
    rate: float
    late: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Exploration:
    """What a join would give with other bands, windows and delays. ``print`` shows it, a notebook draws it.

    Attributes
    ----------
    join : str
        The join, as text.
    streams : tuple of StreamSeen
    first, last : str
        The stretch of event time that was looked at.
    tuples, of : int
        How many tuples of the first stream were counted, and of how many in the stretch.
    curves : tuple of Curve
        One for each band, each limit, and the window.
    partners : mapping
        Of the join as it is: the mean number of partners of a tuple of the first stream (``mean``), its standard error
        (``error``), the median, the 99th percentile and the most (``p50``, ``p99``, ``most``), and the share that has
        one (``matched``).
    rows_a_day, rows_error : float
        Rows of the result, and their standard error, if every day is as the stretch was.
    bytes_a_row : float
        Bytes of a row of the result on disk, as it is written; 0 where there is no match.
    layout : str
        The layout of cells that the join would begin with.
    """

    join: str
    streams: tuple[StreamSeen, ...]
    first: str
    last: str
    tuples: int
    of: int
    curves: tuple[Curve, ...]
    partners: Mapping[str, float]
    rows_a_day: float
    rows_error: float
    bytes_a_row: float
    layout: str

    @property
    def bytes_a_day(self) -> float:
        """Bytes of the result on disk."""
        return self.rows_a_day * self.bytes_a_row

    def matches_a_day(self, curve: Curve) -> list[float]:
        """Return how many pairs a day each bound of a curve would give."""
        return [mean * self.streams[0].rate * _DAY_S for mean in curve.partners]

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values."""
        return {**asdict(self), "bytes_a_day": self.bytes_a_day}

    def to_json(self) -> str:
        """Return this as one JSON object."""
        return json.dumps(self.to_facts(), ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write this as one page of HTML, which needs no other file."""
        Path(path).write_text(page_of(self, whole=True), encoding="utf-8")

    def _repr_html_(self) -> str:
        """Return this as notebooks show it."""
        return page_of(self, whole=False)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield self.join
        yield f"looked at {self.first} .. {self.last}"
        for one in self.streams:
            yield f"  {one.name:<11} {one.tuples:,} tuples, {one.rate:,.4g} a second"
        counted = "all" if self.tuples == self.of else f"{self.tuples:,} of the"
        yield f"  {'counted':<11} {counted} {self.of:,} tuples of {self.streams[0].name}, each against all of the other"
        yield "this join"
        at, first = self.partners, self.streams[0].name
        yield (
            f"  partners    {at['mean']:.4g}{_error(at['error'])} a tuple of {first}: half have at most "
            f"{at['p50']:.0f}, 99 % at most {at['p99']:.0f}, one {at['most']:.0f}; {1 - at['matched']:.1%} have none"
        )
        rows = f"{self.rows_a_day:,.4g}{_error(self.rows_error)} rows"
        yield f"  result      {rows} a day, if every day is as this stretch"
        size = f"{self.bytes_a_row:.1f} bytes a row, {bytes_text(self.bytes_a_day)} a day"
        yield f"  on disk     {size if self.bytes_a_row else 'no match'}"
        yield f"  layout      {self.layout}"
        for curve in self.curves:
            yield f"{curve.name}, all else as it is"
            yield f"  {'':2}{'bound':>16} {'partners':>12} {'error':>9} {'have one':>9} {'matches a day':>14}"
            points = zip(
                curve.bounds, curve.partners, curve.errors, curve.matched, self.matches_a_day(curve), strict=True
            )
            for place, (bound, mean, error, matched, a_day) in enumerate(points):
                mark = "> " if place == curve.asked else "  "
                yield f"  {mark}{bound:>16} {mean:>12,.4g} {error:>9.2g} {matched:>9.1%} {a_day:>14,.4g}"
        yield "late, by the stream's own clock; the join waits for the slower stream, so that no more are"
        for one in self.streams:
            told = [f"{share:.2%} with {delay}" for delay, share in one.late if share]
            told += [f"none with {delay}" for delay, share in one.late if not share][:1]
            yield f"  {one.name:<11} {', '.join(told)}"


def _error(error: float) -> str:
    return f" ± {error:.2g}" if error else ""


def explored(
    bound: BoundJoin, frames: Mapping[str, pa.Table], rows: int, layout_of: Callable[[Sequence[float]], str]
) -> Exploration:
    """Return what a join would give with other bands, windows and delays.

    Parameters
    ----------
    bound : BoundJoin
        A join of two streams with a time window.
    frames : mapping of stream name to pyarrow.Table
        Rows of the streams that have no source.
    rows : int
        Records of each that are read, at most.
    layout_of : callable
        Return the layout for the streams' rates, as text.

    Raises
    ------
    ArgumentError
        The join is none of two streams; there are no tuples; or what was read is shorter than a window.
    WindowError
        The window is no time window.
    """
    join = bound.join
    window = join.window
    if len(join.streams) != 2 or join.tables:
        msg = f"an exploration is of two streams, and the join is of {', '.join(join.member_names)}"
        raise ArgumentError(msg, name="explore", hint="explore the join of two of its streams")
    if not isinstance(window, TimeWindow):
        msg = f"an exploration needs a window of time, and this one is {window.describe(join.names)}"
        raise WindowError(msg, name="window", hint="explore with a window such as 15s")
    samples = sampled_streams(bound, frames, rows)
    shared_us = min(int(one.times_us[-1]) for one in samples) - max(int(one.times_us[0]) for one in samples)
    pairs = Join(join.streams, join.predicates, window, include_self_pairs=join.include_self_pairs)
    dimensions = dimensions_of(pairs, max(shared_us // 2, 0))
    widest = [one.widest.window for one in dimensions] or [window]
    reach = [max(int(one.extent(side)) for one in widest) for side in (0, 1)]
    stretch = stretch_of(samples, reach[1], reach[0])
    found = drawn(samples, stretch, dimensions)
    curves = [(one, counted(one, found)) for one in dimensions]
    matches, counts = _matched(bound, found)
    a_day = stretch.count(samples[0].times_us) / stretch.seconds * _DAY_S
    of_result = _rows(join, counts)
    share = max(1 - len(counts) / max(found.of, 1), 0)
    error = float(np.sqrt(share * (of_result.var(ddof=1) if len(counts) > 1 else 0) / max(len(counts), 1)))
    spread = float(np.sqrt(share * (counts.var(ddof=1) if len(counts) > 1 else 0) / max(len(counts), 1)))
    streams = tuple(_seen(one, stretch.count(one.times_us) / stretch.seconds) for one in samples)
    return Exploration(
        str(join),
        streams,
        moment(stretch.first_us),
        moment(stretch.last_us),
        found.tuples,
        found.of,
        tuple(curve_of(one, of, found.of) for one, of in curves),
        {
            "mean": float(counts.mean()),
            "error": spread,
            "p50": float(np.quantile(counts, 0.5, method="inverted_cdf")),
            "p99": float(np.quantile(counts, 0.99, method="inverted_cdf")),
            "most": float(counts.max()),
            "matched": float((counts > 0).mean()),
        },
        float(of_result.mean()) * a_day,
        error * a_day,
        _bytes_a_row(matches),
        layout_of([one.rate for one in streams]),
    )


def _matched(bound: BoundJoin, found: Drawn) -> tuple[pa.Table, Int64]:
    """Return the first pairs of the join as it is, and how many partners each drawn tuple has."""
    join = bound.join
    first = found.samples[0]
    streams = [one.stream for one in found.samples]
    columns = [
        f"{name}.`{each.name}`" for name, schema in zip(join.names, bound.schemas, strict=False) for each in schema
    ]
    asked = Join(streams, join.predicates, join.window, columns, include_self_pairs=join.include_self_pairs)
    engine = JoinEngine(asked, {one.name: one.rows.schema for one in found.samples})
    kept: list[pa.Table] = []
    counts = np.zeros(found.tuples, np.int64)
    for chunk in engine.push_chunks({one.name: one.rows for one in found.samples}):
        counts += np.bincount(chunk.column(f"{first.name}_seq").to_numpy(), minlength=len(counts))
        if sum(map(len, kept)) < _MOST_WRITTEN:
            kept.append(chunk)
    return pa.concat_tables([engine.result_schema.empty_table(), *kept]), counts


def _rows(join: JoinParts, counts: Int64) -> Int64:
    """Return how many rows of the result each drawn tuple has; those of the second stream alone are left out."""
    if join.reduce or join.how == "semi":
        least = -1 if join.how == "left" else 0
        return np.asarray(counts > least, np.int64)
    if join.how == "anti":
        return np.asarray(counts == 0, np.int64)
    kept = counts if join.nearest is None else np.minimum(counts, join.nearest.k)
    return np.asarray(np.maximum(kept, 1) if join.how in ("left", "full") else kept, np.int64)


def _bytes_a_row(matches: pa.Table) -> float:
    if not matches.num_rows:
        return 0.0
    with tempfile.TemporaryDirectory(prefix="streamjoin-") as folder:
        writer = TableWriter(folder, matches.schema, table="matches", batch_id=0, label="explored", durable=False)
        with writer:
            writer.write(matches)
        return float(sum(one.size_bytes for one in writer.reports)) / float(matches.num_rows)


def _seen(sample: SampledStream, rate: float) -> StreamSeen:
    late = tuple((duration_text(delay), float((sample.late_us > delay).mean())) for delay in _DELAYS_US)
    return StreamSeen(sample.name, len(sample.times_us), rate, late)
