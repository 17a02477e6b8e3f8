"""Simulates each scheme on each case, and compares it with the bounds that no layout can beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import DEFAULT_WORK, MAX_CELLS, CellWork
from tests.bench.suites.scale.bound import LowerBound, tiles_of
from tests.bench.suites.scale.case import KEYS, ScaleCase
from tests.bench.suites.scale.schemes import SCHEMES, planned, sampled
from tests.bench.suites.scale.simulation import pairs_within, simulated

__all__ = ["Outcome", "fixed_cases", "measure_case", "measure_scale"]

_CELLS = (4, 16, 64, 256, 1000)
_BASE_CELLS = (64, 1000)
_MOST_STREAMS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scheme on one case.

    Attributes
    ----------
    case : ScaleCase
    scheme, layout : str
        The scheme's name, and its layout in words.
    copies : float
        Rows shipped for each row read.
    least_copies : float
        The fewest that any layout can have whose fullest cell is no fuller than this scheme's.
    load : float
        Load of the fullest cell, over the mean load that the cells would have without copies.
    least_load : float
        The least load that any layout can have, in the same unit: more than 1 where keys are frequent.
    imbalance : float
        Load of the fullest cell, over the mean load of this scheme's cells.
    held_rows : int
        Rows of a window that the cell with the most of them holds.
    scanned : float
        Pairs that a nested loop would test in the cell that has most of them, over an even share of all pairs of
        rows of the streams that the bands join.
    plan_ms : float
        CPU time of choosing the layout, in milliseconds.
    """

    case: ScaleCase
    scheme: str
    layout: str
    copies: float
    least_copies: float
    load: float
    least_load: float
    imbalance: float
    held_rows: int
    scanned: float
    plan_ms: float


def fixed_cases(rows_per_cell: int, seed: int) -> list[ScaleCase]:
    """Return the cases of a run that names none: all cells with all keys; then streams, then rates, at two sizes."""
    fixed = {"rows_per_cell": rows_per_cell, "seed": seed}
    cases = [ScaleCase(cells, keys=keys, **fixed) for keys in KEYS for cells in _CELLS]
    for keys in ("uniform", "zipf"):
        for cells in _BASE_CELLS:
            cases += [ScaleCase(cells, streams, keys=keys, **fixed) for streams in range(3, _MOST_STREAMS + 1)]
            cases += [ScaleCase(cells, ratio=ratio, keys=keys, **fixed) for ratio in (20, 1000)]
    return cases


def measure_scale(
    cases: Sequence[ScaleCase], say: Callable[[str], None], work: CellWork = DEFAULT_WORK
) -> list[Outcome]:
    """Return the outcomes of all schemes on all cases.

    Raises
    ------
    ArgumentError
        A case is out of range, or there is no distribution of keys of its name.
    """
    for case in cases:
        if case.keys not in KEYS:
            msg = f"there is no distribution of keys '{case.keys}'"
            raise ArgumentError(msg, name=case.keys, hint=f"one of {', '.join(KEYS)}")
        if not (1 <= case.cells <= MAX_CELLS and 2 <= case.streams <= _MOST_STREAMS and case.ratio >= 1):
            msg = "a case has a number of cells or streams, or a ratio, that is out of range"
            raise ArgumentError(
                msg, name="cells", hint=f"1 to {MAX_CELLS} cells, 2 to {_MOST_STREAMS} streams, a ratio of 1 or more"
            )
    outcomes = []
    for number, case in enumerate(cases, 1):
        outcomes += measure_case(case, work)
        say(f"case {number} of {len(cases)}: {case.cells} cells, {case.streams} streams, 1:{case.ratio}, {case.keys}")
    return outcomes


def measure_case(case: ScaleCase, work: CellWork = DEFAULT_WORK) -> list[Outcome]:
    """Return the outcomes of all schemes: chosen from one window's keys, simulated on the next window's."""
    reach = case.reach
    samples = sampled(case, case.window(0))
    window = case.window(1)
    ordered = [np.sort(keys) for keys in window]
    sides = [(ordered[band.left], ordered[band.right]) for band in reach.bands]
    pairs = sum(pairs_within(band, *both) for band, both in zip(reach.bands, sides, strict=True))
    tiles = [tiles_of(band, *both) for band, both in zip(reach.bands, sides, strict=True)]
    bound = LowerBound(sum(case.rows), pairs, tiles, case.cells, work)
    least, mean = bound.least_load(), bound.mean_load
    crossed = sum(len(left) * len(right) for left, right in sides)
    outcomes = []
    for scheme in SCHEMES:
        layout, plan_ms = planned(scheme, case, samples, work)
        counts = simulated(layout, window, ordered)
        loads = counts.loads(work)
        fullest = float(loads.max())
        outcomes.append(
            Outcome(
                case,
                scheme,
                str(layout),
                counts.copies,
                bound.copies_at(max(fullest, least)),
                fullest / mean,
                least / mean,
                fullest / float(loads.mean()),
                round(float(counts.rows.max())),
                float(counts.scanned.max()) * case.cells / crossed,
                plan_ms,
            )
        )
    return outcomes
