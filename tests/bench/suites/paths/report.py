"""The results of the suite of full paths, as one table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tests.bench.suites.paths.side_process import SideRun
from tests.bench.suites.paths.suite import WorkloadResult
from tests.bench.suites.sides import OURS

__all__ = ["MEASURES", "SideMeasure", "facts", "table"]


_COLUMNS = (
    "workload", "side", "rows", "rows/s", "results/s", "CPU s", "CPU us/row", "peak MiB", "window", "cores", "ours is",
)  # fmt: skip
# If other programs kept more cores busy than this, the report says so. The parent and the system need some themselves.
_QUIET_CORES = 0.25


@dataclass(frozen=True, slots=True)
class SideMeasure:
    """A number of one run: its name and unit in the JSON, its decimals in the table, and the function that gives it."""

    name: str
    unit: str
    digits: int
    of: Callable[[SideRun], float]


MEASURES = (
    SideMeasure("rows_per_second", "rows/s", 0, lambda run: run.rows_per_second),
    SideMeasure("results_per_second", "rows/s", 0, lambda run: run.results_per_second),
    SideMeasure("cpu_seconds", "s", 1, lambda run: run.cpu_seconds),
    # A peer that the time limit stops takes in fewer rows: only its CPU time for each row can be compared.
    SideMeasure("cpu_per_row", "us", 2, lambda run: run.cpu_us_per_row),
    SideMeasure("peak_memory", "MiB", 0, lambda run: run.peak_mib),
)


def facts(results: Sequence[WorkloadResult]) -> list[dict[str, object]]:
    """Return the results as plain JSON values: an object for each workload, measure and peer.

    Each has ``workload, measure, value, unit, peer, peer_value, cores, peak_mib``, and ``at_least`` if the measure has
    a target. ``value`` and ``peak_mib`` are ours; ``peer`` and ``peer_value`` are null if no peer was measured. All
    numbers are medians over the runs. The measure ``speedup`` is the median of the paired ratios of
    ``rows_per_second``, and ``speedup_over_best`` is the same over the fastest peer. Both are left out where our side
    had other batches than its peers.
    """
    rows = []
    for result in results:
        target = result.workload.target
        peers = [side for side in result.runs if side != OURS]
        common = {"cores": result.cores, "peak_mib": round(result.median(OURS, lambda run: run.peak_mib), 1)}
        for measure in MEASURES:
            for peer in peers or ("",):
                row: dict[str, object] = {
                    "workload": result.workload.name,
                    "measure": measure.name,
                    "value": round(result.median(OURS, measure.of), 3),
                    "unit": measure.unit,
                    "peer": peer or None,
                    "peer_value": round(result.median(peer, measure.of), 3) if peer else None,
                    **common,
                }
                if target is not None and target.measure == measure.name:
                    row["at_least"] = target.at_least
                rows.append(row)
        best = [("speedup_over_best", result.best_peer)] if result.best_peer else []
        for name, peer in [*(("speedup", peer) for peer in peers if result.is_compared), *best]:
            row = {
                "workload": result.workload.name,
                "measure": name,
                "value": round(result.speedup(peer), 3),
                "unit": "times",
                "peer": peer,
                "peer_value": 1.0,
                **common,
            }
            if target is not None and (target.measure, target.peer) == (name, peer):
                row["at_least"] = target.at_least
            rows.append(row)
    return rows


def table(results: Sequence[WorkloadResult]) -> RenderableType:
    """Return the results for a person: a line for each workload and side, and below the table how each side did it."""
    report = Table(title="Source to committed table, medians", title_justify="left")
    for number, name in enumerate(_COLUMNS):
        report.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    notes: list[str] = []
    for result in results:
        for side, runs in result.runs.items():
            first = side == OURS
            report.add_row(
                result.workload.name if first else "",
                Text(side, style="bold" if first else ""),
                f"{max(run.outcome.rows for run in runs):,}",
                *(f"{result.median(side, measure.of):,.{measure.digits}f}" for measure in MEASURES),
                f"{result.window_rows:,}" if first else "",
                f"{result.cores}",
                "" if first or not result.is_compared else f"{result.speedup(side):,.1f} x",
                end_section=side == list(result.runs)[-1],
            )
        notes += _notes(result)
    return Group(report, *(Text(note, style="dim") for note in notes))


def _notes(result: WorkloadResult) -> list[str]:
    workload = result.workload
    lines = [f"{workload.name}: {workload.summary}; matches checked in every run."]
    for side, runs in result.runs.items():
        outcome = max((run.outcome for run in runs), key=lambda outcome: outcome.rows)
        line = f"  {side}: {outcome.batches} batches, {outcome.note}"
        if outcome.rows < result.rows:
            line += f"; within the time limit the first {outcome.rows:,} of {result.rows:,} rows"
        lines.append(line)
    if result.best_peer:
        lines.append(f"  over the best peer, {result.best_peer}: {result.speedup(result.best_peer):,.1f} x")
    elif len(result.runs) > 1:
        lines.append("  ours has larger batches than its peers, so their speeds are not compared")
    busiest = max(result.median(side, lambda run: run.others_cores) for side in result.runs)
    if busiest > _QUIET_CORES:
        lines.append(f"  Other programs kept up to {busiest:.1f} cores busy meanwhile: these rates are too low.")
    if workload.target is not None:
        lines.append(f"  {_verdict(result)}")
    return lines


def _verdict(result: WorkloadResult) -> str:
    target = result.workload.target
    assert target is not None, "asked for workloads with a target only"
    if target.measure == "speedup":
        if target.peer not in result.runs:
            return f"target: {target.at_least:,.0f} x {target.peer}, which was not measured"
        value, what = result.speedup(target.peer), f"x {target.peer}"
    else:
        measure = next(measure for measure in MEASURES if measure.name == target.measure)
        value, what = result.median(OURS, measure.of), measure.unit
    verdict = "met" if value >= target.at_least else "NOT met"
    return f"target: at least {target.at_least:,.0f} {what}: {verdict} ({value:,.0f})"
