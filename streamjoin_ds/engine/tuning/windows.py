"""Numbers for windows: tails, runs, their order, merges, expiry, blocks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheTuning", "ExpiryTuning", "LayoutTuning", "MergeTuning", "TailTuning"]


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
    """The choice of a run's sort layout: the cost model and its sample (`storage/layout.py`); the run's index."""

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
    """When a run or a tail that has mostly expired is copied without its expired rows (`storage/window.py`)."""

    least_live_share: float = 0.5
    """Share of a run's rows: with fewer alive, these are copied to a smaller run. Not measured: a copy then costs no
    more than what has expired did."""

    thinning_points: int = 16
    """Places along a run's span, those in its second half, at which the living are counted. Not measured; it bounds how
    often a run is counted, and makes the answer a function of the run and the time alone."""


@dataclass(frozen=True, slots=True)
class CacheTuning:
    """What a worker process keeps of runs in blocks (`storage/run_store.py`); the last task's numbers hold for it."""

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
