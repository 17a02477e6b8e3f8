"""Every number of the engine that was chosen, not given: thresholds, sizes, ratios. One frozen object has all of them.

::

    WindowJoin(tuning=...) ──► WindowForm ──► choice of layouts, policies, windows, grids    bound once, by constructors

No row of a result depends on these numbers. They are no options: a user does not set them, and any version may change
them. Tests pass small ones, so that a handful of rows does what a million do. Limits of types, formats and kernels are
not here; they stay beside what they limit. Each field says its unit, what it bounds, and how it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

__all__ = [
    "CHUNK_ROWS",
    "DEFAULT",
    "CacheTuning",
    "ExpiryTuning",
    "GridTuning",
    "LayoutTuning",
    "MergeTuning",
    "NearestTuning",
    "OrderTuning",
    "PayloadTuning",
    "ProbeTuning",
    "RebuildTuning",
    "TailTuning",
    "ThreadTuning",
    "Tuning",
    "WaitingTuning",
]

# Pairs held at a time at each step of a join, at most, unless the caller says otherwise; also rows of a result chunk.
CHUNK_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class TailTuning:
    """The newest tuples of a window, in order of arrival (`storage/tail.py`)."""

    rows: int = 4096
    """Rows of a tail, at most. Every probe scans them: so many fit in the second-level cache, and take a probe about a
    microsecond (measured). Where costs are known they say (`cost_model`): 1 700 for a band of integers, as many as
    here with floats."""

    most_arrived_rows: int = 1024
    """Rows of one stream and push that go to the tail, at most; more become a run at once. It is `rows` at most. Not
    measured: a quarter of the tail, so that the tail is not sealed for every push. Costs say this, too."""

    most_pieces: int = 32
    """Pieces (Arrow arrays) of a column without a fixed width that may wait to be put together. One more may wait for
    each doubling of the tail's rows. Not measured; it bounds how often a row is copied."""

    most_gridded_rows: int = 256
    """The same as `most_arrived_rows`, of a window in a bucket grid; it counts where it is the smaller number. A batch
    goes into a grid in less time than it becomes a run. Measured: the tail is dearer from 110 rows on with one band of
    integers, from 250 on with two bands; pushes of 1 000 rows took 0.31 and 0.57 times as long."""

    most_gridded_text_rows: int = 512
    """The same where a column has no fixed width, which lies beside the grid. Measured: the tail is dearer from 450
    rows on."""


@dataclass(frozen=True, slots=True)
class LayoutTuning:
    """The choice of a run's sort layout: the cost model and its sample (`storage/sort_layout.py`); the run's index."""

    bucket_cost: float = 62.0
    """What a visit to a bucket costs, in tested pairs: `ProbeTuning.probed_bucket_ns` by `tested_pair_ns`. With 6, as
    it was, runs of 60 000 rows with two or three bands took 10 to 20 % longer (measured). Windows of 2^19 rows in runs
    took 0.97 to 1.03 times as long with a quarter to four times as much, so it is not fitted to the machine."""

    probe_cost: float = 13.0
    """What a probe of a sorted run costs besides, in tested pairs: `ProbeTuning.probed_run_ns` by `tested_pair_ns`.
    Half and twice as much took 0.98 to 1.03 times as long (measured as above)."""

    sample_rows: int = 512
    """Rows of a run that are looked at, at most. Not measured; it bounds what a choice costs, and how small a share can
    be seen."""

    neighbours: int = 8
    """Where fewer sampled values than this lie within a band, the distance between values that are this many places
    apart tells how dense a key is. Not measured."""

    least_sorted_rows: int = 48
    """Rows of a run that is sorted, at least; a smaller one is scanned. Not measured."""

    tested_per_bucket: float = 0.5
    """Buckets are made so wide, at most, that on the average so many of a bucket's rows lie within the band of the
    second key. Not measured; a visit costs more than to test so few."""

    gain_share: float = 0.8
    """A layout is taken only where it costs less than this share of the best one tried before it, the simpler ones
    first: similar runs should have the same layout. Not measured."""

    narrow_share: float = 0.5
    """Share of a run. A neighbour whose bands all leave more than this joins after others, so its cost decides nothing.
    Not measured."""

    interval_share: float = 0.02
    """Share of a run that a probe is taken to test where the run is sorted by a key of an interval with two ends. How
    long the others' intervals are, only their tuples tell. Not measured; a band that leaves less is preferred."""

    half_interval_share: float = 0.4
    """The same of an interval with one end. Not measured: half of the rows, and less than `narrow_share`."""

    split_cost: float = 256.0
    """What a probe of one more part of a run costs, in tested pairs, where a run of intervals is parted by their
    lengths. Estimated, not measured: 60 to 90 ns for a probe that finds nothing, at 0.3 ns a tested pair."""

    most_lengths: int = 64
    """Lengths, by powers of two, among which the parts of a run of intervals are chosen; shorter ones count as the
    shortest. Not measured; it bounds what the choice costs."""

    far_better: float = 4.0
    """Another order of a run must cost a probe this many times less, to be worth its memory and its making. Not
    measured."""

    outlier_share: float = 0.125
    """Share of a sample, at each end, that is ignored when bucket widths are chosen, so that fill values stretch no
    grid. Not measured."""

    least_viewed_rows: int = 256
    """Rows of a run, at least, that may be seen in another order; a smaller run is scanned as quickly. Not measured."""

    rows_per_search: int = 64
    """Rows for each bucket, at least, for the buckets' first rows to be found by a search and not by a pass over the
    run. Not measured by itself."""

    least_searched_rows: int = 1 << 15
    """Rows of a run, at least, for that search. A pass over fewer is quicker (measured: 32 buckets of 5 000 rows take
    50 us, a search 150 us)."""


