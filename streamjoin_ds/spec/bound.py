"""A join whose columns' types are known: keys to compare, bounds exact for their type, columns of a result.

::

    predicate on columns            key kind     compared as
    ──────────────────────────      ────────     ──────────────────────────────────────────
    float (with float or integer)   float        float64: subtract, compare (the one exact form)
    integer, date, timestamp        int          int64, never overflowing
    timestamp in nanoseconds        ns           int64 nanoseconds (`inside`)
    decimal, one scale              int          scaled int64
    boolean, =                      int          0 or 1
    string or binary, =             hash         64-bit hash finds, the values themselves decide
    conditions on several streams   terms        decided on the combinations that were found (`evaluation`)
    conditions on one stream        filters      decided at the source
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.bound_columns import ResultColumn, column_type_compared, result_columns, travelling_columns
from streamjoin_ds.spec.columns import NANOSECONDS, SEQ, TIMESTAMP, TS, result_type, schema_facts
from streamjoin_ds.spec.evaluation import Mask, holds
from streamjoin_ds.spec.exact import exact_bounds
from streamjoin_ds.spec.expression import Expression
from streamjoin_ds.spec.fingerprint import fingerprint
from streamjoin_ds.spec.inside import inside_schema, nanoseconds_name
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.periodic_window import WINDOW_ID, PeriodicWindow
from streamjoin_ds.spec.predicate import Band, Column, negated
from streamjoin_ds.spec.stream import Generator, check_time_column, schema_text
from streamjoin_ds.spec.terms import Term, band_condition, terms_of

__all__ = ["SEQ", "TS", "BoundJoin", "Condition", "Key", "ResultColumn", "Term", "bind", "result_type"]


@dataclass(frozen=True, slots=True)
class Key:
    """A column of one stream in the form in which it is compared: ``kind`` is "float", "int", "ns" or "hash"."""

    column: str
    kind: str


@dataclass(frozen=True, slots=True)
class Condition:
    """``lo <= left key - right key <= hi``, both ends included; the left stream has the lower number.

    Parameters
    ----------
    left_stream, right_stream : int
        Numbers of the streams, ``left_stream < right_stream``.
    left_key, right_key : int
        Numbers of the keys among their stream's keys.
    lo, hi : int or float
        Of the keys' kind: float bounds for "float", integers within int64 for "int" and "ns"; both 0 for "hash".
    text : str
        The predicate or rule it stands for.
    """

    left_stream: int
    right_stream: int
    left_key: int
    right_key: int
    kind: str
    lo: int | float
    hi: int | float
    text: str


@dataclass(frozen=True)
class BoundJoin:
    """What the engine, the source and the sink need of a join; made by `bind`.

    Attributes
    ----------
    schemas : tuple of pyarrow.Schema
        One a stream: the columns that must travel (selected, compared, event time), in the source's order, with the
        types they have inside the house (`result_type`), those that are compared as they are compared.
    keys : tuple of tuple of Key
        One list a stream; key 0 is always the event time.
    conditions : tuple of Condition
        For each pair of streams the window's rules, then the bands and equalities in an order of their own: joins that
        mean the same have the same keys and conditions, whatever the order and the form they were written in.
    terms : tuple of Term
        What hashes and bands cannot decide, in an order of their own; each on two streams or more.
    filters : tuple of tuple of Term
        One list a stream: what its tuples must be before they travel, whether the stream's `where` says so or a
        predicate does.
    read_schemas : tuple of pyarrow.Schema
        `schemas`, and the columns that only filters need: what is read from the source.
    result : tuple of ResultColumn
        Selected columns in the order of the streams; `result_schema` adds seq, event_time and batch_id.
    """

    join: JoinParts
    schemas: tuple[pa.Schema, ...]
    keys: tuple[tuple[Key, ...], ...]
    conditions: tuple[Condition, ...]
    terms: tuple[Term, ...]
    filters: tuple[tuple[Term, ...], ...]
    read_schemas: tuple[pa.Schema, ...]
    result: tuple[ResultColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The streams' names, in order."""
        return self.join.names

    @property
    def has_window_ids(self) -> bool:
        """Whether a result is found once a window, and says in which."""
        return isinstance(self.join.window, PeriodicWindow)

    @cached_property
    def window_conditions(self) -> int:
        """How many of the conditions, the first ones, are the window's."""
        return len(self.join.window.rules(self.names))

    @cached_property
    def position_keys(self) -> tuple[int, ...]:
        """Of each stream the key that its window is measured in: the event time, or the number of a count window."""
        position = Key(SEQ, "int")
        return tuple(keys.index(position) if self.join.window.kind == "count" else 0 for keys in self.keys)

    def stamps(self, stream: int) -> tuple[str, ...]:
        """Inside columns that the source stamps on a stream's tuples for the window; int64, never null."""
        return self._stamps[stream]

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever the result could: what is bound counts, not how it was written.

        Where the tuples lie does not enter (a file may be moved; what was read of it is checked by digests), but
        which streams are over one input does, and a generator's parameters do. Neither do layout, batch size or the
        way of the exchange, which the contract says change nothing.
        """
        streams = [
            {
                "name": stream.name,
                "time": [stream.time, stream.time_unit],
                "delay_us": stream.delay_us,
                "generator": stream.source.to_facts() if isinstance(stream.source, Generator) else None,
                "columns": schema_facts(schema),
            }
            for stream, schema in zip(self.join.streams, self.schemas, strict=True)
        ]
        facts = {
            "streams": streams,
            "conditions": [self._condition_facts(condition) for condition in self.conditions],
            "residuals": [term.facts for term in self.terms],
            "result": [astuple(column) for column in self.result],
            "self_pairs": "included" if self.join.include_self_pairs else self.same_inputs,
        }
        if self.has_window_ids:
            facts["window"] = self.join.window.to_facts()  # the conditions are wider than these windows
        if any(self.filters):  # left out where there are none: such joins were known before filters were
            facts["filters"] = [[term.facts for term in terms] for terms in self.filters]
        return fingerprint(facts)

    def _condition_facts(self, condition: Condition) -> list[object]:
        left = self.keys[condition.left_stream][condition.left_key].column
        right = self.keys[condition.right_stream][condition.right_key].column
        sides = [condition.left_stream, left, condition.right_stream, right]
        return [*sides, condition.kind, condition.lo, condition.hi]

    @property
    def same_inputs(self) -> list[int]:
        """For each stream the first one over the same input: those pairs of tuples leave self-pairs out."""
        sources = [stream.source for stream in self.join.streams]
        return [number if source is None else sources.index(source) for number, source in enumerate(sources)]

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Selected columns, ``<stream>_seq`` of each stream, ``window_id`` if periodic, ``event_time``, ``batch_id``.

        Those that are compared, and all that are not selected, are never null.
        """
        compared = {(number, key.column) for number, keys in enumerate(self.keys) for key in keys}
        terms = [*self.terms, *(term for filters in self.filters for term in filters)]
        compared |= {(self.names.index(c.stream), c.name) for term in terms for c in term.rejecting}
        fields = []
        for column in self.result:
            field = self.schemas[column.stream].field(column.column)
            is_time = column.column == self.join.streams[column.stream].time
            never_null = is_time or (column.stream, column.column) in compared
            kind = TIMESTAMP if field.type == NANOSECONDS else field.type
            fields.append(pa.field(column.name, kind, nullable=field.nullable and not never_null))
        fields += [pa.field(f"{name}_seq", pa.int64(), nullable=False) for name in self.names]
        if self.has_window_ids:
            fields.append(pa.field(WINDOW_ID, pa.int64(), nullable=False))
        fields.append(pa.field("event_time", TIMESTAMP, nullable=False))
        fields.append(pa.field("batch_id", pa.int64(), nullable=False))
        return pa.schema(fields)

    def tuple_schema(self, stream: int) -> pa.Schema:
        """Columns of a stream's tuples inside the house: ``_ts`` and ``_seq`` (int64), what travels, then the stamps.

        The event time column itself is not repeated: it is ``_ts``, seen as a timestamp. Of a column of nanoseconds
        that is compared there are two (`inside`).
        """
        return self._tuple_schemas[stream]

    def read_schema(self, stream: int) -> pa.Schema:
        """As `tuple_schema`, with what only filters need: tuples as they are before they are filtered."""
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
        return pa.schema([*inside_schema(schema, self.join.streams[stream].time), *stamps])

    def inside_name(self, stream: int, column: str) -> str:
        """The column of the inside form that a result has of a travelling column: the event time is ``_ts``."""
        return TS if column == self.join.streams[stream].time else column

    def compared_name(self, stream: int, column: str) -> str:
        """The column of the inside form that conditions see of a column: nanoseconds where it has them."""
        if self.read_schemas[stream].field(column).type == NANOSECONDS:
            return nanoseconds_name(column)
        return self.inside_name(stream, column)

    def key_name(self, stream: int, key: Key) -> str:
        """The column of the inside form that a key is made of."""
        return nanoseconds_name(key.column) if key.kind == "ns" else self.inside_name(stream, key.column)

    def let_through(self, stream: int, tuples: pa.RecordBatch) -> Mask | None:
        """Which tuples of `read_schema` the stream's filters let through; None: all, there are none."""
        if not self.filters[stream]:
            return None

        def column(wanted: Column) -> pa.Array:
            return tuples.column(self.compared_name(stream, wanted.name))

        mask = np.ones(tuples.num_rows, dtype=np.bool_)
        for term in self.filters[stream]:
            mask &= holds(term.condition, tuples.num_rows, column)
        return mask

    def to_facts(self) -> dict[str, object]:
        """The bound join as plain JSON values; `bound_from_facts` is the way back."""
        return {"join": self.join.to_facts(), "schemas": [schema_text(schema) for schema in self.read_schemas]}


