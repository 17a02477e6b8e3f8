"""Does the trials of all panels, each trial once, and returns what was measured, panel by panel."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.errors import ArgumentError
from tests.bench.suites.figures.basic_windows import basic_window_panels
from tests.bench.suites.figures.cell_join import cell_join_panels
from tests.bench.suites.figures.dab_join import dab_join_panels
from tests.bench.suites.figures.dp_join import dp_join_panels
from tests.bench.suites.figures.handshake_join import handshake_join_panels
from tests.bench.suites.figures.panel import Extent, Panel, Series
from tests.bench.suites.figures.pim_tree import pim_tree_panels
from tests.bench.suites.figures.trial import Trial, TrialOutcome
from tests.bench.suites.figures.worker import Workers

__all__ = ["Drawn", "Line", "Report", "figure_names", "measure_figures"]

DEFAULT_RUNS = 5  # measured runs of each point


@dataclass(frozen=True, slots=True)
class Line:
    """A series as it was measured.

    Attributes
    ----------
    name : str
        Its name in the legend.
    places : tuple of float or str
        The places on the x axis.
    values : tuple of float
        Medians over the runs, in the panel's unit.
    runs : tuple of tuple of float
        For each value those of its runs, in the same unit; empty for a line that is one trial's curve.
    trials : tuple of Trial
        The trials of the points.
    outcomes : tuple of TrialOutcome
        What the trials gave.
    """

    name: str
    places: tuple[float | str, ...]
    values: tuple[float, ...]
    runs: tuple[tuple[float, ...], ...]
    trials: tuple[Trial, ...]
    outcomes: tuple[TrialOutcome, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A panel and its lines, and the system's load when its last trial was done: the mean of a minute."""

    panel: Panel
    lines: tuple[Line, ...]
    load: float = 0.0

    @property
    def checked(self) -> int:
        """Matches that were counted independently, in all its trials."""
        done = {
            trial: outcome for line in self.lines for trial, outcome in zip(line.trials, line.outcomes, strict=True)
        }
        return sum(outcome.expected for trial, outcome in done.items() if trial.kind not in _UNCOUNTED)


# Trials that find no matches: they check something else.
_UNCOUNTED = ("copy", "memory")


@dataclass(frozen=True, slots=True)
class Report:
    """All that a page says.

    Attributes
    ----------
    drawn : tuple of Drawn
        The panels with their lines.
    extent : Extent
        How large the trials were.
    is_quick : bool
        Whether it was only a quick look.
    wall_s : float
        Seconds that all trials took.
    trials : int
        Number of different trials.
    load_before, load_after : float
        The system's load, the mean of a minute: how many processes wanted a core. Other programs make numbers worse.
    """

    drawn: tuple[Drawn, ...]
    extent: Extent
    is_quick: bool
    wall_s: float
    trials: int
    load_before: float
    load_after: float


def _panels(extent: Extent) -> list[Panel]:
    cells = cell_join_panels, basic_window_panels
    papers = *cells, pim_tree_panels, dp_join_panels, dab_join_panels, handshake_join_panels
    return [panel for panels in papers for panel in panels(extent)]


def figure_names() -> tuple[str, ...]:
    """Return the panels' names, in the report's order."""
    return tuple(panel.place for panel in _panels(Extent.quick(1, 1)))


def measure_figures(names: Sequence[str], is_quick: bool, runs: int, seed: int, say: Callable[[str], None]) -> Report:
    """Measure all points of some figures.

    Parameters
    ----------
    names : sequence of str
        Names of panels, or beginnings of names (``"pim-tree-8"``); empty: all panels.
    is_quick : bool
        Whether all is tiny: a look, not a measurement.
    runs : int
        Measured runs of each point; a quick look has two.
    seed : int
        Seed of the generated tuples.
    say : callable
        Takes a line about what is being done.

    Raises
    ------
    ArgumentError
        There is no such figure.
    BenchError
        A trial failed, or an engine found another number of matches than the independent count.
    """
    for name in names:
        if not any(place.startswith(name) for place in figure_names()):
            msg = f"there is no figure '{name}'"
            raise ArgumentError(
                msg, name=name, hint=f"one of {', '.join(figure_names())}, or the beginning of some of these"
            )
    cores = usable_core_count()
    extent = Extent.quick(cores, seed) if is_quick else Extent.full(cores, runs, seed)
    panels = [panel for panel in _panels(extent) if not names or panel.place.startswith(tuple(names))]
    outcomes: dict[Trial, TrialOutcome] = {}
    load_before, began = _load(), time.monotonic()
    drawn = []
    with Workers() as workers:
        for panel in panels:
            for trial in (trial for series in panel.series for _, trial in series.points):
                if trial not in outcomes:
                    outcomes[trial] = workers.done(trial)
            drawn.append(Drawn(panel, tuple(_line(series, outcomes) for series in panel.series), _load()))
            say(f"{panel.place}: {panel.title} ({time.monotonic() - began:.0f} s so far)")
    return Report(tuple(drawn), extent, is_quick, time.monotonic() - began, len(outcomes), load_before, _load())


def _line(series: Series, outcomes: dict[Trial, TrialOutcome]) -> Line:
    trials = tuple(trial for _, trial in series.points)
    done = tuple(outcomes[trial] for trial in trials)
    if [x for x, _ in series.points] == [None]:
        curve = done[0].curves[series.value]
        places: tuple[float | str, ...] = tuple(x for x, _ in curve)
        return Line(series.name, places, tuple(y / series.per for _, y in curve), (), trials, done)
    runs = tuple(tuple(value / series.per for value in outcome.numbers[series.value]) for outcome in done)
    places = tuple(x for x, _ in series.points if x is not None)
    return Line(series.name, places, tuple(statistics.median(values) for values in runs), runs, trials, done)


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0
