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
    """Groups of neighbouring runs for each thread. With more than one, a thread that is done early takes a further
    one."""

    parts_per_thread: int = 4
    """Parts for each thread where probes meet each run by itself. More than `groups_per_thread`, because these parts
    differ more in what they cost."""

    least_part_probes: int = 2048
    """Probes of a part, at least, where the probes of one run are divided. Not measured; as `slice_probes`."""

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
    """How much work the native threads are given (`threads/scheduler.py`)."""

    held_chunks: int = 4
    """Chunks of a piece that are kept for the reader, at most. A piece that has so many waits, so memory is bounded.
    Not measured."""

    sorted_alone_rows: int = 2048
    """New tuples of a push that one thread sorts in less time than it takes to wake another, at most. Measured once,
    without a record."""
