"""Every number of the engine that was chosen, not given: thresholds, sizes, ratios. One frozen object has all of them.

::

    WindowJoin(tuning=...) ──► WindowForm ──► choice of layouts, policies, windows, grids    bound once, by constructors

No row of a result depends on one. They are no options: a user does not set them, and any version may change them. A
test passes a small one, so that a handful of rows does what a million do. Limits of types, formats and kernels are not
here; they stay beside what they limit. Each field says its unit, what it bounds, and how it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT", "ExpiryTuning", "MergeTuning", "TailTuning", "Tuning"]


@dataclass(frozen=True, slots=True)
class TailTuning:
    """The newest tuples of a window, in order of arrival (`storage/tail.py`)."""

    rows: int = 4096
    """Rows that a tail holds at most. Every probe scans them: so many are in the second-level cache, and take a probe
    about a microsecond (measured). A saved state may have a tail of so many rows: fewer here refuse it."""

    most_arrived_rows: int = 1024
    """Rows of one stream and push that still go to the tail; more become a run at once. Not measured: a quarter of the
    tail, so that it is not sealed for every push."""

    most_pieces: int = 32
    """Arrow arrays of a column without a fixed width that may wait to be put together, besides one for each doubling of
    the tail's rows. Not measured; it bounds how often a row is copied."""


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
    of the window's batches: so a row is written twice at most (worked out; blocks took 12 to 63 bytes a row before)."""

    most_gathered: int = 32
    """Runs in blocks that are merged at a time, at most. With 96 runs in all this serves windows of about 1 000
    batches; of larger ones a part is written once more."""

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
class Tuning:
    """What the engine is tuned with, a group for each noun of its rooms."""

    tail: TailTuning = TailTuning()
    merging: MergeTuning = MergeTuning()
    expiry: ExpiryTuning = ExpiryTuning()
    # Those of the rooms `probe` and `threads` are still constants of their modules; their groups belong here too.


DEFAULT = Tuning()
