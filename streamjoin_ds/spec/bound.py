"""A join whose columns' types are known: keys to compare, bounds exact for their type, columns of a result.

::

    predicate on columns            key kind     compared as
    ──────────────────────────      ────────     ──────────────────────────────────────────
    float (with float or integer)   float        float64: subtract, compare (the one exact form)
    integer, date, timestamp        int          int64, never overflowing
    decimal, one scale              int          scaled int64
    boolean, =                      int          0 or 1
    string or binary, =             hash         64-bit hash finds, the values themselves decide
    anything, <>                    residual     decided on the pairs that were found
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

import pyarrow as pa

from streamjoin_ds.errors import ColumnError, PredicateError, SchemaDriftError
from streamjoin_ds.spec.fingerprint import fingerprint
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.predicate import Band, Bound, Column, NotEqual
from streamjoin_ds.spec.stream import Stream, check_time_column

__all__ = ["SEQ", "TS", "BoundJoin", "Condition", "Key", "Residual", "ResultColumn", "bind", "result_type"]

# Names of the two columns that every tuple has inside; no user column may take them.
TS = "_ts"  # event time, int64 microseconds UTC
SEQ = "_seq"  # number within its stream, int64

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Key:
    """A column of one stream in the form in which it is compared: ``kind`` is "float", "int" or "hash"."""

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
        Of the keys' kind: float bounds for "float", integers within int64 for "int"; both 0 for "hash".
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


@dataclass(frozen=True, slots=True)
class Residual:
    """Decides on pairs that were found: "equal" (strings, after their hashes met) or "not_equal"."""

    kind: str
    left_stream: int
    right_stream: int
    left_column: str
    right_column: str


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result and the stream and column it comes from."""

    name: str
    stream: int
    column: str


@dataclass(frozen=True)
class BoundJoin:
    """What the engine, the source and the sink need of a join; made by `bind`.

    Attributes
    ----------
    schemas : tuple of pyarrow.Schema
        One a stream: the columns that must travel (selected, compared, event time), in the source's order, with the
        types they have inside the house (`result_type`).
    keys : tuple of tuple of Key
        One list a stream; key 0 is always the event time.
    conditions : tuple of Condition
        The bands and equalities, and for each pair of streams the time rule.
    residuals : tuple of Residual
        What hashes and bands cannot decide.
    result : tuple of ResultColumn
        Selected columns in the order of the streams; `result_schema` adds seq, event_time and batch_id.
    """

    join: Join
    schemas: tuple[pa.Schema, ...]
    keys: tuple[tuple[Key, ...], ...]
    conditions: tuple[Condition, ...]
    residuals: tuple[Residual, ...]
    result: tuple[ResultColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.join.names

    @property
    def fingerprint(self) -> str:
        """Changes whenever the result could: streams, types, predicates, windows, delays, selection."""
        return fingerprint(self.join.to_facts(), [str_schema(schema) for schema in self.schemas])

    @property
    def result_schema(self) -> pa.Schema:
        """Selected columns, ``<stream>_seq`` of each stream, ``event_time``, ``batch_id``; those that are compared,
        and the last three kinds, are never null."""
        compared = {(c.stream, c.name) for p in self.join.predicates for c in (p.left, p.right)}
        fields = []
        for column in self.result:
            stream = self.join.streams[column.stream]
            field = self.schemas[column.stream].field(column.column)
            never_null = (stream.name, column.column) in compared or column.column == stream.time
            fields.append(pa.field(column.name, field.type, nullable=field.nullable and not never_null))
        fields += [pa.field(f"{name}_seq", pa.int64(), nullable=False) for name in self.names]
        fields.append(pa.field("event_time", pa.timestamp("us", tz="UTC"), nullable=False))
        fields.append(pa.field("batch_id", pa.int64(), nullable=False))
        return pa.schema(fields)

    def tuple_schema(self, stream: int) -> pa.Schema:
        """Columns of a stream's tuples inside the house: ``_ts`` and ``_seq`` (int64), then what travels.

        The event time column itself is not repeated: it is ``_ts``, seen as a timestamp.
        """
        time = self.join.streams[stream].time
        inner = [pa.field(TS, pa.int64(), nullable=False), pa.field(SEQ, pa.int64(), nullable=False)]
        return pa.schema([*inner, *(field for field in self.schemas[stream] if field.name != time)])

    def to_facts(self) -> dict[str, object]:
        """The bound join as plain JSON values."""
        schemas = [base64.b64encode(schema.serialize().to_pybytes()).decode() for schema in self.schemas]
        return {"join": self.join.to_facts(), "schemas": schemas}

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> BoundJoin:
        """The bound join that `to_facts` described."""
        join = Join.from_facts(facts["join"])  # type: ignore[arg-type]
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for text in facts["schemas"]]  # type: ignore[attr-defined]
        return bind(join, dict(zip(join.names, schemas, strict=True)))


