"""The bucket grid as a run: rows of a window in chunks by the grid cell that they lie in, never sorted.

The chunks have all keys, and the columns of a fixed width and without nulls. The other columns are the rows' `Payload`.

Large windows in memory are kept in such a grid. A run that may be a block is immutable. This one is not: rows come in
and dead ones go. So it is read only between two changes, and a save writes its rows as an ordinary run. How many rows
live, where they lie and how crowded the buckets are is estimated from some rows.

The join order is estimated from a sample of the grid's keys (`GridSample`) until enough new rows have come. The grid
itself changes with every push, so estimates from it would have to be made anew each time. Besides, a restored grid has
its rows in other places. A sample stays as it is, and is saved with the grid. So the order in which three streams and
more join is a function of the pushes alone, and with it the order of their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import widened
from streamjoin_ds.engine.kernels.objects import BucketGrid, Column, RunIndex
from streamjoin_ds.engine.scheduler import TaskCoroutine, run_alone
from streamjoin_ds.engine.storage.bucket_grid.payload import Payload
from streamjoin_ds.engine.storage.bucket_grid.rebuild import GridRebuild, rebuild_facts
from streamjoin_ds.engine.storage.bucket_grid.rows import (
    PAYLOAD_NUMBER,
    TOO_MANY,
    BucketColumns,
    BucketRows,
    chunk_columns,
    key_column_name,
    payload_names,
)
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape
from streamjoin_ds.engine.storage.conditions import ProbeCondition, tightest
from streamjoin_ds.engine.storage.run import UnsortedRun
from streamjoin_ds.engine.storage.run_form import Range, RunForm, spanning
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER, Keys
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN
from streamjoin_ds.spec.key_values import is_float, item_values

__all__ = [
    "SAMPLED_KEYS",
    "USUAL_CROWD",
    "BucketRun",
    "GridSample",
    "crowd_of",
    "in_order",
    "known_crowd",
    "live_rows",
    "some_keys",
]

# Rows in a sample: as many as `probe.join_order` draws from a whole window, since a grid may be all of one.
SAMPLED_KEYS = 128

# Rows in a bucket that call for no rebuild. Saved states leave this value out, so no version may change it.
USUAL_CROWD = 16


class GridSample:
    """Keys of evenly spaced rows; never changed.

    Parameters
    ----------
    keys : sequence of ndarray, float64 or int64
        One array for each key, all of one length.
    rows : int
        How many rows the grid had.
    """

    __slots__ = ("_keys", "rows")

    def __init__(self, keys: Sequence[Column], rows: int) -> None:
        self._keys, self.rows = tuple(keys), rows

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the sampled values of a key."""
        return self._keys[number]

    def to_facts(self) -> dict[str, Any]:
        """Return the sample as plain JSON values."""
        return {"rows": self.rows, "keys": [values.tolist() for values in self._keys]}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], kinds: Sequence[str]) -> GridSample:
        """Return the sample that `to_facts` described, of keys of these kinds.

        Raises
        ------
        KeyError, TypeError, ValueError
            The facts are not those of such a sample.
        """
        rows, keys = facts["rows"], facts["keys"]
        is_whole = type(rows) is int and len(keys) == len(kinds) and len({len(values) for values in keys}) == 1
        if not is_whole or not all(
            _fits(value, kind) for values, kind in zip(keys, kinds, strict=True) for value in values
        ):
            msg = "these are not the facts of a sample"
            raise ValueError(msg)
        dtypes = (np.float64 if is_float(kind) else np.int64 for kind in kinds)
        return cls([np.array(values, dtype=dtype) for values, dtype in zip(keys, dtypes, strict=True)], rows)


def _fits(value: Any, kind: str) -> bool:
    return type(value) is float if is_float(kind) else type(value) is int and INT64_MIN <= value <= INT64_MAX


