"""How an engine joins, in words: what `explain` says of its kernel, its order, its windows and their layouts."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.storage.window import Window, WindowForm

__all__ = ["explained"]


def explained(
    kernels: Kernels, threads: int, forms: Sequence[WindowForm], order: JoinOrder, windows: Sequence[Window]
) -> list[str]:
    """A line each: the kernel, the order of joining, each window, its runs and their layouts."""
    lines = [f"kernel {kernels.implementation}, {threads} threads"]
    lines.append(f"{forms[0].merge_policy.describe()}, the newest tuples unsorted up to {forms[0].tail_rows} rows")
    lines += _order_lines(order, windows)
    for form, window in zip(forms, windows, strict=True):
        lines.append(f"window of {order.names[form.stream]}: {window.rows} rows in {len(window.runs)} runs")
        names = [key.column for key in form.keys]
        for run in window.runs:
            span_s = (run.newest_us - run.oldest_us) / 1e6
            lines.append(f"  {run.rows} rows over {span_s:.3f} s: {run.described(names, order.names)}")
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
