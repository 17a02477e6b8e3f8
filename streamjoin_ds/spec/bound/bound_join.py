"""A join whose columns' types are known: keys to compare, bounds that are exact for their type, columns of a result.

::

    predicate on columns            key kind     compared as
    ──────────────────────────      ────────     ──────────────────────────────────────────
    float (with float or integer)   float        float64: subtract, compare (the one exact form); =: values
    integer, date, timestamp        int          int64, never overflowing
    timestamp in nanoseconds        ns           int64 nanoseconds (`inside`)
    decimal, one scale              int          scaled int64; others as conditions, which find by limits
    boolean, =                      int          0 or 1
    string or binary, =             hash         64-bit hash finds, the values themselves decide
    list or struct, =               hash         the same, of the bytes that stand for the value (`nested_values`)
    conditions on several streams   terms        decided on the combinations that were found (`evaluation`)
    what these say of where         limit        float64, mostly wider than the condition: to find (`finders`)
    conditions on one stream        filters      decided at the source

    Join, schemas ── binding ──► BoundJoin
                                  ├── keys and conditions     what kernels test
                                  ├── terms                   conditions that decide on several streams, or filter one
                                  ├── finders, limits         what the terms say of where their pairs can be
                                  └── columns, calculations   what travels, and what a result row holds

A `Condition` is what kernels test: an interval of the difference of two keys, or what the window says as such.

The *fingerprint* is sixteen bytes that change when the result could change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.spec.bound.bound_columns import ResultColumn
from streamjoin_ds.spec.bound.calculations import BoundAggregate, Distance, Output
from streamjoin_ds.spec.bound.finders import NO_FINDERS, Finders
from streamjoin_ds.spec.bound.limit import Limit
from streamjoin_ds.spec.bound.terms import Term
from streamjoin_ds.spec.columns import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    SEQ,
    TIMESTAMP,
    TS,
    Mask,
    result_type,
    schema_facts,
    schema_text,
)
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.expression.evaluation import holds
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.inside import inside_schema, nanoseconds_name
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.source import Generator, identity_of
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.row_kind import RANK, RowKind
from streamjoin_ds.spec.window import WINDOW_ID, PeriodicWindow, WindowRule

__all__ = [
    "CONTRACT_VERSION",
    "SEQ",
    "TS",
    "BoundJoin",
    "Condition",
    "Key",
    "ResultColumn",
    "Term",
    "fingerprint",
    "key_number",
    "result_type",
    "tighter_times",
    "window_conditions",
    "window_rules",
]


# To be raised when the contract changes what a join means.
CONTRACT_VERSION = 1


def fingerprint(facts: Mapping[str, object]) -> str:
    """Return the digest, 32 hexadecimal digits, of all that decides the rows of the result.

    Parameters
    ----------
    facts : mapping
        Plain JSON values; `BoundJoin.fingerprint` says which. Order counts in lists, not in mappings.
    """
    text = json.dumps([CONTRACT_VERSION, facts], sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())


@dataclass(frozen=True, slots=True)
class Key:
    """A column of one stream, and the form in which it is compared: ``kind`` is "float", "int", "ns" or "hash".

    The kind "limit" is of a `Limit`, and `column` is then its text.
    """

    column: str
    kind: str


@dataclass(frozen=True, slots=True)
class Condition:
    """``lo <= left key - right key <= hi``, both ends included, or an equality; the left stream has the lower number.

    Parameters
    ----------
    left_stream, right_stream : int
        Numbers of the streams, ``left_stream < right_stream``.
    left_key, right_key : int
        Numbers of the keys among their stream's keys.
    kind : str
        The kind of both keys.
    lo, hi : int or float
        Floats for the kinds "float" and "limit", integers within int64 for "int" and "ns"; both 0 for "hash". A
        condition that only finds may have an infinite end.
    text : str
        The predicate or rule that the condition stands for.
    interval_number : int
        Of a condition that is one end of an interval: the number of the interval. -1: it is none.
    is_equality : bool
        Whether floats are compared as values, so that infinities are equal to themselves; `lo` and `hi` are 0 then. Of
        other keys it says nothing: there a difference of 0 and equal values are one.
    """

    left_stream: int
    right_stream: int
    left_key: int
    right_key: int
    kind: str
    lo: int | float
    hi: int | float
    text: str
    interval_number: int = -1
    is_equality: bool = False


def window_rules(join: JoinParts) -> list[WindowRule]:
    """Return the window's rules for each pair of streams whose tuples may be partners."""
    rules = join.window.rules(join.names)
    return [rule for rule in rules if rule.left_stream == 0] if join.row_kind.of_each else rules


