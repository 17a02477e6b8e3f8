"""Numbers for probes, for the join order, and for the work of threads."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OrderTuning", "ProbeTuning", "ThreadTuning"]


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
    """Work of a cell's batch for each thread that it asks for, in nanoseconds of one thread (`threads/demand.py`).
    Not measured by itself: to lease cores and to make threads takes two milliseconds, a tenth of it."""

    kept_share: float = 0.5
    """A cell keeps its number of threads while each has this share of `worth_ns` to do, at least. Not measured; without
    it a load near a limit would change the number with every batch."""

    first_row_ns: float = 1000.0
    """What a new tuple of a cell is taken to cost before one was measured, in nanoseconds. Not measured by itself: it
    lets a worker that begins with a backlog use its cores."""

    cost_weight: float = 0.5
    """Weight of a cell's last batch in what a new tuple costs. Not measured."""
