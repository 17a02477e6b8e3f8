"""Duplicates: which tuples of a stream repeat the key of one before them (ARCHITECTURE.md, "Duplicates").

::

    tuples ──► keys, hashes ──► equal hashes among them, or in a run ──► equal keys, near times ──► duplicates
                    │
                    └──► a run, sorted by hash ──► runs of like size are merged; what is too old goes

A hash finds, the values themselves decide. The keys are never changed: `judged` returns the next ones, so a push or a
task that fails leaves what was there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import TS, Int64, Mask
from streamjoin_ds.spec.event_time import MIN_TS_US, NO_TIME
from streamjoin_ds.spec.key_values import content_hash
from streamjoin_ds.spec.member.unique_key import span_us

__all__ = ["SeenKeys", "UniqueKey", "unique_key"]


_MERGE_RATIO = 4  # a run is merged into the one before it, unless that has this many times its rows; not measured


class UniqueKey(Struct, frozen=True):
    """What makes a tuple of a stream a duplicate.

    Attributes
    ----------
    names : tuple of str
        Inside columns of the key.
    span_us : int
        How far apart in event time two tuples of one key are at most if the later one is a duplicate; included.
    delay_us : int
        The stream's delay: a tuple that is not late is no further behind the largest event time before it.
    device_names : tuple of str
        Where a stream's devices have clocks of their own, their columns: only tuples of one device are compared.
    """

    names: tuple[str, ...]
    span_us: int
    delay_us: int
    device_names: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that must be equal: those of the key, and of the device."""
        return tuple(dict.fromkeys((*self.names, *self.device_names)))

    @property
    def reach_us(self) -> int:
        """How far behind the largest event time a key is remembered, in microseconds, included."""
        return self.span_us + self.delay_us


def unique_key(bound: BoundJoin, stream: int) -> UniqueKey | None:
    """Return the key of a stream; None where it looks for no duplicates."""
    asked = bound.join.streams[stream]
    if not asked.unique_key:
        return None
    names = tuple(bound.compared_name(stream, column) for column in asked.unique_key)
    return UniqueKey(names, span_us(bound.join.window, stream), asked.delay_us, asked.device_columns)


class _Run(Struct, frozen=True):
    """Keys sorted by their hashes: all arrays have one length. `places` are the rows of the tuples they came from."""

    hashes: Int64
    times_us: Int64
    keys: pa.RecordBatch
    places: Int64
    newest_us: int

    @property
    def rows(self) -> int:
        return len(self.hashes)

    @property
    def size_bytes(self) -> int:
        return self.hashes.nbytes + self.times_us.nbytes + int(self.keys.nbytes)

    def taken(self, rows: npt.NDArray[np.intp] | Mask) -> _Run:
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        keys = self.keys.take(pa.array(chosen))
        return _Run(self.hashes[rows], self.times_us[rows], keys, self.places[rows], self.newest_us)


