"""The text of `explain`: an engine's kernel, its order of joining, its windows and their sort layouts."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.engine.costs.sizing import Sizing
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.storage.table_windows import TableWindows
from streamjoin_ds.engine.storage.window import Window, WindowForm

__all__ = ["explained"]


def explained(
    kernels: Kernels,
    threads: int,
    forms: Sequence[WindowForm],
    order: JoinOrder,
    windows: Sequence[Window],
    sizing: Sizing | None = None,
    tables: TableWindows | None = None,
) -> list[str]:
    """Return the lines of `explain`: kernel, merge policy, order of joining, windows, runs and layouts, tables."""
    lines = [f"kernel {kernels.implementation}, {threads} threads"]
    sizes = f"{forms[0].merge_policy.describe()}, up to {forms[0].tail_rows} newest rows unsorted"
    lines.append(sizes if sizing is None else f"{sizes}: {sizing.described()}")
    told = () if tables is None else tables.described()
    if tables is None or not told:
        lines += _order_lines(order, windows)
    elif len(tables.versions) == len(told):
        lines += _order_lines(order, [*windows, *tables.windows], len(windows))
    for form, window in zip(forms, windows, strict=True):
        lines.append(f"window of {order.names[form.stream]}: {window.rows} rows in {len(window.runs)} runs")
        names = [key.column for key in form.keys]
        for run in window.runs:
            span_s = (run.newest_us - run.oldest_us) / 1e6
            lines.append(f"  {run.rows} rows over {span_s:.3f} s: {run.described(names, order.names)}")
    return [*lines, *told]


def _order_lines(order: JoinOrder, windows: Sequence[Window], streams: int | None = None) -> list[str]:
    """Return a line for each stream: the order in which the others join its new tuples, and the estimated results.

    The new tuples are taken to be like those in the stream's window. With two streams there is no order to choose, and
    no line. Where the others are asked for partners one by one, the first stream's tuples alone have an order.
    """
    if len(windows) < 3:
        return []
    names, lines = order.names, []
    if order.is_of_each:
        return [f"due {names[0]}: asked of {', then of '.join(names[n] for n in order.estimate(0, windows).order)}"]
    for stream, name in enumerate(names[:streams]):
        found = order.estimate(stream, windows)
        steps = zip(found.order, found.partials, strict=True)
        lines.append(f"new {name}: " + ", ".join(f"then {names[n]} ({partials:.3g} each)" for n, partials in steps))
    return lines
