"""Follows a join over several windows: keys that drift away from their ranges, and rates that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamjoin_ds.plan import (
    DEFAULT_WORK,
    CellWork,
    EpochsOver,
    Layout,
    Load,
    Plan,
    RangeLayout,
    choose_layout,
)
from streamjoin_ds.source.layout_rule import LayoutFacts, LayoutRule, Progress
from streamjoin_ds.spec import Join, Stream, bind
from tests.bench.suites.scale.case import ScaleCase
from tests.bench.suites.scale.schemes import planned, sampled
from tests.bench.suites.scale.simulation import pairs_within, simulated

__all__ = ["DriftOutcome", "RatesOutcome", "measure_drift", "measure_rates"]

# After how many windows ranges are chosen again; 0: never, so the first window's keys decide for ever.
POLICIES = {"never": 0, "every 4 windows": 4, "every window": 1}
_SECOND_US = 1_000_000
_WINDOW_S, _BATCH_S, _LOW_RATE = 60, 6, 1_000
_WINDOWS, _CHANGE = 12, 4


@dataclass(frozen=True, slots=True)
class DriftOutcome:
    """A scheme while the keys drift; its policy says how often its ranges are chosen again.

    Attributes
    ----------
    case : ScaleCase
    scheme, policy : str
    windows : int
    copies : float
        Rows shipped for each row read, over all windows. In the window after a change each row is also a guest of the
        older epoch.
    load : float
        Load of the fullest cell in the worst window, over that window's mean load without copies.
    last_load : float
        The same for the last window.
    """

    case: ScaleCase
    scheme: str
    policy: str
    windows: int
    copies: float
    load: float
    last_load: float


@dataclass(frozen=True, slots=True)
class RatesOutcome:
    """A grid while the rates change from 1:1 to 1:ratio after a third of the time.

    Attributes
    ----------
    cells, ratio : int
    scheme : str
    copies : float
        Rows shipped for each row read, guests of older epochs among them.
    layouts : tuple of str
        The scheme's layouts, one after the other.
    """

    cells: int
    ratio: int
    scheme: str
    copies: float
    layouts: tuple[str, ...]


def measure_drift(
    case: ScaleCase, windows: int, say: Callable[[str], None], work: CellWork = DEFAULT_WORK
) -> list[DriftOutcome]:
    """Return the outcomes of ranges and hybrid, by each policy, and of the grid, while the keys drift."""
    runs = [
        ("grid", "never"),
        *(("ranges", policy) for policy in POLICIES),
        *(("hybrid", policy) for policy in POLICIES),
    ]
    shipped, loads = {run: 0.0 for run in runs}, {run: [0.0] for run in runs}
    layouts: dict[tuple[str, str], list[RangeLayout]] = {run: [] for run in runs}
    samples = sampled(case, case.window(0))
    for number in range(windows):
        window = case.window(number + 1)
        ordered = [np.sort(keys) for keys in window]
        pairs = sum(pairs_within(band, ordered[band.left], ordered[band.right]) for band in case.reach.bands)
        mean_load = (work.row * sum(case.rows) + work.pair * pairs) / case.cells
        chosen = {scheme: planned(scheme, case, samples, work)[0] for scheme in {scheme for scheme, _ in runs}}
        for run in runs:
            scheme, policy = run
            if not layouts[run] or (POLICIES[policy] and number % POLICIES[policy] == 0):
                layouts[run] = [*layouts[run][-1:], chosen[scheme]]
            else:
                layouts[run] = layouts[run][-1:]
            counts = [simulated(layout, window, ordered) for layout in layouts[run]]
            load = counts[-1].loads(work)
            for guests in counts[:-1]:
                load = load + work.row * guests.rows
            shipped[run] += sum(part.copies for part in counts)
            loads[run].append(float(load.max()) / mean_load)
        samples = sampled(case, window)
        say(f"drift, {case.keys}: window {number + 1} of {windows}")
    return [DriftOutcome(case, *run, windows, shipped[run] / windows, max(loads[run]), loads[run][-1]) for run in runs]


def measure_rates(cells: int, ratio: int) -> list[RatesOutcome]:
    """Return what is shipped when the second stream's rate grows `ratio` times.

    The outcomes are those of a fixed square grid, of the source's own rule, and of a grid whose changes cost nothing.
    """
    schema = {"ts": "timestamp[us]", "x": "double"}
    streams = [Stream(name, schema=schema) for name in ("r", "s")]
    bound = bind(Join(streams, "abs(r.x - s.x) <= 1", f"{_WINDOW_S}s"), {s.name: s.schema for s in streams})
    square = choose_layout(cells, Load.of_windows([1.0, 1.0]))
    rule, facts, at = LayoutRule(Plan(bound, square, 2)), LayoutFacts(), Progress((0, 0), (None, None))
    read = fixed = adaptive = best = 0
    began_s: dict[int, int] = {0: 0}
    over = EpochsOver()
    told, ideal = [str(square)], [str(square)]
    for now_s in range(0, _WINDOWS * _WINDOW_S, _BATCH_S):
        rates = (_LOW_RATE, _LOW_RATE * (ratio if now_s >= _CHANGE * _WINDOW_S else 1))
        rows = tuple(rate * _BATCH_S for rate in rates)
        seqs = tuple(seq + more for seq, more in zip(at.seqs, rows, strict=True))
        end = Progress(seqs, ((now_s + _BATCH_S) * _SECOND_US,) * 2)
        facts = rule.decided(facts, at, over)
        epochs = facts.epochs_from(square)
        facts, at = rule.counted(facts, at, end), end
        began_s.setdefault(epochs.current.number, now_s)
        # An epoch is over when a window has passed since the next one began.
        gone = [epoch.number for epoch in epochs.older if now_s - began_s[epoch.number + 1] >= _WINDOW_S]
        over = EpochsOver(tuple(gone))
        if str(epochs.current.layout) != told[-1]:
            told.append(str(epochs.current.layout))
        read += sum(rows)
        fixed += _shipped(square, rows)
        grids = [epoch.layout for epoch in epochs.live if isinstance(epoch.layout, Layout)]  # the rule knows no other
        adaptive += sum(_shipped(grid, rows) for grid in grids)
        wanted = choose_layout(cells, Load.of_windows(rates))
        best += _shipped(wanted, rows)
        if str(wanted) != ideal[-1]:
            ideal.append(str(wanted))
    return [
        RatesOutcome(cells, ratio, "grid", fixed / read, (str(square),)),
        RatesOutcome(cells, ratio, "dab grid, by the source's rule", adaptive / read, tuple(told)),
        RatesOutcome(cells, ratio, "dab grid, if changes cost nothing", best / read, tuple(ideal)),
    ]


def _shipped(layout: Layout, rows: tuple[int, ...]) -> int:
    return sum(count * layout.copies(stream) for stream, count in enumerate(rows))
