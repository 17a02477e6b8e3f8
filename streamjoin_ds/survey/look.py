"""``look``: one source or several, each surveyed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Stream
from streamjoin_ds.survey.pair import Pair, pairs_of
from streamjoin_ds.survey.report import survey_facts, survey_text
from streamjoin_ds.survey.survey import ROWS, Survey, given_options_of, survey_of

__all__ = ["Look", "look", "looked_at"]

_NAMES = ("e", "w", "s", "u", "v")


@dataclass(frozen=True)
class Look:
    """What sources are. ``print`` shows it.

    Attributes
    ----------
    surveys : tuple of Survey
        One for each source, in their order.
    pairs : tuple of Pair
        What each two of them have in common.
    """

    surveys: tuple[Survey, ...]
    pairs: tuple[Pair, ...] = ()

    @property
    def streams(self) -> list[Stream]:
        """The proposals, as they can be joined; a source without one has none."""
        return [found.stream for found in self.surveys if found.stream is not None]

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values."""
        return {
            "sources": [survey_facts(found) for found in self.surveys],
            "pairs": [pair.to_facts() for pair in self.pairs],
        }

    def to_json(self) -> str:
        """Return this as one JSON object."""
        return json.dumps(self.to_facts(), ensure_ascii=False, default=str)

    def __str__(self) -> str:
        texts = [survey_text(found) for found in self.surveys]
        return "\n\n".join([*texts, *("\n".join(pair.lines()) for pair in self.pairs)])

    __repr__ = __str__


def look(*sources: Any, rows: int = ROWS, **options: Any) -> Look:
    """Return what sources are, and the options with which a join reads them.

    Parameters
    ----------
    *sources : str, path-like, Files, DeltaRows, Topic, Generator or Stream
        Files, folders, tables, topics; what they are need not be known. A `Stream` has a name, and options.
    rows : int
        The records of each source that are read as a join reads them, at most.
    **options
        What is known of them: options of a stream, for all of them. They are kept as they are.

    Returns
    -------
    Look
        What was found; ``print`` shows it. What the values do not decide, it calls a guess.

    Raises
    ------
    StreamJoinError
        A source is not there, or does not answer.

    Examples
    --------
    >>> print(look("readings.csv"))  # doctest: +SKIP
    """
    if not sources:
        msg = "there is no source to look at"
        raise ArgumentError(msg, name="source", hint="give a file, a folder, a topic or a table")
    taken = [source.name for source in sources if isinstance(source, Stream)]
    names = (name for name in _NAMES if name not in taken)
    streams = [
        source if isinstance(source, Stream) else Stream(next(names, "x"), source, **options) for source in sources
    ]
    return looked_at(streams, rows)


def looked_at(streams: Sequence[Stream], rows: int = ROWS) -> Look:
    """Return what the sources of streams are; the options that they have are kept."""
    surveys = tuple(survey_of(stream, given_options_of(stream), rows) for stream in streams)
    return Look(surveys, tuple(pairs_of(surveys)))
