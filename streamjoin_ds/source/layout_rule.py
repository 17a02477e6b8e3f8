"""The rule for the layout of the next batch: by the rates that the source sees, by a sample of keys, or by a schedule.

The rule is asked in Spark's planner process at the start of each batch. Its decision is written into the offset, so a
replay does the same (DAB Join, section 5.2, where each joiner decides for itself).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from streamjoin_ds.errors import malformed_offset
from streamjoin_ds.plan import (
    CellLayout,
    Epochs,
    EpochsOver,
    KeyHint,
    Layout,
    Load,
    Plan,
    best_ranges,
    choose_layout,
    is_of_ranges,
    layout_by_keys,
    layout_cost,
)

__all__ = ["LayoutFacts", "LayoutRule", "Progress"]

_log = logging.getLogger(__name__)

# The least share of the shipped rows that a change must save: until it is complete, older epochs cost copies.
LEAST_SAVED = 0.15
# Most epochs that have tuples in the windows, where rates decide. Every new tuple is copied for each of them.
MOST_LIVE = 2
# Least records of an estimate of a stream's rate; with fewer it tells nothing.
LEAST_ROWS = 100
# The least event time that a sample of keys has to span, in windows.
LEAST_SPAN = 0.5
# Half-lives of a stream's estimates, in windows: the shortest, the short and the long estimate.
_HALF_LIVES = (1 / 64, 1 / 16, 1 / 2)
# The least window length that half-lives are measured by, in microseconds: changes within a second are no trend.
_LEAST_EXTENT_US = 20_000_000


class LayoutFacts(Struct, frozen=True):
    """What was decided about the layout when a batch was planned, and the facts for the next decision.

    Attributes
    ----------
    epochs : Epochs or None
        The epochs of the batch; None: the one epoch that the checkpoint began with.
    rates : tuple of tuple of float
        Estimates of each stream's rate, in which older records count less: records and microseconds of event time, with
        three half-lives, the shortest first. Empty where no decision needs them.
    """

    epochs: Epochs | None = None
    rates: tuple[tuple[float, ...], ...] = ()

    def epochs_from(self, first: CellLayout) -> Epochs:
        """Return the epochs; where `epochs` is None, the one epoch of the checkpoint's first layout."""
        return self.epochs or Epochs.first(first)

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values; empty where there are none."""
        facts: dict[str, Any] = {}
        if self.epochs is not None:
            facts["epochs"] = self.epochs.to_facts()
        if self.rates:
            facts["rates"] = [list(rate) for rate in self.rates]
        return facts

    @classmethod
    def from_facts(cls, facts: object, streams: int) -> LayoutFacts:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or set(facts) - {"epochs", "rates"}:
            raise malformed_offset(name="layout")
        rates = facts.get("rates", [])
        if not isinstance(rates, list) or len(rates) not in (0, streams):
            raise malformed_offset(name="rates")
        for rate in rates:
            if not isinstance(rate, list) or len(rate) != 6 or not {*map(type, rate)} <= {int, float}:
                raise malformed_offset(name="rates")
        epochs = Epochs.from_facts(facts["epochs"], streams) if "epochs" in facts else None
        return cls(epochs, tuple(tuple(map(float, rate)) for rate in rates))


class Progress(Struct, frozen=True):
    """How far the streams are at the boundary of two batches.

    Attributes
    ----------
    seqs : tuple of int
        For each stream the number of its next record.
    times_us : tuple of int or None
        For each stream the largest event time before that record; None: there was none.
    """

    seqs: tuple[int, ...]
    times_us: tuple[int | None, ...]

    @property
    def latest_us(self) -> int | None:
        """The largest event time of all streams."""
        return max((time_us for time_us in self.times_us if time_us is not None), default=None)


class LayoutRule:
    """Decides the epochs of each batch.

    Parameters
    ----------
    plan : Plan
        Its `layout_schedule` decides. Without one the rates decide between grids, and a sample of keys decides whether
        ranges of a band attribute are better, and which; `layout_kind` may exclude one of the two. The layouts then
        have as many cells as the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._schedule = plan.layout_schedule
        window = plan.bound.join.window
        extents = [window.extent(stream) for stream in range(len(plan.bound.names))]
        self._judged: tuple[int, ...] = ()  # the place of the sample of keys that was looked at last
        self._counts = window.kind == "count"
        self._extent = max(extents)
        # With three streams an epoch's own tuples are told by their numbers, and those of partitions have no one order.
        streams = plan.bound.join.streams
        self._is_fixed = len(streams) > 2 and any(stream.partition_kind is not None for stream in streams)

    @property
    def follows_rates(self) -> bool:
        """Whether rates decide: no schedule gives the layout, and the plan has more than one cell."""
        return not self._is_fixed and not self._schedule and self._plan.cells > 1

    def asks_for_keys(self, before: LayoutFacts, start: Progress, over: EpochsOver) -> bool:
        """Whether a sample of keys could change the layout of the batch that begins here; arguments as in `decided`."""
        if not self._plan.attributes or self._is_fixed:
            return False
        epochs = self._told(before, over)
        return epochs.current.layout.cells != self._plan.cells or self._may_change(epochs, start)

    def decided(
        self, before: LayoutFacts, start: Progress, over: EpochsOver, keys: KeyHint | None = None
    ) -> LayoutFacts:
        """Return the layout facts of the batch that begins here.

        Parameters
        ----------
        before : LayoutFacts
            Those of the batch before it.
        start : Progress
            Where the batch begins.
        over : EpochsOver
            The epochs that have nothing in any window any more, and the cells that still have something.
        keys : KeyHint, optional
            A sample of the keys of about a window before the batch.
        """
        told = before.epochs_from(self._plan.layout)
        epochs = self._told(before, over)
        keys = keys if keys is not None and keys.fits(self._plan.attributes) else None
        wanted = self._wanted(epochs, before, start, keys)
        if wanted is not None and wanted != epochs.current.layout:
            _log.info("the layout changes from %s to %s", epochs.current.layout, wanted)
            epochs = epochs.entered(wanted, start.seqs, start.latest_us)
        is_first = before.epochs is None and epochs == told
        return LayoutFacts(None if is_first else epochs, before.rates)

    def counted(self, facts: LayoutFacts, start: Progress, end: Progress) -> LayoutFacts:
        """Return the facts with a batch added to the estimates, in which older records count less."""
        if not self.follows_rates:
            return LayoutFacts(facts.epochs)
        rates = []
        for stream, before in enumerate(facts.rates or ((0.0,) * 6,) * len(start.seqs)):
            since_us, until_us = start.times_us[stream], end.times_us[stream]
            more, passed_us = end.seqs[stream] - start.seqs[stream], 0
            if since_us is None or until_us is None:
                more = 0  # it is not known over which time they came
            else:
                passed_us = max(until_us - since_us, 0)
            age = more / max(self._extent, 1) if self._counts else passed_us / max(self._extent, _LEAST_EXTENT_US)
            estimates: list[float] = []
            for half_life, rows, span_us in zip(_HALF_LIVES, before[::2], before[1::2], strict=True):
                kept = 0.5 ** min(age / half_life, 64)
                estimates += [round(rows * kept + more, 3), round(span_us * kept + passed_us, 3)]
            rates.append(tuple(estimates))
        return LayoutFacts(facts.epochs, tuple(rates))

    def _told(self, before: LayoutFacts, over: EpochsOver) -> Epochs:
        """Return the epochs that the batch has if none begins with it."""
        told = before.epochs_from(self._plan.layout)
        kept = told.cells if over.cells is None or over.epoch != told.current.number else over.cells
        return told.without(over.numbers).heard_by(max(min(kept, told.cells), self._plan.cells))

    def _wanted(self, epochs: Epochs, facts: LayoutFacts, start: Progress, keys: KeyHint | None) -> CellLayout | None:
        if self._is_fixed:
            return None
        if self._schedule:
            total = sum(start.seqs)
            return next((layout for rows, layout in reversed(self._schedule) if rows <= total), None)
        plan, now = self._plan, epochs.current.layout
        is_known = bool(facts.rates) and self._is_told(facts, 1)
        # The query was started with another number of cells, or there is nothing any more to balance ranges by.
        is_foreign = now.cells != plan.cells or (is_of_ranges(now) and not plan.attributes and plan.cells > 1)
        lacks_ranges = self._lacks_ranges(now) and len(epochs.live) < MOST_LIVE
        if is_foreign or lacks_ranges:
            by_keys = self._ranges_at_once(keys)
            if by_keys is not None:
                return by_keys
        chosen = plan.wanted or plan.layout  # at the start, by what the inputs begin with
        if lacks_ranges and is_of_ranges(chosen):
            return chosen
        if is_foreign:
            if is_known:
                return choose_layout(plan.cells, self._load(facts, 1))
            return chosen
        if self._may_change(epochs, start):
            by_keys = self._by_keys(now, keys)
            if by_keys is not None:
                return by_keys
        if not isinstance(now, Layout):
            return None
        if not self.follows_rates or len(epochs.live) >= MOST_LIVE or not self._is_old(epochs, start) or not is_known:
            return None
        short, long = self._load(facts, 1), self._load(facts, 2)
        wanted = choose_layout(self._plan.cells, short)
        # The shortest estimate disagrees where the short one is still on its way to the new rates. A layout for rates
        # in between would cost one change more.
        if self._is_told(facts, 0) and choose_layout(self._plan.cells, self._load(facts, 0)) != wanted:
            return None
        # The short estimate knows the new rates, and the long one that they are no burst.
        for load in (short, long):
            shipped = layout_cost(wanted, load).shipped_rows_per_s
            if shipped > (1 - LEAST_SAVED) * layout_cost(now, load).shipped_rows_per_s:
                return None
        return wanted

    def _lacks_ranges(self, now: CellLayout) -> bool:
        """Whether the plan asks for ranges, and the layout is a grid: too few keys were known when it was chosen."""
        return self._plan.layout_kind == "ranges" and bool(self._plan.attributes) and not is_of_ranges(now)

    def _ranges_at_once(self, keys: KeyHint | None) -> CellLayout | None:
        """Return ranges that suit the keys, where the plan asks for ranges and there are enough keys."""
        if keys is None or self._plan.layout_kind != "ranges":
            return None
        best = best_ranges(keys, self._plan.attributes, self._plan.cells)
        return None if best is None else best.layout

    def _may_change(self, epochs: Epochs, start: Progress) -> bool:
        """Whether a sample of keys may change the layout now: no change is under way, or ranges are still lacking."""
        if not self._plan.attributes or len(epochs.live) >= MOST_LIVE:
            return False
        return self._lacks_ranges(epochs.current.layout) or self._is_old(epochs, start)

    def _by_keys(self, now: CellLayout, keys: KeyHint | None) -> CellLayout | None:
        """Return the layout that the keys speak for, where it saves enough. Each sample is looked at once."""
        if keys is None or keys.seqs == self._judged:
            return None
        if not self._counts and keys.shared().span_us < LEAST_SPAN * self._extent:
            return None
        self._judged = keys.seqs
        plan = self._plan
        may_be_grid = plan.layout_kind == "auto"
        found = layout_by_keys(keys, plan.attributes, now, plan.cells, least_saved=LEAST_SAVED, may_be_grid=may_be_grid)
        # Between grids the rates decide.
        return None if found is None or not (is_of_ranges(found) or is_of_ranges(now)) else found

    @staticmethod
    def _is_told(facts: LayoutFacts, estimate: int) -> bool:
        """Whether this estimate of every stream rests on enough records."""
        return all(rates[2 * estimate] >= LEAST_ROWS and rates[2 * estimate + 1] for rates in facts.rates)

    def _load(self, facts: LayoutFacts, estimate: int) -> Load:
        """Return the load by this estimate of each stream's rate."""
        rates = [rates[2 * estimate] * 1e6 / rates[2 * estimate + 1] for rates in facts.rates]
        return Load.of_join(self._plan.bound, rates)

    def _is_old(self, epochs: Epochs, start: Progress) -> bool:
        """Whether the current epoch is at least a window old."""
        current = epochs.current
        if self._counts:
            return all(seq - first >= self._extent for seq, first in zip(start.seqs, current.first_seqs, strict=True))
        if start.latest_us is None:
            return False
        return current.since_us is None or start.latest_us - current.since_us >= self._extent
