"""A plan in words: what the join asks for, how it is laid out, and what each choice costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from streamjoin_ds.plan.execution import Execution
from streamjoin_ds.plan.layout_choice import SHIPPING_SLACK, best_layouts, layout_cost
from streamjoin_ds.plan.load import Load
from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.spec import Band, BoundJoin, Condition, duration_text

__all__ = ["explain"]

_WAYS = {
    "reference": "by reference: blocks in the checkpoint's folder, which every worker maps",
    "packed": "packed inline: each block's bytes in one Spark row",
    "rows": "one Spark row for each tuple",
}
_ORIGINS = {"said": "as given", "found": "from the first records", "unknown": "not known: the mean"}
_COMPARISONS = {
    "float": "float64 subtraction",
    "int": "exact integers",
    "ns": "exact nanoseconds",
    "hash": "a hash, then the values",
}


def explain(
    plan: Plan,
    load: Load | None = None,
    origins: Sequence[str] = (),
    reading: Mapping[str, str] | None = None,
) -> str:
    """Return the plan as text, one fact a line. It never shows a source's path.

    Parameters
    ----------
    plan : Plan
    load : Load, optional
        The streams' rates and windows, by which the layouts are compared. By default all rates are equal.
    origins : sequence of str
        Where each stream's rate is from: "said", "found" or "unknown"; empty where no rate is known.
    reading : mapping of str to str, optional
        The source's options, after their checks.
    """
    return "\n".join(
        (
            "Join",
            *_join(plan.bound),
            "Grid",
            *_grid(plan, load or Load.of_join(plan.bound, [1.0] * len(plan.bound.names)), origins),
            "Exchange",
            *_exchange(plan, reading or {}),
            "Engine",
            *_engine(plan),
            "Commit",
            *_commit(plan),
        )
    )


def _join(bound: BoundJoin) -> Iterator[str]:
    join = bound.join
    yield f"  window      {join.window.describe(join.names)}"
    for stream, schema in zip(join.streams, bound.schemas, strict=True):
        delay = f", delay {stream.delay}" if stream.delay_us else ""
        columns = f"{len(schema)} columns travel ({', '.join(schema.names)})"
        idle = f", idle after {stream.idle_timeout} of silence" if stream.idle_timeout else ""
        ahead = f", records more than {stream.max_ahead} ahead are rejected" if stream.max_ahead else ""
        yield f"  stream      {stream.name}: time {stream.time}{delay}{idle}{ahead}, {columns}"
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


def _grid(plan: Plan, load: Load, origins: Sequence[str]) -> Iterator[str]:
    layout, names = plan.layout, plan.bound.names
    labels = f"{plan.partitions} state partitions, labels {list(plan.labels)}"
    yield f"  layout      {layout} = {layout.cells} cells on {labels}"
    for number, name in enumerate(names):
        yield f"  {name:<11} {layout.counts[number]} groups, each tuple in {layout.copies(number)} cells"
    if origins:
        told = (
            f"{name} {rate:,.6g}/s ({_ORIGINS[origin]})"
            for name, rate, origin in zip(names, load.rates, origins, strict=True)
        )
        yield f"  rates       {', '.join(told)}"
    else:
        yield "  rates       not known, taken as equal"
    total = sum(load.rates)
    if not total:
        return
    yield f"  cost        {layout_cost(layout, load).shipped_rows_per_s / total:.2f} stored rows for each row read"
    near = f"{SHIPPING_SLACK:.0%} of the fewest stored rows"
    yield f"  choices     first those within {near}, by the rows that a tuple meets"
    for cost in best_layouts(layout.cells, load):
        stored = f"{cost.shipped_rows_per_s / total:.2f} stored rows for each row read"
        met = f"; a cell holds {cost.cell_rows:,.0f} rows, a tuple meets {cost.probed_rows:,.0f}" if origins else ""
        yield f"              {cost.layout}: {stored}{met}"


def _exchange(plan: Plan, reading: Mapping[str, str]) -> Iterator[str]:
    yield f"  way         {_WAYS[plan.exchange]}"
    for name, value in sorted(reading.items()):
        yield f"  source      {name} {value}"
    if plan.foreign:
        yield "  lateness    judged by the watermark at each batch's start, because DataFrames have no order"
    else:
        yield "  lateness    by each stream's own order: the same rows are late whatever the batching"


def _engine(plan: Plan) -> Iterator[str]:
    """Yield the lines about options that may change at every restart."""
    execution = plan.execution
    yield f"  kernel      {'the best that each worker has' if execution.kernel == 'auto' else execution.kernel}"
    if execution.threads == 1:
        yield "  threads     1 for each cell"
    else:
        where = "on leased cores where some are free" if execution.pin else "not pinned"
        yield f"  threads     1 to {execution.threads} for each cell, by the work of its batch, {where}"
    yield f"  index       {_index(execution)}"
    if len(plan.bound.names) > 2:
        forced = execution.order != "auto"
        yield f"  order       {', then '.join(execution.order) if forced else 'by estimated selectivity'}"
    ratio = execution.merge_runs
    chosen = "runs in blocks are merged once, many at a time; inline runs by ratio"
    yield f"  merges      {chosen if ratio is None else f'{ratio} runs of like size become one'}"
    yield "  sizes       inline runs: as measured at each start; runs in blocks: the usual ones"


def _commit(plan: Plan) -> Iterator[str]:
    kept = "each batch is forced to the device before it counts: a power cut loses nothing"
    yield f"  durable     {kept if plan.durable else 'left to the system: a power cut may lose the last batches'}"


def _index(execution: Execution) -> str:
    if isinstance(execution.index, str):
        return "each run scanned" if execution.index == "scan" else "chosen run by run"
    told = []
    for stream, wanted in execution.index:
        if isinstance(wanted, str):
            told.append(f"{stream} {'scanned' if wanted == 'scan' else 'chosen run by run'}")
        else:
            told.append(f"{stream} {f'in buckets of {wanted[0]}, ' * (len(wanted) > 1)}sorted by {wanted[-1]}")
    return "; ".join(told) or "chosen run by run"


def _bounds(bound: BoundJoin, condition: Condition) -> str:
    """Return a condition's bounds as text: ``[-6h, 0s]`` for times, ``[-5, 5]`` for numbers."""
    stream, key = condition.left_stream, bound.keys[condition.left_stream][condition.left_key]
    if key.column not in bound.schemas[stream].names:  # a tuple's number, or a stamp of the source
        low, high = (("any" if abs(end) >= 1 << 62 else str(end)) for end in (condition.lo, condition.hi))
        return f"{key.column} - {bound.keys[condition.right_stream][condition.right_key].column} in [{low}, {high}]"
    kind = bound.schemas[stream].field(key.column).type
    if pa.types.is_timestamp(kind):
        unit = 1000 if key.kind == "ns" else 1
        return f"[{_signed(condition.lo // unit)}, {_signed(condition.hi // unit)}]"
    if pa.types.is_date(kind):
        return f"[{condition.lo}, {condition.hi}] days"
    if pa.types.is_decimal(kind):
        return f"[{condition.lo}, {condition.hi}] of 1e-{kind.scale}"
    return f"[{condition.lo}, {condition.hi}]"


def _signed(microseconds: int | float) -> str:
    text = duration_text(abs(int(microseconds)))
    return f"-{text}" if microseconds < 0 else text
