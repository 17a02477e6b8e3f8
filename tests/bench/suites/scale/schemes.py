"""The schemes that are compared: ways to lay a join out, each given as ranges, so that one simulation fits them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from streamjoin_ds.plan import (
    DEFAULT_WORK,
    CellWork,
    KeySample,
    Load,
    RangeLayout,
    choose_kind,
    choose_layout,
    choose_ranges,
)
from tests.bench.suites.scale.case import ScaleCase
from tests.bench.suites.scale.simulation import as_ranges

__all__ = ["SCHEMES", "planned", "sampled"]

_SAMPLE_KEYS_PER_CELL = 16  # keys of each stream in a sample, for each cell
_LEAST_SAMPLE_KEYS = 4096  # least number of keys of each stream in a sample

Scheme = Callable[[ScaleCase, Sequence[KeySample], CellWork], RangeLayout]


def _square(case: ScaleCase, samples: Sequence[KeySample], work: CellWork) -> RangeLayout:
    return as_ranges(choose_layout(case.cells, Load.of_windows([1.0] * case.streams)), case.reach)


def _grid(case: ScaleCase, samples: Sequence[KeySample], work: CellWork) -> RangeLayout:
    return as_ranges(choose_layout(case.cells, Load.of_windows([sample.total for sample in samples])), case.reach)


def _ranges(case: ScaleCase, samples: Sequence[KeySample], work: CellWork) -> RangeLayout:
    return choose_ranges(samples, case.reach, case.cells, work, is_split=False).layout


def _hybrid(case: ScaleCase, samples: Sequence[KeySample], work: CellWork) -> RangeLayout:
    return choose_ranges(samples, case.reach, case.cells, work).layout


def _chosen(case: ScaleCase, samples: Sequence[KeySample], work: CellWork) -> RangeLayout:
    return as_ranges(choose_kind(samples, case.reach, case.cells, work).layout, case.reach)


# "grid" is chosen for equal rates, as a join without known rates begins; "dab grid" is chosen by the rates (DAB Join,
# section 4.2). "chosen" is the cheaper one of the dab grid and the hybrid.
SCHEMES: Mapping[str, Scheme] = {
    "grid": _square,
    "dab grid": _grid,
    "ranges": _ranges,
    "hybrid": _hybrid,
    "chosen": _chosen,
}


def sampled(case: ScaleCase, window: Sequence[npt.NDArray[Any]]) -> list[KeySample]:
    """Return the sample of each stream that layouts are chosen from."""
    size = max(case.cells * _SAMPLE_KEYS_PER_CELL, _LEAST_SAMPLE_KEYS)
    return [KeySample.of(keys, size) for keys in window]


def planned(
    scheme: str, case: ScaleCase, samples: Sequence[KeySample], work: CellWork = DEFAULT_WORK
) -> tuple[RangeLayout, float]:
    """Return a scheme's layout, and the milliseconds of CPU time that choosing it took; sampling is not counted."""
    began = time.process_time()
    layout = SCHEMES[scheme](case, samples, work)
    return layout, (time.process_time() - began) * 1e3