def bind(join: Join, schemas: Mapping[str, pa.Schema]) -> BoundJoin:
    """Check a join against the schemas of its streams and make its bounds exact for the columns' types.

    Raises
    ------
    ColumnError
        A column that is not there (with the nearest names), an unusable type, a result name that collides.
    PredicateError
        Types that cannot be compared, or a bound that has no meaning for them.
    """
    keys: list[list[Key]] = [[Key(stream.time, "int")] for stream in join.streams]
    conditions, residuals = _time_rules(join), []
    for predicate in join.predicates:
        left, right = predicate.left, predicate.right
        lo_hi = (predicate.lo, predicate.hi) if isinstance(predicate, Band) else None
        if join.names.index(left.stream) > join.names.index(right.stream):
            left, right = right, left
            lo_hi = None if lo_hi is None else (-lo_hi[1], -lo_hi[0])
        left_type, right_type = (_field(join, schemas, column).type for column in (left, right))
        sides = (join.names.index(left.stream), join.names.index(right.stream))
        if lo_hi is None:
            _comparable(left_type, right_type, predicate)
            residuals.append(Residual("not_equal", *sides, left.name, right.name))
            continue
        kind, lo, hi = _exact(left_type, right_type, *lo_hi, predicate)
        if kind == "hash":
            residuals.append(Residual("equal", *sides, left.name, right.name))
        numbers = (_key(keys[sides[0]], Key(left.name, kind)), _key(keys[sides[1]], Key(right.name, kind)))
        conditions.append(Condition(*sides, *numbers, kind, lo, hi, str(predicate)))
    result = _result_columns(join, schemas)
    travelling = _travelling(join, schemas, result)
    return BoundJoin(join, travelling, tuple(map(tuple, keys)), tuple(conditions), tuple(residuals), result)


def _time_rules(join: Join) -> list[Condition]:
    """``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i``: one band on the event times of each pair of streams."""
    rules = []
    for left in range(len(join.streams)):
        for right in range(left + 1, len(join.streams)):
            lo, hi = -join.window.extent(left), join.window.extent(right)
            text = f"window of {join.names[left]} and {join.names[right]}"
            rules.append(Condition(left, right, 0, 0, "int", lo, hi, text))
    return rules


def _key(keys: list[Key], key: Key) -> int:
    if key not in keys:
        keys.append(key)
    return keys.index(key)


def _field(join: Join, schemas: Mapping[str, pa.Schema], column: Column) -> pa.Field:
    schema = schemas[column.stream]
    if column.name not in schema.names:
        msg = f"stream {column.stream} has no column '{column.name}'"
        raise ColumnError(msg, name=str(column), hint=f"its columns are {', '.join(schema.names)}")
    field = schema.field(column.name)
    return field.with_type(result_type(field.type, str(column)))


