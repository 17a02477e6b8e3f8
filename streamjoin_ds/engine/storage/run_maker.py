"""Makes the sealed runs of one stream: sorts tuples, or merges runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import is_stored, key_dtype
from streamjoin_ds.engine.arrays.memory import ColumnMemory
from streamjoin_ds.engine.columns import array_of, concatenated, fixed_width, one_batch
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.storage.layout_sample import sampled
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.sealing import BatchSealer
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER, SortLayout
from streamjoin_ds.engine.storage.zone import Range, range_of, spanning
from streamjoin_ds.engine.threads.tasks import TaskCoroutine, run_alone
from streamjoin_ds.spec.key_values import item_dtype, item_values, nullable_key_values

__all__ = ["RunMaker"]


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