def window_conditions(join: JoinParts, keys: list[list[Key]]) -> list[Condition]:
    """Return the window's rules as conditions: ``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i`` for each pair."""
    conditions = []
    for rule in window_rules(join):
        sides = ((rule.left_stream, rule.left_column), (rule.right_stream, rule.right_column))
        numbers = [0 if column is None else key_number(keys[stream], Key(column, "int")) for stream, column in sides]
        text = f"window of {join.names[rule.left_stream]} and {join.names[rule.right_stream]}"
        conditions.append(
            Condition(rule.left_stream, rule.right_stream, numbers[0], numbers[1], "int", rule.lo, rule.hi, text)
        )
    return conditions


def tighter_times(conditions: Sequence[Condition], finders: Finders) -> list[Condition]:
    """Return what is known of the event times of two streams, where it is more than the conditions on them say."""
    known: dict[tuple[int, int], tuple[int | float, int | float]] = {}
    for condition in conditions:
        if condition.left_key == condition.right_key == 0:
            pair = (condition.left_stream, condition.right_stream)
            lo, hi = known.get(pair, (-math.inf, math.inf))
            known[pair] = (max(lo, condition.lo), min(hi, condition.hi))
    tighter, texts = dict(known), {}
    for moment in finders.times:
        pair = (min(moment.left_stream, moment.right_stream), max(moment.left_stream, moment.right_stream))
        lo, hi = tighter.get(pair, (-math.inf, math.inf))
        is_turned = moment.left_stream > moment.right_stream
        tighter[pair] = (max(lo, -moment.most_us), hi) if is_turned else (lo, min(hi, moment.most_us))
        texts[pair] = moment.text
    found = []
    for pair, (lo, hi) in tighter.items():
        if known.get(pair) != (lo, hi) and lo <= hi:
            lo, hi = max(lo, INT64_MIN), min(hi, INT64_MAX)
            found.append(Condition(*pair, 0, 0, "int", int(lo), int(hi), texts[pair]))
    return found


def key_number(keys: list[Key], key: Key) -> int:
    """Return the number of a key among those of its stream, to which it is added where it is none of them."""
    if key not in keys:
        keys.append(key)
    return keys.index(key)