def result_type(kind: pa.DataType, name: str) -> pa.DataType:
    """The type a column has inside the house and in the table: Delta's types, timestamps in microseconds UTC.

    Unsigned integers widen, float16 becomes float32, large and dictionary strings become strings, timestamps without
    a zone are UTC.

    Raises
    ------
    ColumnError
        Types that Delta has not: uint64, time of day, durations, unions.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return result_type(kind.value_type, name)
    widened = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32()}
    if kind in widened:
        return widened[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if types.is_date(kind):
        return pa.date32()
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_null(kind):
        return pa.string()
    plain = types.is_signed_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if plain or types.is_string(kind) or types.is_binary(kind) or types.is_decimal128(kind):
        return kind
    if types.is_list(kind):
        return pa.list_(result_type(kind.value_type, name))
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, result_type(f.type, name), f.nullable) for f in kind])
    msg = f"column '{name}' has the type {kind}, which a Delta table cannot hold"
    raise ColumnError(msg, name=name, hint="leave it out with select, or cast it first")


def _exact(left: pa.DataType, right: pa.DataType, lo: Bound, hi: Bound, predicate: Band) -> tuple[str, int | float, int | float]:
    types = pa.types
    both = (left, right)
    if any(map(types.is_floating, both)) and all(types.is_floating(t) or types.is_integer(t) for t in both):
        _no_duration(lo, predicate)
        return "float", float(lo), float(hi)  # type: ignore[arg-type]
    if all(map(types.is_integer, both)):
        _no_duration(lo, predicate)
        return ("int", *_integers(Fraction(lo), Fraction(hi), predicate))  # type: ignore[arg-type]
    if all(map(types.is_timestamp, both)):
        return ("int", *_integers(*(_time_bound(bound, timedelta(microseconds=1), predicate) for bound in (lo, hi)), predicate))
    if all(map(types.is_date, both)):
        return ("int", *_integers(*(_time_bound(bound, timedelta(days=1), predicate) for bound in (lo, hi)), predicate))
    if all(map(types.is_decimal, both)):
        _no_duration(lo, predicate)
        if left.scale != right.scale or max(left.precision, right.precision) > 18:
            msg = f"'{predicate}' compares decimals of different scales, or of more than 18 digits"
            raise PredicateError(msg, name=str(predicate.left), hint="cast both to one decimal(p<=18, s)")
        unit = 10**left.scale
        return ("int", *_integers(_fraction(lo) * unit, _fraction(hi) * unit, predicate))
    if predicate.is_equality and all(map(types.is_boolean, both)):
        return "int", 0, 0
    if predicate.is_equality and (all(map(types.is_string, both)) or all(map(types.is_binary, both))):
        return "hash", 0, 0
    if predicate.is_equality:
        msg = f"'{predicate}' compares {left} with {right}"
        raise PredicateError(msg, name=str(predicate.left), hint="compare columns of one type; cast one of them first")
    msg = f"'{predicate}' needs a difference, which {left} and {right} do not have"
    raise PredicateError(msg, name=str(predicate.left), hint="bands are for numbers, dates and timestamps; strings and booleans can only be equal")


def _fraction(bound: Bound) -> Fraction:
    return Fraction(bound)  # type: ignore[arg-type]


def _integers(lo: Fraction, hi: Fraction, predicate: Band) -> tuple[int, int]:
    """The integers inside the band, held within int64: no difference of int64 values is ever cut off by it."""
    low, high = math.ceil(lo), math.floor(hi)
    if low > high:
        msg = f"'{predicate}' holds for no whole number"
        raise PredicateError(msg, name=str(predicate.left), hint="the columns are integers: widen the band to include one")
    if low < _INT64_MIN or high > _INT64_MAX:
        msg = f"the bounds of '{predicate}' are outside the 64-bit integers"
        raise PredicateError(msg, name=str(predicate.left), hint="bounds within -2^63 and 2^63 - 1")
    return low, high


def _time_bound(bound: Bound, unit: timedelta, predicate: Band) -> Fraction:
    if isinstance(bound, timedelta):
        microsecond = timedelta(microseconds=1)
        return Fraction(bound // microsecond, unit // microsecond)
    if bound == 0:
        return Fraction(0)
    msg = f"'{predicate}' compares times with a bound that has no unit"
    raise PredicateError(msg, name=str(predicate.left), hint="write INTERVAL 5 SECONDS, or band(l, r, '5s')")


def _no_duration(bound: Bound, predicate: Band) -> None:
    if isinstance(bound, timedelta):
        msg = f"'{predicate}' compares numbers with a duration"
        raise PredicateError(msg, name=str(predicate.left), hint="give the bound as a number")


def _comparable(left: pa.DataType, right: pa.DataType, predicate: NotEqual) -> None:
    numeric = [pa.types.is_integer(t) or pa.types.is_floating(t) for t in (left, right)]
    if left != right and not all(numeric):
        msg = f"'{predicate}' compares {left} with {right}"
        raise PredicateError(msg, name=str(predicate.left), hint="compare columns of one type")


def _result_columns(join: Join, schemas: Mapping[str, pa.Schema]) -> tuple[ResultColumn, ...]:
    columns: list[ResultColumn] = []
    for text in join.select:
        stream, _, name = text.partition(".")
        names = schemas[stream].names if name == "*" else [Column.of(text).name]
        for column in names:
            _field(join, schemas, Column(stream, column))
            entry = ResultColumn(f"{stream}_{column}", join.names.index(stream), column)
            if entry not in columns:
                columns.append(entry)
    columns.sort(key=lambda column: column.stream)
    taken = {"event_time", "batch_id", *(f"{name}_seq" for name in join.names)}
    for result in columns:
        if set(result.name) & set(" ,;{}()\n\t="):
            msg = f"the result column '{result.name}' holds a character that a Delta table's column cannot have"
            raise ColumnError(msg, name=result.name, hint="leave it out with select, or rename the column")
    folded: dict[str, str] = {name.lower(): "a column of every result" for name in taken}
    for result in columns:
        source = f"{join.names[result.stream]}.{result.column}"
        if result.name.lower() in folded:
            msg = f"the result column '{result.name}' of {source} collides with {folded[result.name.lower()]}"
            raise ColumnError(msg, name=result.name, hint="leave it out with select, or rename the stream (Delta ignores case)")
        folded[result.name.lower()] = source
    return tuple(columns)


def _travelling(join: Join, schemas: Mapping[str, pa.Schema], result: Sequence[ResultColumn]) -> tuple[pa.Schema, ...]:
    travelling = []
    for number, stream in enumerate(join.streams):
        schema = schemas[stream.name]
        check_time_column(schema, stream)
        wanted = {stream.time} | {column.column for column in result if column.stream == number}
        wanted |= {c.name for p in join.predicates for c in (p.left, p.right) if c.stream == stream.name}
        for name in (TS, SEQ):
            if name in wanted:
                msg = f"stream {stream.name} has a column '{name}', a name the join uses itself"
                raise ColumnError(msg, name=name, hint="rename the column, or leave it out with select")
        fields = []
        for field in schema:
            if field.name in wanted:
                kind = pa.timestamp("us", tz="UTC") if field.name == stream.time else result_type(field.type, field.name)
                fields.append(pa.field(field.name, kind, field.nullable))
        travelling.append(pa.schema(fields))
    return tuple(travelling)


def str_schema(schema: pa.Schema) -> list[list[str]]:
    """A schema as names and type names: what of it can change a result."""
    return [[field.name, str(field.type)] for field in schema]


def check_same_schema(stream: Stream, expected: pa.Schema, found: pa.Schema) -> None:
    """Refuse tuples that lack a travelling column or have it with another type; added columns are ignored."""
    for field in expected:
        if field.name not in found.names:
            msg = f"stream {stream.name} no longer has the column '{field.name}'"
            raise SchemaDriftError(msg, name=field.name, hint=f"it must be {field.type}; found {', '.join(found.names)}")


