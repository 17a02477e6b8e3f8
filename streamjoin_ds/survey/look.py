"""``look``: one source or several, each surveyed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.columns import pandas_table
from streamjoin_ds.survey.pair import Pair, pairs_of
from streamjoin_ds.survey.report import survey_facts, survey_text
from streamjoin_ds.survey.sample import given_options_of
from streamjoin_ds.survey.survey import ROWS, Survey, survey_of

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
    *sources : str, path-like, Files, DeltaRows, Topic, Generator, Stream, DataFrame or pyarrow.Table
        Files, folders, tables, topics; what they are need not be known. A `Stream` has a name, and options. Of a
        DataFrame, of Spark, pandas or polars, the first rows are looked at.
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
    found = []
    for source in sources:
        table = None if isinstance(source, (str, os.PathLike, Stream)) else _table_of(source, rows)
        own = source if isinstance(source, Stream) else None
        stream = own or Stream(next(names, "x"), source if table is None else None, **options)
        found.append((stream, table))
    return looked_at(found, rows)


def looked_at(streams: Sequence[tuple[Stream, pa.Table | None]], rows: int = ROWS) -> Look:
    """Return what the sources of streams, or rows in their place, are; the options that they have are kept."""
    surveys = tuple(survey_of(stream, given_options_of(stream), rows, table=table) for stream, table in streams)
    return Look(surveys, tuple(pairs_of(surveys)))


def _table_of(source: Any, rows: int) -> pa.Table | None:
    """Return the first rows of a DataFrame or an Arrow table; None for anything else."""
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "limit") and hasattr(source, "toArrow"):  # Spark's; a stream of Spark has no first rows
        if source.isStreaming:
            msg = "a DataFrame that streams has no rows yet to look at"
            raise ArgumentError(msg, name="source", hint="look at a batch of it: spark.read gives one")
        return source.limit(rows).toArrow()
    if hasattr(source, "head") and hasattr(source, "to_arrow"):  # polars'
        return source.head(rows).to_arrow()
    if hasattr(source, "head") and hasattr(source, "iloc"):  # pandas'
        return pandas_table(source.head(rows), "the frame", "ts")
    return None
