"""Every number of the engine that was chosen, not given: thresholds, sizes, ratios. One frozen object has all of them.

::

    WindowJoin(tuning=...) ──► WindowForm ──► choice of layouts, policies, windows, grids    bound once, by constructors

No row of a result depends on these numbers. They are no options: a user does not set them, and any version may change
them. Tests pass small ones, so that a handful of rows does what a million do. Limits of types, formats and kernels are
not here; they stay beside what they limit. Each field says its unit, what it bounds, and how it was chosen.

::

    windows   tails, runs, merges, expiry     grids   bucket grids, what lies beside them     probes   probes, threads
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamjoin_ds.engine.tuning.grids import GridTuning, PayloadTuning, RebuildTuning
from streamjoin_ds.engine.tuning.probes import OrderTuning, ProbeTuning, ThreadTuning
from streamjoin_ds.engine.tuning.windows import (
    CacheTuning,
    ExpiryTuning,
    LayoutTuning,
    MergeTuning,
    NearestTuning,
    TailTuning,
    WaitingTuning,
)

__all__ = [
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


DEFAULT = Tuning()
