"""A plan in words: what is asked, how it is laid out, what each choice costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.spec import Band, BoundJoin, Condition, duration_text

__all__ = ["explain"]

_WAYS = {
    "reference": "by reference: blocks under the checkpoint, every worker maps them",
    "packed": "packed inline: each block's bytes in one Spark row",
    "rows": "one Spark row a tuple",
}
_COMPARISONS = {"float": "float64 subtraction", "int": "exact integers", "hash": "hash, then the values"}


def explain(plan: Plan, rates: Sequence[float] | None = None) -> str:
    """The plan as text, one fact a line; never a source's path or an option's value.

    Parameters
    ----------
    plan : Plan
    rates : sequence of float, optional
        Tuples a second, one a stream, to weigh the copies; taken as equal where not given.
    """
    return "\n".join(("Join", *_join(plan.bound), "Grid", *_grid(plan, rates), "Exchange", *_exchange(plan)))


def _join(bound: BoundJoin) -> Iterator[str]:
    join = bound.join
    yield f"  window      {join.window.describe(join.names)}"
    for stream, schema in zip(join.streams, bound.schemas, strict=True):
        delay = f", delay {stream.delay}" if stream.delay_us else ""
        columns = f"{len(schema)} columns travel ({', '.join(schema.names)})"
        yield f"  stream      {stream.name}: time {stream.time}{delay}, {columns}"
    for condition in bound.conditions:
        yield f"  find        {condition.text}   {_bounds(bound, condition)} by {_COMPARISONS[condition.kind]}"
    for name, filters in zip(join.names, bound.filters, strict=True):
        for term in filters:
            yield f"  filter      {term.text}   at the source of {name}"
    for term in bound.terms:
        yield f"  decide      {term.text}"
    if not any(isinstance(predicate, Band) for predicate in join.predicates):
        yield "  find        no band and no equality: every combination inside the window is tested"
    yield f"  result      {', '.join(bound.result_schema.names)}"
    yield f"  fingerprint {bound.fingerprint}"


def _grid(plan: Plan, rates: Sequence[float] | None) -> Iterator[str]:
    layout, names = plan.layout, plan.bound.names
    rates = rates or [1.0] * len(names)
    labels = f"{plan.partitions} state partitions, labels {list(plan.labels)}"
    yield f"  layout      {layout} = {layout.cells} cells on {labels}"
    for number, name in enumerate(names):
        yield f"  {name:<11} {layout.counts[number]} groups, each tuple in {layout.copies(number)} cells"
    if sum(rates) > 0:
        yield f"  cost        {layout.copied_rows(rates) / sum(rates):.2f} stored rows for each row read"


def _exchange(plan: Plan) -> Iterator[str]:
    yield f"  way         {_WAYS[plan.exchange]}"
    if plan.foreign:
        yield "  lateness    judged against Spark's watermark at each batch's start (foreign DataFrames have no order)"
    else:
        yield "  lateness    by each stream's own order: the same rows are late whatever the batching"


def _bounds(bound: BoundJoin, condition: Condition) -> str:
    """``[-6h, 0s]`` for times, ``[-5, 5]`` for numbers."""
    stream, key = condition.left_stream, bound.keys[condition.left_stream][condition.left_key]
    if key.column not in bound.schemas[stream].names:  # a number, or a stamp of the source
        low, high = (("any" if abs(end) >= 1 << 62 else str(end)) for end in (condition.lo, condition.hi))
        return f"{key.column} - {bound.keys[condition.right_stream][condition.right_key].column} in [{low}, {high}]"
    kind = bound.schemas[stream].field(key.column).type
    if pa.types.is_timestamp(kind):
        return f"[{_signed(condition.lo)}, {_signed(condition.hi)}]"
    if pa.types.is_date(kind):
        return f"[{condition.lo}, {condition.hi}] days"
    if pa.types.is_decimal(kind):
        return f"[{condition.lo}, {condition.hi}] of 1e-{kind.scale}"
    return f"[{condition.lo}, {condition.hi}]"


def _signed(microseconds: int | float) -> str:
    text = duration_text(abs(int(microseconds)))
    return f"-{text}" if microseconds < 0 else text
