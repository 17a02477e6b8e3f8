"""Rows as users hand them over, in any of their forms, and what is known of their types.

A table brings its schema along, dicts do not: one dict does not say what the next will hold. So a stream of dicts needs
a declared schema. `KnownSchemas` has the schemas of a join's streams and tables before the first push.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import Mask, names_hint, pandas_table, says_no_zone, without_zone, zones_of
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.member.stream import Stream

if TYPE_CHECKING:
    import pandas

__all__ = [
    "REJECTED",
    "ArrowFrame",
    "KnownSchemas",
    "Mask",
    "ReceivedRows",
    "Rows",
    "as_table",
    "check_streams",
    "given_table",
]

# One dict is one row. A frame is any with Arrow's PyCapsule interface: of polars, DuckDB, cuDF and others.
Rows: TypeAlias = (
    "pa.Table | pa.RecordBatch | pandas.DataFrame | ArrowFrame | Sequence[Mapping[str, object]] | Mapping[str, object]"
)

KNOWN_FORMS = (
    "an Arrow table or batch, a pandas frame, any frame with Arrow's PyCapsule interface (__arrow_c_stream__; polars, "
    "DuckDB), a dict, or a list of dicts"
)

REJECTED = "_rejected"
"""The column of rejected rows that says why, of streams with `max_ahead`."""


class ArrowFrame(Protocol):
    """A frame that gives its columns by Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of an ArrowArrayStream."""


class ReceivedRows(Struct):
    """Rows of one stream as they were handed over, with their event times.

    Attributes
    ----------
    rows : pyarrow.Table, or list of dict
    count : int
    times_us : ndarray, shape (count,), int64
        Event times in microseconds; 0 for a row without one in range.
    is_timed : ndarray, shape (count,), bool, or None
        Which rows have an event time that may move the clock; None: all.
    is_kept : ndarray, shape (count,), bool, or None
        Which rows are tuples; None: all. The others have no event time in range, have another value that is out of
        range or null where it must not be, or are too far ahead of their stream.
    columns : dict of str to pyarrow.Array
        Columns of the inside form that are made already.
    refused : sequence of (mask, column, reason)
        Why rows are no tuples: each mask has the rows with that reason.
    rejected : pyarrow.Table or None
        The rows that are no tuples, as they were handed over; None: there are none. After `RowIntake.without_future`,
        its column `REJECTED` has the reasons.
    gap_us : ndarray, shape (count,), int64, or None
        How much later the other meaning of a row's event time is (`SeenTimes`), before `RowIntake.in_order`.
    rhythm : tuple of int
        Of a stream with local times, after `RowIntake.in_order`: the clock's `rhythm` after these rows.
    """

    rows: pa.Table | list[Mapping[str, Any]]
    count: int
    times_us: npt.NDArray[np.int64]
    is_timed: Mask | None = None
    is_kept: Mask | None = None
    columns: dict[str, pa.Array] = field(default_factory=dict)
    refused: Sequence[tuple[Mask, str, str]] = ()
    rejected: pa.Table | None = None
    gap_us: npt.NDArray[np.int64] | None = None
    rhythm: tuple[int, ...] = ()

    @property
    def known_us(self) -> npt.NDArray[np.int64]:
        """The event times of the tuples, in microseconds."""
        return self.times_us if self.is_kept is None else self.times_us[self.is_kept]


def as_table(rows: Rows, whose: str, time: str | None = None) -> pa.Table | list[Mapping[str, Any]]:
    """Return rows as a table, or as a list of dicts where they are dicts. A stream of batches is read to its end.

    Parameters
    ----------
    rows : table, record batch, frame, list of dicts, or one dict
    whose : str
        Such as "stream e", for errors.
    time : str, optional
        The column of event times. It may be the index of a pandas frame.

    Raises
    ------
    ArgumentError
        The rows have no known form.
    ColumnError
        A column of a pandas frame holds values of several types.
    """
    if isinstance(rows, dict):  # a push of one tuple: this test is quicker than the one for any mapping below
        return [rows]
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, Sequence) and all([isinstance(row, Mapping) for row in rows]):
        return list(rows)
    if hasattr(rows, "__dataframe__") and hasattr(rows, "iloc"):  # pandas' own capsule has its index among the columns
        return pandas_table(rows, whose, time)
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows).read_all()
        if hasattr(rows, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(rows)])
    except (pa.ArrowInvalid, TypeError):  # one column, and not a frame of them
        pass
    msg = f"rows of {whose} have no known form: {type(rows).__name__}"
    raise ArgumentError(msg, name=whose.partition(" ")[2], hint=KNOWN_FORMS)


def check_streams(streams: Sequence[Stream]) -> None:
    """Refuse what a stream whose rows are handed over cannot have.

    Raises
    ------
    ArgumentError
        The error names the option.
    """
    for stream in streams:
        if stream.idle_timeout is not None:
            msg = f"stream {stream.name} has an idle_timeout, but a JoinEngine has no clock"
            hint = f"leave it out, and call set_idle('{stream.name}') when you know that it is silent"
            raise ArgumentError(msg, name="idle_timeout", hint=hint)
        if stream.partition_kind is not None:
            msg = f"stream {stream.name} has partitions, but a JoinEngine takes each stream in one order"
            hint = "name columns, such as partition_by=['device']; or use StreamJoin.start on folders and topics"
            raise ArgumentError(msg, name="partition_by", hint=hint)
        if stream.rate is not None:
            msg = f"stream {stream.name} has a rate, but a JoinEngine has no layout to choose"
            raise ArgumentError(msg, name="rate", hint="leave it out")


class KnownSchemas:
    """The schemas of a join's streams and tables, as far as they are known.

    Parameters
    ----------
    join : JoinParts
    given : mapping of name to pyarrow.Schema
        They go before those that streams and tables declare.
    """

    def __init__(self, join: JoinParts, given: Mapping[str, pa.Schema]) -> None:
        self._join = join
        schemas = {member.name: given.get(member.name, member.schema) for member in join.members}
        self.known = {name: schema for name, schema in schemas.items() if isinstance(schema, pa.Schema)}

    @property
    def are_whole(self) -> bool:
        """Whether no member's schema lacks."""
        return len(self.known) == len(self._join.members)

    def learn(self, rows: Mapping[str, Rows]) -> bool:
        """Take the schemas that tables among the rows bring along, if that makes them whole; return whether they are.

        Other forms of rows are to be made tables before (`as_table`).
        """
        named = {name: given for name, given in rows.items() if name in self._join.member_names}
        # One dict does not tell what the next will hold.
        schemas = {name: given.schema for name, given in named.items() if isinstance(given, pa.Table)} | self.known
        if len(schemas) == len(self._join.members):
            self.known = schemas
        return self.are_whole

    def missing(self) -> ArgumentError:
        """Return the error that names a member without a schema."""
        name = next(name for name in self._join.member_names if name not in self.known)
        what = "stream" if name in self._join.names else "table"
        hint = "give Stream(..., schema={...}) or JoinEngine(join, schemas), or push tables of all streams first"
        if what == "table":
            hint = "give Table(..., schema={...}), or call use_table with a table, a record batch or a pandas frame"
        return ArgumentError(f"{what} {name} has no schema", name=name, hint=hint)


def given_table(join: JoinParts, name: str, rows: Rows, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of a table, in whatever form they were given.

    Raises
    ------
    ArgumentError
        The join has no such table, or the rows have no known form.
    """
    names = [table.name for table in join.tables]
    if name not in names:
        msg = f"the join has no table '{name}'"
        raise ArgumentError(msg, name=name, hint=names_hint(name, names, "its tables are"))
    listed = as_table(rows, f"table {name}")
    if isinstance(listed, pa.Table):
        return listed
    if schema is None:
        msg = f"table {name} has no schema"
        raise ArgumentError(msg, name=name, hint="give Table(..., schema={...}): dicts do not tell their types")
    for column, zone in zones_of(join.tables[names.index(name)].schema).items():
        if any(says_no_zone(row.get(column)) for row in listed):
            raise without_zone(column, f"table {name}", zone)
    return pa.Table.from_pylist(
        [{field.name: row[field.name] for field in schema if field.name in row} for row in listed], schema
    )