@dataclass(frozen=True, slots=True)
class MergeTuning:
    """Which runs are merged, and when (`storage/merge_policy.py`)."""

    ratio: int = 4
    """Runs of like size that become one in memory, where the option `merge_runs` does not say. A copy costs 25 to 90 ns
    a row, a probe of a run 50 ns (measured). A smaller number copies too often, a larger one leaves more runs to
    probe."""

    most_run_rows: int = 1 << 23
    """Rows of a run that is made by merging, at most. Not measured; it bounds how long one merge takes."""

    most_run_bytes: int = 1 << 29
    """Bytes of a run that is made by merging, at most. Not measured; it bounds the memory that a merge needs beside the
    runs that are merged."""

    span_parts: int = 4
    """A merged run spans the window divided by this at most, so that whole runs expire. Not measured: a window then
    keeps at most about a quarter of itself too long."""

    span_growth: float = 1.5
    """A merged run may span this many times its longest run, where that is more than `span_parts` allows. Not
    measured; without it runs that span much would never be merged."""

    least_gathered: int = 4
    """Runs in blocks that are merged at a time, at least. Above this, as many are merged as there are merged runs,
    about the square root of the window's batches. So a row is written twice at most. Worked out; with a ratio, each
    level wrote another copy (measured: 12 to 63 bytes of blocks a row, while the window grew from 4 to 64 batches)."""

    most_gathered: int = 32
    """Runs in blocks that are merged at a time, at most. Worked out: with 96 runs in all it serves windows of about
    1 000 batches; of larger ones a part of the rows is written once more."""

    least_full: int = 2
    """Runs in blocks, at least, that are merged already where one more would span too much, in windows of at most
    `few_runs` runs. Two is the fewest that can be merged."""

    few_runs: int = 16
    """Runs of a window in blocks, at most, for `least_full` to hold and not `least_gathered`. Not measured: a window of
    few batches has few runs to gather."""

    many_runs: int = 96
    """Runs of a window in blocks from which on merged runs are merged again. Not measured; it bounds how many runs a
    probe meets and a state row names."""

    many_ratio: int = 16
    """Runs that are then merged at a time, at least. Not measured: large, because each is written to the device
    again."""


@dataclass(frozen=True, slots=True)
class ExpiryTuning:
    """When a run or a tail that has mostly expired is copied without its expired rows (`storage/window.py`)."""

    least_live_share: float = 0.5
    """Where less than this share of a run's rows are alive, these are copied to a smaller run. Not measured: the copy
    then has no more rows than have expired."""

    thinning_points: int = 16
    """Points at equal distances along a run's span. At those in its second half the live rows are counted. Not
    measured; it bounds how often a run is counted, and makes the answer a function of the run and the time alone."""


@dataclass(frozen=True, slots=True)
class WaitingTuning:
    """How tuples that wait for their horizon are put together in larger pieces (`storage/waiting.py`)."""

    ratio: int = 16
    """So many pieces of one level become one of the next. Not measured; a tuple is copied once for each level, and a
    push looks at about 16 pieces for each level."""

    most_merged_rows: int = 1 << 18
    """Rows of a piece that is put together, at most. Not measured; it bounds how long one push takes for it, and how
    much longer than it must a piece is kept."""

    summed_rows: int = 1 << 13
    """Decided tuples whose partners are summed up at a time (`probe/aggregates.py`), at most. Not measured; it keeps
    their sums in the second-level cache."""

    held_rows: int = 1 << 10
    """The same where values of all their partners are held (stddev, quantile, collect). Not measured; with a thousand
    partners each these are 16 MiB for an aggregate."""


