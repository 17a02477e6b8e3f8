"""The simulator's outcomes, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from tests.bench.suites.scale.moving import DriftOutcome, RatesOutcome
from tests.bench.suites.scale.suite import Outcome

__all__ = ["facts", "tables"]


def facts(
    outcomes: Sequence[Outcome], drifts: Sequence[DriftOutcome], rates: Sequence[RatesOutcome]
) -> dict[str, list[dict[str, Any]]]:
    """Return all outcomes as plain JSON values. `Outcome`, `DriftOutcome` and `RatesOutcome` define them."""
    return {
        "schemes": [_facts(outcome) for outcome in outcomes],
        "drift": [_facts(outcome) for outcome in drifts],
        "rates": [_facts(outcome) for outcome in rates],
    }


def tables(
    outcomes: Sequence[Outcome], drifts: Sequence[DriftOutcome], rates: Sequence[RatesOutcome]
) -> RenderableType:
    """Return the outcomes as tables for a person."""
    parts = []
    if outcomes:
        title = "Simulated layouts: copies of a row, load of the fullest cell (1 is the mean without copies)"
        table = _table(title, ("cells", "streams", "rates", "keys", "scheme", "layout"),
                       ("copies", "at least", "load", "at least", "held rows", "scanned", "plan ms"))  # fmt: skip
        for before, outcome in zip([None, *outcomes], outcomes, strict=False):
            if before is not None and before.case != outcome.case:
                table.add_section()
            case = outcome.case
            table.add_row(
                f"{case.cells}", f"{case.streams}", f"1:{case.ratio}", case.keys, outcome.scheme, outcome.layout,
                f"{outcome.copies:.3f}", f"{outcome.least_copies:.3f}", f"{outcome.load:.3f}",
                f"{outcome.least_load:.3f}", f"{outcome.held_rows:,}", f"{outcome.scanned:.2f}",
                f"{outcome.plan_ms:.0f}",
            )  # fmt: skip
        parts.append(table)
    if drifts:
        title = (
            f"Keys that drift, over {drifts[0].windows} windows; for a window after a change rows go to both layouts"
        )
        table = _table(title, ("cells", "keys", "drift a window", "scheme", "chosen again"),
                       ("copies", "worst load", "last load"))  # fmt: skip
        for drift in drifts:
            case = drift.case
            numbers = (f"{number:.3f}" for number in (drift.copies, drift.load, drift.last_load))
            table.add_row(f"{case.cells}", case.keys, f"{case.drift:.0%}", drift.scheme, drift.policy, *numbers)
        parts.append(table)
    if rates:
        title = "Rates that change after a third of the time"
        table = _table(title, ("cells", "rates", "scheme", "layouts"), ("copies",))
        for rate in rates:
            told = (f"{rate.cells}", f"1:1, then 1:{rate.ratio}", rate.scheme, ", ".join(rate.layouts))
            table.add_row(*told, f"{rate.copies:.2f}")
        parts.append(table)
    return Group(*parts)


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in words:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _facts(outcome: Outcome | DriftOutcome | RatesOutcome) -> dict[str, Any]:
    told = asdict(outcome)
    told |= told.pop("case", {})
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in told.items()}
