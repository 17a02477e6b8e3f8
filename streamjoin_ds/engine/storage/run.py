"""A run: sealed tuples of one stream, in columns, sorted (CellJoin, section 4.1; T_S of PIM-Tree, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import (
    array_of,
    byte_column,
    concatenated,
    filtered,
    fixed_width,
    item_dtype,
    item_values,
    one_batch,
)
from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.arrays.keys import is_stored, key_dtype, key_values
from streamjoin_ds.engine.arrays.memory import ColumnMemory
from streamjoin_ds.engine.storage.conditions import ProbeCondition, serving
from streamjoin_ds.engine.storage.layout import NO_GRID, Grid, GridChooser, sampled
from streamjoin_ds.engine.storage.merge_policy import Merging, RatioMerging
from streamjoin_ds.engine.storage.sealing import BatchSealer
from streamjoin_ds.engine.storage.zone import Range, range_of, spanning
from streamjoin_ds.engine.threads.tasks import Steps, alone
from streamjoin_ds.spec.bound import BoundJoin

if TYPE_CHECKING:
    from streamjoin_ds.engine.storage.bucket_grid.policy import Bucketing
    from streamjoin_ds.engine.storage.bucket_grid.sample import GridSample
    from streamjoin_ds.engine.storage.run_view import RunView
    from streamjoin_ds.engine.storage.tail import Tail

__all__ = ["Run", "RunForm"]

_ROWS_PER_SEARCH = 64
# A pass over fewer rows is sooner done than NumPy has searched (32 buckets of 5 000 rows: 50 us against 150).
_SEARCHED_ROWS = 1 << 15


class RunForm:
    """What all runs of one stream have in common: their columns, their keys, how they are laid out and merged."""

    def __init__(
        self,
        bound: BoundJoin,
        stream: int,
        kernels: Kernels,
        index: str | Sequence[str] = "auto",
        merging: Merging | None = None,
    ) -> None:
        self.stream = stream
        self.merging = RatioMerging() if merging is None else merging
        self.kernels = kernels
        self.keys = bound.keys[stream]
        self.position_key = bound.position_keys[stream]
        self.columns = tuple(bound.key_name(stream, key) for key in self.keys)
        self.tuple_schema = bound.tuple_schema(stream).remove_metadata()
        self.chooser = GridChooser(bound, stream, index)
        self.bucketing: Bucketing | None = None  # None: windows stay in runs
        self.no_tail: Tail | None = None  # the tail without a row, once it was asked for
        hashes = [pa.field(f"_key_{n}", pa.int64()) for n, key in enumerate(self.keys) if is_stored(key.kind)]
        self.run_schema = pa.schema([*self.tuple_schema, *hashes])
        self.kinds = {field.name: field.type for field in self.run_schema}
        self._tuple_form = kernels.module.BatchForm(self.tuple_schema)
        self._run_form = kernels.module.BatchForm(self.run_schema)
        keys = [(name, key_dtype(key.kind)) for name, key in zip(self.columns, self.keys, strict=True)]
        self._batch_sealer = None if hashes else BatchSealer.of(self.tuple_schema, keys, kernels.module)

    def sealed(self, tuples: pa.RecordBatch, grid: Grid | None = None) -> Run:
        """A run of these tuples, in a grid that is given or chosen for them.

        Parameters
        ----------
        tuples : pyarrow.RecordBatch
            Of `tuple_schema` (or `run_schema`); rows in any order, no null and no NaN in a key.
        """
        return alone(self.sealing(tuples, grid))

    def sealing(self, tuples: pa.RecordBatch, grid: Grid | None = None) -> Steps[Run]:
        """`sealed`, step by step."""
        tuples = self.with_hashes(tuples)
        keys = [self.key_of(tuples, number) for number in range(len(self.keys))]
        grid = self.chooser.choose(keys) if grid is None else grid
        zone = tuple(range_of(values) for values in keys)
        if not grid.is_sorted:
            return Run(self, tuples, grid, zone)
        (order,) = yield [self.ordering(keys, grid)]
        return (yield from self._laying_out([tuples], [keys], None, order, grid, zone))

    def sealing_batch(self, arrived: Any, grid: Grid | None) -> Steps[Run]:
        """`sealing` of `BatchColumns`: in one step where a kernel can put all of it in order."""
        sealer = self._batch_sealer
        if sealer is not None and grid is not None and grid.second >= 0 and sealer.takes(arrived):
            zone, values, keys = yield from sealer.sealing(arrived, grid)
            return Run.of_items(self, grid, zone, values, keys)
        return (yield from self.sealing(arrived.batch, grid))

    def arrived(self, tuples: pa.RecordBatch) -> Run:
        """A run of these tuples as they lie, in no order that a probe can use."""
        tuples = self.with_hashes(tuples)
        zone = tuple(range_of(self.key_of(tuples, number)) for number in range(len(self.keys)))
        return Run(self, tuples, NO_GRID, zone)

    def _laying_out(
        self,
        parts: Sequence[pa.RecordBatch],
        keys: Sequence[Sequence[npt.NDArray[Any]]],
        places: npt.NDArray[np.int32] | None,
        order: npt.NDArray[np.int32],
        grid: Grid,
        zone: tuple[Range, ...],
    ) -> Steps[Run]:
        """The run whose row i is row ``order[i]`` of part ``places[i]``; None: of the only part."""
        plain = [
            place
            for place, field in enumerate(self.run_schema)
            if fixed_width(field.type) and not any(part.column(place).null_count for part in parts)
        ]
        # Keys that are no column of their own (widened, hashed) are laid out too: none is made of the run again.
        widened = [number for number, values in enumerate(keys[0]) if not self._is_column(number, values.dtype)]
        sources = [
            [*(item_values(part.column(place)) for place in plain), *(own[number] for number in widened)]
            for part, own in zip(parts, keys, strict=True)
        ]
        memory = ColumnMemory(len(order) * sum(values.itemsize for values in sources[0]), len(sources[0]))
        outs = [memory.column(len(order), values.dtype) for values in sources[0]]
        yield [self.kernels.module.RunColumns(sources).gathering(places, order, outs)]
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
        run = Run(self, pa.RecordBatch.from_arrays(columns, schema=self.run_schema), grid, zone)
        run._keys = dict(zip(widened, outs[len(plain) :], strict=True))
        return run

    def _is_column(self, number: int, dtype: np.dtype[Any]) -> bool:
        """Whether a key's values are the items of a column."""
        name = f"_key_{number}" if is_stored(self.keys[number].kind) else self.columns[number]
        kind = self.run_schema.field(name).type
        return fixed_width(kind) and item_dtype(kind) == dtype

    def merging_runs(self, runs: Sequence[Run]) -> Steps[Run]:
        """One run of the tuples of several, step by step; where these are in its order they are merged, not sorted."""
        rows = sum(run.rows for run in runs)
        keys = [[run.key(number) for number in range(len(self.keys))] for run in runs]
        grid = self.chooser.choose([sampled([own[number] for own in keys]) for number in range(len(self.keys))], rows)
        if grid.second < 0 or any(run.grid != grid for run in runs):
            return (yield from self.sealing(one_batch([run.tuples for run in runs], self.run_schema)))
        buckets = None if grid.first < 0 else [np.repeat(run.directory[0], np.diff(run.directory[1])) for run in runs]
        places, order = self.kernels.module.merge_order(buckets, [own[grid.second] for own in keys])
        zone = spanning([run.zone for run in runs])
        return (yield from self._laying_out([run.tuples for run in runs], keys, places, order, grid, zone))

    def key_of(self, tuples: pa.RecordBatch, number: int) -> npt.NDArray[Any]:
        """Values of a key of tuples of `run_schema`, float64 or int64; none is null."""
        kind = self.keys[number].kind
        if is_stored(kind):
            return key_values(tuples.column(f"_key_{number}"), "int")
        return key_values(tuples.column(self.columns[number]), kind)

    def tuple_columns(self, tuples: pa.RecordBatch) -> Any:
        """Tuples of `tuple_schema` as kernels read them (`BatchColumns`)."""
        return self.kernels.module.BatchColumns(self._tuple_form, tuples)

    def run_columns(self, tuples: pa.RecordBatch) -> Any:
        """Tuples of `run_schema` as kernels read them (`BatchColumns`)."""
        return self.kernels.module.BatchColumns(self._run_form, tuples)

    def with_hashes(self, tuples: pa.RecordBatch) -> pa.RecordBatch:
        """Tuples of `run_schema`, from tuples of that or of `tuple_schema`."""
        if len(tuples.schema) == len(self.run_schema):
            return tuples
        columns = list(tuples.columns)
        for number, key in enumerate(self.keys):
            if is_stored(key.kind):
                values = byte_column(tuples.column(self.columns[number]), self.kernels)
                columns.append(array_of(values.hashes(), pa.int64()))
        return pa.RecordBatch.from_arrays(columns, schema=self.run_schema)

    def ordering(self, keys: Sequence[npt.NDArray[Any]], grid: Grid) -> Any:
        """A task that tells the order of rows in a grid."""
        module = self.kernels.module
        buckets = None
        if grid.first >= 0:
            zero = 0.0 if keys[grid.first].dtype.kind == "f" else 0
            buckets = module.grid_buckets(keys[grid.first], grid.width, zero)
        return module.grid_ordering(buckets, keys[grid.second])


