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
    """Times the rows of a window that is still filling for which its grid is made, at most: few grids on the way, and
    none when it is full, which would be a second one beside it. Not measured by itself."""

    contested_parts: int = 4
    """Where neighbours ask by different keys, a grid is considered only when the newest run has the window's rows
    divided by this. Not measured; it bounds how often that is asked."""

    rows_per_bucket: float = 14.0
    """Rows of a bucket, on the average: of 16 in a chunk. More would often need a second chunk, fewer leave memory
    empty: a full window takes 1.26 times its columns' bytes (measured)."""

    most_rows_per_bucket: float = 64.0
    """Rows of a bucket, on the average, where cells must be wide. Not measured: four chunks to walk."""

    most_covered_cells: float = 12.0
    """Grid cells that a probe's band covers, on the average, before cells are made wider than a bucket holds. Not
    measured by itself."""

    least_buckets: int = 16
    """Buckets of a grid. Not measured; so that a handful of rows makes one that is no single chain."""

    sample_rows: int = 8192
    """Rows that are looked at when a grid's shape is chosen, at most. More than `LayoutTuning.sample_rows`: two shares
    are multiplied, and a grid is made seldom. Not measured."""

    neighbours: int = 32
    """As `LayoutTuning.neighbours`, of that larger sample."""

    shape_rounds: int = 24
    """Steps in which the width of cells is sought, at most. Not measured: a step may be 64-fold, so few are needed."""

    close_factor: float = 1.25
    """Times too many or too few rows in a cell at which the search ends. Not measured."""

    reached_spans: int = 16
    """Times what most of a key's values span within which values are told apart along the second key of a cell; those
    farther out share cells. Not measured; fill values (1e20) stretch no grid."""

    most_rows: int = (1 << 31) - 1
    """Rows that a grid has room for. Not to be raised: they are numbered in 32 bits. Less makes a test quick."""

    spare_chunks: int = 64
    """Chunks behind the buckets' own, besides those for each. Not measured; so that small grids have some, too."""

    spare_chunks_per_bucket: int = 2
    """Spare chunks for each bucket. Only address space is reserved, so they are free until they are written. What
    arrives during a rebuild goes there, and the grid need not be copied at once."""

    enlarged_times: float = 1.25
    """Times the chunks of a grid that has run out of them. Not measured; it happens where rows have moved together."""

    widened_rows: int = 1 << 18
    """Rows copied at a time where a column with a null goes over to the payload. Not measured; it bounds the memory
    beside both grids."""

    sweeps: int = 4
    """Times that all buckets are swept while the window advances by its own extent: dead rows are then at most about a
    quarter. Not measured by itself."""

    sampled_parts: int = 4
    """A grid is sampled anew, for the order of joining, when its rows divided by this have come. Not measured."""

    counted_parts: int = 16
    """Living rows are counted, and the shape judged, when the rows divided by this have come. Not measured."""

    counted_buckets: int = 2048
    """Buckets in which living rows are counted, about. Not measured; it bounds what a count costs."""

    crowd_sample_rows: int = 256
    """New rows whose buckets are looked at for how crowded they are. Not measured."""

    crowd_rows: int = 1 << 14
    """Rows of one bucket that are counted, at most. Not measured; it bounds the walk along a hot value's chain."""

    layout_uses: int = 64
    """Batches of like size that are sorted in one layout before it is chosen anew. Not measured; keys drift."""

    @property
    def most_foreseen_rows(self) -> int:
        """Rows that a grid is made for, at most: half of `most_rows`, since the spare chunks are numbered too."""
        return self.most_rows // 2


@dataclass(frozen=True, slots=True)
class RebuildTuning:
    """When a bucket grid is rebuilt, and how much of it at each push (`storage/bucket_grid/rebuild.py`)."""

    grown_times: float = 1.3
    """Times the rows it was made for that a window will have, for its grid to be too small. Not measured."""

    shrunk_share: float = 0.25
    """Share of the rows it was made for below which a grid is too large. Not measured; low, as it only costs memory."""

    crowded_times: int = 4
    """Times fuller that the buckets are which rows go to, and times fewer rows that a probe tests in another shape, for
    a rebuild. Not measured."""

    copied_rows: int = 8
    """Rows copied for each new row. The window grows by an eighth until the rebuild is done. Worked out; a rebuild in
    one push took 0.7 s of a window of 4 M rows (measured)."""

    moved_rows: int = 1 << 14
    """Rows copied at a time: in cache, and little beside the grids. Not measured."""

    touched_bytes: int = 1 << 21
    """Bytes of the new grid's memory that are touched in one step, when the system clears them: a few milliseconds in a
    virtual machine (measured). A saved state of a rebuild counts in these steps."""


@dataclass(frozen=True, slots=True)
class PayloadTuning:
    """The batches of a bucket grid's payload (`storage/bucket_grid/payload.py`)."""

    least_rows: int = 1024
    """Rows of a batch up to which all batches count as of one size; eight times as many are the next. Not measured; it
    bounds how often a row of small pushes is copied."""

    whole_rows: int = 1 << 17
    """Rows of a batch that is not put together with others any more. Not measured."""

    whole_bytes: int = 1 << 26
    """Bytes of such a batch: Arrow's strings of one array have 2 GiB, and eight of them must stay well below."""

    slack_rows: int = 1 << 14
    """Rows that may be dead, besides as many as are alive, before anything is copied. Not measured."""

    dead_share: float = 0.25
    """Share of a batch's rows: with more of them dead, it is copied when dead rows are left behind. Not measured."""

    slack_bytes: int = 1024
    """Bytes that a column may keep in memory besides twice its own values; a slice of a larger one is copied. Not
    measured."""
