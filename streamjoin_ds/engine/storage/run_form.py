"""The form of a stream's runs: their columns, their keys, the choice of their layouts, and their zone maps.

A zone map is the smallest and the largest value of each key. By it a probe skips rows that it cannot meet. Key 0 is the
event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, hashes_of, is_stored, one_batch
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import BatchColumns, Int32, Task
from streamjoin_ds.engine.storage.sort_layout import SortLayout, SortLayoutChooser
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.key_values import key_values

__all__ = ["Range", "RunForm", "Zoned", "range_of", "spanning"]

Range = tuple[int | float, int | float]


def spanning(zones: Iterable[tuple[Range, ...]]) -> tuple[Range, ...]:
    """Return the smallest zone map that covers all given ones; without any, the empty one."""
    ends = zip(*zones, strict=True)
    return tuple((min([low for low, _ in key]), max([high for _, high in key])) for key in ends)


def range_of(values: npt.NDArray[Any]) -> Range:
    """Return the smallest and the largest value; (0, 0) where there is no value.

    A zero is returned without its sign, so that the range of all values equals the range of their parts' ranges.
    """
    return (values.min().item() + 0, values.max().item() + 0) if len(values) else (0, 0)


class RunForm:
    """What all runs of one stream have in common: their columns, their keys, and how their layouts are chosen.

    Parameters
    ----------
    bound : BoundJoin
    stream : int
    kernels : Kernels
    index : "auto", "scan" or sequence of str
        As for `SortLayoutChooser`.
    tuning : Tuning, keyword-only

    Attributes
    ----------
    tail_rows : int
        Rows that a tail has room for.
    """

    def __init__(
        self,
        bound: BoundJoin,
        stream: int,
        kernels: Kernels,
        index: str | Sequence[str] = "auto",
        *,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.tuning = tuning
        self.tail_rows = tuning.tail.rows
        self.stream, self.stream_name = stream, bound.member_names[stream]
        self.kernels = kernels
        self.keys, self._limits = bound.index_keys[stream], bound.limits[stream]
        self._compared_name = partial(bound.compared_name, stream)
        self.position_key = bound.position_keys[stream]
        own = len(bound.keys[stream])
        self.columns = tuple(
            f"_key_{number}" if key.kind == "limit" else bound.key_name(stream, key)
            for number, key in enumerate(self.keys)
        )
        self.tuple_schema = bound.tuple_schema(stream).remove_metadata()
        self.chooser = SortLayoutChooser(bound, stream, index, tuning=tuning.layout)
        hashes = [pa.field(f"_key_{n}", pa.int64()) for n, key in enumerate(self.keys) if key.kind == "hash"]
        # What a run is saved as: limits are made of the columns again, and a join may get others in a new version.
        self.saved_schema = pa.schema([*self.tuple_schema, *hashes])
        self.saved_keys = own
        self.run_schema = pa.schema(
            [*self.saved_schema, *(pa.field(f"_key_{n}", pa.float64()) for n in range(own, len(self.keys)))]
        )
        self.kinds = {field.name: field.type for field in self.run_schema}
        self._tuple_form = kernels.module.BatchForm(self.tuple_schema)
        self._run_form = kernels.module.BatchForm(self.run_schema)
        self._complete = [field.name for field in self.saved_schema if not field.nullable or field.name in self.columns]
        self._required = tuple(place for place, field in enumerate(self.tuple_schema) if not field.nullable)

    def key_of(self, tuples: pa.RecordBatch, number: int) -> npt.NDArray[Any]:
        """Return the values of a key of tuples of `run_schema`, float64 or int64; the key must have no nulls."""
        kind = self.keys[number].kind
        if is_stored(kind):
            return key_values(tuples.column(f"_key_{number}"), "limit" if kind == "limit" else "int")
        return key_values(tuples.column(self.columns[number]), kind)

    def checked(self, tables: Sequence[pa.Table | pa.RecordBatch]) -> BatchColumns:
        """Return tuples from outside as `tuple_columns` does, in their order.

        Raises
        ------
        ColumnError
            A column is missing, has another type, or holds nulls that it must not hold.
        """
        schema = self.tuple_schema
        only = tables[0] if len(tables) == 1 else None
        if isinstance(only, pa.RecordBatch) and only.schema.equals(schema):
            columns = self.tuple_columns(only)
            if not columns.has_null(self._required):
                return columns
        name = self.stream_name
        for table in tables:
            for field in schema:
                found = table.schema.get_field_index(field.name)
                if found < 0 or table.schema.field(found).type != field.type:
                    msg = f"a batch of stream {name} lacks the column '{field.name}' or has it with another type"
                    raise ColumnError(msg, name=field.name, hint=f"it must be {field.type}")
                if not field.nullable and table.column(found).null_count:
                    msg = f"column '{field.name}' of stream {name} holds nulls"
                    raise ColumnError(msg, name=field.name, hint="set such rows aside before they reach the join")
        return self.tuple_columns(one_batch(tables, schema))

    def tuple_columns(self, tuples: pa.RecordBatch) -> BatchColumns:
        """Return tuples of `tuple_schema` as kernels read them (`BatchColumns`)."""
        return self.kernels.module.BatchColumns(self._tuple_form, tuples)

    def run_columns(self, tuples: pa.RecordBatch) -> BatchColumns:
        """Return tuples of `run_schema` as kernels read them (`BatchColumns`)."""
        return self.kernels.module.BatchColumns(self._run_form, tuples)

    def with_hashes(self, tuples: pa.RecordBatch) -> pa.RecordBatch:
        """Return the tuples in `run_schema`; hashes and limits are added where they are not in yet."""
        if len(tuples.schema) == len(self.run_schema):
            return tuples
        columns = list(tuples.columns)
        if len(tuples.schema) < len(self.saved_schema):
            for number, key in enumerate(self.keys):
                if key.kind == "hash":
                    hashes = hashes_of(tuples.column(self.columns[number]), self.kernels)
                    columns.append(array_of(hashes, pa.int64()))
        for limit in self._limits:
            found = limit.values(tuples.num_rows, lambda wanted: tuples.column(self._compared_name(wanted.name)))
            columns.append(array_of(found, pa.float64()))
        return pa.RecordBatch.from_arrays(columns, schema=self.run_schema)

    def may_lie_in_run(self, tuples: pa.RecordBatch) -> bool:
        """Whether tuples of `saved_schema` have no null where a run has none: a row with a null key is not kept."""
        return not any(tuples.column(name).null_count for name in self._complete)

    def saved(self, tuples: pa.RecordBatch) -> pa.RecordBatch:
        """Return tuples of `run_schema` without the limits."""
        return tuples.select(self.saved_schema.names) if self._limits else tuples

    def ordering(self, keys: Sequence[npt.NDArray[Any]], layout: SortLayout) -> Task[Int32]:
        """Return a task that finds the order of rows in a layout."""
        module = self.kernels.module
        buckets = None
        if layout.first >= 0:
            zero = 0.0 if keys[layout.first].dtype.kind == "f" else 0
            buckets = module.grid_buckets(keys[layout.first], layout.width, zero)
        return module.grid_ordering(buckets, keys[layout.second])


class Zoned:
    """Tuples of one stream with a zone map.

    Attributes
    ----------
    form : RunForm
    zone : tuple of (smallest, largest)
        One for each key; key 0 is the event time in microseconds.
    """

    form: RunForm
    zone: tuple[Range, ...]

    @property
    def position(self) -> Range:
        """Smallest and largest value of the key that the window is measured in: event time, or number."""
        return self.zone[self.form.position_key]

    @property
    def oldest_us(self) -> int:
        """Smallest event time, in microseconds."""
        return int(self.zone[0][0])

    @property
    def newest_us(self) -> int:
        """Largest event time, in microseconds."""
        return int(self.zone[0][1])
