"""Numbers for probes, for the join order, and for the work of threads."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OrderTuning", "ProbeTuning", "ThreadTuning"]


@dataclass(frozen=True, slots=True)
class ProbeTuning:
    """How new tuples meet a window, and how their matches are gathered (`probe/`)."""

    few_probes: int = 1024
    """Probes that one kernel takes through all runs of a window, whatever their order. Not measured; a kernel of its
    own for each run costs more than they do."""

    batch_probes: int = 1 << 16
    """Probes that one kernel takes through sorted runs, at most; more are put in the order of each run first, and those
    out of its reach are left out. Not measured."""

    slice_probes: int = 2048
    """Probes that a kernel takes through a bucket grid at a time, so that their keys stay in the first-level cache; the
    least piece that is worth a thread, too. Not measured by itself."""

    groups_per_thread: int = 2
    """Groups of neighbouring runs for each thread. With more than one, a thread that is done early takes another."""

    parts_per_thread: int = 4
    """Parts of a probing run by run for each thread, as `groups_per_thread`; they differ more in what they cost."""

    least_part_probes: int = 2048
    """Probes of a part of a run's probing, at least. Not measured; as `slice_probes`."""

    chain_slices: int = 4
    """Slices of probes in one piece of a join of three streams and more. Pieces decide the order of its results, so
    this does not go by the number of threads. Not measured."""

    scan_pairs: int = 4096
    """Pairs of probes and rows that are scanned sooner than looked up in a run's order. Measured once, without a
    record: the probes' order costs microseconds."""

    trim_share: float = 0.7
    """Share of the probes' span of event time that a run reaches, below which the others are left out. Not measured."""

    first_pairs: int = 2048
    """Pairs that a buffer has room for at first: 24 KiB, and a push of one tuple needs no more."""

    pairs_growth: int = 8
    """How many times as large a full buffer grows, up to a chunk. Not measured."""

    gathered_rows: int = 8_192
    """Rows that are gathered in one task; fewer are gathered at once by the caller. Some tens of microseconds, against
    one or two that a task costs."""


@dataclass(frozen=True, slots=True)
class OrderTuning:
    """From what the join order of three streams and more is estimated (`probe/join_order.py`)."""

    sampled_runs: int = 8
    """Largest runs of a window that are sampled, at most. Not measured."""

    sampled_share: float = 0.75
    """Share of a window's rows that the sampled runs have, if so few have them: a few new rows change nothing."""

    least_fresh_rows: int = 64
    """New tuples that are looked at themselves, at least, where they are `fresh_share` of their window."""

    fresh_share: float = 0.25
    """As `least_fresh_rows`. Not measured."""

    many_fresh_rows: int = 1024
    """New tuples that are looked at themselves in any case. Not measured."""

    least_share: float = 1e-15
    """Share of the pairs that a condition is taken to leave, at least: an order by products of zeros is none."""

    equal_share: float = 0.05
    """Share of the pairs that a residual with ``=`` is taken to leave. A guess, as all that follow."""

    unequal_share: float = 0.95
    """With ``<>``."""

    between_share: float = 0.25
    """With ``BETWEEN``."""

    in_share: float = 0.1
    """With ``IN``."""

    null_share: float = 0.05
    """With ``IS NULL``."""

    compared_share: float = 1 / 3
    """With ``<``, ``<=``, ``>`` and ``>=``."""

    other_share: float = 0.5
    """With anything else."""


@dataclass(frozen=True, slots=True)
class ThreadTuning:
    """How much work the native threads are given (`threads/scheduler.py`)."""

    held_chunks: int = 4
    """Chunks of a piece that are kept for the reader, at most: beyond them the piece waits, and memory is bounded. Not
    measured."""

    sorted_alone_rows: int = 2048
    """New tuples of a push that one thread sorts sooner than another is woken. Measured once, without a record."""
