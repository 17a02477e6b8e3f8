"""Every number of the engine that was chosen, not given: thresholds, sizes, ratios. One frozen object has all of them.

::

    WindowJoin(tuning=...) ──► WindowForm ──► choice of layouts, policies, windows, grids    bound once, by constructors

No row of a result depends on one. They are no options: a user does not set them, and any version may change them. A
test passes a small one, so that a handful of rows does what a million do. Limits of types, formats and kernels are not
here; they stay beside what they limit. Each field says its unit, what it bounds, and how it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DEFAULT",
    "CacheTuning",
    "ExpiryTuning",
    "GridTuning",
    "LayoutTuning",
    "MergeTuning",
    "PayloadTuning",
    "RebuildTuning",
    "TailTuning",
    "Tuning",
]


@dataclass(frozen=True, slots=True)
class TailTuning:
    """The newest tuples of a window, in order of arrival (`storage/tail.py`)."""

    rows: int = 4096
    """Rows that a tail holds at most. Every probe scans them: so many are in the second-level cache, and take a probe
    about a microsecond (measured). A saved state may have a tail of so many rows: fewer here refuse it."""

    most_arrived_rows: int = 1024
    """Rows of one stream and push that still go to the tail, `rows` at most; more become a run at once. Not measured: a
    quarter of the tail, so that it is not sealed for every push."""

    most_pieces: int = 32
    """Arrow arrays of a column without a fixed width that may wait to be put together, besides one for each doubling of
    the tail's rows. Not measured; it bounds how often a row is copied."""


@dataclass(frozen=True, slots=True)
class LayoutTuning:
    """The sort layout of a run: the model of its costs, the sample it looks at (`storage/layout.py`), its index."""

    bucket_cost: float = 6.0
    """Tested pairs that a visit of a bucket costs as much as. Measured with AVX-512: a tested pair is about a
    nanosecond, a bucket five to ten."""

    probe_cost: float = 4.0
    """Tested pairs that a probe of a sorted run costs besides. Not measured by itself; it comes with `bucket_cost`."""

    sample_rows: int = 512
    """Rows of a run that are looked at, at most. Not measured; it bounds what a choice costs, and how fine a share it
    can see."""

    neighbours: int = 8
    """Sampled values whose distance tells how dense a key is, where fewer lie within a band. Not measured."""

    least_sorted_rows: int = 48
    """Rows of a run that is sorted, at least; a smaller one is scanned. Not measured."""

    tested_per_bucket: float = 0.5
    """Rows of a bucket that may lie within the band of the second key, on the average, before buckets are made no
    wider. Not measured; a visit costs more than to test so few."""

    gain_share: float = 0.8
    """Share of the cost of a simpler layout, or of one that was tried before, that another must stay below: like runs
    should have like layouts. Not measured."""

    narrow_share: float = 0.5
    """Share of a run: a neighbour whose bands all leave more joins after others, so its cost decides nothing. Not
    measured."""

    far_better: float = 4.0
    """Times fewer tested pairs that make a further index of a run worth its memory and its making. Not measured."""

    outlier_share: float = 0.125
    """Share of a sample, at each end, that is ignored when bucket widths are chosen: fill values stretch no grid. Not
    measured."""

    least_viewed_rows: int = 256
    """Rows of a run that may be seen in another order; a smaller one is as soon scanned. Not measured."""

    rows_per_search: int = 64
    """Rows for each bucket from which on the buckets of a run are searched for, not passed over. Not measured by
    itself."""

    least_searched_rows: int = 1 << 15
    """Rows of a run from which on its buckets are searched for. A pass over fewer is sooner done (measured: 32 buckets
    of 5 000 rows take 50 us, a search 150)."""


