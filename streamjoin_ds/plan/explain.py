"""A plan in words: what is asked, how it is laid out, what each choice costs."""

from __future__ import annotations

from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.spec import duration_text

__all__ = ["explain"]

_WAYS = {
    "reference": "by reference: blocks under the checkpoint, every worker maps them",
    "packed": "packed inline: each block's bytes in one Spark row",
    "rows": "one Spark row a tuple",
}


def explain(plan: Plan, rates: tuple[float, ...] | None = None) -> str:
    """The plan as text, one fact a line; never a source's path or an option's value."""
    bound, layout = plan.bound, plan.layout
    join = bound.join
    rates = rates or (1.0,) * len(join.streams)
    lines = ["Join", f"  window      {join.window.describe(join.names)}"]
    for stream, schema in zip(join.streams, bound.schemas, strict=True):
        delay = f", delay {stream.delay}" if stream.delay_us else ""
        lines.append(f"  stream      {stream.name}: time {stream.time}{delay}, {len(schema)} columns travel ({', '.join(schema.names)})")
    for condition in bound.conditions:
        exact = {"float": "float64 subtraction", "int": "exact integers", "hash": "hash, then the values"}[condition.kind]
        bounds = duration_bounds(condition.lo, condition.hi) if condition.text.startswith("window of ") else f"[{condition.lo}, {condition.hi}]"
        lines.append(f"  find        {condition.text}   {bounds} by {exact}")
    lines.extend(f"  decide      {predicate}" for predicate in join.predicates if "<>" in str(predicate))
    lines.append(f"  result      {', '.join(bound.result_schema.names)}")
    lines.append(f"  fingerprint {bound.fingerprint}")
    lines.append("Grid")
    lines.append(f"  layout      {layout} = {layout.cells} cells on {plan.partitions} state partitions, labels {list(plan.labels)}")
    for number, stream in enumerate(join.streams):
        lines.append(f"  {stream.name:<11} {layout.counts[number]} groups, each tuple in {layout.copies(number)} cells")
    lines.append(f"  cost        {layout.copied_rows(rates) / sum(rates):.2f} stored rows for each row read")
    lines.append("Exchange")
    lines.append(f"  way         {_WAYS[plan.exchange]}")
    if plan.foreign:
        lines.append("  lateness    judged against Spark's watermark at each batch's start (foreign DataFrames have no order)")
    else:
        lines.append("  lateness    by each stream's own order: the same rows are late whatever the batching")
    return "\n".join(lines)


def duration_bounds(lo: int | float, hi: int | float) -> str:
    """``[-6h, 0s]`` for bounds in microseconds."""
    texts = [f"-{duration_text(-int(bound))}" if bound < 0 else duration_text(int(bound)) for bound in (lo, hi)]
    return f"[{texts[0]}, {texts[1]}]"
