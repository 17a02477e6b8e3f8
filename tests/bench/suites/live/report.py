"""The findings of the suite of streams, as one table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamjoin_ds.engine.core_lease import usable_core_count
from tests.bench.suites.live.finding import Finding

__all__ = ["stream_facts", "stream_table"]

_QUIET_CORES = 0.25  # if other programs kept more cores busy than this, the report says so


def stream_facts(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """Return the findings as plain JSON values.

    Each has ``workload, measure, value, unit, peer, peer_value, cores, peak_mib``, and ``at_least`` or ``at_most``
    if it has a bound; ``peer`` and ``peer_value`` are null if there is no peer.
    """
    rows = []
    for finding in findings:
        row: dict[str, object] = {
            "workload": finding.workload,
            "measure": finding.measure,
            "value": round(finding.value, 3),
            "unit": finding.unit,
            "peer": finding.peer or None,
            "peer_value": None if finding.peer_value is None else round(finding.peer_value, 3),
            "cores": usable_core_count(),
            "peak_mib": None if finding.peak_mib is None else round(finding.peak_mib, 1),
        }
        row |= {name: bound for name in ("at_least", "at_most") if (bound := getattr(finding, name)) is not None}
        rows.append(row)
    return rows


def stream_table(findings: Sequence[Finding]) -> RenderableType:
    """Return the findings for a person: a line for each, and below the table how they were measured."""
    report = Table(title="Streams, source to committed table", title_justify="left")
    for number, name in enumerate(("workload", "measure", "value", "unit", "bound", "met", "peer", "peer has", "MiB")):
        report.add_column(name, justify="right" if number in (2, 4, 7, 8) else "left", no_wrap=True)
    for finding in findings:
        met = finding.met
        report.add_row(
            finding.workload,
            finding.measure,
            _number(finding.value),
            finding.unit,
            _bound(finding),
            "" if met is None else ("yes" if met else Text("NO", style="bold")),
            finding.peer,
            "" if finding.peer_value is None else _number(finding.peer_value),
            "" if finding.peak_mib is None else f"{finding.peak_mib:,.0f}",
        )
    notes = [f"{finding.workload}, {finding.measure}: {finding.note}" for finding in findings if finding.note]
    busiest = max((finding.others_cores for finding in findings), default=0.0)
    if busiest > _QUIET_CORES:
        notes.append(
            f"Other programs kept up to {busiest:.1f} cores busy meanwhile: times are too long, and rates too low."
        )
    notes.append(f"On {usable_core_count()} cores. MiB is the peak memory of our process and its children.")
    return Group(report, *(Text(note, style="dim") for note in notes))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bound(finding: Finding) -> str:
    if finding.at_least is not None:
        return f">= {_number(finding.at_least)}"
    return "" if finding.at_most is None else f"<= {_number(finding.at_most)}"
