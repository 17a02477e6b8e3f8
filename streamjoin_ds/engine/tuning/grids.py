"""Numbers for large windows in memory: bucket grids, their rebuilds, and their payload."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GridTuning", "PayloadTuning", "RebuildTuning"]


@dataclass(frozen=True, slots=True)
class GridTuning:
    """When a window gets a bucket grid, the grid's cells and room, and how often it is judged (`storage/bucket_grid`).

    The option `bucket_rows` says how many rows make a grid.
    """

    foreseen_times: int = 8
    """While a window is still filling, its grid is made for at most this many times its rows. So few grids are made on
    the way, and none when the window is full, which would need memory for two large ones. Not measured by itself."""

    rival_key_parts: int = 4
    """Where neighbours ask by different keys, a grid is considered only when the newest run has at least the window's
    rows divided by this. Not measured; it bounds how often a grid is considered."""

    rows_per_bucket: float = 14.0
    """Rows of a bucket, on the average; a chunk has 16. More would often need a second chunk, fewer leave memory empty:
    a full window takes 1.26 times its columns' bytes (measured). Memory decides, so this is not fitted to the machine:
    10 rows take 0.81 to 0.90 of the time and 1.18 times the memory, 7 rows 0.78 to 0.86 and 1.43 times, 28 rows 1.3 to
    1.4 times the time (measured, windows of 2^19 rows, one and two bands)."""

    most_rows_per_bucket: float = 64.0
    """Rows of a bucket, on the average, at most: buckets have so many where cells must be wide. Not measured: a probe
    then walks four chunks."""

    most_covered_cells: float = 12.0
    """Grid cells that a probe's band may cover, on the average. Where it would cover more, cells are made wider and
    hold more rows than `rows_per_bucket`. Half and twice as many took 0.95 to 1.01 times as long (measured)."""

    least_buckets: int = 16
    """Buckets of a grid, at least, so that a grid of a handful of rows is not a single chain. Not measured."""

    sample_rows: int = 8192
    """Rows that are looked at when a grid's shape is chosen, at most. More than `LayoutTuning.sample_rows`, because two
    shares are multiplied, and because grids are seldom made. Not measured."""

    neighbours: int = 32
    """As `LayoutTuning.neighbours`, for the larger sample of `sample_rows`."""

    shape_rounds: int = 24
    """Steps of the search for the width of cells, at most. Not measured: a step may change it 64-fold, so few are
    needed."""

    close_factor: float = 1.25
    """The search ends when a cell has at most this many times too many or too few rows. Not measured."""

    reached_spans: int = 16
    """Values of a cell's second key have cells of their own within this many times the span of most values. Those
    farther out share cells, so that fill values (1e20) stretch no grid. Not measured."""

    most_rows: int = (1 << 31) - 1
    """Rows that a grid has room for, at most. It must not be raised, because rows are numbered in 32 bits. A smaller
    number makes a test quick."""

    spare_chunks: int = 64
    """Spare chunks of a grid, besides those for each bucket, so that small grids have some, too. Not measured."""

    spare_chunks_per_bucket: int = 2
    """Spare chunks for each bucket. Only address space is reserved, so they cost nothing until they are written. Rows
    that arrive during a rebuild go there, so the grid need not be copied at once."""

    enlarged_times: float = 1.25
    """A grid that has run out of chunks gets this many times as many. Not measured; it happens where rows have moved
    together."""

    widened_rows: int = 1 << 18
    """Rows copied at a time where a column with its first null goes over to the payload. Not measured; it bounds the
    memory that is needed besides both grids."""

    sweeps: int = 4
    """How often all buckets are swept while the window advances by its own extent. Dead rows are then at most about a
    quarter. Not measured by itself."""

    sampled_parts: int = 4
    """A grid is sampled anew, for the join order, when the rows that it had at the last sample, divided by this, have
    come. Not measured."""

    counted_parts: int = 16
    """Live rows are counted, and the shape is judged, when the grid's rows divided by this have come. Not measured."""

    counted_buckets: int = 512
    """Buckets in which live rows are counted, about. 2 048 took 0.3 ms in a window of 2^18 rows: 3 % of its pushes."""

    crowd_sample_rows: int = 256
    """New rows whose buckets are looked at, about, to tell how crowded buckets are. Not measured."""

    crowd_rows: int = 1 << 14
    """Rows of one bucket that are counted, at most. Not measured; it bounds the walk along a hot value's chain."""

    layout_uses: int = 64
    """Batches of like size that are sorted in one layout before it is chosen anew, since keys drift; new tuples, and
    those that are decided at their horizon. Not measured. Of `nearest` in batches of 5 117, with 4.6 M tuples in the
    window, to choose one each time is a tenth of the CPU time."""

    @property
    def most_foreseen_rows(self) -> int:
        """Rows that a grid is made for, at most: half of `most_rows`, since the spare chunks are numbered too."""
        return self.most_rows // 2


@dataclass(frozen=True, slots=True)
class RebuildTuning:
    """When a bucket grid is rebuilt, and how much of it at each push (`storage/bucket_grid/rebuild.py`)."""

    grown_times: float = 1.3
    """A grid is too small when its window will have more than this many times the rows that it was made for. Not
    measured."""

    shrunk_share: float = 0.25
    """A grid is too large when its window will have less than this share of the rows that it was made for. Not
    measured; low, because a large grid only costs memory."""

    crowded_times: int = 4
    """A grid is rebuilt where the buckets that new rows go to have more than this many times the rows that were last
    accepted, and a probe would test this many times fewer rows in another shape. Not measured."""

    copied_rows: int = 8
    """Rows copied for each new row. So the window grows by an eighth until the rebuild is done. Worked out; a rebuild
    in one push took 0.7 s for a window of 4 M rows (measured)."""

    moved_rows: int = 1 << 14
    """Rows copied at a time, about: so many stay in cache, and take little memory beside the grids. Not measured."""

    touched_bytes: int = 1 << 21
    """Bytes of the new grid's memory that are touched in one step. The system then clears them, which takes a few
    milliseconds in a virtual machine (measured). A saved state of a rebuild counts in these steps."""


@dataclass(frozen=True, slots=True)
class PayloadTuning:
    """The batches of a bucket grid's payload (`storage/bucket_grid/payload.py`)."""

    least_rows: int = 1024
    """Rows that the sizes of batches are counted by. All batches below twice as many rows count as the smallest size,
    and each next size has eight times as many. Not measured; it bounds how often a row of small pushes is copied."""

    whole_rows: int = 1 << 17
    """Rows of a batch from which on it is not put together with others any more. Not measured."""

    whole_bytes: int = 1 << 26
    """Bytes of a batch from which on it is not put together with others any more. The strings of one Arrow array may
    have 2 GiB, and those of eight batches must stay well below."""

    slack_rows: int = 1 << 14
    """Dead rows that the payload may have, besides as many as are alive, before it is thinned. Not measured."""

    dead_share: float = 0.25
    """When the payload is thinned, batches with more than this share of dead rows are copied without them. Not
    measured."""

    slack_bytes: int = 1024
    """Bytes that a column may keep in memory besides twice its own values. A column that keeps more, as a slice of a
    large one does, is copied. Not measured."""
