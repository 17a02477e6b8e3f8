"""A bucket grid seen as a run: rows of a window in chunks by the cell they lie in, added to and never sorted.

The chunks have what is of a fixed width and without nulls, keys always; other columns are the rows' `Payload`.

It is what a window in memory is kept in. A run that is to be saved as a block is immutable; this one is not: rows come
in and dead ones go, so it is read only between two changes, and a save writes its rows as an ordinary run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import item_values
from streamjoin_ds.engine.arrays.keys import INT64_MIN, widened
from streamjoin_ds.engine.reference.kernel_objects import BucketGrid, RunIndex
from streamjoin_ds.engine.storage.bucket_grid.census import USUAL_CROWD, known_crowd
from streamjoin_ds.engine.storage.bucket_grid.chunk_columns import (
    PAYLOAD_NUMBER,
    chunk_columns,
    key_column_name,
    payload_names,
)
from streamjoin_ds.engine.storage.bucket_grid.payload import Payload
from streamjoin_ds.engine.storage.bucket_grid.rebuild import GridRebuild, rebuild_told
from streamjoin_ds.engine.storage.bucket_grid.rows import TOO_MANY, BucketRows
from streamjoin_ds.engine.storage.bucket_grid.sample import SAMPLED_KEYS, GridSample
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape
from streamjoin_ds.engine.storage.conditions import ProbeCondition, tightest
from streamjoin_ds.engine.storage.layout import ARRIVAL_ORDER
from streamjoin_ds.engine.storage.run_base import UnsortedRun
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.zone import Range, spanning
from streamjoin_ds.engine.threads.tasks import TaskCoroutine, run_alone

__all__ = ["BucketRun", "in_order"]


def in_order(form: RunForm, tuples: pa.RecordBatch) -> pa.RecordBatch:
    """Tuples in order of their numbers, that is of arrival."""
    return tuples.take(pa.array(form.kernels.module.grid_order(None, item_values(tuples.column("_seq")))))


class BucketRun(BucketRows, UnsortedRun):
    """Rows of one stream in a bucket grid.

    Parameters
    ----------
    form : RunForm
    shape : GridShape
    zone : tuple of (smallest, largest)
        Of all rows that came in since it was last empty, one a key.
    native : BucketGrid
        Of the kernels, over `columns`.
    columns : dict of str to ndarray
        The room of each column of ``run_schema`` that is not in the payload, of keys that are no such column
        (``=<number>``), and of the rows' numbers in the payload (``=payload``), where there is one.
    payload : Payload
        The columns of no fixed width, and those that had a null since the grid was made.
    built_rows : int
        How many rows the shape was chosen for.
    swept_to : int or None
        The lowest position that was kept at the last sweep.
    uncounted_rows : int
        How many came in since the live ones were last counted.

    Attributes
    ----------
    move : GridRebuild or None
        The rebuild that is under way, if any.
    known_crowd : int
        The number of rows in a bucket that was last judged to be acceptable.
    """

    is_grid = True

    def __init__(
        self,
        form: RunForm,
        shape: GridShape,
        zone: tuple[Range, ...],
        native: BucketGrid,
        columns: dict[str, npt.NDArray[Any]],
        payload: Payload,
        built_rows: int,
        swept_to: int | None = None,
        uncounted_rows: int = 0,
    ) -> None:
        self.form, self.shape, self.zone = form, shape, zone
        self.native, self.columns, self.payload, self.built_rows = native, columns, payload, built_rows
        self.block: str | None = None
        self.encoded: pa.Buffer | None = None
        self._indexes = {}
        self._swept_to, self.uncounted_rows = swept_to, uncounted_rows
        self._sample: GridSample | None = None
        self.unsampled_rows = 0
        self.rebuild: GridRebuild[BucketRun] | None = None
        self.known_crowd = USUAL_CROWD
        self._is_changing = False
        self._renumbering: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Payload] | None = None

    def begin_change(self) -> None:
        """Before anything changes in place; where an earlier change broke off, what it left is put in order.

        Rows that a kernel put in are in. A move is given up: what it copied may not be what there is.
        """
        if self._is_changing:
            self.native.settle()
            self.rebuild = None
            self._renumber()
        self._is_changing = True

    def end_change(self) -> None:
        """It is whole again."""
        self._is_changing = False

    @classmethod
    def of(
        cls,
        form: RunForm,
        tuples: pa.RecordBatch,
        zone: tuple[Range, ...],
        shape: GridShape,
        facts: Mapping[str, Any] | None = None,
        copied: pa.RecordBatch | None = None,
    ) -> BucketRun:
        """A grid of these tuples, of ``run_schema``, put in as they come.

        With the `facts` of `to_facts` it goes on as that grid would; `copied`: the rows of its `move`, if it had one.
        """
        names = payload_names(form, tuples)
        payload = _payload(form, names if copied is None else names | payload_names(form, copied))
        run = cls.empty(form, shape, tuples.num_rows, zone, payload, 0 if facts is None else facts["swept"])
        run = run_alone(run.adding(SealedRun(form, tuples, ARRIVAL_ORDER, zone), None))
        run.uncounted_rows = 0
        if facts is not None:
            run.built_rows, run._swept_to = facts["built_rows"], facts["swept_to"]
            run.uncounted_rows = facts.get("uncounted_rows", 0)
            run.known_crowd = known_crowd(facts)
            sample = facts.get("sample")
            if sample is not None:
                run._sample = GridSample.from_facts(sample, [key.kind for key in form.keys])
                run.unsampled_rows = sample["unsampled_rows"]
        if facts is not None and copied is not None:
            run.rebuild = run._moved(facts["move"], copied)
        return run

    def _moved(self, facts: Mapping[str, Any], tuples: pa.RecordBatch) -> GridRebuild[BucketRun]:
        """What `GridRebuild.to_facts` told of, of the rows that were copied; KeyError, TypeError, ValueError."""
        shape, place = rebuild_told(facts, self, tuples.num_rows)
        to = self.empty(self.form, shape, facts["built_rows"], self.zone, self.payload)
        copied = SealedRun(self.form, tuples, ARRIVAL_ORDER, self.zone)
        return GridRebuild.restored(to, place, self.given(copied))

    @classmethod
    def empty(
        cls,
        form: RunForm,
        shape: GridShape,
        rows: int,
        zone: tuple[Range, ...],
        payload: Payload,
        swept: int = 0,
    ) -> BucketRun:
        """A grid for so many rows."""
        chunk_rows, tuning = form.kernels.module.GRID_CHUNK_ROWS, form.tuning.grid
        crowded, most = rows // chunk_rows if rows > chunk_rows * shape.buckets else 0, tuning.most_rows // chunk_rows
        if shape.buckets > most:
            raise MemoryError(TOO_MANY)
        chunks = shape.buckets * (1 + tuning.spare_chunks_per_bucket) + crowded + tuning.spare_chunks
        chunks = min(chunks, most)
        columns = chunk_columns(form, chunks, payload.names)
        keys = [(form.keys[n].kind == "float", width) for n, width in zip(shape.keys, shape.widths, strict=True)]
        native = form.kernels.module.BucketGrid(
            list(columns.values()),
            position=list(columns).index(key_column_name(form, form.position_key)),
            buckets=shape.buckets,
            keys=keys,
            stride=shape.stride,
            swept=swept,
        )
        return cls(form, shape, zone, native, columns, payload, rows)

    def adding(
        self, added: SealedRun, lowest_kept: int | None, begin: int = 0, *, sweeps: bool = False
    ) -> TaskCoroutine[BucketRun]:
        """Take tuples in, as they lie, step by step; the same grid, or another where its memory was too small.

        Parameters
        ----------
        added : SealedRun
            In any order; tuples that came with one push are then in that order in their bucket.
        begin : int
            The rows before it are in already.
        lowest_kept : int or None
            Rows at lower positions are dead, and make room.
        sweeps : bool
            Whether dead rows are to be dropped then, of as many buckets as the window has moved on since the last time.
            All buckets have had their turn when it has moved on by a quarter.
        """
        if not added.is_plain and not self.payload.names.issuperset(payload_names(self.form, added.tuples)):
            return (yield from self._with_payload(added.tuples).adding(added, lowest_kept, begin, sweeps=sweeps))
        given = self.given(added)
        lowest = INT64_MIN if lowest_kept is None else lowest_kept
        zone = spanning((self.zone, added.zone)) if self.rows else added.zone
        buckets = self._due_buckets(zone[self.form.position_key], lowest) if sweeps and lowest_kept is not None else 0
        self.zone = zone  # first: it may be wider than the rows, and never narrower
        run = yield from self.putting(given, lowest, buckets, begin)
        if run.rebuild is not None:
            yield from run.rebuild.following(run, given, lowest)
        return run._thinned()

    def _due_buckets(self, position: Range, lowest_kept: int) -> int:
        """How many buckets are to be swept now."""
        lowest, newest = self._swept_to, int(position[1])
        if lowest is None:
            lowest = min(int(position[0]), lowest_kept)
        step = max((newest - lowest_kept) // self.form.tuning.grid.sweeps, 1)
        buckets = min(self.shape.buckets, self.shape.buckets * (lowest_kept - lowest) // step)
        if buckets <= 0:
            return 0
        self._swept_to = lowest_kept
        return buckets

    def _with_payload(self, tuples: pa.RecordBatch) -> BucketRun:
        """The same rows in a grid that can take these tuples, which have nulls where it had none."""
        form, rows = self.form, self.native.row_numbers()
        payload = _payload(form, self.payload.names | payload_names(form, tuples))
        run = self.empty(form, self.shape, self.built_rows, self.zone, payload, self.native.swept)
        step = form.tuning.grid.widened_rows
        for begin in range(0, len(rows), step):
            moved = SealedRun(form, self._batch(rows[begin : begin + step]), ARRIVAL_ORDER, self.zone)
            run = run_alone(run.adding(moved, None))
        run.built_rows, run._swept_to, run.uncounted_rows = self.built_rows, self._swept_to, self.uncounted_rows
        run._sample, run.unsampled_rows = self._sample, self.unsampled_rows
        run.known_crowd = self.known_crowd
        return run

    def _thinned(self) -> BucketRun:
        """Leave the payload of rows behind that are no longer there, where it has grown to much more."""
        if self.payload.names and self.rebuild is None and self.payload.is_loose(self.rows):
            rows, numbers = self.native.row_numbers(), self.columns[PAYLOAD_NUMBER]
            payload, moved = self.payload.thinned(self.form.kernels.module.gather(numbers, rows))
            self._renumbering = rows, moved, payload
            self._renumber()
        return self

    def _renumber(self) -> None:
        """Go over to a payload that was thinned; once more, where that broke off."""
        if self._renumbering is not None:
            rows, numbers, payload = self._renumbering
            self.columns[PAYLOAD_NUMBER][rows] = numbers
            self.payload, self._renumbering = payload, None

    def falls_due(self) -> bool:
        """Whether its living rows should be counted again; False then until enough have come."""
        if self.uncounted_rows * self.form.tuning.grid.counted_parts < self.rows:
            return False
        self.uncounted_rows = 0
        return True

    def to_facts(self) -> dict[str, Any]:
        """What is not in its rows, as plain JSON values: with it, a grid of the same rows goes on as this one would."""
        facts: dict[str, Any] = {"built_rows": self.built_rows, "uncounted_rows": self.uncounted_rows}
        if self.known_crowd != USUAL_CROWD:
            facts["crowd"] = self.known_crowd
        if self._sample is not None:
            facts["sample"] = {**self._sample.to_facts(), "unsampled_rows": self.unsampled_rows}
        if self.rebuild is not None:
            facts["move"] = self.rebuild.to_facts()
        return {**self.shape.to_facts(), **facts, "swept": self.native.swept, "swept_to": self._swept_to}

    def replaced(self, other: BucketRun) -> BucketRun:
        """Another grid in place of this one, with the same rows, which were copied to it."""
        other.zone = self.zone
        other._sample, other.unsampled_rows = self._sample, self.unsampled_rows
        other.uncounted_rows = 0
        return other._thinned()

    @property
    def sampled(self) -> GridSample:
        """Keys of some rows, as they were when it was last sampled."""
        assert self._sample is not None, "grids are sampled where more than two streams join"
        return self._sample

    def sample(self) -> None:
        """Sample the grid, where it never was or enough rows have come since."""
        parts = self.form.tuning.grid.sampled_parts
        if self._sample is not None and self.unsampled_rows * parts < self._sample.rows:
            return
        module, rows = self.form.kernels.module, self.native.row_numbers()
        count = min(SAMPLED_KEYS, len(rows))
        chosen = np.ascontiguousarray(rows[(np.arange(count) * len(rows) + len(rows) // 2) // max(count, 1)])
        keys = [widened(module.gather(self.narrow_room(number), chosen)) for number in range(len(self.form.keys))]
        self._sample, self.unsampled_rows = GridSample(keys, len(rows)), 0

    def cleared(self, lowest_kept: int) -> None:
        """Drop the dead rows of all buckets."""
        self.rebuild = self._swept_to = None
        self.native.sweep(self.shape.buckets, lowest_kept)
        self._thinned()

    def index(self, conditions: tuple[ProbeCondition, ...]) -> RunIndex:
        """The grid as `RunsProbe` wants it for these conditions; kept, and good for rows that come later."""
        found = self._indexes.get(conditions)
        if found is None:
            numbers = [condition.run_key for condition in conditions]
            serving = [tightest(key, conditions) for key in self.shape.keys]
            found = self._indexes[conditions] = self.form.kernels.module.BucketIndex(
                self.native,
                [self.columns[key_column_name(self.form, number)] for number in numbers],
                [condition.lo for condition in conditions],
                [condition.hi for condition in conditions],
                keys=serving,
            )
        return found

    # ------------------------------------------------------------------ as one of a set (see `Run`)

    @property
    def stays(self) -> BucketRun:
        """Itself."""
        return self

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return the numbers of all rows that there is room for."""
        return np.arange(len(next(iter(self.columns.values()))), dtype=np.int32)

    def described(self, keys: Sequence[str], streams: Sequence[str]) -> str:
        """Return its shape in words, and what is being made of it."""
        del streams
        beside = ", ".join(sorted(self.payload.names))
        told = self.shape.told(keys) + (f", beside them {beside}" if beside else "")
        return told if self.rebuild is None else f"{told}; {self.rebuild.describe()}"


def _payload(form: RunForm, names: frozenset[str]) -> Payload:
    """An empty one of these columns."""
    schema = pa.schema([field for field in form.run_schema if field.name in names])
    return Payload(schema, form.kernels, tuning=form.tuning.payload)
