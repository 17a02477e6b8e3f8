"""The results of the engine's suite, as one table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from tests.bench.suites.engine.suite import Result

__all__ = ["facts", "table"]

_UNITS = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def facts(results: Sequence[Result]) -> list[dict[str, object]]:
    """Return the results as plain JSON values, one object for each measure; all numbers are medians over the runs.

    ``value`` is ours and ``peer_value`` the peer's, both in ``unit``. ``ratio`` is the median of the paired ratios. A
    bound with ``"of": "ratio"`` is for that ratio.
    """
    rows = []
    for result in results:
        line = result.measure
        row: dict[str, object] = {
            "workload": line.workload,
            "measure": line.name,
            "value": _rounded(result.value),
            "unit": line.unit,
            "peer": line.peer_name or None,
            "peer_value": None if result.peer_value is None else _rounded(result.peer_value),
            "ratio": None if result.peer_value is None else _rounded(_ratio(result)),
            "cores": line.contestant.cores,
            "window_rows": line.contestant.window_rows,
            "peak_mib": round(result.peak_mib, 1),
        }
        for name, bound in (("at_least", line.at_least), ("at_most", line.at_most)):
            if bound is not None:
                row[name] = bound
                row["of"] = "ratio" if line.ratio else "value"
                row["met"] = result.is_met
        rows.append(row)
    return rows


def table(results: Sequence[Result]) -> RenderableType:
    """Return the results as a table for a person, one line for each measure."""
    report = Table(title="The engine alone, medians", title_justify="left")
    for number, name in enumerate(("workload", "measure", "value", "peer", "its value", "ratio", "must be", "")):
        report.add_column(name, justify="left" if number in (0, 1, 3, 7) else "right", no_wrap=True)
    for result in results:
        line = result.measure
        bounds = [f">= {line.at_least:,g}"] if line.at_least is not None else []
        bounds += [f"<= {line.at_most:,g}"] if line.at_most is not None else []
        met = result.is_met
        report.add_row(
            line.workload,
            line.name,
            _told(result.value, line.unit),
            line.peer_name,
            "" if result.peer_value is None else _told(result.peer_value, line.unit),
            "" if result.peer_value is None else f"{_ratio(result):.2f}",
            " ".join(bounds),
            "" if met is None else "met" if met else "NOT met",
        )
    return report


def _ratio(result: Result) -> float:
    pairs = sorted(own / peer for own, peer in zip(result.values, result.peer_values, strict=True))
    return (pairs[len(pairs) // 2] + pairs[(len(pairs) - 1) // 2]) / 2


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _told(value: float, unit: str) -> str:
    for prefix, size in _UNITS:
        if unit.endswith("/s") and value >= size:
            return f"{value / size:,.2f} {prefix} {unit}"
    return f"{value:,.2f} {unit}"