class SeenKeys:
    """The keys of a stream's tuples so far, as far back as they count.

    Parameters
    ----------
    key : UniqueKey

    Attributes
    ----------
    largest_us : int or None
        The largest event time of the tuples so far, in microseconds; None before the first. In a partition, whose clock
        is told with the tuples, that of the clock. Where devices have clocks, the stream's.
    """

    __slots__ = ("_runs", "key", "largest_us")

    def __init__(self, key: UniqueKey, runs: Sequence[_Run] = (), largest_us: int | None = None) -> None:
        self.key, self._runs, self.largest_us = key, tuple(runs), largest_us

    @property
    def rows(self) -> int:
        """How many keys there are; some may be too old to count."""
        return sum(run.rows for run in self._runs)

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""
        return sum(run.size_bytes for run in self._runs)

    def judged(
        self, tuples: pa.RecordBatch, before_us: Int64 | None = None, low_us: int | None = None
    ) -> tuple[Mask, SeenKeys]:
        """Tell which of the next tuples are duplicates, and return the keys with theirs.

        Parameters
        ----------
        tuples : pyarrow.RecordBatch
            Tuples in the inside form, in the stream's order, filtered and late ones included.
        before_us : ndarray, shape (tuples,), int64, optional
            The largest event time before each tuple, in microseconds, where it is not that of the tuples: in a
            partition, and where devices have clocks (`Chunk.before`). The smallest int64 where there is none.
        low_us : int, optional
            Where devices have clocks, the stream's: no tuple to come is judged by a smaller time.

        Returns
        -------
        ndarray of bool, shape (tuples,)
            True where a tuple before it has the same key, an event time at most `span_us` away, and is still
            remembered: it is at most `reach_us` older than the largest event time before the tuple.
        SeenKeys
        """
        is_repeat = np.zeros(tuples.num_rows, np.bool_)
        if not tuples.num_rows:
            return is_repeat, self
        largest = np.empty(tuples.num_rows + 1, np.int64)  # before each tuple
        largest[0], largest[1:] = (
            MIN_TS_US if self.largest_us is None else self.largest_us,
            tuples.column(TS).to_numpy(),
        )
        np.maximum.accumulate(largest, out=largest)
        if before_us is not None:
            np.maximum(before_us, MIN_TS_US, out=largest[:-1])
            largest[-1] = max(int(largest[-2]), int(largest[-1]))
        new = self._run_of(tuples)
        is_met = np.zeros(new.rows, np.bool_)  # keys whose hash is there more than once
        if new.rows:
            is_same = new.hashes[1:] == new.hashes[:-1]
            is_met[1:] |= is_same
            is_met[:-1] |= is_same
        old = []
        for run in self._runs:
            in_new, in_run = _shared(new.hashes, run.hashes)
            if len(in_run):
                is_met[in_new] = True
                old.append(run.taken(in_run))
        if is_met.any():
            met = new.taken(is_met)
            before = sum(run.rows for run in old)
            groups = _groups([*(run.keys for run in old), met.keys])
            times = np.concatenate([*(run.times_us for run in old), met.times_us])
            order = np.concatenate([np.full(before, -1, np.int64), met.places])
            floors = np.concatenate([np.full(before, NO_TIME), (largest[:-1] - self.key.reach_us)[met.places]])
            is_repeat[met.places] = _repeats(groups, times, order, self.key.span_us, floors)[before:]
        largest_us = int(largest[-1]) if low_us is None else max(low_us, MIN_TS_US)
        return is_repeat, SeenKeys(self.key, self._with(new, largest_us - self.key.reach_us), largest_us)

    def is_complete(self, before_us: int) -> bool:
        """Whether keys that were gathered from a place in the stream on are all that count.

        Parameters
        ----------
        before_us : int
            No record before that place has a larger event time, in microseconds.
        """
        return self.largest_us is not None and before_us < self.largest_us - self.key.reach_us

    def saved(self) -> pa.RecordBatch | None:
        """Return the keys and their times, as `restored` takes them; None where there are none."""
        if not self._runs:
            return None
        batches = []
        for run in self._runs:
            fields = [pa.field(TS, pa.int64(), nullable=False), *run.keys.schema]
            batches.append(
                pa.RecordBatch.from_arrays([pa.array(run.times_us), *run.keys.columns], schema=pa.schema(fields))
            )
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    @classmethod
    def restored(cls, key: UniqueKey, saved: pa.RecordBatch | None, largest_us: int | None) -> SeenKeys:
        """Return the keys that `saved` wrote."""
        if saved is None or not saved.num_rows:
            return cls(key, (), largest_us)
        keys = pa.RecordBatch.from_arrays(saved.columns[1:], names=list(key.columns))
        return cls(key, (_sorted(keys, saved.column(0).to_numpy(), np.zeros(saved.num_rows, np.int64)),), largest_us)

    def _run_of(self, tuples: pa.RecordBatch) -> _Run:
        """Return the keys of tuples; a tuple with a null or NaN in its key has none."""
        columns = [_plain(tuples.column(name)) for name in self.key.columns]
        is_known = np.ones(tuples.num_rows, np.bool_)
        for column in columns[: len(self.key.names)]:  # a null is a device, too
            if column.null_count:
                is_known &= np.asarray(column.is_valid())
            if pa.types.is_floating(column.type):
                is_known &= ~np.asarray(pc.is_nan(column.fill_null(0)))
        times, places = tuples.column(TS).to_numpy(), np.arange(tuples.num_rows, dtype=np.int64)
        keys = pa.RecordBatch.from_arrays(columns, names=list(self.key.columns))
        if not is_known.all():
            keys, times, places = keys.filter(pa.array(is_known)), times[is_known], places[is_known]
        return _sorted(keys, times, places)

    def _with(self, new: _Run, floor_us: int) -> list[_Run]:
        """Return the runs with a new one; keys older than the floor go as their runs are merged."""
        runs = [run for run in self._runs if run.newest_us >= floor_us]
        if new.rows:
            runs.append(new)
        while len(runs) > 1 and runs[-2].rows < _MERGE_RATIO * runs[-1].rows:
            runs[-2:] = [_merged(runs[-2], runs[-1], floor_us, self.key)]
        return runs


def _plain(column: pa.Array) -> pa.Array:
    """Return a column of a key in one form for equal values: zero has no sign, and NaN one form."""
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0, column.type))
        is_nan = pc.is_nan(column)
        return pc.if_else(is_nan, pa.scalar(np.nan, column.type), column) if pc.any(is_nan).as_py() else column
    return column


def _sorted(keys: pa.RecordBatch, times_us: Int64, places: Int64) -> _Run:
    hashes = content_hash(keys.columns)
    order = np.argsort(hashes, kind="stable")
    newest_us = int(times_us.max(initial=NO_TIME))
    return _Run(hashes[order], times_us[order], keys.take(pa.array(order)), places[order], newest_us)


