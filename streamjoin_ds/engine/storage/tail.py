"""The newest tuples of a window, in order of arrival, until there are enough of them to be sealed (PIM-Tree's T_I).

::

    buffer    [ t0 t1 t2 t3 t4 t5 .. .. .. .. ]      columns with room, appended to, never changed
    tail        <---------------->                   a view of its first rows: what a push leaves behind
    probes                  <---->                   selection of the rows of this push

So a push of one tuple makes no run and no Arrow table. Views are immutable. A push that is given up leaves rows in the
buffer that no view shows; the next append then goes to a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import (
    array_of,
    byte_column,
    concatenated,
    filtered,
    fixed_width,
    is_stored,
    is_widened,
)
from streamjoin_ds.engine.kernels.objects import BatchColumns, ByteColumn, RunIndex
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run import ArrowRun, UnsortedRun
from streamjoin_ds.engine.storage.run_form import Range, RunForm
from streamjoin_ds.spec.key_values import item_dtype, key_dtype

__all__ = ["Tail", "TailBuffer"]


class TailBuffer:
    """Columns with room for some rows: values of a fixed width in NumPy arrays, all others in pieces (Arrow arrays).

    Parameters
    ----------
    form : RunForm
    pieced : frozenset of str, optional
        Columns that are kept in pieces whatever their type, because they have nulls.
    room : int or None
        Rows that there is room for; None: as many as a tail holds.
    """

    def __init__(self, form: RunForm, pieced: frozenset[str] = frozenset(), room: int | None = None) -> None:
        self.form = form
        self.room = room = form.tail_rows if room is None else room
        self._most_pieces = form.tuning.tail.most_pieces
        self.filled = 0
        self.values: dict[str, npt.NDArray[Any]] = {}
        self.pieces: dict[str, list[pa.Array]] = {}
        for field in form.run_schema:
            if fixed_width(field.type) and field.name not in pieced:
                self.values[field.name] = np.zeros(room, dtype=item_dtype(field.type))
            else:
                self.pieces[field.name] = []
        self.keys: list[npt.NDArray[Any]] = []
        names, sources = form.run_schema.names, []
        self._made: list[int] = []  # keys that Arrow must make of their columns
        for number, key in enumerate(form.keys):
            dtype = key_dtype(key.kind)
            name = f"_key_{number}" if is_stored(key.kind) else form.columns[number]
            values = self.values.get(name)
            is_shared = values is not None and values.dtype == dtype
            has_source = not is_shared and is_widened(form.run_schema.field(name).type)
            self.keys.append(values if values is not None and is_shared else np.zeros(room, dtype=dtype))
            sources.append(names.index(name) if has_source else -1)
            if not is_shared and not has_source:
                self._made.append(number)
        self._pieced = [(place, self.pieces[name]) for place, name in enumerate(names) if name in self.pieces]
        fields = enumerate(form.run_schema)
        self._without_nulls = tuple(place for place, field in fields if field.nullable and field.name in self.values)
        self._room = form.kernels.module.RoomColumns([self.values.get(name) for name in names], self.keys, sources)

    def takes(self, arrived: BatchColumns) -> bool:
        """Whether these rows have no null in a column that has no room for nulls."""
        return not arrived.has_null(self._without_nulls)

    def append(self, arrived: BatchColumns) -> tuple[Range, ...]:
        """Append rows of the form's ``run_schema``, and return the smallest and largest value of each of their keys.

        Parameters
        ----------
        arrived : BatchColumns
            At least one row.
        """
        begin, end = self.filled, self.filled + arrived.rows
        self.filled = end  # set first: if this breaks off, the next append goes to a copy
        for number in self._made:
            self.keys[number][begin:end] = self.form.key_of(arrived.batch, number)
        zone: tuple[Range, ...] = self._room.append(arrived, begin)
        for place, pieces in self._pieced:
            pieces.append(arrived.batch.column(place))
            if len(pieces) > self._most_pieces and len(pieces) > self._most_pieces + begin.bit_length():
                pieces[:] = [concatenated(pieces)]
        return zone

    def array(self, name: str, rows: int) -> pa.Array:
        """Return a column of the first `rows` rows."""
        if name in self.values:
            return array_of(self.values[name][:rows], self.form.run_schema.field(name).type)
        pieces = self.pieces[name]
        if len(pieces) > 1:
            pieces[:] = [concatenated(pieces)]
        if not pieces:
            return pa.array([], self.form.run_schema.field(name).type)
        return pieces[0].slice(0, rows)


class Tail(ArrowRun, UnsortedRun):
    """The first rows of a buffer, in no order that a probe can use; immutable.

    Parameters
    ----------
    buffer : TailBuffer
    rows : int
    zone : tuple of (smallest, largest)
        One for each key; empty where there are no rows.
    """

    def __init__(self, buffer: TailBuffer, rows: int, zone: tuple[Range, ...]) -> None:
        self.form = buffer.form
        self.buffer, self.rows = buffer, rows
        self.zone = zone
        self.block: str | None = None
        self.encoded: pa.Buffer | None = None

    @classmethod
    def empty(cls, form: RunForm) -> Tail:
        """Return a tail without tuples; memory is taken with the first tuple."""
        return cls(TailBuffer(form, room=0), 0, ())

    @classmethod
    def of(cls, form: RunForm, tuples: pa.RecordBatch) -> Tail:
        """Return a tail that holds these tuples, which may be more than a tail has now."""
        empty = cls.empty(form)
        return empty.appended(form.run_columns(tuples)) if tuples.num_rows else empty

    @cached_property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of the form's ``run_schema``."""
        schema = self.form.run_schema
        columns = [self.buffer.array(name, self.rows) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, in order of arrival."""
        return self.buffer.keys[number][: self.rows]

    def index(self, conditions: tuple[ProbeCondition, ...]) -> RunIndex:
        """See `Run`; a tail is scanned, since it has no order that narrows it."""
        columns = [self.buffer.keys[condition.run_key] for condition in conditions]
        lo, hi = [c.ends[0] for c in conditions], [c.ends[1] for c in conditions]
        room = len(self.buffer.keys[0])
        return self.form.kernels.module.RunIndex(columns, lo, hi, first=-1, second=-1, width=1, right_count=room)

    # ------------------------------------------------------------------ as one of a set (see `Run`)

    @property
    def stays(self) -> TailBuffer:
        """The buffer, which this tail shares with the tails that it grows into."""
        return self.buffer

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return the numbers of all rows that there is room for."""
        return np.arange(self.buffer.room, dtype=np.int32)

    def values(self, name: str) -> npt.NDArray[Any] | None:
        """See `Run`."""
        return self.buffer.values.get(name)

    def room_key(self, number: int) -> npt.NDArray[Any]:
        """See `Run`."""
        return self.buffer.keys[number]

    def column(self, name: str) -> pa.Array:
        """See `Run`."""
        return self.buffer.array(name, self.buffer.filled)

    def byte_parts(self, name: str) -> list[ByteColumn]:
        """See `Run`. It is made anew at each call, because the tail may have grown since the last."""
        return [byte_column(self.column(name), self.form.kernels)]

    def described(self, keys: Sequence[str], streams: Sequence[str]) -> str:
        """See `Run`."""
        del streams
        return self.sort_layout.described(keys)

    # ------------------------------------------------------------------ what becomes of it

    def appended(self, arrived: BatchColumns) -> Tail:
        """Return the tail with these tuples behind its own; a buffer that has no room for them is copied.

        Parameters
        ----------
        arrived : BatchColumns
            Of the form's ``run_schema``, at least one row; no null and no NaN in a key.
        """
        buffer, rows = self.buffer, self.rows + arrived.rows
        if not buffer.room:
            buffer = TailBuffer(self.form, room=max(self.form.tail_rows, rows))
        if not buffer.takes(arrived):
            tuples = arrived.batch
            pieced = frozenset(name for name in tuples.schema.names if tuples.column(name).null_count)
            buffer = self._copied(pieced | frozenset(buffer.pieces), rows)
        elif buffer.filled != self.rows or buffer.room < rows:
            buffer = self._copied(frozenset(buffer.pieces), rows)
        zone = buffer.append(arrived)
        if self.rows:
            zone = tuple(
                [
                    (old[0] if old[0] < new[0] else new[0], old[1] if old[1] > new[1] else new[1])
                    for old, new in zip(self.zone, zone, strict=True)
                ]
            )
        return Tail(buffer, buffer.filled, zone)

    def kept(self, mask: npt.NDArray[np.bool_]) -> Tail:
        """Return a tail of the rows where the mask is true."""
        return Tail.of(self.form, filtered(self.tuples, mask))

    def _copied(self, pieced: frozenset[str], rows: int) -> TailBuffer:
        """Return a buffer with these rows of its own, and room for so many in all."""
        buffer = TailBuffer(self.form, pieced, max(self.form.tail_rows, rows))
        if self.rows:
            buffer.append(self.form.run_columns(self.tuples))
        return buffer