class Run:
    """Immutable: tuples in grid order, their keys, and a zone map.

    Attributes
    ----------
    rows : int
        How many tuples.
    grid : Grid
    zone : tuple of (smallest, largest)
        One a key; key 0 is the event time in microseconds.
    block : str or None
        Name of the block that holds it; None while it is only in memory.
    level : int
        0: not merged since it was sealed; 1: merged (`BlockMerging` tells them apart).
    views : dict of frozenset of int to RunView or None
        How tuples that some streams have joined see it; None: as it is.
    """

    def __init__(self, form: RunForm, tuples: pa.RecordBatch | None, grid: Grid, zone: tuple[Range, ...]) -> None:
        self.form = form
        self._tuples = tuples
        self.grid = grid
        self.zone = zone
        self._keys: dict[int, npt.NDArray[Any]] = {}
        self._values: dict[str, npt.NDArray[Any] | None] = {}
        self._indexes: dict[tuple[ProbeCondition, ...], Any] = {}
        self._byte_columns: dict[str, Any] = {}
        self.views: dict[frozenset[int], RunView | None] = {}
        self.rows = 0 if tuples is None else int(tuples.num_rows)
        self.block: str | None = None
        self.level = 0
        # What the state codec made of this run; a run never changes, so neither does that.
        self.encoded: pa.Buffer | None = None

    @classmethod
    def of_items(
        cls,
        form: RunForm,
        grid: Grid,
        zone: tuple[Range, ...],
        values: dict[str, npt.NDArray[Any]],
        keys: Sequence[npt.NDArray[Any]],
    ) -> Run:
        """A run of columns that are all of a fixed width and without nulls; Arrow is given them when it is asked."""
        run = cls(form, None, grid, zone)
        run.rows = len(next(iter(values.values())))
        run._values.update(values)
        run._keys.update(enumerate(keys))
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
        """Whether it is surely of columns of a fixed width and without nulls alone."""
        return self._tuples is None

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the tuples' columns."""
        return int(self.tuples.nbytes)

    @property
    def sampled(self) -> Run | GridSample:
        """What the order of joining is decided by: it has `rows` and keys, and never changes."""
        return self

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

    def key(self, number: int) -> npt.NDArray[Any]:
        """Values of a key, float64 or int64, in the run's order."""
        if number not in self._keys:
            self._keys[number] = self.form.key_of(self.tuples, number)
        return self._keys[number]

    def values(self, name: str) -> npt.NDArray[Any] | None:
        """Items of a column (`item_values`); None where it has nulls or no fixed width."""
        if name not in self._values:
            column = self.tuples.column(name)
            plain = fixed_width(column.type) and not column.null_count
            self._values[name] = item_values(column) if plain else None
        return self._values[name]

    def byte_column(self, name: str) -> Any:
        """A column of strings or binary values, to be gathered from; kept."""
        found = self._byte_columns.get(name)
        if found is None:
            found = self._byte_columns[name] = byte_column(self.tuples.column(name), self.form.kernels)
        return found

    def index(self, conditions: tuple[ProbeCondition, ...]) -> Any:
        """The run as `RunsProbe` wants it for these conditions; kept."""
        found = self._indexes.get(conditions)
        if found is None:
            first, second = serving(self.grid, conditions)
            ids, starts = self.directory if first >= 0 else (None, None)
            found = self._indexes[conditions] = self.form.kernels.module.RunIndex(
                [self.key(condition.run_key) for condition in conditions],
                [condition.lo for condition in conditions],
                [condition.hi for condition in conditions],
                first=first,
                second=second,
                width=self.grid.width,
                bucket_ids=ids,
                bucket_starts=starts,
                fences=self.fences if second >= 0 else None,
                steps=self.steps if second >= 0 else None,
                zone=[self.zone[condition.run_key] for condition in conditions],
                right_count=self.rows,
            )
        return found

    @cached_property
    def directory(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Ids of the buckets that occur, and where each starts; only of a run with a first key."""
        first = self.key(self.grid.first)
        ends = self._buckets(np.array(self.zone[self.grid.first], dtype=first.dtype))
        lowest, count = int(ends[0]), int(ends[1]) - int(ends[0]) + 1
        if count * _ROWS_PER_SEARCH > self.rows or self.rows < _SEARCHED_ROWS:
            ids, starts = self.form.kernels.module.bucket_directory(self._buckets(first))
            return ids, starts
        ids = np.int64(lowest) + np.arange(count, dtype=np.int64)
        starts = np.append(self._first_rows(first, ids), self.rows)
        occurs = starts[1:] > starts[:-1]
        return ids[occurs], np.append(starts[:-1][occurs], self.rows)

    @cached_property
    def fences(self) -> npt.NDArray[Any] | None:
        """Every 32nd value of the second key: a probe searches these first; None where that is nothing to search."""
        if self.grid.second < 0 or self.steps is not None:
            return None
        return np.ascontiguousarray(self.key(self.grid.second)[:: self.form.kernels.module.FENCE_ROWS])

    @cached_property
    def steps(self) -> npt.NDArray[np.int32] | None:
        """Where equally wide steps of the second key begin, of a run sorted by it alone and evenly enough."""
        if self.grid.first >= 0 or self.grid.second < 0:
            return None
        found: npt.NDArray[np.int32] | None = self.form.kernels.module.sorted_steps(self.key(self.grid.second))
        return found

    def _buckets(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        zero = 0.0 if values.dtype.kind == "f" else 0
        buckets: npt.NDArray[np.int64] = self.form.kernels.module.grid_buckets(values, self.grid.width, zero)
        return buckets

    def _first_rows(self, first: npt.NDArray[Any], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where each bucket would begin: a binary search for all of them at once, instead of a pass over the run."""
        low, high = np.zeros(len(ids), dtype=np.int64), np.full(len(ids), self.rows, dtype=np.int64)
        for _ in range(self.rows.bit_length()):
            middle = np.minimum((low + high) // 2, self.rows - 1)
            is_open = low < high
            before = self._buckets(first[middle]) < ids
            low = np.where(is_open & before, middle + 1, low)
            high = np.where(is_open & ~before, middle, high)
        return low

    def behind(self, rows: int) -> Run:
        """The run without its first rows, which lie in its order."""
        if not rows:
            return self
        run = Run(self.form, self.tuples.slice(rows), self.grid, self.zone)
        run.level = self.level
        return run

    def kept(self, mask: npt.NDArray[np.bool_]) -> Run:
        """The run without the rows where the mask is false; it stays in grid order."""
        tuples = filtered(self.tuples, mask)
        zone = tuple(range_of(self.form.key_of(tuples, number)) for number in range(len(self.zone)))
        run = Run(self.form, tuples, self.grid, zone)
        run.level = self.level
        return run