def _merged(left: _Run, right: _Run, floor_us: int, key: UniqueKey) -> _Run:
    """Return a run of two, without keys that are older than the floor, or too old for their devices."""
    hashes = np.concatenate([left.hashes, right.hashes])
    times = np.concatenate([left.times_us, right.times_us])
    is_young = times >= floor_us
    if key.device_names:  # a device's clock is not behind any tuple of its own
        devices = _groups([run.keys.select(key.device_names) for run in (left, right)])
        newest = np.full(int(devices.max(initial=-1)) + 1, NO_TIME)
        np.maximum.at(newest, devices, times)
        is_young &= times >= newest[devices] - key.reach_us
    young = np.flatnonzero(is_young)
    order = young[np.argsort(hashes[young], kind="stable")]
    keys = pa.Table.from_batches([left.keys, right.keys]).take(pa.array(order)).combine_chunks()
    batch = pa.RecordBatch.from_arrays(
        [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in keys.columns],
        names=keys.column_names,
    )
    newest_us = max(left.newest_us, right.newest_us)
    return _Run(hashes[order], times[order], batch, np.zeros(len(order), np.int64), newest_us)


def _shared(left: Int64, right: Int64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of the values that both of two ascending arrays have, in the one and in the other."""
    if len(left) > len(right):
        in_right, in_left = _shared(right, left)
        return in_left, in_right
    if not len(left):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    at = np.minimum(np.searchsorted(right, left), len(right) - 1)
    in_left = np.flatnonzero(right[at] == left)
    values = left[in_left]
    values = values[np.flatnonzero(np.diff(values, prepend=values[:1] - 1))]
    first, last = np.searchsorted(right, values, "left"), np.searchsorted(right, values, "right")
    return in_left, _ranges(first, last)


def _ranges(first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the whole numbers of some ranges, one range after the other; none of them is empty."""
    counts = last - first
    begins = np.cumsum(counts) - counts
    numbers: npt.NDArray[np.intp] = np.arange(int(counts.sum())) + np.repeat(first - begins, counts)
    return numbers


def _groups(batches: Sequence[pa.RecordBatch]) -> Int64:
    """Return a number for each row, equal where all values of the rows are; a null is equal to a null."""
    rows = sum(batch.num_rows for batch in batches)
    groups = np.zeros(rows, np.int64)
    for column in range(batches[0].num_columns):
        values = pa.concat_arrays([batch.column(column) for batch in batches]).dictionary_encode(null_encoding="encode")
        groups = groups * (len(values.dictionary) + 1) + values.indices.to_numpy()
        groups = np.unique(groups, return_inverse=True)[1].astype(np.int64, copy=False)  # small again
    return groups


def _repeats(groups: Int64, times_us: Int64, order: Int64, span_us: int, floors_us: Int64) -> Mask:
    """Tell for which rows a row of the same group, near in time, comes before.

    Parameters
    ----------
    groups : ndarray, shape (n,), int64
        Numbers from 0 on.
    times_us : ndarray, shape (n,), int64
    order : ndarray, shape (n,), int64
        A smaller number comes before; rows with equal numbers do not.
    span_us : int
        How far apart two rows are at most that are near; included.
    floors_us : ndarray, shape (n,), int64
        For each row the time from which on other rows are near.
    """
    moments, ranks = np.unique(times_us, return_inverse=True)
    width = len(moments) + 1
    place = groups * width + ranks
    sequence = np.argsort(place, kind="stable")
    of_group, time, number = groups[sequence] * width, times_us[sequence], order[sequence]
    oldest = np.maximum(time - span_us, floors_us[sequence])
    first = np.searchsorted(place[sequence], of_group + np.searchsorted(moments, oldest, "left"))
    last = np.searchsorted(place[sequence], of_group + np.searchsorted(moments, time + span_us, "right"))
    any_near = np.flatnonzero(first < last)
    found = np.zeros(len(groups), np.bool_)
    found[sequence[any_near]] = _least(number, first[any_near], last[any_near]) < number[any_near]
    return found


def _least(values: Int64, first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> Int64:
    """Return the smallest value of each range ``[first, last)``; none of them is empty.

    Two overlapping stretches, whose length is a power of two, cover a range (a sparse table, one level at a time).
    """
    least = np.empty(len(first), np.int64)
    level = np.frexp((last - first).astype(np.float64))[1] - 1  # the largest power of two that fits
    stretches, width = values, 1
    for power in range(int(level.max(initial=0)) + 1):
        mine = np.flatnonzero(level == power)
        least[mine] = np.minimum(stretches[first[mine]], stretches[last[mine] - width])
        stretches = np.minimum(stretches[:-width], stretches[width:])
        width *= 2
    return least
