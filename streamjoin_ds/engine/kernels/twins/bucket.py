"""The bucket grid: rows in chunks by the grid cell they lie in, and the probe of them. Nothing is sorted.

::

    cell of a row ──mod──► bucket ──► chunk [ 16 rows ] ──► chunk [ .. ]      all but the last of a bucket are full

A probe looks at the buckets of the cells that its band covers, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.contract import MAX_CONDITIONS
from streamjoin_ds.engine.kernels.objects import Bound, Column, End, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, check_column, ends, float_bound, index, refuse
from streamjoin_ds.engine.kernels.twins.grid import bucket_range, grid_buckets
from streamjoin_ds.engine.kernels.twins.threads import Task
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = ["CELL_LIMIT", "GRID_CHUNK_ROWS", "BucketGrid", "BucketIndex", "BucketProbe"]

GRID_CHUNK_ROWS = 16
MAX_KEYS = 2
# Chunks of a chain that is searched for dead rows, at most. A hot value's chain would be searched for every new row.
WALKED_CHUNKS = 4
# Cells of a float key on either side of zero. Farther out a float is too coarse to tell cells apart, so values there
# share the outermost cells.
CELL_LIMIT = 1 << 50

MAX_VISITS = 64  # cells of one probe; where its band covers more, the probe looks at all buckets

_UNSIGNED = 1 << 64
_ITEM_KINDS = ("f8", "f4", "i8", "i4")


class BucketGrid:
    """Rows of a window, by bucket.

    Parameters
    ----------
    columns : sequence of ndarray, shape (chunks * 16,)
        The memory of the rows: items of 1, 2, 4, 8 or 16 bytes. Row ``chunk * 16 + lane`` is at that place in each.
    position : int
        Number of the int64 column that the window is measured in. It tells which rows are dead.
    buckets : int
        How many buckets there are. Chunk b is the first of bucket b; further chunks are taken when they are needed.
    keys : sequence of (is_float, width)
        The keys that make a cell, at most two. A value lies in cell ``floor(value / width)``.
    stride : int
        The bucket is ``(cell of the first key * stride + cell of the second) mod buckets``, in 64 bits without sign.
    swept : int
        The bucket where the sweep begins.

    Attributes
    ----------
    inserted : int
        How many rows were ever inserted. If the insertion of a batch broke off, this tells how many of its rows are in.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        position: int,
        buckets: int,
        keys: Sequence[tuple[bool, Bound]],
        stride: int = 1,
        swept: int = 0,
    ) -> None:
        self.columns = list(columns)
        if len(keys) > MAX_KEYS:
            refuse("a cell has two keys at most", "keys")
        for is_float, width in keys:
            if not (float_bound(width, "width") if is_float else index(width, "width")) > 0:
                refuse("width must be finite and > 0", "width")
        if not 1 <= index(stride, "stride") <= INT64_MAX:
            refuse("stride must be > 0 and within int64", "stride")
        self._check_columns(position)
        if not 1 <= index(buckets, "buckets") <= len(self.columns[0]) // GRID_CHUNK_ROWS:
            refuse("buckets is out of range", "buckets", hint="one chunk of 16 rows a bucket, at least")
        self.buckets, self.keys, self.stride, self._position = buckets, list(keys), stride, position
        self.chains: list[list[int]] = [[bucket] for bucket in range(buckets)]
        self.counts, self.heads = [0] * self._chunks, [0] * self._chunks
        self._free: list[int] = []
        if not 0 <= index(swept, "swept") < buckets:
            refuse("swept is not the number of a bucket", "swept")
        self._unused, self.swept = buckets, swept
        self.inserted = 0

    def _check_columns(self, position: int) -> None:
        if not self.columns:
            refuse("a grid has a column at least", "columns")
        rows = len(self.columns[0])
        if rows % GRID_CHUNK_ROWS:
            refuse("columns must have room for whole chunks of 16 rows", "columns")
        for column in self.columns:
            check_array(column, "columns", column.dtype, writeable=True)
            if len(column) != rows:
                refuse("columns differ in length", "columns")
            if column.dtype.itemsize not in (1, 2, 4, 8, 16) or column.dtype.hasobject:
                refuse("column items must have 1, 2, 4, 8 or 16 bytes", "columns")
        if not 0 <= index(position, "position") < len(self.columns) or self.columns[position].dtype != np.int64:
            refuse("position is not the number of an int64 column", "position")

    @property
    def _chunks(self) -> int:
        return len(self.columns[0]) // GRID_CHUNK_ROWS

    @property
    def rows(self) -> int:
        """How many rows are in the chunks, including dead rows that were not dropped yet."""
        return sum(self.counts)

    def settle(self) -> None:
        """Forget tasks that were made and never begun; the caller knows that no thread is at work on the grid."""

    def enlarged(self, columns: Sequence[Column]) -> BucketGrid:
        """Return the same grid in columns with room for more chunks; its rows are copied there."""
        if len(columns) != len(self.columns) or any(
            len(new) < len(old) or new.dtype != old.dtype for new, old in zip(columns, self.columns, strict=True)
        ):
            refuse("the new columns do not fit the old", "columns")
        other = BucketGrid(columns, position=self._position, buckets=self.buckets, keys=self.keys, stride=self.stride)
        for new, old in zip(columns, self.columns, strict=True):
            new[: len(old)] = old
        other.chains = [list(chain) for chain in self.chains]
        other.counts[: len(self.counts)], other.heads[: len(self.heads)] = self.counts, self.heads
        other._free, other._unused, other.swept = list(self._free), self._unused, self.swept
        other.inserted = self.inserted
        return other

    def bucket_of(self, cells: Sequence[int]) -> int:
        """Return the bucket of a cell."""
        first, second = (*cells, 0, 0)[:2]
        return (first * self.stride + second) % _UNSIGNED % self.buckets

    def _bucket_numbers(self, keys: Sequence[Column]) -> list[int]:
        """Return each row's bucket, from its keys."""
        cells = []
        for values, (is_float, width) in zip(keys, self.keys, strict=True):
            check_column(values, "keys")
            if (values.dtype == np.float64) != is_float:
                refuse("a key is of another type than the grid's", "keys")
            numbers = grid_buckets(values, width, 0.0 if is_float else 0)
            cells.append((np.clip(numbers, -CELL_LIMIT, CELL_LIMIT) if is_float else numbers).tolist())
        return [self.bucket_of(cell) for cell in zip(*cells, strict=True)]

    def rows_of(self, bucket: int) -> list[int]:
        """Return the rows of a bucket, in order of arrival."""
        return [self._row(chunk, n) for chunk in self.chains[bucket] for n in range(self.counts[chunk])]

    def _row(self, chunk: int, n: int) -> int:
        """Return where the n-th row of a chunk is; a chunk is a ring."""
        return chunk * GRID_CHUNK_ROWS + (self.heads[chunk] + n) % GRID_CHUNK_ROWS

    def insert(self, columns: Sequence[Column], keys: Sequence[Column], begin: int, lowest_kept: int) -> int:
        """Append the rows of a batch from `begin` on to the buckets of their keys.

        Rows whose position is below `lowest_kept` are dead. They are dropped from a bucket that is full. Where the
        bucket has more than four chunks, only its first chunks are dropped, as long as all their rows are dead.

        Parameters
        ----------
        columns : sequence of ndarray, shape (n,)
            One for each of the grid's columns, of the same type.
        keys : sequence of ndarray, shape (n,), float64 or int64
            The values that the cells are made of, one array for each of the grid's keys.

        Returns
        -------
        int
            The row where it stopped: the batch's length, or an earlier row because every chunk is taken.
        """
        if len(columns) != len(self.columns):
            refuse("there must be as many columns as the grid has", "columns")
        count = len(columns[0])
        if not 0 <= begin <= count:
            refuse("begin is out of range", "begin")
        for column, mine in zip(columns, self.columns, strict=True):
            check_array(column, "columns", mine.dtype)
            if len(column) != count:
                refuse("the columns differ in length", "columns")
        self._check_keys(keys, count)
        buckets = self._bucket_numbers(keys) if keys else [0] * count
        for row in range(begin, count):
            chunk = self._chunk_with_room(buckets[row], lowest_kept)
            if chunk < 0:
                return row
            to = self._row(chunk, self.counts[chunk])
            for mine, column in zip(self.columns, columns, strict=True):
                mine[to] = column[row]
            self.counts[chunk] += 1
            self.inserted += 1
        return count

    def _chunk_with_room(self, bucket: int, lowest_kept: int) -> int:
        chain = self.chains[bucket]
        if self.counts[chain[-1]] < GRID_CHUNK_ROWS:
            return chain[-1]
        if len(chain) <= WALKED_CHUNKS:
            self._drop_dead(bucket, lowest_kept)
        positions = self.columns[self._position]
        while len(chain) > 1 and all(positions[row] < lowest_kept for row in self.rows_of(bucket)[:GRID_CHUNK_ROWS]):
            # The bucket keeps its first chunk, so the second chunk's rows move into it, lane by lane.
            second = chain.pop(1)
            for n in range(self.counts[second]):
                row = self._row(second, n)
                self._move(row, bucket * GRID_CHUNK_ROWS + row % GRID_CHUNK_ROWS)
            self.counts[bucket], self.heads[bucket] = self.counts[second], self.heads[second]
            self._give_back(second)
        if self.counts[chain[-1]] == GRID_CHUNK_ROWS:
            if not self._free and self._unused == self._chunks:
                return -1
            chain.append(self._free.pop() if self._free else self._unused)
            self._unused += chain[-1] == self._unused
        return chain[-1]

    def _move(self, row: int, to: int) -> None:
        for column in self.columns:
            column[to] = column[row]

    def _give_back(self, chunk: int) -> None:
        self.counts[chunk] = self.heads[chunk] = 0
        self._free.append(chunk)

    def _drop_dead(self, bucket: int, lowest_kept: int) -> int:
        positions, chain, rows = self.columns[self._position], self.chains[bucket], self.rows_of(bucket)
        kept = [row for row in rows if positions[row] >= lowest_kept]
        if len(kept) == len(rows):
            return 0
        # The first chunk's ring now begins behind its first dead rows; the living rows move up in the rings.
        in_first = rows[: self.counts[bucket]]
        first = next((n for n, row in enumerate(in_first) if positions[row] >= lowest_kept), len(in_first))
        self.heads[bucket] = (self.heads[bucket] + first) % GRID_CHUNK_ROWS
        for place, row in enumerate(kept):
            self._move(row, self._row(chain[place // GRID_CHUNK_ROWS], place % GRID_CHUNK_ROWS))
        used = max(1, -(-len(kept) // GRID_CHUNK_ROWS))
        for place, chunk in enumerate(chain[:used]):
            self.counts[chunk] = min(GRID_CHUNK_ROWS, len(kept) - place * GRID_CHUNK_ROWS)
        for chunk in chain[used:]:
            self._give_back(chunk)
        del chain[used:]
        return len(rows) - len(kept)

    def inserting(
        self, columns: Sequence[Column], keys: Sequence[Column], begin: int, lowest_kept: int, swept_buckets: int = 0
    ) -> Task[int]:
        """`insert` as a task for a pool; if all rows are in, the task then does `sweep`."""

        def inserted() -> int:
            stopped = self.insert(columns, keys, begin, lowest_kept)
            if stopped == len(columns[0]):
                self.sweep(swept_buckets, lowest_kept)
            return stopped

        return Task(inserted)

    def sweeping(self, buckets: int, lowest_kept: int) -> Task[int]:
        """`sweep` as a task for a pool."""
        return Task(partial(self.sweep, buckets, lowest_kept))

    def sweep(self, buckets: int, lowest_kept: int) -> int:
        """Drop dead rows of the next `buckets` buckets, and return how many. After the last bucket comes the first.

        A bucket of one chunk is cleaned if the chunk's middle row is dead. Of a bucket of several chunks, where the
        last has n rows, the n-th row of the first chunk is looked at: if it is dead, so many rows are dead that a chunk
        becomes free, and the bucket is cleaned. In other buckets dead rows make room when the bucket is full.
        """
        dropped, positions = 0, self.columns[self._position]
        for _ in range(index(buckets, "buckets")):
            last = self.chains[self.swept][-1]
            asked = self.counts[last] // 2 if last == self.swept else self.counts[last] - 1
            if self.counts[last] and positions[self._row(self.swept, asked)] < lowest_kept:
                dropped += self._drop_dead(self.swept, lowest_kept)
            self.swept = (self.swept + 1) % self.buckets
        return dropped

    def live_rows(self, lowest_kept: int, step: int = 1) -> int:
        """Count the rows that are not dead in the first bucket and each `step`-th after it."""
        if index(step, "step") < 1:
            refuse("step is out of range", "step", hint="1 or more")
        positions = self.columns[self._position]
        rows = [row for bucket in range(0, self.buckets, step) for row in self.rows_of(bucket)]
        return int(np.count_nonzero(positions[np.array(rows, dtype=np.int64)] >= lowest_kept))

    def row_numbers(self, begin: int = 0, end: int | None = None) -> Int32:
        """Return the rows of buckets ``begin:end``, bucket by bucket, in order of arrival there."""
        end = self.buckets if end is None else end
        if not 0 <= index(begin, "begin") <= index(end, "end") <= self.buckets:
            refuse("begin and end are not a range of buckets", "begin")
        return np.array([row for bucket in range(begin, end) for row in self.rows_of(bucket)], dtype=np.int32)

    def spread_rows(self, most: int) -> Int32:
        """Return rows evenly spaced over all buckets, `most` of them at most."""
        if index(most, "most") < 1:
            refuse("most is out of range", "most", hint="1 or more")
        rows = self.row_numbers()
        step = max(1, -(-len(rows) // most))
        spread: Int32 = rows[step // 2 :: step].copy()
        return spread

    def crowd(self, keys: Sequence[Column], most: int) -> int:
        """Return how many rows are in the buckets that rows with these keys go to, all together.

        A bucket counts once for each of these rows, with `most` rows at most.
        """
        if index(most, "most") < 1:
            refuse("most is out of range", "most", hint="1 or more")
        return sum(min(most, len(self.rows_of(bucket))) for bucket in self.bucket_numbers(keys).tolist())

    def bucket_numbers(self, keys: Sequence[Column]) -> Int32:
        """Return the bucket that each row with these keys goes to."""
        if not keys:
            refuse("a grid without keys has one cell", "keys")
        self._check_keys(keys, len(keys[0]))
        return np.array(self._bucket_numbers(keys), dtype=np.int32)

    def _check_keys(self, keys: Sequence[Column], count: int) -> None:
        if len(keys) != len(self.keys):
            refuse("there must be an array for each key", "keys")
        if any(len(key) != count for key in keys):
            refuse("columns and keys differ in length", "keys")


class BucketIndex:
    """A bucket grid as `RunsProbe` takes it. A later probing also sees the rows that were inserted meanwhile.

    Parameters
    ----------
    grid : BucketGrid
    right : sequence of ndarray, float64, float32, int64 or int32
        For each condition, the grid's own column: the same array object.
    lo, hi : sequence of float or int or None
        As in `Scan`.
    keys : sequence of int
        For each key of the grid, the condition that serves it. -1: none does, and every probe looks at all buckets.
    """

    def __init__(
        self,
        grid: objects.BucketGrid,
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        keys: Sequence[int],
    ) -> None:
        if not isinstance(grid, BucketGrid):
            refuse("grid must be a BucketGrid", "grid")
        if not len(right) == len(lo) == len(hi):
            refuse("right, lo and hi differ in length", "right")
        if len(right) > MAX_CONDITIONS:
            refuse("more than 16 conditions", "right")
        if len(keys) != len(grid.keys) or any(not -1 <= number < len(right) for number in keys):
            refuse("keys must name a condition, or -1, for each key of the grid", "keys")
        served = [number for number in keys if number >= 0]
        if len(set(served)) < len(served):
            refuse("one condition cannot serve two keys", "keys")
        for column in right:
            if not any(column is mine for mine in grid.columns) or column.dtype.str[1:] not in _ITEM_KINDS:
                refuse("right must be columns of the grid", "right", hint="float64 or float32, int64 or int32")
        for number, (is_float, _) in zip(keys, grid.keys, strict=True):
            if number >= 0 and (right[number].dtype.kind == "f") != is_float:
                refuse("a key is of another type than its condition", "keys")
        self.grid, self.columns, self.keys = grid, list(right), list(keys)
        self.bands = [ends(*pair) for pair in zip(lo, hi, strict=True)]
        self.is_equality = [low is None for low in lo]
        # The probes' side has columns of these types.
        self.right = [np.empty(0, dtype=np.float64 if column.dtype.kind == "f" else np.int64) for column in right]

    @property
    def conditions(self) -> int:
        """Number of conditions."""
        return len(self.right)


class BucketProbe:
    """Probes against a bucket grid.

    Notes
    -----
    Order of the pairs: by probe, then by cell (ascending by the first key, then by the second), then by arrival in the
    cell's bucket. A probe looks at each bucket once. If its band covers more than 64 cells, or a key of the grid is
    served by no condition, it looks at all buckets in order.
    """

    def __init__(self, left: Sequence[Column], of: BucketIndex, count: int) -> None:
        self._left, self._of, self._count = left, of, count
        self._pairs = self._found()
        self.candidates = 0

    def fill(self, out_probe: Int32, out_row: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        written = 0
        for probe, row in self._pairs:
            out_probe[written], out_row[written] = probe, row
            written += 1
            if written == len(out_probe):
                break
        return written

    def _found(self) -> Iterator[tuple[int, int]]:
        of, grid = self._of, self._of.grid
        serves = bool(grid.keys) and min(of.keys) >= 0
        ranges: list[tuple[Int64, Int64]] = []
        for number, (is_float, width) in zip(of.keys, grid.keys, strict=True):
            if serves:
                start, end = bucket_range(self._left[number], *of.bands[number], width)
                if is_float:
                    start, end = np.clip(start, -CELL_LIMIT, CELL_LIMIT), np.clip(end, -CELL_LIMIT, CELL_LIMIT)
                ranges.append((start, end))
        for probe in range(self._count):
            spans = [range(int(first[probe]), int(last[probe]) + 1) for first, last in ranges]
            cells = 1
            for span in spans:
                cells *= max(0, span.stop - span.start)  # len() refuses more than an int64
            buckets = list(range(grid.buckets))
            if serves and cells <= MAX_VISITS:
                buckets = list(dict.fromkeys(grid.bucket_of(cell) for cell in product(*spans)))
            if self._is_dead(probe):
                continue
            for bucket in buckets:
                rows = grid.rows_of(bucket)
                self.candidates += len(rows)
                yield from ((probe, row) for row in rows if self._matches(probe, row))

    def _is_dead(self, probe: int) -> bool:
        """Whether no row could match this probe, whatever the row's values."""
        for left, (lo, hi) in zip(self._left, self._of.bands, strict=True):
            value = left[probe].item()
            if value != value:
                return True
            if left.dtype.kind == "i" and (lo > hi or value - hi > INT64_MAX or value - lo < INT64_MIN):
                return True
        return False

    def _matches(self, probe: int, row: int) -> bool:
        of = self._of
        for left, column, (lo, hi), is_equality in zip(self._left, of.columns, of.bands, of.is_equality, strict=True):
            # A Python number is a float64, or an integer without bounds.
            probed, found = left[probe].item(), column[row].item()
            if not (probed == found if is_equality else lo <= probed - found <= hi):
                return False
        return True