@dataclass(frozen=True, slots=True)
class MergeTuning:
    """Which runs are merged, and when (`storage/merge_policy.py`)."""

    ratio: int = 4
    """Runs of like size that become one in memory, where the option `merge_runs` does not say. A copy costs 25 to 90 ns
    a row, a probe of a run 50 (measured): fewer copy too often, more are more runs to probe."""

    most_run_rows: int = 1 << 23
    """Rows of a run that is made by merging. Not measured; it bounds how long one merge takes."""

    most_run_bytes: int = 1 << 29
    """Bytes of a run that is made by merging. Not measured; it bounds the memory beside the runs that are merged."""

    span_parts: int = 4
    """A merged run spans the window divided by this at most, so that whole runs expire. Not measured: a window then
    keeps at most about a quarter of itself too long."""

    span_growth: float = 1.5
    """Times the span of its longest run that a merged run may have, where that is more than `span_parts` allows. Not
    measured; without it runs that span much would never be merged."""

    least_gathered: int = 4
    """Runs in blocks that are merged at a time, at least. Their number follows that of merged runs, which is the root
    of the window's batches, so a row is written twice at most. Worked out; with a ratio, each level wrote another copy
    (measured: 12 to 63 bytes of blocks a row, while the window grew from 4 to 64 batches)."""

    most_gathered: int = 32
    """Runs in blocks that are merged at a time, at most. Worked out: with 96 runs in all it serves windows of about
    1 000 batches; of larger ones a part is written once more."""

    least_full: int = 2
    """Runs in blocks that are merged already where one more would span too much, of windows with `few_runs`. Two is
    the fewest that can be merged."""

    few_runs: int = 16
    """Runs of a window in blocks up to which `least_full` holds, not `least_gathered`. Not measured: a window of few
    batches has few runs to gather."""

    many_runs: int = 96
    """Runs of a window in blocks from which merged ones are merged again. Not measured; it bounds what a probe meets
    and what a state row names."""

    many_ratio: int = 16
    """Runs that are then merged at a time. Not measured: large, as each is written to the device again."""


@dataclass(frozen=True, slots=True)
class ExpiryTuning:
    """When a run or a tail that has mostly expired is copied without the rest (`storage/window.py`)."""

    least_live_share: float = 0.5
    """Share of a run's rows: with fewer alive, these are copied to a smaller run. Not measured: a copy then costs no
    more than what has expired did."""

    thinning_points: int = 16
    """Places along a run's span, those in its second half, at which the living are counted. Not measured; it bounds how
    often a run is counted, and makes the answer a function of the run and the time alone."""


@dataclass(frozen=True, slots=True)
class GridTuning:
    """A bucket grid: when there is one, its cells and its room, what is looked at now and then (`storage/bucket_grid`).

    How many rows make a grid is the option `bucket_rows`.
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
        """Rows that a grid is made for: half of all that it has room for, as the spare chunks are numbered too."""
        return self.most_rows // 2


@dataclass(frozen=True, slots=True)
class RebuildTuning:
    """When a bucket grid is rebuilt, and how much of it at a push (`storage/bucket_grid/rebuild.py`)."""

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
    """The batches of columns that a bucket grid has no chunks for (`storage/bucket_grid/payload.py`)."""

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


@dataclass(frozen=True, slots=True)
class CacheTuning:
    """What a worker process keeps of runs in blocks (`storage/run_store.py`); the last task's holds for the process."""

    memory_parts: int = 4
    """The machine's memory divided by this is for the mapped blocks of all workers. Not measured; most of it is files,
    which the system may take back at any time."""

    maps_parts: int = 2
    """What the system lets one process map, divided by this, is for blocks. Not measured; the rest is for all else."""

    idle_tasks: int = 8
    """Tasks of this process for each cell of the join, after which a block that none asked for is let go. Worked out:
    with tasks spread at random, a worker meets a given cell again by then in all but 1 of 3 000 cases."""

    least_idle_tasks: int = 16
    """As `idle_tasks`, of a join with a cell or two. Not measured."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What the engine is tuned with, a group for each noun of its rooms."""

    tail: TailTuning = TailTuning()
    layout: LayoutTuning = LayoutTuning()
    merging: MergeTuning = MergeTuning()
    expiry: ExpiryTuning = ExpiryTuning()
    grid: GridTuning = GridTuning()
    rebuild: RebuildTuning = RebuildTuning()
    payload: PayloadTuning = PayloadTuning()
    cache: CacheTuning = CacheTuning()
    # Those of the rooms `probe` and `threads` are still constants of their modules; their groups belong here too.


DEFAULT = Tuning()
