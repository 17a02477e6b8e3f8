"""How an engine joins, in words: what `explain` says of its kernel, its order, its windows and their layouts."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun
from streamjoin_ds.engine.storage.layout import Grid
from streamjoin_ds.engine.storage.run import Run, RunForm
from streamjoin_ds.engine.storage.tail import TAIL_ROWS, Tail
from streamjoin_ds.engine.storage.window import Window

__all__ = ["explained"]


def explained(
    kernels: Kernels, threads: int, forms: Sequence[RunForm], order: JoinOrder, windows: Sequence[Window]
) -> list[str]:
    """A line each: the kernel, the order of joining, each window, its runs and their layouts."""
    lines = [f"kernel {kernels.implementation}, {threads} threads"]
    lines.append(f"{forms[0].merging.describe()}, the newest tuples unsorted up to {TAIL_ROWS} rows")
    lines += _order_lines(order, windows)
    for form, window in zip(forms, windows, strict=True):
        lines.append(f"window of {order.names[form.stream]}: {window.rows} rows in {len(window.runs)} runs")
        names = [key.column for key in form.keys]
        for run in window.runs:
            span_s = (run.newest_us - run.oldest_us) / 1e6
            lines.append(f"  {run.rows} rows over {span_s:.3f} s: {_layout(run, names)}{_views(run, names, order)}")
    return lines


def _order_lines(order: JoinOrder, windows: Sequence[Window]) -> list[str]:
    """For new tuples like those that are kept: in which order the others join, and what that should make."""
    if len(windows) < 3:
        return []
    names, lines = order.names, []
    for stream, name in enumerate(names):
        found = order.estimate(stream, windows)
        steps = zip(found.order, found.partials, strict=True)
        lines.append(f"new {name}: " + ", ".join(f"then {names[n]} ({partials:.3g} each)" for n, partials in steps))
    return lines


def _layout(run: Run, names: Sequence[str]) -> str:
    if isinstance(run, BucketRun):
        widths = zip(run.shape.keys, run.shape.widths, strict=True)
        cells = " and ".join(f"{names[number]} (width {width})" for number, width in widths)
        beside = ", ".join(sorted(run.payload.names))
        told = f"in {run.shape.buckets} buckets by cells of {cells}" + (f", beside them {beside}" if beside else "")
        return told if run.move is None else f"{told}; {run.move.describe()}"
    return _grid_text(run.grid, names)


def _views(run: Run, names: Sequence[str], order: JoinOrder) -> str:
    """Which neighbours see the run in an order of their own, as far as they have asked."""
    if isinstance(run, (BucketRun, Tail)):
        return ""
    views = [(sorted(partners), view.grid) for partners, view in list(run.views.items()) if view is not None]
    seen = sorted(views, key=lambda found: found[0])
    return "".join(f"; for {' and '.join(order.names[n] for n in who)} {_grid_text(grid, names)}" for who, grid in seen)


def _grid_text(grid: Grid, names: Sequence[str]) -> str:
    if grid.first >= 0 and grid.second >= 0:
        return f"buckets of {names[grid.first]} (width {grid.width}), sorted by {names[grid.second]}"
    if grid.second >= 0:
        return f"sorted by {names[grid.second]}"
    return "scanned" if grid.first < 0 else f"buckets of {names[grid.first]} (width {grid.width})"