@dataclass(frozen=True)
class BoundJoin:
    """A join as the engine, the source and the sink need it; made by `binding.bind`.

    Attributes
    ----------
    join : JoinParts
        The join as the user wrote it.
    schemas : tuple of pyarrow.Schema
        For each stream the columns that travel from the source to the cells (selected, compared, event time), in the
        source's order. A compared column has its `compared_type`, any other its `result_type`.
    keys : tuple of tuple of Key
        For each stream its keys; key 0 is always the event time.
    conditions : tuple of Condition
        First the window's rules for each pair of streams, then the bands and equalities. These are sorted, so that
        joins that mean the same have the same keys and conditions, in whatever order and form they were written.
    terms : tuple of Term
        The residuals: what hashes and bands cannot decide, each on two streams or more; sorted.
    filters : tuple of tuple of Term
        For each stream the conditions on it alone, from its `where` and from the predicates. Only tuples for which
        they are TRUE travel.
    read_schemas : tuple of pyarrow.Schema
        The columns that are read from the source: those of `schemas`, and those that only filters and `unique` need.
    result : tuple of ResultColumn
        The selected columns, in the order of the streams; `result_schema` adds the other columns of a result.
    bars : tuple of tuple of Term
        For each stream the conditions on it alone that keep a tuple from having partners, and are no filters: those
        of the predicates, where a tuple without a partner makes a row (`how`).
    finders : Finders
        What the terms say of where their pairs can be. It changes no row of the result, and no fingerprint.
    distance : Distance or None
        What puts a tuple's partners in order, where only the nearest of them make rows.
    outputs : tuple of Output
        The calculated columns of the result, behind those of `result`.
    aggregates : tuple of BoundAggregate
        With `reduce`: the columns that sum up a tuple's partners.
    """

    join: JoinParts
    schemas: tuple[pa.Schema, ...]
    keys: tuple[tuple[Key, ...], ...]
    conditions: tuple[Condition, ...]
    terms: tuple[Term, ...]
    filters: tuple[tuple[Term, ...], ...]
    read_schemas: tuple[pa.Schema, ...]
    result: tuple[ResultColumn, ...]
    bars: tuple[tuple[Term, ...], ...] = ()
    finders: Finders = NO_FINDERS
    distance: Distance | None = None
    outputs: tuple[Output, ...] = ()
    aggregates: tuple[BoundAggregate, ...] = ()

    @property
    def how(self) -> str:
        """The kind of the join: "inner", "left", "right", "full", "semi" or "anti"."""
        return self.join.how

    @property
    def row_kind(self) -> RowKind:
        """What the rows of the join are about."""
        return self.join.row_kind

    @property
    def decided(self) -> tuple[int, ...]:
        """The streams whose tuples are decided at their horizon; none of an inner join of all partners."""
        return self.row_kind.decided

    @property
    def has_ranks(self) -> bool:
        """Whether a tuple may have several of its nearest partners in the result, which a column numbers."""
        return self.join.nearest is not None and self.join.nearest.k > 1

    @property
    def holds_values(self) -> bool:
        """Whether an aggregate holds values of many partners until all are known."""
        return any(one.holds_values for one in self.aggregates)

    def horizon(self, stream: int, watermark_us: int | None) -> int | None:
        """Return the event time below which a decided stream's tuples can meet nothing new: ``watermark - W``."""
        return self.join.window.lowest_kept(stream, watermark_us, None)

    def kept_extent(self, stream: int) -> int:
        """Return how long a stream's tuples are kept, in the unit of its window's positions.

        It is the window's extent, and where the other stream's tuples are decided at their horizon, theirs besides.
        """
        return self.join.window.extent(stream) + max(
            (self.join.window.extent(other) for other in self.decided if other != stream), default=0
        )

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """Return the position below which no tuple of this stream can be met; arguments of `WindowKind.lowest_kept`.

        A tuple may be met by tuples to come, and by those that wait for their horizon.
        """
        lowest = self.join.window.lowest_kept(stream, watermark_us, next_seq)
        return None if lowest is None else lowest - self._waits[stream]

    @cached_property
    def _waits(self) -> tuple[int, ...]:
        """How much longer than its window's extent a stream's tuples are kept; each push asks."""
        extent = self.join.window.extent
        return tuple(self.kept_extent(stream) - extent(stream) for stream in range(len(self.names)))

    @property
    def end_us(self) -> int:
        """The watermark, in microseconds, when all streams have ended: every window is empty, and no tuple waits."""
        extents = [self.join.window.extent(stream) for stream in range(len(self.names))]
        return MAX_TS_US + 1 + (sum(extents) if self.join.window.kind != "count" else 0)

    def punctuation_us(self, watermark_us: int | None) -> int | None:
        """Return the event time before which all results are there at a watermark; None: it is not known yet.

        It is the watermark, and where tuples are decided at their horizon the smallest of the horizons.
        """
        if watermark_us is None or not self.decided:
            return watermark_us
        lowest = watermark_us - max(self.join.window.extent(stream) for stream in self.decided)
        return None if lowest < MIN_TS_US else lowest

    @property
    def names(self) -> tuple[str, ...]:
        """The streams' names, in order."""
        return self.join.names

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of the streams, then of the tables: what has a number in `schemas`, `keys` and `conditions`."""
        return self.join.member_names

    @property
    def has_window_ids(self) -> bool:
        """Whether a result is found once in each window, and carries the window's id: only periodic windows do that."""
        return isinstance(self.join.window, PeriodicWindow)

    @cached_property
    def window_conditions(self) -> int:
        """How many of the conditions are the window's; they come first."""
        return len(window_rules(self.join))

    @cached_property
    def position_keys(self) -> tuple[int, ...]:
        """For each stream the key in which its window is measured: the event time; in a count window the number."""
        position, count = Key(SEQ, "int"), len(self.names) if self.join.window.kind == "count" else 0
        return tuple(keys.index(position) if n < count else 0 for n, keys in enumerate(self.keys))

    @cached_property
    def limits(self) -> tuple[tuple[Limit, ...], ...]:
        """For each stream the limits by which it is found; as keys they come behind `keys`."""
        found: list[list[Limit]] = [[] for _ in self.member_names]
        for stream, limit in self.finders.limits:
            if limit not in found[stream]:
                found[stream].append(limit)
        return tuple(map(tuple, found))

    @cached_property
    def index_keys(self) -> tuple[tuple[Key, ...], ...]:
        """For each stream its keys, and those by which it is only found: a key for each of `limits`."""
        return tuple(
            (*keys, *(Key(limit.text, "limit") for limit in limits))
            for keys, limits in zip(self.keys, self.limits, strict=True)
        )

    def limit_key(self, stream: int, limit: Limit) -> int | None:
        """Return the number of the key that a limit of a stream is; None where it is none of `limits`."""
        own = self.limits[stream]
        return len(self.keys[stream]) + own.index(limit) if limit in own else None

    @cached_property
    def finding(self) -> tuple[Condition, ...]:
        """What `finders` say as conditions on `index_keys`: they hold for all results, and for other pairs too."""

        def key(stream: int, limit: Limit) -> int:
            number = self.limit_key(stream, limit)
            assert number is not None
            return number

        found = tighter_times(self.conditions, self.finders)
        for band in self.finders.bands:
            left, right = key(band.left_stream, band.left), key(band.right_stream, band.right)
            found.append(
                Condition(band.left_stream, band.right_stream, left, right, "limit", -band.eps, band.eps, band.text)
            )
        for number, one in enumerate(self.finders.intervals):
            for bound in one.bounds:
                low, high = key(bound.low_stream, bound.low), key(bound.high_stream, bound.high)
                sides = (bound.low_stream, bound.high_stream, low, high, "limit", -math.inf, 0.0)
                if bound.low_stream > bound.high_stream:
                    sides = (bound.high_stream, bound.low_stream, high, low, "limit", 0.0, math.inf)
                found.append(Condition(*sides, " and ".join(one.texts), number))
        return tuple(found)

    def stamps(self, stream: int) -> tuple[str, ...]:
        """Return the inside columns that the source stamps on a stream's tuples for the window: int64, never null."""
        return self._stamps[stream] if stream < len(self.names) else ()

    @cached_property
    def fingerprint(self) -> str:
        """A digest that changes whenever the result could change: the bound join counts, not how it was written.

        Where the tuples lie does not count (a file may be moved; digests check what was read of it). Which streams are
        over one input does count, and so do a generator's parameters. Layout, batch size and the way of the exchange
        do not count: by the contract they change nothing.
        """
        streams = [
            {
                "name": stream.name,
                "time": [stream.time, stream.time_unit],
                **stream.clock_facts,
                "delay_us": stream.delay_us,
                "generator": stream.source.to_facts() if isinstance(stream.source, Generator) else None,
                "columns": schema_facts(schema),
                # left out if there are none, so that older joins keep their fingerprint
                **({} if stream.partition_kind is None else {"partition_by": stream.partition_kind}),
                **({"devices": [*stream.device_columns]} if stream.device_columns else {}),
                **{name: value for name, (_, value) in identity_of(stream.source).items()},
                **({} if stream.unique is None else {"unique": sorted(stream.unique)}),
                **({"computed": self.computed(number)} if self.computed(number) else {}),
            }
            for number, (stream, schema) in enumerate(zip(self.join.streams, self.schemas, strict=False))
        ]
        facts = {
            "streams": streams,
            "conditions": [self._condition_facts(condition) for condition in self.conditions],
            "residuals": [term.facts for term in self.terms],
            "result": [astuple(column) for column in self.result],
            "self_pairs": "included" if self.join.include_self_pairs else self.same_inputs,
        }
        if self.has_window_ids:
            facts["window"] = self.join.window.to_facts()  # the conditions alone are wider than a periodic window
        if any(self.filters):  # left out if empty, so that joins from before there were filters keep their fingerprint
            facts["filters"] = [[term.facts for term in terms] for terms in self.filters]
        if self.outputs:  # likewise
            facts["outputs"] = [output.facts for output in self.outputs]
        if self.how != "inner":  # likewise
            facts["how"] = self.how
            facts["bars"] = [[term.facts for term in terms] for terms in self.bars]
        if self.join.nearest is not None and self.distance is not None:  # the window has the direction
            facts["nearest"] = [self.join.nearest.k, self.distance.facts]
        if self.aggregates:  # likewise
            facts["reduce"] = [one.facts for one in self.aggregates]
        if self.join.tables:  # likewise; where the rows are does not count, nor does a version
            tables = zip(self.join.tables, self.schemas[len(self.names) :], strict=True)
            facts["tables"] = [{"name": table.name, "columns": schema_facts(schema)} for table, schema in tables]
        return fingerprint(facts)

    def _condition_facts(self, condition: Condition) -> list[object]:
        left = self.keys[condition.left_stream][condition.left_key].column
        right = self.keys[condition.right_stream][condition.right_key].column
        facts = [condition.left_stream, left, condition.right_stream, right, condition.kind, condition.lo, condition.hi]
        # An equality has the facts that it had before it was another thing than a band of no width.
        is_difference = condition.kind == "float" and condition.lo == condition.hi == 0 and not condition.is_equality
        return [*facts, "difference"] if is_difference else facts

    @property
    def same_inputs(self) -> list[int]:
        """For each stream the number of the first stream over the same input: between such streams are self-pairs."""
        sources = [stream.location for stream in self.join.streams]
        return [number if source is None else sources.index(source) for number, source in enumerate(sources)]

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Selected and calculated columns, ``<name>_seq``, ``window_id`` if periodic, ``event_time``, ``batch_id``.

        Aggregates and calculated columns may be null. Selected ones that are compared are never null, nor are the
        other columns of a result. With `how` (`HOWS`) a row may lack one of the streams: all its columns are null
        there, its number too. A tuple without a partner may have nulls in compared columns. A row of "semi" and "anti"
        has the columns of the first stream alone, and so has one of `reduce`, besides its aggregates. With `nearest`
        and several partners ``rank`` numbers them, from 1; a tuple without a partner has none.
        """
        absent, lonely = self.row_kind.absent, self.row_kind.lonely
        compared = {(n, key.column) for n, keys in enumerate(self.keys) for key in keys if n not in lonely}
        filtering = [term for filters in self.filters for term in filters]
        rejecting = {(self.member_names.index(c.stream), c.name) for term in self.terms for c in term.rejecting}
        compared |= {(stream, name) for stream, name in rejecting if stream not in lonely}
        compared |= {(self.member_names.index(c.stream), c.name) for term in filtering for c in term.rejecting}
        fields = []
        for column in self.result:
            field = self.schemas[column.stream].field(column.column)
            is_time = column.column == self.join.members[column.stream].time
            never_null = is_time or (column.stream, column.column) in compared
            kind = TIMESTAMP if field.type == NANOSECONDS else field.type
            is_nullable = column.stream in absent or (field.nullable and not never_null)
            fields.append(pa.field(column.name, kind, nullable=is_nullable))
        fields += [pa.field(output.name, output.kind) for output in self.outputs]
        fields += [one.field for one in self.aggregates]
        fields += [
            pa.field(f"{self.member_names[n]}_seq", pa.int64(), nullable=n in absent) for n in self.row_kind.shown
        ]
        if self.has_window_ids:
            fields.append(pa.field(WINDOW_ID, pa.int64(), nullable=False))
        if self.has_ranks:
            fields.append(pa.field(RANK, pa.int64(), nullable=bool(absent)))
        fields.append(pa.field("event_time", TIMESTAMP, nullable=False))
        fields.append(pa.field("batch_id", pa.int64(), nullable=False))
        return pa.schema(fields)

    def computed(self, stream: int) -> list[object]:
        """Return what the computed columns that a stream reads are made of, as plain JSON values."""
        columns = self.join.streams[stream].columns
        return [] if columns is None else columns.identity(self.read_schemas[stream].names)

    @property
    def written_schemas(self) -> tuple[pa.Schema, ...]:
        """For each stream and table the columns that the source has to read; see `read_schemas`."""
        return tuple(
            read_columns(member, schema) if isinstance(member, Stream) else schema
            for member, schema in zip(self.join.members, self.read_schemas, strict=True)
        )

    def tuple_schema(self, stream: int) -> pa.Schema:
        """Return the columns of a stream's tuples in the inside form (`inside`).

        They are ``_ts`` and ``_seq`` (int64), those of `schemas`, then the stamps. The event time column itself is not
        repeated: it is ``_ts``, seen as a timestamp. A column of nanoseconds that is compared becomes two columns.
        """
        return self._tuple_schemas[stream]

    def read_schema(self, stream: int) -> pa.Schema:
        """Return `tuple_schema` with the columns that only filters, keys and clocks need: tuples as they are read."""
        return self._read_schemas[stream]

    @cached_property
    def _stamps(self) -> list[tuple[str, ...]]:
        return [self.join.window.stamps(stream, self.names) for stream in range(len(self.names))]

    @cached_property
    def _tuple_schemas(self) -> list[pa.Schema]:
        return [self._inside(stream, schema) for stream, schema in enumerate(self.schemas)]

    @cached_property
    def _read_schemas(self) -> list[pa.Schema]:
        return [self._inside(stream, schema) for stream, schema in enumerate(self.read_schemas)]

    def _inside(self, stream: int, schema: pa.Schema) -> pa.Schema:
        stamps = [pa.field(name, pa.int64(), nullable=False) for name in self.stamps(stream)]
        return pa.schema([*inside_schema(schema, self.join.members[stream].time), *stamps])

    def inside_name(self, stream: int, column: str) -> str:
        """Return the inside column from which a result's column is made: for the event time ``_ts``, else itself."""
        return TS if column == self.join.members[stream].time else column

    def compared_name(self, stream: int, column: str) -> str:
        """Return the inside column that conditions test for a column: that of its nanoseconds, if it has them."""
        if self.read_schemas[stream].field(column).type == NANOSECONDS:
            return nanoseconds_name(column)
        return self.inside_name(stream, column)

    def key_name(self, stream: int, key: Key) -> str:
        """Return the inside column from which a key is made."""
        return nanoseconds_name(key.column) if key.kind == "ns" else self.inside_name(stream, key.column)

    def let_through(self, stream: int, tuples: pa.RecordBatch) -> Mask | None:
        """Return which tuples of `read_schema` the stream's filters let through; None if the stream has no filter."""
        if not self.filters[stream]:
            return None

        def column(wanted: Column) -> pa.Array:
            return tuples.column(self.compared_name(stream, wanted.name))

        mask = np.ones(tuples.num_rows, dtype=np.bool_)
        for term in self.filters[stream]:
            mask &= holds(term.condition, tuples.num_rows, column)
        return mask

    def to_facts(self) -> dict[str, object]:
        """Return the bound join as plain JSON values; `bound_from_facts` makes the join of them again."""
        return {"join": self.join.to_facts(), "schemas": [schema_text(schema) for schema in self.written_schemas]}
