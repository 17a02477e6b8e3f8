"""An exploration as HTML: a picture of each curve, drawn as SVG, with its numbers below; no script, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamjoin_ds.exploration.curves import Curve
__all__ = ["bytes_text", "page_of"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 420, 200, 58, 34, 12
_STYLE = """
.sj{font:14px/1.45 system-ui,sans-serif;max-width:1000px;--line:#2563eb;--ink:#1f2937;--soft:#9ca3af;color:var(--ink)}
.sj h3{margin:1.2em 0 .2em;font-size:1em;font-family:ui-monospace,monospace}
.sj h2{margin:0 0 .4em;font-size:1.2em}.sj .cards{display:flex;flex-wrap:wrap;gap:.6em 1.6em;margin:.8em 0}
.sj .cards b{display:block;font-size:1.35em}.sj .curve{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start}
.sj table{border-collapse:collapse;font-size:12px;font-variant-numeric:tabular-nums}
.sj td,.sj th{padding:1px 8px;text-align:right}.sj tr.asked{font-weight:700}
.sj svg{max-width:100%;height:auto}.sj text{fill:var(--ink);font-size:11px}.sj .axis{stroke:var(--soft)}
.sj pre{background:transparent;color:inherit;margin:.3em 0;white-space:pre-wrap}
@media(prefers-color-scheme:dark){.sj{--line:#60a5fa;--ink:#e5e7eb;--soft:#6b7280}}
"""
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Exploration of {title}</title><body>{body}</body></html>
"""


def bytes_text(count: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def page_of(found: Any, *, whole: bool) -> str:
    """Return an `Exploration` as HTML: a whole page, or a part of one."""
    body = "".join(["<style>", _STYLE, '</style><div class="sj">', *_parts(found), "</div>"])
    names = ", ".join(one.name for one in found.streams)
    return _PAGE.format(title=escape(names), body=body) if whole else body


def _parts(found: Any) -> Iterator[str]:
    first, *others = found.streams
    yield f"<h2>Which tolerance? {escape(first.name)} and {escape(', '.join(one.name for one in others))}</h2>"
    yield f"<pre>{escape(found.join)}</pre>"
    every = "all" if found.tuples == found.of else f"{found.tuples:,} of the"
    yield (
        f"<p>Looked at {escape(found.first)} .. {escape(found.last)}: {every} {found.of:,} tuples of "
        f"{escape(first.name)}, each against all of the other stream. A day is taken to be as this stretch was.</p>"
    )
    at = found.partners
    cards = [
        (f"{at['mean']:.4g}", f"partners a tuple{_error(at['error'])}"),
        (f"{1 - at['matched']:.1%}", f"of {first.name} have none"),
        (f"{found.rows_a_day:,.4g}", f"rows a day{_error(found.rows_error)}"),
        (bytes_text(found.bytes_a_day), f"a day, {found.bytes_a_row:.1f} bytes a row"),
        (found.layout, "layout of cells"),
    ]
    yield '<div class="cards">'
    yield from (f"<span><b>{escape(value)}</b>{escape(words)}</span>" for value, words in cards)
    yield "</div>"
    for curve in found.curves:
        yield f'<h3>{escape(curve.name)}</h3><div class="curve">{_drawn(curve)}{_table(found, curve)}</div>'
    yield "<h3>late, by delay</h3><table><tr><th>delay</th>"
    yield from (f"<th>{escape(one.name)}</th>" for one in found.streams)
    yield "</tr>"
    for place, (delay, _) in enumerate(first.late):
        shares = "".join(f"<td>{one.late[place][1]:.2%}</td>" for one in found.streams)
        yield f"<tr><td>{escape(delay)}</td>{shares}</tr>"
    yield "</table><p>By the stream's own clock: the join waits for the slower stream, so no more are late.</p>"


def _error(error: float) -> str:
    return f" (± {error:.2g})" if error else ", exactly counted"


def _table(found: Any, curve: Curve) -> str:
    rows = ["<table><tr><th>bound</th><th>partners</th><th>±</th><th>have one</th><th>matches a day</th></tr>"]
    columns = zip(curve.bounds, curve.partners, curve.errors, curve.matched, found.matches_a_day(curve), strict=True)
    for place, (bound, mean, error, matched, a_day) in enumerate(columns):
        mark = ' class="asked"' if place == curve.asked else ""
        numbers = f"<td>{mean:,.4g}</td><td>{error:.2g}</td><td>{matched:.1%}</td><td>{a_day:,.4g}</td>"
        rows.append(f"<tr{mark}><td>{escape(bound)}</td>{numbers}</tr>")
    return "".join([*rows, "</table>"])


def _drawn(curve: Curve) -> str:
    """Return the mean number of partners over the bound, twice its error beside it, and where the join is."""
    right, top = max(curve.at) or 1.0, max(mean + 2 * error for mean, error in _both(curve)) or 1.0

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * value / right

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(max(value / top, 0), 1))

    line = _points((x(at), y(mean)) for at, mean in zip(curve.at, curve.partners, strict=True))
    upper = [(x(at), y(mean + 2 * error)) for at, (mean, error) in zip(curve.at, _both(curve), strict=True)]
    lower = [(x(at), y(mean - 2 * error)) for at, (mean, error) in zip(curve.at, _both(curve), strict=True)]
    asked, base = x(curve.at[curve.asked]), y(0)
    name = escape(curve.name)
    unit = " (seconds)" if curve.name == "window" else ""
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" aria-label="partners by {name}">'
        f'<polygon points="{_points([*upper, *reversed(lower)])}" fill="var(--line)" opacity=".2"/>'
        f'<line class="axis" x1="{_LEFT}" y1="{base}" x2="{_WIDTH - 10}" y2="{base}"/>'
        f'<line class="axis" x1="{asked:.1f}" y1="{_TOP}" x2="{asked:.1f}" y2="{base}" stroke-dasharray="4 3"/>'
        f'<polyline points="{line}" fill="none" stroke="var(--line)" stroke-width="2"/>'
        f'<circle cx="{asked:.1f}" cy="{y(curve.partners[curve.asked]):.1f}" r="4" fill="var(--line)"/>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{top:.4g}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{base + 14}">0</text>'
        f'<text x="{_WIDTH - 10}" y="{base + 14}" text-anchor="end">{right:.6g}{unit}</text>'
        f'<text x="{_LEFT + 4}" y="{_HEIGHT - 4}">partners of a tuple; dashed: this join</text>'
        "</svg>"
    )


def _both(curve: Curve) -> Sequence[tuple[float, float]]:
    return list(zip(curve.partners, curve.errors, strict=True))


def _points(places: Sequence[tuple[float, float]] | Iterator[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
