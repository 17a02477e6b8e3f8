"""Numbers for windows: tails, runs, their order, merges, expiry, blocks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheTuning", "ExpiryTuning", "LayoutTuning", "MergeTuning", "TailTuning", "WaitingTuning"]


@dataclass(frozen=True, slots=True)
class TailTuning:
    """The newest tuples of a window, in order of arrival (`storage/tail.py`)."""

    rows: int = 4096
    """Rows of a tail, at most. Every probe scans them: so many fit in the second-level cache, and take a probe about a
    microsecond (measured). Where costs are known they say (`engine/costs`): 1 700 for a band of integers, as many as
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
    """Decided tuples whose partners are summed up at a time (`probe/aggregation`), at most. Not measured; it keeps
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
