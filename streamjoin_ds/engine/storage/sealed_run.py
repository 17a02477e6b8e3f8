"""Sealed runs: tuples of one stream, in columns, sorted, immutable (CellJoin, section 4.1; T_S of PIM-Tree, section 3).

::

    tuples ──► RunMaker ──► SealedRun      sorted by one kernel where all columns have a fixed width and no nulls
    runs   ──►             (merged)        (`BatchSealer`), else by Arrow

To choose a layout takes longer than to sort. So later batches of like size use the same one again (`KeptLayout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import (
    ColumnMemory,
    array_of,
    byte_column,
    concatenated,
    filtered,
    fixed_width,
    is_stored,
    is_widened,
    one_batch,
)
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import BatchColumns, ByteColumn, Zone
from streamjoin_ds.engine.scheduler import TaskCoroutine, run_alone
from streamjoin_ds.engine.storage.conditions import ProbeCondition, past_of, serving
from streamjoin_ds.engine.storage.run import ArrowRun
from streamjoin_ds.engine.storage.run_form import Range, RunForm, range_of, spanning
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER, SortLayout, sampled
from streamjoin_ds.engine.storage.sorted_keys import RunView, SortedKeys, parts_by_length
from streamjoin_ds.spec.key_values import item_dtype, item_values, key_dtype, nullable_key_values

__all__ = ["BatchSealer", "KeptLayout", "RunMaker", "SealedRun"]

_Values = npt.NDArray[Any]


class SealedRun(SortedKeys, ArrowRun):
    """Tuples in the order of a layout, their keys, and a zone map; immutable.

    Parameters
    ----------
    form : RunForm
    tuples : pyarrow.RecordBatch or None
        Of ``run_schema``. None: the run is made of items (`of_items`).
    layout : SortLayout
    zone : tuple of (smallest, largest)
        One for each key; key 0 is the event time in microseconds.
    keys : mapping of int to ndarray, optional
        Values of the keys that are made already.

    Attributes
    ----------
    rows : int
        How many tuples.
    block : str or None
        Name of the block that holds it; None while it is only in memory.
    level : int
        0: not merged since it was sealed; 1: merged (`BlockMergePolicy` tells them apart).
    encoded : pyarrow.Buffer or None
        The bytes that the state codec made of the run; they stay valid, since the run never changes.
    """

    is_sealed = True

    def __init__(
        self,
        form: RunForm,
        tuples: pa.RecordBatch | None,
        layout: SortLayout,
        zone: tuple[Range, ...],
        keys: Mapping[int, npt.NDArray[Any]] | None = None,
    ) -> None:
        super().__init__(form, layout, zone, 0 if tuples is None else int(tuples.num_rows))
        self._tuples = tuples
        self._keys: dict[int, npt.NDArray[Any]] = dict(keys or {})
        self._values: dict[str, npt.NDArray[Any] | None] = {}
        self._byte_columns: dict[str, ByteColumn] = {}
        self._views: dict[frozenset[int], RunView | None] = {}
        self._parts: dict[tuple[int, int, SortLayout], list[SortedKeys]] = {}
        self.block: str | None = None
        self.level = 0
        self.encoded: pa.Buffer | None = None

    @classmethod
    def of_items(
        cls,
        form: RunForm,
        layout: SortLayout,
        zone: tuple[Range, ...],
        values: dict[str, npt.NDArray[Any]],
        keys: Sequence[npt.NDArray[Any]],
    ) -> SealedRun:
        """Return a run of columns that all have a fixed width and no nulls; its Arrow batch is made when asked for."""
        run = cls(form, None, layout, zone, dict(enumerate(keys)))
        run.rows = len(next(iter(values.values())))
        run._values.update(values)
        return run

    @property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of ``run_schema``."""
        if self._tuples is None:
            schema = self.form.run_schema
            items = {name: values for name, values in self._values.items() if values is not None}
            columns = [array_of(items[field.name], field.type) for field in schema]
            self._tuples = pa.RecordBatch.from_arrays(columns, schema=schema)
        return self._tuples

    @property
    def is_plain(self) -> bool:
        """Whether it is known without a look that all columns have a fixed width and no nulls."""
        return self._tuples is None

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, float64 or int64, in the run's order."""
        if number not in self._keys:
            self._keys[number] = self.form.key_of(self.tuples, number)
        return self._keys[number]

    def values(self, name: str) -> npt.NDArray[Any] | None:
        """Return the items of a column (`item_values`); None where it has nulls or no fixed width."""
        if name not in self._values:
            column = self.tuples.column(name)
            plain = fixed_width(column.type) and not column.null_count
            self._values[name] = item_values(column) if plain else None
        return self._values[name]

    # ------------------------------------------------------------------ as one of a set (see `Run`)

    @property
    def stays(self) -> object:
        """The run itself, since it never grows."""
        return self

    def seen_by(self, conditions: tuple[ProbeCondition, ...]) -> Sequence[SortedKeys]:
        """Return the run, or a view of it that serves the conditions far better, perhaps in parts.

        It is a function of the run's rows.
        """
        seen = self._viewed(conditions)
        _, second = serving(seen.sort_layout, conditions)
        past = past_of(second, conditions)
        if past < 0:
            return [seen]
        place = conditions[second].run_key, conditions[past].run_key, seen.sort_layout
        if place not in self._parts:
            self._parts[place] = parts_by_length(seen, seen.row_numbers(), *place[:2], self.form.tuning.layout)
        return self._parts[place]

    def _viewed(self, conditions: tuple[ProbeCondition, ...]) -> SealedRun | RunView:
        chooser = self.form.chooser
        if not chooser.has_rival_keys or self.rows < chooser.tuning.least_viewed_rows:
            return self
        partners = frozenset(condition.stream for condition in conditions)
        if partners not in self._views:
            keys = [self.key(number) for number in range(len(self.form.keys))]
            layout = chooser.better(self.sort_layout, partners, keys, self.rows)
            like = [view for view in list(self._views.values()) if view is not None and view.sort_layout == layout]
            if layout is not None and not like:
                like = [RunView(self, layout, self.form.ordering(keys, layout).do())]
            self._views[partners] = like[0] if like else None
        return self._views[partners] or self

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return the numbers of its rows, in order."""
        return np.arange(self.rows, dtype=np.int32)

    def room_key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key."""
        return self.key(number)

    def column(self, name: str) -> pa.Array:
        """Return a column of ``run_schema``."""
        return self.tuples.column(name)

    def byte_parts(self, name: str) -> list[ByteColumn]:
        """Return a column of strings or binary values as kernels gather from it; it is made once."""
        found = self._byte_columns.get(name)
        if found is None:
            found = self._byte_columns[name] = byte_column(self.tuples.column(name), self.form.kernels)
        return [found]

    def described(self, keys: Sequence[str], streams: Sequence[str]) -> str:
        """Return the layout in words, and those of the views that streams have asked for so far."""
        views = [
            (sorted(partners), view.sort_layout) for partners, view in list(self._views.items()) if view is not None
        ]
        seen = sorted(views, key=lambda found: found[0])
        told = [f"; for {' and '.join(streams[n] for n in who)} {layout.described(keys)}" for who, layout in seen]
        parts = [f"; in {len(parts)} parts by length" for parts in list(self._parts.values()) if len(parts) > 1]
        return self.sort_layout.described(keys) + "".join(told + parts)

    # ------------------------------------------------------------------ parts of it

    def behind(self, rows: int) -> SealedRun:
        """Return the run without its first `rows` rows, in its order."""
        if not rows:
            return self
        run = SealedRun(self.form, self.tuples.slice(rows), self.sort_layout, self.zone)
        run.level = self.level
        return run

    def kept(self, mask: npt.NDArray[np.bool_]) -> SealedRun:
        """Return the run without the rows where the mask is false; it stays in grid order."""
        tuples = filtered(self.tuples, mask)
        zone = tuple(range_of(self.form.key_of(tuples, number)) for number in range(len(self.zone)))
        run = SealedRun(self.form, tuples, self.sort_layout, zone)
        run.level = self.level
        return run