@dataclass(frozen=True, slots=True)
class NearestTuning:
    """How many partners are kept while the nearest of tuples are looked for (`probe/nearest.py`)."""

    most_kept: int = 1 << 18
    """Partners that are kept at a time, at most: 48 bytes each. Not measured; the tuples are cut accordingly, and each
    part probes the window anew."""


@dataclass(frozen=True, slots=True)
class CacheTuning:
    """What a worker process keeps of runs in blocks (`storage/run_store.py`); the last task's numbers hold for it."""

    memory_parts: int = 4
    """The machine's memory divided by this is for the mapped blocks of all workers. Not measured; most of it is files,
    which the system may take back at any time."""

    maps_parts: int = 2
    """The number of files and areas that the system lets one process map, divided by this, is for blocks. Not
    measured; the rest is for all else."""

    idle_tasks: int = 8
    """A block is let go when no task has asked for it in so many tasks of this process for each cell of the join.
    Worked out: with tasks spread at random, a worker meets a given cell again by then in all but 1 of 3 000 cases."""

    least_idle_tasks: int = 16
    """The number of these tasks, at least, for joins with one cell or two. Not measured."""


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


@dataclass(frozen=True, slots=True)
class ProbeTuning:
    """How new tuples meet a window, and how their matches are gathered (`probe/`)."""

    few_probes: int = 1024
    """Probes that one kernel takes through all runs of a window, whatever the runs' order, at most. Not measured; a
    kernel for each run would cost more than so few probes do."""

    batch_probes: int = 1 << 16
    """Probes that one kernel takes through all runs of a window where these are sorted, at most. More probes meet each
    run by itself: they are put in its order first, and those out of its reach are left out. Not measured."""

    slice_probes: int = 2048
    """Probes that a kernel takes through a bucket grid at a time, so that their keys stay in the first-level cache. It
    is also the smallest piece that is worth a thread. Not measured by itself."""

    groups_per_thread: int = 2
    """Parts for each thread where one kernel takes the probes through several runs. With more than one, a thread that
    is done early takes a further one. Each part sorts the probes anew."""

    parts_per_thread: int = 4
    """Parts for each thread where probes meet each run by itself. More than `groups_per_thread`, because these parts
    differ more in what they cost, and the probes are sorted once."""

    least_part_ns: float = 100_000.0
    """What a part costs at least, in nanoseconds, where the runs of a window are dealt to threads. Not measured; about
    what `slice_probes` probes cost in a run."""

    snap_share: float = 0.03
    """A cut between two parts moves to the edge of a run that is nearer than this share of a part's cost. Worked out: a
    part then costs at most 1.06 times the mean. A tenth more is allowed, which leaves room for whole tiles."""

    probed_run_ns: float = 6.0
    """What a probe costs in a run that is sorted by one key, whatever the run's rows. This and the next four were
    measured on two cores with AVX-512, 4 000 and 16 000 probes, runs of 2 000 to 1 000 000 rows."""

    probed_bucket_ns: float = 28.0
    """What a probe costs for each bucket that it visits."""

    tested_pair_ns: float = 0.45
    """What a pair costs that is tested in a sorted run."""

    scanned_pair_ns: float = 0.16
    """What a pair costs in a run that is scanned."""

    missed_line_ns: float = 20.0
    """What a probe costs in addition in a run so large that neighbouring probes share no line of the cache. Runs of
    200 000 rows were measured; larger ones cost up to three times as much."""

    chain_slices: int = 4
    """Slices (`slice_probes`) in one piece of a join of three streams and more. The pieces decide the order of the
    results, so they must not depend on the number of threads. Not measured."""

    scan_pairs: int = 4096
    """Pairs of probes and rows, at most, that are scanned and not looked up in a run's order. Measured once, without a
    record: to put the probes in that order costs microseconds."""

    trim_share: float = 0.7
    """Where a run reaches less than this share of the probes' span of event time, probes out of its reach are left out.
    Not measured."""

    first_pairs: int = 2048
    """Pairs that a buffer has room for at first. That is 24 KiB, and a push of one tuple needs no more."""

    pairs_growth: int = 8
    """How many times as large a full buffer becomes, up to a chunk. Not measured."""

    gathered_rows: int = 8_192
    """Rows that are gathered in one task; fewer are gathered at once by the caller. So many take some tens of
    microseconds, and a task costs one or two."""


