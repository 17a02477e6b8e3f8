"""Writes the report as one HTML page that needs nothing else: plots, their tables, and how all was measured."""

from __future__ import annotations

import html
import json
from typing import Any

from streamjoin_ds.errors import DependencyMissingError
from tests.bench.suites.figures.machine import machine_facts
from tests.bench.suites.figures.panel import Panel
from tests.bench.suites.figures.suite import Drawn, Line, Report

__all__ = ["load_plotly", "page"]

# Colours that colour-blind readers can tell apart (Okabe and Ito); lines also differ in dash and mark.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
_TABLE_ROWS = 48  # most rows of a table
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
  background: #fff }
h2 { margin-top: 3rem; border-bottom: 1px solid #999 } h3 { margin-top: 2.5rem }
table { border-collapse: collapse; margin: .5rem 0; font-size: .875rem } caption { text-align: left; font-weight: 600 }
th, td { border: 1px solid #bbb; padding: .2rem .6rem; text-align: right } th[scope=row], .facts td { text-align: left }
th { background: #f2f2f2 } .scroll { overflow-x: auto } nav ul { columns: 2 }
.quick { background: #fff3cd; padding: .5rem 1rem }
.plot { height: 26rem }
"""


def load_plotly() -> Any:
    """Return Plotly's graph objects.

    Raises
    ------
    DependencyMissingError
        Plotly is not installed.
    """
    try:
        import plotly.graph_objects
    except ImportError as error:
        message = "The package plotly, which draws the figures, is not installed."
        raise DependencyMissingError(message, name="plotly", hint="make bench sets it up") from error
    return plotly.graph_objects


def page(report: Report) -> str:
    """Return the whole page.

    The page also has all measures as JSON, in the element ``measures``: each point's trial, its runs, and the matches
    that were found and counted.
    """
    load_plotly()
    facts = machine_facts(report.extent.cores)
    parts = [_head(report, facts)]
    parts += [_section(drawn, report, facts, number) for number, drawn in enumerate(report.drawn)]
    # No text in the JSON may end the script element.
    measures = json.dumps(_measures(report, facts)).replace("<", "\\u003c")
    parts.append(f'<script type="application/json" id="measures">{measures}</script></main></body></html>')
    return "\n".join(parts)


def _head(report: Report, facts: dict[str, str]) -> str:
    extent = report.extent
    told = {
        "wall time of the whole run": f"{report.wall_s:.1f} s, {report.trials} trials",
        "runs of each point": f"{extent.runs}, of {extent.run_s:g} s at least; drawn is the median",
        "seed": str(extent.seed),
        **facts,
        "load before and after": f"{report.load_before:.2f} and {report.load_after:.2f} processes (mean of a minute)",
    }
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>' for name, value in told.items()
    )
    links = "".join(f'<li><a href="#{drawn.panel.place}">{_title(drawn.panel)}</a></li>' for drawn in report.drawn)
    quick = (
        '<p class="quick"><strong>A quick look:</strong> windows and runs are tiny; it shows that all works, and '
        "measures nothing.</p>"
        if report.is_quick
        else ""
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>streamjoin_ds: the papers' figures from our own runs</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><main><h1>The papers' figures, from our own runs</h1>
<p>Every number in a plot or a table was measured on this machine by the run that wrote this page. What the papers found
is said in words under each figure; none of their numbers is drawn. What a trial's engine finds is compared with an
independent count of the matches, and a difference ends the run.</p>{quick}
<table class="facts"><caption>The run</caption>{rows}</table>
<nav aria-label="Figures"><h2>Figures</h2><ul>{links}</ul></nav>"""


def _section(drawn: Drawn, report: Report, facts: dict[str, str], number: int) -> str:
    panel, extent = drawn.panel, report.extent
    trials = {trial for line in drawn.lines for trial in line.trials}
    runs = sorted({trial.runs for trial in trials})
    counted = f"An independent count gave the same {drawn.checked:,} matches. " if drawn.checked else ""
    how = (
        f"{facts['CPU']}, {facts['cores used']} cores, kernels {facts['instruction set of the kernels']}; "
        f"seed {extent.seed}; {len(trials)} trials, median of {' or '.join(map(str, runs))} runs. {counted}"
    )
    plot = _figure(drawn).to_html(
        full_html=False,
        include_plotlyjs=number == 0,
        div_id=f"plot-{panel.place}",
        config={"displaylogo": False, "responsive": True},
        default_height="26rem",
    )
    title = _title(panel)
    quick = f" --quick --seed {extent.seed}" if report.is_quick else f" --runs {extent.runs} --seed {extent.seed}"
    command = f"python -m tests.bench figures {panel.place}{quick} --to figures.html"
    differs = f'<p class="differs"><strong>Differs from the paper:</strong> {_text(panel.differs)}</p>'
    return f"""<section id="{panel.place}" aria-labelledby="{panel.place}-title">
<h3 id="{panel.place}-title">{title}</h3>
<div class="plot" role="img" aria-label="Plot of the table below: {title}">{plot}</div>
<p class="measured"><strong>Measured:</strong> {_text(panel.measured)} {_text(how)}</p>
<p class="reported"><strong>What the paper reported:</strong> {_text(panel.reported)}</p>
{differs if panel.differs else ""}
<p class="command"><strong>Made by:</strong> <code>{_text(command)}</code>; load after it {drawn.load:.2f}</p>
{_table(drawn)}</section>"""


def _figure(drawn: Drawn) -> Any:
    graphs, panel = load_plotly(), drawn.panel
    figure = graphs.Figure()
    for number, line in enumerate(drawn.lines):
        places = [str(x) if isinstance(x, str) else x for x in line.places]
        spread: dict[str, Any] = {}
        if line.runs:
            above = [max(runs) - value for runs, value in zip(line.runs, line.values, strict=True)]
            below = [value - min(runs) for runs, value in zip(line.runs, line.values, strict=True)]
            spread["error_y"] = {"type": "data", "array": above, "arrayminus": below, "thickness": 1, "width": 3}
        colour = _COLOURS[number % len(_COLOURS)]
        if panel.is_bars:
            figure.add_bar(
                x=places,
                y=list(line.values),
                name=line.name,
                marker={"color": colour},
                **({} if panel.is_stacked else spread),
            )
        else:
            figure.add_scatter(
                x=places,
                y=list(line.values),
                name=line.name,
                mode="lines+markers",
                line={"color": colour, "dash": _DASHES[number % len(_DASHES)]},
                marker={"symbol": _MARKS[number % len(_MARKS)], "size": 7},
                **spread,
            )
    figure.update_layout(
        template="simple_white",
        barmode="stack" if panel.is_stacked else "group",
        legend={"orientation": "h", "y": -0.25},
        margin={"l": 70, "r": 20, "t": 20, "b": 60},
        xaxis=_axis(panel.x_title, panel.is_log_x, _ticks(drawn) if panel.is_log_x else None),
        yaxis=_axis(panel.y_title, panel.is_log_y, None),
    )
    if not panel.is_log_y:
        figure.update_yaxes(rangemode="tozero")
    return figure


def _axis(title: str, is_log: bool, ticks: list[float] | None) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": title}, "showgrid": True, "gridcolor": "#e5e5e5"}
    if is_log:
        axis["type"] = "log"
    if ticks:
        axis |= {"tickvals": ticks, "ticktext": [_place(x) for x in ticks]}
    return axis


def _ticks(drawn: Drawn) -> list[float]:
    return sorted({x for line in drawn.lines for x in line.places if not isinstance(x, str)})


def _table(drawn: Drawn) -> str:
    panel = drawn.panel
    columns = [dict(zip(line.places, line.values, strict=True)) for line in drawn.lines]
    places = list(dict.fromkeys(x for line in drawn.lines for x in line.places))
    if all(not isinstance(x, str) for x in places):
        places.sort(key=float)
    # A curve has many points: the table has every n-th of them.
    shown = places[:: max(-(-len(places) // _TABLE_ROWS), 1)]
    head = "".join(f'<th scope="col">{_text(line.name)}</th>' for line in drawn.lines)
    body = "".join(
        f'<tr><th scope="row">{_text(_place(x))}</th>'
        + "".join(f"<td>{_value(column.get(x))}</td>" for column in columns)
        + "</tr>"
        for x in shown
    )
    caption = f"{panel.paper}, {panel.of_paper}: {panel.y_title}, by {panel.x_title}"
    return (
        f'<div class="scroll"><table id="table-{panel.place}"><caption>{_text(caption)}</caption>'
        f'<thead><tr><th scope="col">{_text(panel.x_title)}</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _measures(report: Report, facts: dict[str, str]) -> dict[str, Any]:
    return {
        "machine": facts,
        "seed": report.extent.seed,
        "wall_s": report.wall_s,
        "is_quick": report.is_quick,
        "panels": {drawn.panel.place: _panel_measures(drawn.panel, drawn.lines) for drawn in report.drawn},
    }


def _panel_measures(panel: Panel, lines: tuple[Line, ...]) -> dict[str, Any]:
    return {
        "x": panel.x_title,
        "y": panel.y_title,
        "lines": [
            {
                "name": line.name,
                "places": line.places,
                "values": line.values,
                "runs": line.runs,
                "trials": [trial.to_facts() for trial in line.trials],
                "found": [outcome.found for outcome in line.outcomes],
                "expected": [outcome.expected for outcome in line.outcomes],
                "checked_us": [outcome.checked_us for outcome in line.outcomes],
            }
            for line in lines
        ],
    }


def _place(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:,.6g}" if x < 1000 else f"{x:,.0f}"


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _title(panel: Panel) -> str:
    return _text(f"{panel.paper}, {panel.of_paper}: {panel.title}")


def _text(text: str) -> str:
    return html.escape(text)