class BatchSealer:
    """Sorts the batches of one stream.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the tuples; all columns have a fixed width.
    keys : sequence of (str, numpy.dtype)
        Column and dtype of each key; the dtype is float64 or int64.
    module : module
        The kernels.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[tuple[str, np.dtype[Any]]], module: KernelModule) -> None:
        self._names = schema.names
        self._dtypes = [item_dtype(field.type) for field in schema]
        places = [self._names.index(name) for name, _ in keys]
        self._key_places, self._kinds = places, [kind for _, kind in keys]
        # Keys that are their column's items need no room of their own.
        dtypes = [None if self._dtypes[n] == kind else kind for n, (_, kind) in zip(places, keys, strict=True)]
        self._key_dtypes = dtypes
        self._nullable = tuple(place for place, field in enumerate(schema) if field.nullable)
        self._form = module.SealForm([(n, kind.kind == "f") for n, (_, kind) in zip(places, keys, strict=True)])
        self._row_bytes = sum(dtype.itemsize for dtype in (*self._dtypes, *dtypes) if dtype is not None)

    @classmethod
    def of(
        cls, schema: pa.Schema, keys: Sequence[tuple[str, np.dtype[Any]]], module: KernelModule
    ) -> BatchSealer | None:
        """Return a sealer; None where a column has no fixed width, or kernels cannot make a key of its column."""
        if not all(fixed_width(field.type) for field in schema):
            return None
        for name, dtype in keys:
            kind = schema.field(name).type
            if item_dtype(kind) != dtype and not is_widened(kind):
                return None
        return cls(schema, keys, module)

    def takes(self, arrived: BatchColumns) -> bool:
        """Whether the batch has rows, and no column of it has a null."""
        return arrived.rows > 0 and not arrived.has_null(self._nullable)

    def sealing(
        self, arrived: BatchColumns, grid: SortLayout
    ) -> TaskCoroutine[tuple[Zone, dict[str, _Values], list[_Values]]]:
        """Return the zone map, the columns' items in grid order and the keys, as a coroutine of one kernel's task."""
        rows = arrived.rows
        memory = ColumnMemory(rows * self._row_bytes, len(self._dtypes) + len(self._key_dtypes))
        values = [memory.column(rows, dtype) for dtype in self._dtypes]
        keys = [None if dtype is None else memory.column(rows, dtype) for dtype in self._key_dtypes]
        (zone,) = yield [self._form.sealing(arrived, values, keys, grid.first, grid.second, grid.width)]
        told = zip(keys, self._key_places, self._kinds, strict=True)
        made = [values[place].view(kind) if key is None else key for key, place, kind in told]
        return zone, dict(zip(self._names, values, strict=True)), made


class RunMaker(RunForm):
    """A form that also makes the stream's runs; parameters as for `RunForm`."""

    @cached_property
    def _batch_sealer(self) -> BatchSealer | None:
        """The sealer that makes a run in one step; None: no kernel does so for these columns."""
        if any(is_stored(key.kind) for key in self.keys):
            return None
        keys = [(name, key_dtype(key.kind)) for name, key in zip(self.columns, self.keys, strict=True)]
        return BatchSealer.of(self.tuple_schema, keys, self.kernels.module)

    def sealed(self, tuples: pa.RecordBatch, layout: SortLayout | None = None) -> SealedRun:
        """Return a run of these tuples, in a layout that is given or chosen for them.

        Parameters
        ----------
        tuples : pyarrow.RecordBatch
            Of `tuple_schema` (or `run_schema`); rows in any order, no null and no NaN in a key.
        """
        return run_alone(self.sealing(tuples, layout))

    def sealing(self, tuples: pa.RecordBatch, layout: SortLayout | None = None) -> TaskCoroutine[SealedRun]:
        """Do `sealed` as a coroutine of kernels' tasks."""
        tuples = self.with_hashes(tuples)
        keys = [self.key_of(tuples, number) for number in range(len(self.keys))]
        layout = self.chooser.choose(keys) if layout is None else layout
        zone = tuple(range_of(values) for values in keys)
        if not layout.is_sorted:
            return SealedRun(self, tuples, layout, zone)
        (order,) = yield [self.ordering(keys, layout)]
        return (yield from self._laying_out([tuples], [keys], None, order, layout, zone))

    def sealing_batch(self, arrived: BatchColumns, layout: SortLayout | None) -> TaskCoroutine[SealedRun]:
        """Do `sealing` for `BatchColumns`, in one step where one kernel can sort all columns."""
        sealer = self._batch_sealer
        if sealer is not None and layout is not None and layout.second >= 0 and sealer.takes(arrived):
            zone, values, keys = yield from sealer.sealing(arrived, layout)
            return SealedRun.of_items(self, layout, zone, values, keys)
        return (yield from self.sealing(arrived.batch, layout))

    def arrived(self, tuples: pa.RecordBatch) -> SealedRun:
        """Return a run of these tuples as they lie, in no order that a probe can use."""
        tuples = self.with_hashes(tuples)
        zone = tuple(range_of(self.key_of(tuples, number)) for number in range(len(self.keys)))
        return SealedRun(self, tuples, ARRIVAL_ORDER, zone)

    def arrived_with_gaps(self, tuples: pa.RecordBatch) -> SealedRun:
        """Do `arrived` for tuples with nulls or NaN in some keys: such a key is 0, and no probe should ask for it."""
        tuples = self.with_hashes(tuples)
        keys = {number: self._key_without_gaps(tuples, number) for number in range(len(self.keys))}
        return SealedRun(self, tuples, ARRIVAL_ORDER, tuple(map(range_of, keys.values())), keys)

    def _key_without_gaps(self, tuples: pa.RecordBatch, number: int) -> npt.NDArray[Any]:
        kind = self.keys[number].kind
        if is_stored(kind):
            return self.key_of(tuples, number)
        values, _ = nullable_key_values(tuples.column(self.columns[number]), kind)
        is_nan = np.isnan(values) if values.dtype.kind == "f" else None
        return values if is_nan is None or not is_nan.any() else np.where(is_nan, 0.0, values)

    def _laying_out(
        self,
        parts: Sequence[pa.RecordBatch],
        keys: Sequence[Sequence[npt.NDArray[Any]]],
        places: npt.NDArray[np.int32] | None,
        order: npt.NDArray[np.int32],
        layout: SortLayout,
        zone: tuple[Range, ...],
    ) -> TaskCoroutine[SealedRun]:
        """Return the run whose row i is row ``order[i]`` of part ``places[i]``; `places` None: there is one part."""
        plain = [
            place
            for place, field in enumerate(self.run_schema)
            if fixed_width(field.type) and not any(part.column(place).null_count for part in parts)
        ]
        # Keys that are not the items of a column (widened ones) are laid out too, so none is made of the run again.
        widened = [number for number, values in enumerate(keys[0]) if not self._is_column(number, values.dtype)]
        sources = [
            [*(item_values(part.column(place)) for place in plain), *(own[number] for number in widened)]
            for part, own in zip(parts, keys, strict=True)
        ]
        # A limit may be a column's own memory: that is laid out once.
        like = _alike(sources)
        apart = sorted(set(like))
        sources = [[values[number] for number in apart] for values in sources]
        memory = ColumnMemory(len(order) * sum(values.itemsize for values in sources[0]), len(apart))
        laid = [memory.column(len(order), values.dtype) for values in sources[0]]
        yield [self.kernels.module.RunColumns(sources).gathering(places, order, laid)]
        outs = [laid[apart.index(number)] for number in like]
        made = dict(zip(plain, outs, strict=False))
        if len(plain) < len(self.run_schema) and places is not None:
            starts = np.cumsum([0, *(part.num_rows for part in parts[:-1])])
            order = (starts[places] + order).astype(np.int32)
        columns = [
            array_of(made[place], field.type)
            if place in made
            else concatenated([part.column(place) for part in parts]).take(pa.array(order))
            for place, field in enumerate(self.run_schema)
        ]
        tuples = pa.RecordBatch.from_arrays(columns, schema=self.run_schema)
        return SealedRun(self, tuples, layout, zone, dict(zip(widened, outs[len(plain) :], strict=True)))

    def _is_column(self, number: int, dtype: np.dtype[Any]) -> bool:
        """Whether a key's values are the items of a column."""
        name = f"_key_{number}" if is_stored(self.keys[number].kind) else self.columns[number]
        kind = self.run_schema.field(name).type
        return fixed_width(kind) and item_dtype(kind) == dtype

    def merging_runs(self, runs: Sequence[SealedRun]) -> TaskCoroutine[SealedRun]:
        """Return one run of the tuples of several, as a coroutine; runs in its layout are merged, not sorted again."""
        rows = sum(run.rows for run in runs)
        keys = [[run.key(number) for number in range(len(self.keys))] for run in runs]
        looked_at = self.tuning.layout.sample_rows
        some = [sampled([own[number] for own in keys], looked_at) for number in range(len(self.keys))]
        layout = self.chooser.choose(some, rows)
        if layout.second < 0 or any(run.sort_layout != layout for run in runs):
            return (yield from self.sealing(one_batch([run.tuples for run in runs], self.run_schema)))
        buckets = None if layout.first < 0 else [np.repeat(run.directory[0], np.diff(run.directory[1])) for run in runs]
        places, order = self.kernels.module.merge_order(buckets, [own[layout.second] for own in keys])
        zone = spanning([run.zone for run in runs])
        return (yield from self._laying_out([run.tuples for run in runs], keys, places, order, layout, zone))


def _alike(parts: Sequence[Sequence[npt.NDArray[Any]]]) -> list[int]:
    """Return for each column the number of the first that lies in the same memory in all parts: mostly its own."""
    places = [
        tuple((own[number].ctypes.data, own[number].dtype.str) for own in parts) for number in range(len(parts[0]))
    ]
    return [places.index(place) for place in places]


class KeptLayout(NamedTuple):
    """A layout, the rows of the batch that it was chosen for, and how many batches were sorted in it."""

    layout: SortLayout
    rows: int
    uses: int

    def serves(self, rows: int, most_uses: int) -> bool:
        """Whether a batch of so many rows is to be sorted in it: one of half to twice as many, for so many batches."""
        return self.rows <= 2 * rows <= 4 * self.rows and self.uses < most_uses

    @classmethod
    def after(cls, kept: KeptLayout | None, run: SealedRun, most_uses: int) -> KeptLayout:
        """Return what is kept when a batch is this run: `kept` where it served the batch, else the run's own layout."""
        if kept is not None and kept.serves(run.rows, most_uses):
            return cls(kept.layout, kept.rows, kept.uses + 1)
        return cls(run.sort_layout, run.rows, 1)
