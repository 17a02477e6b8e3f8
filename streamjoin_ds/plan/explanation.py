"""A plan in words: what the join asks for, how it is laid out, and what each choice costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from streamjoin_ds.plan.execution import DEFAULT_EXECUTION, EXECUTION_OPTIONS, Execution
from streamjoin_ds.plan.key_samples import KeyHint, attributes_of
from streamjoin_ds.plan.layout import CellLayout, Layout
from streamjoin_ds.plan.layout_choice import (
    SHIPPING_SLACK,
    Load,
    best_layouts,
    copied_streams,
    deciding_layouts,
    keeps_whole,
    layout_cost,
)
from streamjoin_ds.plan.layout_kind import best_ranges, choose_kind
from streamjoin_ds.plan.plan import CHOICE_CELLS, Plan
from streamjoin_ds.plan.range_layout import RangeLayout
from streamjoin_ds.spec import Band, BoundJoin, Condition, Stream, duration_text
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.member.source import DeltaRows, given_options
from streamjoin_ds.spec.member.unique_key import span_us

__all__ = ["Explanation", "explain"]


_WAYS = {
    "reference": "by reference: blocks in the checkpoint's folder, which every worker maps",
    "packed": "packed inline: each block's bytes in one Spark row",
}
_ORIGINS = {"said": "as given", "found": "from the first records", "unknown": "not known: the mean"}
_CHANGES = {
    "auto": (
        "between grids, by the streams' rates; "
        f"on {CHOICE_CELLS} cells and more to ranges or back to a grid, by a sample of the keys"
    ),
    "grid": "between grids, by the streams' rates",
    "ranges": "between ranges, by a sample of the keys",
}
_SAID = ("kernel", "threads", "pin", "index", "order", "merge_runs")  # options that have words of their own
# Options of sources that have words of their own.
_TOLD = (
    *("format", "partition_by", "sub_folders", "file_order", "finished_after"),
    *("on_change", "starting_version", "starting_timestamp"),
)
_COMPARISONS = {
    "float": "float64 subtraction",
    "int": "exact integers",
    "ns": "exact nanoseconds",
    "hash": "a hash, then the values",
}


_HOW = {
    "left": "left: pairs, and tuples of {0} without a partner when none can come any more",
    "right": "right: pairs, and tuples of {1} without a partner when none can come any more",
    "full": "full: pairs, and tuples of {0} and {1} without a partner when none can come any more",
    "semi": "semi: tuples of {0} with a partner, when all partners are known",
    "anti": "anti: tuples of {0} without a partner, when none can come any more",
}


_OF_EACH = {
    "semi": "semi: tuples of {0} with a partner in each of {others}, when all partners are known",
    "anti": "anti: tuples of {0} without a partner in any of {others}, when none can come any more",
}


_NEAREST = {
    "inner": "inner: tuples of {0}, each with its nearest of {1}, when all partners are known",
    "left": "left: tuples of {0}, each with its nearest of {1} or alone, when all partners are known",
}


_SUMMED = {
    "inner": "inner: tuples of {0} with a partner, and sums over their partners, when all are known",
    "left": "left: all tuples of {0}, and sums over their partners, when all are known",
}


class Explanation(str):
    """A text that a notebook, and the prompt of Python, show in lines and not between quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(
    plan: Plan,
    load: Load | None = None,
    origins: Sequence[str] = (),
    reading: Mapping[str, str] | None = None,
    keys: KeyHint | None = None,
    unanswered: Mapping[str, str] | None = None,
    warnings: Sequence[str] = (),
    tuples: Mapping[str, Sequence[str]] | None = None,
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
    keys : KeyHint, optional
        A sample of the keys that the inputs begin with, by which ranges and a grid are compared.
    unanswered : mapping of str to str, optional
        By stream the code of the error that its source gave when it was asked for a rate.
    warnings : sequence of str
        What the first records of the inputs show that is likely to be a mistake.
    tuples : mapping of str to sequence of str, optional
        By stream its first tuples.
    """
    return "\n".join(
        (
            "Join",
            *_join(plan.bound),
            "Grid",
            *_grid(plan, load or Load.of_join(plan.bound, [1.0] * len(plan.bound.names)), origins),
            *(
                f"  not read    the source of {name}: {code}. So its rate is not known, and a start fails"
                for name, code in (unanswered or {}).items()
            ),
            *_by_keys(plan, keys),
            "Exchange",
            *_exchange(plan, reading or {}),
            "Engine",
            *_engine(plan),
            "Commit",
            *_commit(plan),
            *_inputs(warnings, tuples or {}),
        )
    )


def _inputs(warnings: Sequence[str], tuples: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what the inputs begin with."""
    if warnings or any(tuples.values()):
        yield "Input"
    for name, texts in tuples.items():
        yield from (f"  {'' if number else name:<11} {text}" for number, text in enumerate(texts))
    yield from (f"  warning     {text}" for text in warnings)


def _join(bound: BoundJoin) -> Iterator[str]:
    join = bound.join
    told = join.window.describe(join.names) if len(join.names) > 1 else "none: a single stream meets tables alone"
    yield f"  window      {told}"
    if bound.decided or bound.row_kind.at_once:
        kinds = _SUMMED if bound.aggregates else _HOW if join.nearest is None else _NEAREST
        kinds = _OF_EACH if bound.row_kind.of_each else kinds
        *others, last = join.member_names[1:]
        told = kinds[bound.how].format(*join.member_names, others=f"{', '.join(others)} and {last}")
        yield f"  how         {told.partition(', when ')[0] if bound.row_kind.at_once else told}"
    if join.nearest is not None and bound.distance is not None:
        yield f"  nearest     the {join.nearest.k} of {join.member_names[1]} with the smallest {bound.distance.text}"
    for one in bound.aggregates:
        yield f"  reduce      {one.name} = {one.text}   {one.field.type}"
    for stream, schema in zip(join.streams, bound.schemas, strict=False):
        delay = f", delay {stream.delay}" if stream.delay_us else ""
        columns = f"{len(schema)} columns travel ({', '.join(schema.names)})"
        idle = f", idle after {stream.idle_timeout} of silence" if stream.idle_timeout else ""
        ahead = f", records more than {stream.max_ahead} ahead are rejected" if stream.max_ahead else ""
        what = "partition of the topic" if stream.is_topic else stream.partition_kind
        parts = f", each {what} a partition" if what else ""
        parts += f", each {'/'.join(stream.device_columns)} with a clock of its own" if stream.device_columns else ""
        form = f" of the form {' or '.join(stream.time_forms)}" if stream.time_forms else ""
        zone = f" in {'the zone of column ' * (stream.zone_column is not None)}{stream.timezone}" * bool(
            stream.timezone
        )
        yield f"  stream      {stream.name}: time {stream.time}{form}{zone}{delay}{idle}{ahead}{parts}, {columns}"
        for name, expression in () if stream.columns is None else stream.columns.expressions:
            yield f"  computed    {stream.name}.{name} = {expression}"
        yield from _table(stream)
        yield from _source(stream)
    for table, schema in zip(join.tables, bound.schemas[len(join.streams) :], strict=True):
        columns = f"{len(schema)} columns travel ({', '.join(schema.names)})"
        looked = f"looked for every {table.refresh}" if table.refresh_us else "looked for at each batch"
        looked += "" if table.format == "delta" else f" (a file: once unchanged for {table.finished_after})"
        version = f"one version a batch, a new one {looked}" if table.source else "its rows are read at each start"
        yield f"  table       {table.name}: no window, {version}, {columns}"
        if options := [f"{name}={_shown(getattr(table, name))}" for name in table.text_facts]:
            yield f"  source      {table.name}: {', '.join(options)}"
    yield from _unique(bound)
    for condition in bound.conditions:
        compared = "float64 values" if condition.is_equality else _COMPARISONS[condition.kind]
        yield f"  find        {condition.text}   {_bounds(bound, condition)} by {compared}"
    yield from _finding(bound)
    for name, filters in zip(join.member_names, bound.filters, strict=True):
        for term in filters:
            yield f"  filter      {term.text}   at the source of {name}"
    for name, bars in zip(join.member_names, bound.bars, strict=True):
        for term in bars:
            yield f"  bar         {term.text}   else a tuple of {name} has no partner"
    for term in bound.terms:
        yield f"  decide      {term.text}"
    if not bound.finding and not any(isinstance(predicate, Band) for predicate in join.predicates):
        yield "  find        no band and no equality: every combination inside the window is tested"
    for output in bound.outputs:
        yield f"  calculate   {output.name} = {output.text}   {output.kind}"
    yield f"  result      {', '.join(bound.result_schema.names)}"
    yield f"  fingerprint {bound.fingerprint}"


def _unique(bound: BoundJoin) -> Iterator[str]:
    for number, stream in enumerate(bound.join.streams):
        if stream.unique_key:
            columns, span = ", ".join(stream.unique_key), duration_text(span_us(bound.join.window, number))
            where = "" if stream.partition_kind is None else " of a partition"
            where = f" of a {'/'.join(stream.device_columns)}" if stream.device_columns else where
            text = f"one tuple{where} for each {columns} within {span}; the others are duplicates"
            yield f"  unique      {stream.name}: {text}"


def _finding(bound: BoundJoin) -> Iterator[str]:
    """Yield how conditions find that decide as well: each is also among the lines that say what decides."""
    for condition in bound.finding:
        if condition.kind == "int":
            text = f"[{_signed(condition.lo)}, {_signed(condition.hi)}] between the event times"
            yield f"  find        {condition.text}   {text}, with the window"
    for band in bound.finders.bands:
        yield f"  find        {band.text}   {band.left.text} within {band.eps:.6g} of {band.right.text}"
    for one in bound.finders.intervals:
        ends = " and ".join(f"{bound.low.text} <= {bound.high.text}" for bound in one.bounds)
        yield f"  find        {' and '.join(one.texts)}   by the interval {ends}"


def _table(stream: Stream) -> Iterator[str]:
    """Yield a line about a stream over a Delta table."""
    if stream.reads_results:
        yield f"  table       {stream.name}: the results of a join that are complete, by event time and numbers"
    source = stream.source
    if not isinstance(source, DeltaRows) or source.format != "delta":
        return
    begin = "with the rows that it has"
    if source.starting_version is not None:
        latest = source.starting_version == "latest"
        begin = "after its newest version" if latest else f"with the changes of version {source.starting_version}"
    elif source.starting_timestamp is not None:
        begin = f"with the first version since {source.starting_timestamp}"
    changes = "are ignored" if source.on_change == "ignore" else "stop the stream"
    yield f"  table       {stream.name}: begins {begin}, then by version; deletes and updates {changes}"


def _shown(value: object) -> str:
    """Return the value of an option as a text says it: ``MM|temp=-9999``, ``4 3 3``."""
    if isinstance(value, Mapping):
        return "|".join(f"{name}={text}" if name else text for name, texts in value.items() for text in texts)
    if not isinstance(value, tuple):
        return str(value)
    return ("|" if isinstance(value[0], str) else " ").join(map(str, value))


def _source(stream: Stream) -> Iterator[str]:
    """Yield a line about files that are not read in the usual way, and one with other options of a source."""
    options = [f"{name}={_shown(value)}" for name, value in given_options(stream.source).items() if name not in _TOLD]
    if options:
        yield f"  source      {stream.name}: {', '.join(options)}"
    said: list[str] = []
    files = stream.source
    if not isinstance(files, Files):
        return
    if files.reads_sub_folders:
        said.append("sub-folders are read, by their paths")
    if files.by_modification:
        said.append("files are read whole, by time of change, then name")
    if files.finished_after is not None:
        said.append(f"a file is finished {files.finished_after} after its last change")
    if said:
        yield f"  folder      {stream.name}: {'; '.join(said)}"


def _by_keys(plan: Plan, keys: KeyHint | None) -> Iterator[str]:
    """Yield what ranges and the best grid would cost for the sampled keys."""
    attributes = attributes_of(plan.bound)
    best = best_ranges(keys, attributes, plan.cells) if keys is not None else None
    if keys is None or best is None:
        return
    reach = best.layout.reach
    kinds = choose_kind(keys.shared().key_samples(attributes.index(reach)), reach, plan.cells)
    columns = ", ".join(f"{name}.{key.column}" for name, key in zip(plan.bound.names, reach.keys, strict=True))
    yield f"  keys        those that the inputs begin with speak for {'ranges' if kinds.is_of_ranges else 'a grid'}"
    for layout, load, copies in (
        (f"{best.layout} of {columns}", best.likely_load, best.copies),
        (str(kinds.grid.layout), kinds.grid.load, kinds.grid.copies),
    ):
        fullest = f"the fullest cell has {load / best.mean_load:.2f} times the mean load"
        yield f"              {layout}: {copies:.2f} stored rows for each row read, {fullest}"


def _grid(plan: Plan, load: Load, origins: Sequence[str]) -> Iterator[str]:
    layout, names = plan.layout, plan.bound.names
    labels = f"{plan.partitions} state partitions, labels {list(plan.labels)}"
    yield f"  layout      {layout} = {layout.cells} cells on {labels}"
    yield from _dealing(layout, names)
    if plan.bound.decided:
        decided = " and ".join(names[stream] for stream in plan.bound.decided)
        yield f"  decided     tuples of {decided}{_deciding(plan.bound, layout)}"
    if layout.cells > 1 and not plan.foreign:
        yield f"  changes     {'none' if plan.layout_schedule or len(names) == 1 else _CHANGES[plan.layout_kind]}"
    if origins:
        told = (
            f"{name} {rate:,.6g}/s ({_ORIGINS[origin]})"
            for name, rate, origin in zip(names, load.rates, origins, strict=True)
        )
        yield f"  rates       {', '.join(told)}"
    else:
        yield "  rates       not known, taken as equal"
    total = sum(load.rates)
    if not total or not isinstance(layout, Layout):
        return
    yield f"  cost        {layout_cost(layout, load).shipped_rows_per_s / total:.2f} stored rows for each row read"
    near, costs = f"{SHIPPING_SLACK:.0%} of the fewest stored rows", best_layouts(layout.cells, load)
    if len(plan.bound.decided) == 1:
        costs = deciding_layouts(plan.bound, layout.cells, load)
        first = "first" if keeps_whole(plan.bound) else "if near"
        yield f"  choices     by stored rows, where a decided one counts twice; {first} the one without such answers"
    else:
        yield f"  choices     first those within {near}, by the rows that a tuple meets"
    for cost in costs:
        stored = f"{cost.shipped_rows_per_s / total:.2f} stored rows for each row read"
        met = f"; a cell holds {cost.cell_rows:,.0f} rows, a tuple meets {cost.probed_rows:,.0f}" if origins else ""
        yield f"              {cost.layout}: {stored}{met}"


def _deciding(bound: BoundJoin, layout: CellLayout) -> str:
    """Return where tuples are decided: each in one cell, or in several, whose answers are put together."""
    copied = [
        f"{layout.copies(stream)} cells tell of each tuple of {bound.names[stream]}"
        for stream in copied_streams(bound, layout)
        if isinstance(layout, Layout)
    ]
    return (
        f"; the commit puts together what {', and '.join(copied)}"
        if copied
        else ", each in one cell, which has all that it can meet"
    )


def _dealing(layout: CellLayout, names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each stream: to how many groups its tuples are dealt, or by which key."""
    if isinstance(layout, Layout):
        for number, name in enumerate(names):
            yield f"  {name:<11} {layout.counts[number]} groups, each tuple in {layout.copies(number)} cells"
    elif isinstance(layout, RangeLayout):
        for number, (name, key) in enumerate(zip(names, layout.reach.keys, strict=True)):
            where = "in the range of its key" if number == layout.anchor else "in each range that its key can reach"
            yield f"  {name:<11} each tuple {where}: {name}.{key.column}"


def _exchange(plan: Plan, reading: Mapping[str, str]) -> Iterator[str]:
    yield f"  way         {_WAYS[plan.exchange]}"
    for name, value in sorted(reading.items()):
        yield f"  source      {name} {value}"
    if plan.foreign:
        orders = {name: plan.judging_order(stream) for stream, name in enumerate(plan.bound.names)}
        if not all(orders.values()):
            is_mixed = any(orders.values())
            whose = f"of {', '.join(name for name, columns in orders.items() if not columns)} " if is_mixed else ""
            why = "without order_by they have no order" if is_mixed else "because DataFrames have no order"
            yield f"  lateness    {whose}judged by the watermark at each batch's start, {why}"
        for name, columns in orders.items():
            if columns:
                whose = "each partition's own order" if len(columns) == 2 else "the order of its numbers"
                yield f"  lateness    of {name} by {whose}: the same rows are late whatever the batching"
        for name, columns in zip(plan.bound.names, plan.order_by, strict=False):
            told = ", ".join(columns) if columns else "a hash of the row, equal rows have the same"
            yield f"  numbers     {name}: {told}"
    else:
        has_parts = any(stream.partition_kind for stream in plan.bound.join.streams)
        has_devices = any(stream.device_columns for stream in plan.bound.join.streams)
        whose = "each device's" if has_devices else "each partition's" if has_parts else "each stream's"
        yield f"  lateness    by {whose} own order: the same rows are late whatever the batching"


def _engine(plan: Plan) -> Iterator[str]:
    """Yield the lines about options that may change at every restart."""
    execution = plan.execution
    yield f"  kernel      {'the best that each worker has' if execution.kernel == 'auto' else execution.kernel}"
    if execution.threads is None:
        yield "  threads     1 for each cell; on one machine its cells share the cores"
    elif execution.threads == 1:
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
    for name in EXECUTION_OPTIONS:
        if name not in _SAID and getattr(execution, name) != getattr(DEFAULT_EXECUTION, name):
            yield f"  {name:<11} {getattr(execution, name)}"


def _commit(plan: Plan) -> Iterator[str]:
    kept = "each batch is forced to the device before it counts: a power cut loses nothing"
    yield f"  durable     {kept if plan.durable else 'left to the system: a power cut may lose the last batches'}"
    yield f"  matches     {_match_size(plan.bound.result_schema)} before they are encoded; the metrics have match_bytes"


def _match_size(schema: pa.Schema) -> str:
    """Return the size of a match as plain values, as a text."""
    fixed = {field.name: field.type for field in schema if pa.types.is_primitive(field.type)}
    size = sum(max(kind.bit_width, 32) // 8 for kind in fixed.values())  # Parquet has no narrower numbers
    others = [name for name in schema.names if name not in fixed]
    return f"{size} B each" + (f", and the values of {', '.join(others)}," if others else "")


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
