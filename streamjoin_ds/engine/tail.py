"""The newest tuples of a window, in order of arrival, until there are enough of them to be sealed (PIM-Tree's T_I).

::

    buffer    [ t0 t1 t2 t3 t4 t5 .. .. .. .. ]      columns with room, appended to, never changed
    tail        <---------------->                   a view of its first rows: what a push leaves behind
    fresh                   <---->                   a view of the rows of this push: its probes

A push of one tuple so makes no run and no Arrow table. Views are immutable; a push that is given up leaves rows behind
that no view shows, and the next append then goes to a copy.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, concatenated, filtered, fixed_width, item_dtype, item_values
from streamjoin_ds.engine.grid import NO_GRID
from streamjoin_ds.engine.keys import is_stored
from streamjoin_ds.engine.run import Range, Run, RunForm

__all__ = ["TAIL_ROWS", "Tail", "TailBuffer"]

# Scanned by every probe: 4096 rows are in the second-level cache, and take a probe about a microsecond.
TAIL_ROWS = 4096
_MAX_PIECES = 32


class TailBuffer:
    """Columns with room for `TAIL_ROWS` rows: values of fixed width in arrays, all else as pieces of Arrow arrays."""

    def __init__(self, form: RunForm, pieced: frozenset[str] = frozenset()) -> None:
        self.form = form
        self.filled = 0
        self.values: dict[str, npt.NDArray[Any]] = {}
        self.pieces: dict[str, list[pa.Array]] = {}
        for field in form.run_schema:
            if fixed_width(field.type) and field.name not in pieced:
                self.values[field.name] = np.zeros(TAIL_ROWS, dtype=item_dtype(field.type))
            else:
                self.pieces[field.name] = []
        self.keys: list[npt.NDArray[Any]] = []
        self._copied: list[tuple[int, np.dtype[Any] | None]] = []
        for number, key in enumerate(form.keys):
            dtype = np.dtype(np.float64 if key.kind == "float" else np.int64)
            name = f"_key_{number}" if is_stored(key.kind) else form.columns[number]
            same = self.values.get(name)
            if same is not None and same.dtype == dtype:
                self.keys.append(same)
            else:
                self.keys.append(np.zeros(TAIL_ROWS, dtype=dtype))
                self._copied.append((number, _number_dtype(form.run_schema.field(name).type)))
        self._names = form.run_schema.names

    def takes(self, tuples: pa.RecordBatch) -> bool:
        """Whether no column without room for nulls has any."""
        return not any(tuples.column(place).null_count for place in self._nullable if self._names[place] in self.values)

    @cached_property
    def _nullable(self) -> list[int]:
        return [place for place, field in enumerate(self.form.run_schema) if field.nullable]

    def append(self, tuples: pa.RecordBatch) -> None:
        """Add rows of the form's ``run_schema`` behind what is filled."""
        begin, end = self.filled, self.filled + tuples.num_rows
        for name, array in zip(self._names, tuples.columns, strict=True):
            values = self.values.get(name)
            if values is not None:
                values[begin:end] = item_values(array)
            else:
                pieces = self.pieces[name]
                pieces.append(array)
                if len(pieces) > _MAX_PIECES and len(pieces) > _MAX_PIECES + begin.bit_length():
                    pieces[:] = [concatenated(pieces)]
        for number, plain in self._copied:
            values = self.values.get(self.form.columns[number])
            if plain is None or values is None:
                self.keys[number][begin:end] = self.form.key_of(tuples, number)
            else:
                self.keys[number][begin:end] = values[begin:end].view(plain)
        self.filled = end

    def array(self, name: str, begin: int, end: int) -> pa.Array:
        """A column of some rows."""
        if name in self.values:
            return array_of(self.values[name][begin:end], self.form.run_schema.field(name).type)
        pieces = self.pieces[name]
        if len(pieces) > 1:
            pieces[:] = [concatenated(pieces)]
        if not pieces:
            return pa.array([], self.form.run_schema.field(name).type)
        return pieces[0].slice(begin, end - begin)


class Tail(Run):
    """Rows ``[begin, end)`` of a buffer, seen as a run without order; immutable."""

    def __init__(self, buffer: TailBuffer, begin: int, end: int, zone: tuple[Range, ...]) -> None:
        self.form = buffer.form
        self.buffer, self.begin, self.end = buffer, begin, end
        self.grid = NO_GRID
        self.zone = zone
        self.encoded = self.block = None
        self._indexes = {}

    @classmethod
    def empty(cls, form: RunForm) -> Tail:
        """The tail of a window without new tuples."""
        return cls(TailBuffer(form), 0, 0, ())

    @classmethod
    def of(cls, form: RunForm, tuples: pa.RecordBatch) -> Tail:
        """A tail that holds these tuples, ``TAIL_ROWS`` at most."""
        return cls.empty(form).appended(tuples)[0] if tuples.num_rows else cls.empty(form)

    @property
    def rows(self) -> int:
        """How many tuples."""
        return self.end - self.begin

    @cached_property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of the form's ``run_schema``."""
        schema = self.form.run_schema
        columns = [self.buffer.array(name, self.begin, self.end) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def key(self, number: int) -> npt.NDArray[Any]:
        """Values of a key, in order of arrival."""
        return self.buffer.keys[number][self.begin : self.end]

    def appended(self, tuples: pa.RecordBatch) -> tuple[Tail, Tail]:
        """The tail with these tuples behind its own, and a view of them alone; there must be room.

        Parameters
        ----------
        tuples : pyarrow.RecordBatch
            Of the form's ``run_schema``, one row at least; no null and no NaN in a key.
        """
        buffer = self.buffer
        if not buffer.takes(tuples):
            pieced = frozenset(name for name in tuples.schema.names if tuples.column(name).null_count)
            buffer = self._copied(pieced | frozenset(buffer.pieces))
        elif buffer.filled != self.end:
            buffer = self._copied(frozenset(buffer.pieces))
        begin = buffer.filled
        buffer.append(tuples)
        end = buffer.filled
        zone = tuple([_range(keys, begin, end) for keys in buffer.keys])
        fresh = Tail(buffer, begin, end, zone)
        if not self.rows:
            return Tail(buffer, 0, end, zone), fresh
        joined = [
            (old[0] if old[0] < new[0] else new[0], old[1] if old[1] > new[1] else new[1])
            for old, new in zip(self.zone, zone, strict=True)
        ]
        return Tail(buffer, 0, end, tuple(joined)), fresh

    def kept(self, mask: npt.NDArray[np.bool_]) -> Run:
        """A tail of the rows where the mask is true."""
        return Tail.of(self.form, filtered(self.tuples, mask))

    def _copied(self, pieced: frozenset[str]) -> TailBuffer:
        buffer = TailBuffer(self.form, pieced)
        if self.rows:
            buffer.append(self.tuples)
        return buffer


def _number_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """What a type's items are as numbers; None where they are none."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    return np.dtype(np.int32) if types.is_date32(kind) else None


def _range(keys: npt.NDArray[Any], begin: int, end: int) -> Range:
    if end - begin == 1:
        value = keys[begin].item()
        return value, value
    part = keys[begin:end]
    return part.min().item(), part.max().item()