def live_rows(run: BucketColumns, lowest_kept: int) -> int:
    """Return about how many rows are not dead, from a count in some of the buckets."""
    step = max(1, run.shape.buckets // run.form.tuning.grid.counted_buckets)
    return min(run.rows, step * int(run.native.live_rows(lowest_kept, step)))


def some_keys(run: BucketColumns, lowest_kept: int) -> Keys:
    """Return the keys of some live rows, drawn from rows that are evenly spaced over the buckets."""
    module, rows = run.form.kernels.module, run.native.spread_rows(run.form.tuning.grid.sample_rows)
    rows = rows[module.gather(run.narrow_room(run.form.position_key), rows) >= lowest_kept]
    return [widened(module.gather(run.narrow_room(number), rows)) for number in range(len(run.form.keys))]


def crowd_of(run: BucketColumns, added: SealedRun) -> int:
    """Return the average number of rows in the buckets of some of these rows, which are in the grid already."""
    tuning = run.form.tuning.grid
    step = max(1, added.rows // tuning.crowd_sample_rows)
    keys = [np.ascontiguousarray(added.key(number)[: added.rows : step]) for number in run.shape.keys]
    crowd: int = run.native.crowd(keys, tuning.crowd_rows)
    return crowd // len(keys[0])


def known_crowd(facts: Mapping[str, Any]) -> int:
    """Return the rows in a bucket that a saved state calls acceptable (`BucketRun.known_crowd`).

    States in which it is `USUAL_CROWD`, and those of earlier versions, do not name it.

    Raises
    ------
    ValueError
        It is not such a number.
    """
    crowd = facts.get("crowd", USUAL_CROWD)
    if type(crowd) is not int or crowd < USUAL_CROWD:
        msg = "this is not a number of rows in a bucket"
        raise ValueError(msg)
    return crowd


def in_order(form: RunForm, tuples: pa.RecordBatch) -> pa.RecordBatch:
    """Return tuples in order of their numbers, which is their order of arrival."""
    numbers = item_values(tuples.column("_seq"))
    if (numbers[1:] > numbers[:-1]).all():
        return tuples
    return tuples.take(pa.array(form.kernels.module.grid_order(None, numbers)))


class BucketRun(BucketRows, UnsortedRun):
    """Rows of one stream in a bucket grid.

    Parameters
    ----------
    form : RunForm
    shape : GridShape
    zone : tuple of (smallest, largest)
        One for each key, of all rows that came in since the grid was last empty.
    native : BucketGrid
        The kernels' grid over `columns`.
    columns : dict of str to ndarray
        The values and free room of each column: those of ``run_schema`` that are not in the payload, keys that are no
        such column (``=<number>``), and the rows' numbers in the payload (``=payload``), where there is one.
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
    rebuild : GridRebuild or None
        The rebuild that is under way, if any.
    unsampled_rows : int
        How many rows came in since the grid was last sampled.
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
        """Begin a change in place; where an earlier change broke off, put the grid in order first.

        Rows that a kernel has put in stay in. A rebuild is given up, since its copies may not be the grid's rows any
        more.
        """
        if self._is_changing:
            self.native.settle()
            self.rebuild = None
            self._renumber()
        self._is_changing = True

    def end_change(self) -> None:
        """End a change: the grid is whole again."""
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
        """Return a grid of these tuples of ``run_schema``, inserted in their order.

        With the `facts` of `to_facts` it goes on as that grid would. `copied` are the rows that its rebuild had copied;
        None: it had no rebuild.
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
        """Return the rebuild that `GridRebuild.to_facts` described; `tuples` are the rows that it had copied.

        Raises
        ------
        KeyError, TypeError, ValueError
            The facts are not those of such a rebuild.
        """
        shape, place = rebuild_facts(facts, self, tuples.num_rows)
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
        """Return an empty grid with room for `rows` rows; MemoryError where the shape has too many buckets."""
        chunk_rows, tuning = form.kernels.module.GRID_CHUNK_ROWS, form.tuning.grid
        crowded, most = rows // chunk_rows if rows > chunk_rows * shape.buckets else 0, tuning.most_rows // chunk_rows
        if shape.buckets > most:
            raise MemoryError(TOO_MANY)
        chunks = shape.buckets * (1 + tuning.spare_chunks_per_bucket) + crowded + tuning.spare_chunks
        chunks = min(chunks, most)
        columns = chunk_columns(form, chunks, payload.names)
        keys = [(is_float(form.keys[n].kind), width) for n, width in zip(shape.keys, shape.widths, strict=True)]
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
        """Take tuples in, in their order, as a coroutine of kernels' tasks.

        It returns this grid, or another with the same rows where memory was too small or a column has its first nulls.

        Parameters
        ----------
        added : SealedRun
            Its tuples may be in any order. Within a bucket they keep it.
        begin : int
            The rows before this one are in already.
        lowest_kept : int or None
            Rows at lower positions are dead, and make room. None: no row is dead.
        sweeps : bool
            Whether dead rows are dropped afterwards. The number of buckets that are swept follows how far the window
            has moved since the last sweep: when it has moved by a quarter, all buckets have had their turn.
        """
        if not added.is_plain and not self.payload.names.issuperset(payload_names(self.form, added.tuples)):
            return (yield from self._with_payload(added.tuples).adding(added, lowest_kept, begin, sweeps=sweeps))
        given = self.given(added)
        lowest = INT64_MIN if lowest_kept is None else lowest_kept
        zone = spanning((self.zone, added.zone)) if self.rows else added.zone
        buckets = self._due_buckets(zone[self.form.position_key], lowest) if sweeps and lowest_kept is not None else 0
        self.zone = zone  # set first: the zone map may be wider than the rows need, but never narrower
        run = yield from self.putting(given, lowest, buckets, begin)
        if run.rebuild is not None:
            yield from run.rebuild.following(run, given, lowest)
        return run._thinned()

    def _due_buckets(self, position: Range, lowest_kept: int) -> int:
        """Return how many buckets the caller is to sweep now; the sweep is noted as done."""
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
        """Return a grid of the same rows that can take these tuples, which have nulls in columns that had none."""
        form, rows = self.form, self.native.row_numbers()
        payload = _payload(form, self.payload.names | payload_names(form, tuples))
        run = self.empty(form, self.shape, self.built_rows, self.zone, payload, self.native.swept)
        step = form.tuning.grid.widened_rows
        for begin in range(0, len(rows), step):
            moved = SealedRun(form, self.batch_of(rows[begin : begin + step]), ARRIVAL_ORDER, self.zone)
            run = run_alone(run.adding(moved, None))
        run.built_rows, run._swept_to, run.uncounted_rows = self.built_rows, self._swept_to, self.uncounted_rows
        run._sample, run.unsampled_rows = self._sample, self.unsampled_rows
        run.known_crowd = self.known_crowd
        return run

    def _thinned(self) -> BucketRun:
        """Drop the payload of rows that the grid no longer has, where there is much of it; return the grid."""
        if self.payload.names and self.rebuild is None and self.payload.is_loose(self.rows):
            rows, numbers = self.native.row_numbers(), self.columns[PAYLOAD_NUMBER]
            payload, moved = self.payload.thinned(self.form.kernels.module.gather(numbers, rows))
            self._renumbering = rows, moved, payload
            self._renumber()
        return self

    def _renumber(self) -> None:
        """Go over to a payload that was thinned. Where this broke off, it can be done again."""
        if self._renumbering is not None:
            rows, numbers, payload = self._renumbering
            self.columns[PAYLOAD_NUMBER][rows] = numbers
            self.payload, self._renumbering = payload, None

    def falls_due(self) -> bool:
        """Whether the live rows should be counted again; after a True it is False until enough rows have come."""
        if self.uncounted_rows * self.form.tuning.grid.counted_parts < self.rows:
            return False
        self.uncounted_rows = 0
        return True

    def to_facts(self) -> dict[str, Any]:
        """Return what is not in the rows, as plain JSON values; with it a grid of these rows goes on as this one."""
        facts: dict[str, Any] = {"built_rows": self.built_rows, "uncounted_rows": self.uncounted_rows}
        if self.known_crowd != USUAL_CROWD:
            facts["crowd"] = self.known_crowd
        if self._sample is not None:
            facts["sample"] = {**self._sample.to_facts(), "unsampled_rows": self.unsampled_rows}
        if self.rebuild is not None:
            facts["move"] = self.rebuild.to_facts()
        return {**self.shape.to_facts(), **facts, "swept": self.native.swept, "swept_to": self._swept_to}

    def replaced(self, other: BucketRun) -> BucketRun:
        """Return the grid that takes the place of this one: `other`, to which the rows were copied."""
        other.zone = self.zone
        other._sample, other.unsampled_rows = self._sample, self.unsampled_rows
        other.uncounted_rows = 0
        return other._thinned()

    @property
    def sampled(self) -> GridSample:
        """Keys of some rows, as they were when the grid was last sampled."""
        assert self._sample is not None, "grids are sampled where more than two streams join"
        return self._sample

    def sample(self) -> None:
        """Sample the grid, if it has no sample or enough rows have come since the last."""
        parts = self.form.tuning.grid.sampled_parts
        if self._sample is not None and self.unsampled_rows * parts < self._sample.rows:
            return
        module, rows = self.form.kernels.module, self.native.row_numbers()
        count = min(SAMPLED_KEYS, len(rows))
        chosen = np.ascontiguousarray(rows[(np.arange(count) * len(rows) + len(rows) // 2) // max(count, 1)])
        keys = [widened(module.gather(self.narrow_room(number), chosen)) for number in range(len(self.form.keys))]
        self._sample, self.unsampled_rows = GridSample(keys, len(rows)), 0

    def cleared(self, lowest_kept: int) -> None:
        """Drop the dead rows of all buckets, and give up a rebuild."""
        self.rebuild = self._swept_to = None
        self.native.sweep(self.shape.buckets, lowest_kept)
        self._thinned()

    def index(self, conditions: tuple[ProbeCondition, ...]) -> RunIndex:
        """Return the grid as `RunsProbe` reads it for these conditions; made once, valid for rows that come later."""
        found = self._indexes.get(conditions)
        if found is None:
            numbers = [condition.run_key for condition in conditions]
            serving = [tightest(key, conditions) for key in self.shape.keys]
            found = self._indexes[conditions] = self.form.kernels.module.BucketIndex(
                self.native,
                [self.columns[key_column_name(self.form, number)] for number in numbers],
                [condition.ends[0] for condition in conditions],
                [condition.ends[1] for condition in conditions],
                keys=serving,
            )
        return found

    # ------------------------------------------------------------------ as one of a set (see `Run`)

    @property
    def stays(self) -> BucketRun:
        """The grid itself."""
        return self

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return the numbers of all rows that there is room for."""
        return np.arange(len(next(iter(self.columns.values()))), dtype=np.int32)

    def described(self, keys: Sequence[str], streams: Sequence[str]) -> str:
        """Return the shape in words, the columns of the payload, and the rebuild that is under way."""
        del streams
        beside = ", ".join(sorted(self.payload.names))
        told = self.shape.told(keys) + (f", with {beside} beside them" if beside else "")
        return told if self.rebuild is None else f"{told}; {self.rebuild.describe()}"


def _payload(form: RunForm, names: frozenset[str]) -> Payload:
    """Return an empty payload of these columns."""
    schema = pa.schema([field for field in form.run_schema if field.name in names])
    return Payload(schema, form.kernels, tuning=form.tuning.payload)