@dataclass(frozen=True, slots=True)
class OrderTuning:
    """From what the join order of three streams and more is estimated (`probe/join_order.py`)."""

    sampled_runs: int = 8
    """Runs of a window that are sampled, at most: the largest ones. Not measured."""

    sampled_share: float = 0.75
    """Share of a window's rows: when the sampled runs have so much, no further run is sampled. So a few new rows change
    nothing."""

    least_fresh_rows: int = 64
    """New tuples are sampled themselves where they are at least so many and at least `fresh_share` of their window."""

    fresh_share: float = 0.25
    """Share of its window's rows that new tuples must have; see `least_fresh_rows`. Not measured."""

    many_fresh_rows: int = 1024
    """So many new tuples are sampled themselves in any case. Not measured."""

    least_share: float = 1e-15
    """Share of the pairs that a condition is taken to leave, at least. With shares of zero, orders could not be
    compared."""

    equal_share: float = 0.05
    """Share of the pairs that a residual with ``=`` is taken to leave. A guess, like all shares that follow."""

    unequal_share: float = 0.95
    """The same of a residual with ``<>``."""

    between_share: float = 0.25
    """The same with ``BETWEEN``."""

    in_share: float = 0.1
    """The same with ``IN``."""

    null_share: float = 0.05
    """The same with ``IS NULL``."""

    compared_share: float = 1 / 3
    """The same with ``<``, ``<=``, ``>`` and ``>=``."""

    other_share: float = 0.5
    """The same with anything else."""


@dataclass(frozen=True, slots=True)
class ThreadTuning:
    """How much work the native threads are given (`engine/scheduler.py`)."""

    held_chunks: int = 4
    """Chunks of a piece that are kept for the reader, at most. A piece that has so many waits, so memory is bounded.
    Not measured."""

    pieces_ahead: int = 3
    """Pieces that are run at a time, at most, besides one for each helper. With 2, helpers wait while Python is at
    the next step of a piece: periodic windows on two threads were 8 to 15 % slower, other joins as fast as with 3. More
    gain nothing."""

    sorted_alone_rows: int = 2048
    """New tuples of a push that one thread sorts in less time than it takes to wake another, at most. Measured once,
    without a record."""

    worth_ns: int = 20_000_000
    """Work of a cell's batch for each thread that it asks for, in nanoseconds of one thread (`engine/core_lease.py`).
    Not measured by itself: to lease cores and to make threads takes two milliseconds, a tenth of it."""

    kept_share: float = 0.5
    """A cell keeps its number of threads while each has this share of `worth_ns` to do, at least. Not measured; without
    it a load near a limit would change the number with every batch."""

    first_row_ns: float = 1000.0
    """What a new tuple of a cell is taken to cost before one was measured, in nanoseconds. Not measured by itself: it
    lets a worker that begins with a backlog use its cores."""

    cost_weight: float = 0.5
    """Weight of a cell's last batch in what a new tuple costs. Not measured."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The numbers that the engine is tuned with, in one group for each part of the engine."""

    tail: TailTuning = field(default_factory=TailTuning)
    layout: LayoutTuning = field(default_factory=LayoutTuning)
    merging: MergeTuning = field(default_factory=MergeTuning)
    expiry: ExpiryTuning = field(default_factory=ExpiryTuning)
    grid: GridTuning = field(default_factory=GridTuning)
    rebuild: RebuildTuning = field(default_factory=RebuildTuning)
    payload: PayloadTuning = field(default_factory=PayloadTuning)
    waiting: WaitingTuning = field(default_factory=WaitingTuning)
    nearest: NearestTuning = field(default_factory=NearestTuning)
    cache: CacheTuning = field(default_factory=CacheTuning)
    probe: ProbeTuning = field(default_factory=ProbeTuning)
    order: OrderTuning = field(default_factory=OrderTuning)
    threads: ThreadTuning = field(default_factory=ThreadTuning)

    def __repr__(self) -> str:
        """Return only what differs from the defaults: `help(JoinEngine)` shows it, and has a hundred of them."""
        groups = ((one.name, getattr(self, one.name), getattr(DEFAULT, one.name)) for one in fields(self))
        return f"Tuning({', '.join(f'{name}={group!r}' for name, group, usual in groups if group != usual)})"


DEFAULT = Tuning()