def bind(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> BoundJoin:
    """Check a join against the schemas of its streams and make its bounds exact for the columns' types.

    Raises
    ------
    ColumnError
        A column that is not there (with the nearest names), an unusable type, a result name that collides.
    PredicateError
        Types that cannot be compared, or a bound that has no meaning for them.
    """
    for stream in join.streams:
        _check_schema(stream.name, schemas.get(stream.name))
        check_time_column(schemas[stream.name], stream)
    found: list[tuple[Any, ...]] = []  # stream, column, stream, column, kind, lo, hi, text
    asked: list[Expression] = [stream.where for stream in join.streams if stream.where is not None]  # type: ignore[misc]
    for predicate in join.predicates:
        if not isinstance(predicate, Band):
            asked.append(predicate)
            continue
        left, right = sorted((predicate.left, predicate.right), key=lambda column: join.names.index(column.stream))
        numbers = (join.names.index(left.stream), join.names.index(right.stream))
        types = (column_type_compared(join, schemas, left), column_type_compared(join, schemas, right))
        if left != predicate.left:
            predicate = Band(left, right, negated(predicate.hi), negated(predicate.lo))
        kind, lo, hi = exact_bounds(*types, predicate)
        if kind in ("hash", "near"):
            asked.append(band_condition(predicate))
        kind = "int" if kind == "near" else kind
        found.append((numbers[0], left.name, numbers[1], right.name, kind, lo, hi, str(predicate)))
    keys: list[list[Key]] = [[Key(stream.time, "int")] for stream in join.streams]
    conditions = _window_conditions(join, keys)
    written = {entry[:-1]: entry[-1] for entry in sorted(found, reverse=True)}
    for entry in sorted(written):
        left_stream, left_name, right_stream, right_name, kind, lo, hi = entry
        left_key = _key(keys[left_stream], Key(left_name, kind))
        right_key = _key(keys[right_stream], Key(right_name, kind))
        conditions.append(Condition(left_stream, right_stream, left_key, right_key, kind, lo, hi, written[entry]))
    result = result_columns(join, schemas)
    terms = terms_of(join, schemas, asked)
    deciding = tuple(term for term in terms if len(term.streams) > 1)
    filters = tuple(tuple(term for term in terms if term.streams == (n,)) for n in range(len(join.streams)))
    selected = {(join.names[column.stream], column.column) for column in result}
    compared = {(c.stream, c.name) for p in join.predicates if isinstance(p, Band) for c in (p.left, p.right)}
    compared |= {(column.stream, column.name) for term in deciding for column in term.columns}
    read = compared | {(column.stream, column.name) for term in terms for column in term.columns}
    return BoundJoin(
        join,
        travelling_columns(join, schemas, selected, compared),
        tuple(map(tuple, keys)),
        tuple(conditions),
        deciding,
        filters,
        travelling_columns(join, schemas, selected, read),
        result,
    )


def _check_schema(stream: str, schema: pa.Schema | None) -> None:
    if schema is None:
        msg = f"no schema is given for stream {stream}"
        raise ColumnError(msg, name=stream, hint="give the columns and types of every stream")
    for name, count in Counter(schema.names).items():
        if count > 1:
            msg = f"stream {stream} has more than one column '{name}'"
            raise ColumnError(msg, name=f"{stream}.{name}", hint="rename one of them in the input")


def _window_conditions(join: JoinParts, keys: list[list[Key]]) -> list[Condition]:
    """``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i`` for each pair of streams, on the positions of its kind."""
    conditions = []
    for rule in join.window.rules(join.names):
        sides = ((rule.left_stream, rule.left_column), (rule.right_stream, rule.right_column))
        numbers = [0 if column is None else _key(keys[stream], Key(column, "int")) for stream, column in sides]
        text = f"window of {join.names[rule.left_stream]} and {join.names[rule.right_stream]}"
        conditions.append(
            Condition(rule.left_stream, rule.right_stream, numbers[0], numbers[1], "int", rule.lo, rule.hi, text)
        )
    return conditions


def _key(keys: list[Key], key: Key) -> int:
    if key not in keys:
        keys.append(key)
    return keys.index(key)
