"""The parser of predicates, expressions and aggregates: texts become trees, and no text is ever evaluated.

sqlglot's parser reads a text. Each kind of node of its tree that is not named here is refused, and an error says what
is understood. An aggregate is a function and its arguments, each of which is read as an expression.

Workers are sent facts and need no SQL parser, so other files import this one inside functions.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

from sqlglot import expressions as sql
from sqlglot import parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from streamjoin_ds.duration import signed_duration
from streamjoin_ds.errors import ArgumentError, PredicateSyntaxError
from streamjoin_ds.spec.expression.predicate import MAX_EXPONENT, QUOTED, Column, negated, sql_parts, unquoted
from streamjoin_ds.spec.expression.slip import Slip, bare_column, misplaced, shown_at, slip_of
from streamjoin_ds.spec.expression.tree import (
    AGGREGATE_FUNCTIONS,
    AGGREGATE_NAMES,
    CONDITIONS,
    MAX_COLLECTED,
    MAX_DEPTH,
    Aggregate,
    Call,
    Expression,
    Literal,
    Predicate,
    Value,
    band_and_term,
    bound_of,
    call,
)
from streamjoin_ds.spec.functions import CAST_TYPES, FUNCTION_NAMES, FUNCTIONS
from streamjoin_ds.spec.nested_path import path_text

__all__ = [
    "UNDERSTOOD",
    "UNDERSTOOD_AGGREGATES",
    "Node",
    "Refuse",
    "is_moment",
    "literal_value",
    "parse_aggregate",
    "parse_condition",
    "parse_predicates",
    "parse_value",
    "path_parts",
    "type_name",
]

Node: TypeAlias = Any  # a node of sqlglot's tree: sqlglot renamed its classes between versions
Refuse: TypeAlias = Callable[[str], NoReturn]

_NO_INTERVAL = "an INTERVAL in it must be a number and a unit, such as INTERVAL 5 SECONDS"
_KINDS = sql.DataType.Type
_TYPES = {
    _KINDS.TINYINT: "tinyint",
    _KINDS.SMALLINT: "smallint",
    _KINDS.INT: "int",
    _KINDS.BIGINT: "bigint",
    _KINDS.FLOAT: "float",
    _KINDS.DOUBLE: "double",
    _KINDS.DECIMAL: "decimal",
    _KINDS.TEXT: "string",
    _KINDS.VARCHAR: "string",
    _KINDS.BOOLEAN: "boolean",
    _KINDS.DATE: "date",
    _KINDS.TIMESTAMP: "timestamp",
    _KINDS.TIMESTAMPTZ: "timestamp",
}
UNDERSTOOD = (
    "abs(l.a - r.b) <= c or |l.a - r.b| <= c, l.a - r.b BETWEEN c AND d, l.a BETWEEN r.b - c AND r.b + d, l.a = r.b, "
    "l.a IS NOT DISTINCT FROM r.b, l.a BETWEEN r.lo AND r.hi (these find pairs), and conditions with = <> < <= > >=, "
    "+ - * / %, AND, OR, NOT, IS NULL, IS DISTINCT FROM, BETWEEN, IN and functions (these decide which of the pairs "
    "stay); quote a column name that holds a dot: u.`PM2.5`"
)
_FUNCTIONS_HINT = f"functions are {', '.join(FUNCTIONS)}"
_MAX_TEXT = 10_000  # most characters of a predicate
_SHOWN = 200  # characters of it that an error shows
_BINARY = {
    sql.EQ: "=",
    sql.NEQ: "<>",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
    sql.Add: "+",
    sql.Sub: "-",
    sql.Mul: "*",
    sql.Div: "/",
    sql.Mod: "%",
}
_WITH_A_FORM = ("case", "cast", "try_cast", "like", "extract")  # functions that are not written name(x, y)
UNDERSTOOD_AGGREGATES = (
    "count(*), count(x), sum(x), min(x), max(x), avg(x), stddev(x), first(x), last(x), arg_min(x, by), "
    "arg_max(x, by), quantile(x, 0.5), collect(x, 100)"
)
_AGGREGATE = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.ASCII | re.DOTALL)
# What Spark has and a reduction has not: what to do instead, by the function's name.
_NOT_HERE = {
    "approx_percentile": "quantile(x, 0.5) is exact",
    "percentile_approx": "quantile(x, 0.5) is exact",
    "approx_quantile": "quantile(x, 0.5) is exact",
    "median": "write quantile(x, 0.5)",
    "collect_list": "write collect(x, 100), which has a bound: the first partners by event time and number",
    "array_agg": "write collect(x, 100), which has a bound: the first partners by event time and number",
    "list": "write collect(x, 100), which has a bound: the first partners by event time and number",
    "stddev_pop": "write stddev(x), of a sample",
    "any_value": "write first(x), the value of the first partner by event time and number",
}
_TAKES = {(1, False): "one expression", (2, False): "two expressions", (1, True): "an expression and a number"}


def literal_value(node: Node, refuse: Refuse) -> Value:
    """Return the value of a node that must be a literal."""
    if isinstance(node, sql.Null):
        return None
    if isinstance(node, sql.Boolean):
        return bool(node.this)
    if isinstance(node, sql.Literal):
        return node.name if node.is_string else _number(node.name, refuse)
    if isinstance(node, sql.Interval):
        return _interval(node, refuse)
    if is_moment(node):
        return _moment(node, refuse)
    refuse(f"{_named(node)} in it is not supported")


def _moment(node: Node, refuse: Refuse) -> date | datetime | time:
    kind, written = node.args["to"].this, node.this.name
    try:
        if kind == _KINDS.DATE:
            return date.fromisoformat(written)
        if kind == _KINDS.TIME:
            of_day = time.fromisoformat(written)
            if of_day.tzinfo is None:
                return of_day
            raise ValueError  # a time of day has no zone
        moment = datetime.fromisoformat(f"{written[:-1]}+00:00" if written[-1:] in ("Z", "z") else written)
        return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        pass
    example = "TIME '12:00:00'" if kind == _KINDS.TIME else "TIMESTAMP '2024-01-31 12:00:00' (UTC)"
    refuse(f"a DATE, TIMESTAMP or TIME in it is not valid; write it like {example}")


def _interval(node: Node, refuse: Refuse) -> timedelta:
    unit = node.args.get("unit")
    if not isinstance(node.this, sql.Literal) or not (unit is None or isinstance(unit, sql.Var)):
        refuse(_NO_INTERVAL)
    try:
        return signed_duration(f"{node.this.name} {unit.name if unit else ''}", "an interval")
    except ArgumentError:
        refuse(_NO_INTERVAL)


def _number(literal: str, refuse: Refuse) -> int | Decimal:
    # A Decimal keeps what was written. The number is made exact for the column's type when the join is bound.
    try:
        value = Decimal(literal)
    except InvalidOperation:
        refuse("a number in it cannot be read")
    if value and abs(value.adjusted()) > MAX_EXPONENT:
        refuse("a number in it is too large or too close to zero")
    small = -(1 << 80) < value < 1 << 80
    return int(value) if small and value == value.to_integral_value() else value


def type_name(node: Node, refuse: Refuse) -> str:
    """Return a type of CAST as the table of functions names it."""
    kind, sizes = node.this, [size.name for size in node.expressions]
    name = _TYPES.get(kind, "")
    if name == "decimal" and len(sizes) <= 2 and all(size.isdecimal() for size in sizes):
        precision, scale = [*map(int, sizes), 10, 0][:2] if len(sizes) != 1 else (int(sizes[0]), 0)
        return f"decimal({precision}, {scale})"
    if not name or name == "decimal" or sizes:
        refuse(f"the type {node.sql()[:40]} in it is not supported; types are {', '.join(CAST_TYPES)}")
    return name


def is_moment(node: Node) -> bool:
    """Whether a node is ``DATE '...'``, ``TIMESTAMP '...'`` or ``TIME '...'``.

    sqlglot does not tell it from the CAST of a text.
    """
    if type(node) is not sql.Cast or not isinstance(node.this, sql.Literal) or not node.this.is_string:
        return False
    kind = node.args["to"].this
    return kind == _KINDS.TIME or _TYPES.get(kind) in ("date", "timestamp")


def _named(node: Node) -> str:
    text = node.name if isinstance(node, sql.Anonymous) else node.sql()
    return f"'{text[:60]}'"


class _StreamJoinPredicates(Dialect):
    """Standard SQL with both ways of quoting a name."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012
        QUOTES = ["'"]  # noqa: RUF012

    class Parser(parser.Parser):
        # The table of functions says which there are: sqlglot is to know none but those with a form of their own.
        FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: read
            for name, read in parser.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT")
        }


def parse_predicates(texts: str | Iterable[str], streams: Sequence[str] = ()) -> tuple[Predicate, ...]:
    """Return the predicates in a text, such as ``abs(e.x - w.x) <= 0.1 AND (e.id <> w.id OR e.id IS NULL)``.

    The text's ANDs part it into terms. A term that is a band or an equality between two streams becomes a `Band`, any
    other an expression. ``l.a BETWEEN r.b - c AND r.b + d`` becomes the band ``-c <= l.a - r.b <= d``: the contract
    knows only the form with the subtraction, because the two round differently (ARCHITECTURE.md, "Band").
    ``abs(l.a - r.b) < c`` becomes both: the band finds, the expression decides. `streams` are the join's, for hints.

    Raises
    ------
    PredicateSyntaxError
        A text is not understood; the hint says what is.
    """
    predicates: list[Predicate] = []
    for text in [texts] if isinstance(texts, str) else texts:
        for node in _conjuncts(_tree(text)):
            predicates.extend(band_and_term(_Reader(text, streams=streams).condition(node)))
    return tuple(predicates)


def parse_condition(text: str, stream: str | None = None) -> Expression:
    """Return the condition in a text.

    If `stream` is given, the condition is on that stream alone, and its columns may be written without the stream.

    Raises
    ------
    PredicateSyntaxError
        The text is not understood, or names another stream.
    """
    return _Reader(text, stream).condition(_tree(text))


def parse_value(text: str, stream: str | None = None) -> Expression:
    """Return the expression in a text, of any type; arguments and errors as for `parse_condition`."""
    try:
        return _Reader(text, stream).expression(_tree(text), MAX_DEPTH)
    except PredicateSyntaxError as error:
        message = error.message.replace("read the predicate", "read the expression", 1)
        raise PredicateSyntaxError(message, name=error.name, hint=error.hint) from None


def _tree(text: str) -> Node:
    if len(text) > _MAX_TEXT:
        _refuse(f"it is longer than {_MAX_TEXT} characters", text)
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs") and not character.isspace() for character in text):
        _refuse("it holds invisible characters", text)
    try:
        # The text must be one condition and nothing more: `parse_one` would drop what follows a semicolon.
        trees = _StreamJoinPredicates().parse_into(sql.Condition, _without_bars(text))
    except (SqlglotError, RecursionError) as error:
        slip = slip_of(text, _tokens(text), getattr(error, "errors", ()))
        _refuse_slip(slip, text, f"it is not an SQL condition{f': {slip.why}' if slip else ''}")
    if slip := misplaced(_tokens(text)) if "&" in text else None:
        _refuse_slip(slip, text, slip.why)
    if len(trees) != 1 or trees[0] is None:
        _refuse("it is not one SQL condition", text)
    if any(node.comments for node in trees[0].walk()):
        _refuse("it holds a comment", text)
    return trees[0]


def _tokens(text: str) -> list[Any]:
    """Return the tokens of a text; none where it cannot be parted."""
    with contextlib.suppress(SqlglotError):
        return list(_StreamJoinPredicates().tokenize(text))
    return []


def _without_bars(text: str) -> str:
    """Return the text with ``abs(x)`` for ``|x|``; bars inside quotes stay, and pairs of bars cannot be nested."""
    parts = QUOTED.split(text)  # every second part is quoted
    bars = 0
    for place in range(0, len(parts), 2):
        pieces = parts[place].split("|")
        for number in range(1, len(pieces)):
            bars += 1
            pieces[number] = ("abs(" if bars % 2 else ")") + pieces[number]
        parts[place] = "".join(pieces)
    return text if bars % 2 or "||" in text else "".join(parts)


def _conjuncts(node: Node) -> list[Node]:
    found, open_nodes = [], [node]
    while open_nodes:
        node = open_nodes.pop().unnest()
        if isinstance(node, sql.And):
            open_nodes += [node.expression, node.this]
        else:
            found.append(node)
    return found


class _Reader:
    """Reads nodes of sqlglot's tree; every kind of node that is not named here is refused.

    Parameters
    ----------
    text : str
        The whole text, for errors.
    stream : str, optional
        The stream of columns that are written without one.
    streams : sequence of str
        The join's streams, for hints.
    """

    def __init__(self, text: str, stream: str | None = None, streams: Sequence[str] = ()) -> None:
        self._text = text
        self._stream = stream
        self._streams = streams

    def condition(self, node: Node) -> Expression:
        """Return the expression of a node, which must be a condition: one that can be TRUE."""
        found = self.expression(node, MAX_DEPTH)
        is_value = not _is_condition(found.op) if isinstance(found, Call) else not _may_be_true(found)
        if is_value:
            self._refuse("a part of it is a value, not a condition: it is not compared with anything")
        return found

    def expression(self, node: Node, depth: int) -> Expression:
        """Return the expression of any node, which may have `depth` levels."""
        node = node.unnest()
        if depth == 0:
            self._refuse(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, (sql.And, sql.Or)):
            return self._flat(node, depth)
        if type(node) in _BINARY:
            left, right = (self.expression(side, depth - 1) for side in (node.this, node.expression))
            return _folded(_BINARY[type(node)], left, right)
        if isinstance(node, (sql.Not, sql.Neg)):
            return self._unary(node, depth)
        if isinstance(node, (sql.NullSafeEQ, sql.NullSafeNEQ)):
            same = call("same", *(self.expression(side, depth - 1) for side in (node.this, node.expression)))
            return same if isinstance(node, sql.NullSafeEQ) else call("not", same)
        if isinstance(node, sql.Is):
            if not isinstance(node.expression, sql.Null):
                self._refuse("IS may only be followed by NULL or NOT NULL")
            return call("is_null", self.expression(node.this, depth - 1))
        if isinstance(node, sql.Between):
            if node.args.get("symmetric"):
                self._refuse("BETWEEN SYMMETRIC is not supported; write the lower end first")
            parts = (node.this, node.args["low"], node.args["high"])
            return call("between", *(self.expression(part, depth - 1) for part in parts))
        if isinstance(node, sql.In):
            items = node.args.get("expressions")
            if not items or any(node.args.get(name) for name in ("query", "unnest", "field")):
                self._refuse("IN must be followed by a list in parentheses")
            return call("in", *(self.expression(part, depth - 1) for part in (node.this, *items)))
        if isinstance(node, sql.Column) or path_parts(node):
            return self._column(node)
        return self._function(node, depth)

    def _function(self, node: Node, depth: int) -> Expression:
        """Return a function as its entry in the table has it, or a literal."""
        args: tuple[Expression, ...]
        if isinstance(node, sql.Anonymous):
            name = FUNCTION_NAMES.get(node.name.lower())
            if name is None or name in _WITH_A_FORM:
                self._refuse_function(node.name)
            args = tuple(self.expression(argument, depth - 1) for argument in node.expressions)
            return self._called(name, args)
        if isinstance(node, (sql.Case, sql.If)):
            return self._called("case", self._case(node, depth))
        if isinstance(node, sql.DPipe):
            sides = [self.expression(side, depth - 1) for side in (node.this, node.expression)]
            return self._called("concat", tuple(_flat_concat(sides)))
        if isinstance(node, sql.RegexpLike):
            sides = [self.expression(side, depth - 1) for side in (node.this, node.expression)]
            like = self._called("rlike", tuple(sides))
            return call("not", like) if node.args.get("negate") else like
        if isinstance(node, sql.Extract) and isinstance(node.this, sql.Var):
            return self._called("extract", (Literal(node.name.lower()), self.expression(node.expression, depth - 1)))
        if isinstance(node, sql.Like):
            return self._like(node, (), depth)
        if isinstance(node, sql.Escape) and isinstance(node.this, sql.Like):
            return self._like(node.this, (self.expression(node.expression, depth - 1),), depth)
        if isinstance(node, sql.Cast) and not is_moment(node):
            if any(node.args.get(name) for name in ("format", "default", "action")):
                self._refuse("CAST has only a value and a type")
            kind = Literal(type_name(node.args["to"], self._refuse))
            name = "try_cast" if isinstance(node, sql.TryCast) else "cast"
            return self._called(name, (self.expression(node.this, depth - 1), kind))
        return Literal(literal_value(node, self._refuse))

    def _like(self, node: Node, escape: tuple[Expression, ...], depth: int) -> Expression:
        sides = (self.expression(side, depth - 1) for side in (node.this, node.expression))
        like = self._called("like", (*sides, *escape))
        # Newer versions of sqlglot have NOT LIKE in one node, where older ones put a Not around it.
        return call("not", like) if node.args.get("negate") else like

    def _called(self, name: str, args: tuple[Expression, ...]) -> Call:
        function = FUNCTIONS[name]
        if not function.least <= len(args) <= function.most:
            self._refuse(f"{name} has {len(args)} operands; it is written {function.written}")
        return Call(name, args)

    def _case(self, node: Node, depth: int) -> tuple[Expression, ...]:
        """Return conditions and results in turn, then what stands after ELSE; ``CASE x WHEN y`` compares x with y."""
        branches = node.args["ifs"] if isinstance(node, sql.Case) else [node]
        default = node.args.get("default" if isinstance(node, sql.Case) else "false")
        subject = node.this if isinstance(node, sql.Case) else None
        found: list[Expression] = []
        for branch in branches:
            when = self.expression(branch.this, depth - 1)
            if subject is not None:
                when = call("=", self.expression(subject, depth - 1), when)
            found += [when, self.expression(branch.args["true"], depth - 1)]
        return (*found, *(() if default is None else (self.expression(default, depth - 1),)))

    def _refuse_function(self, name: str) -> NoReturn:
        bare = unquoted(self._text)
        found = re.search(rf"\b{re.escape(name)}\s*\(", bare, re.IGNORECASE)
        place = f" at character {found.start() + 1}" if found else ""
        near = difflib.get_close_matches(name.lower(), FUNCTION_NAMES, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        if name.lower() in AGGREGATE_NAMES:
            meant = f"an aggregate stands in reduce, as n={name.lower()}(...); "
        why = f"the function '{name[:60]}'{place} is not supported"
        _refuse(why, self._text, f"{meant}{_FUNCTIONS_HINT}", name=name[:60])

    def _flat(self, node: Node, depth: int) -> Call:
        """Return a chain such as ``a AND b AND c`` as one AND, which counts as one level."""
        kind, operands, open_nodes = type(node), [], [node]
        while open_nodes:
            inner = open_nodes.pop().unnest()
            if type(inner) is kind:
                open_nodes += [inner.expression, inner.this]
            else:
                operands.append(self.expression(inner, depth - 1))
        return Call("and" if kind is sql.And else "or", tuple(operands))

    def _unary(self, node: Node, depth: int) -> Expression:
        inner = self.expression(node.this, depth - 1)
        if isinstance(node, sql.Not):
            return call("not", inner)
        bound = bound_of(inner)
        return call("neg", inner) if bound is None else Literal(negated(bound))  # type: ignore[arg-type]

    def _column(self, node: Node) -> Column:
        parts = path_parts(node)
        if not parts or not (len(parts) > 1 or self._stream):
            why = "a column in it is not written as stream.column"
            if parts and (slip := bare_column(self._text, str(parts[0]), self._streams)):
                _refuse_slip(slip, self._text, why)
            example = f"write it with its stream, such as e.{node.name}; " if parts else ""
            _refuse(why, self._text, f"{example}valid are {UNDERSTOOD}")
        stream = self._stream or str(parts[0])
        inside = parts[1:] if len(parts) > 1 and parts[0] == stream else parts
        return Column(stream, str(inside[0]) if len(inside) == 1 else path_text(inside))

    def _refuse(self, why: str) -> NoReturn:
        _refuse(why, self._text)


def path_parts(node: Node) -> list[str | int]:
    """Return the parts of a name with dots and places of lists, ``e.values[0].v``; none where a node is no name."""
    if isinstance(node, sql.Identifier):
        return [node.name] if node.name else []
    if isinstance(node, sql.Column):  # the 5 of u.PM2.5 is a number
        parts = [part.name if isinstance(part, (sql.Identifier, sql.Literal)) else "" for part in node.parts]
        return [*parts] if all(parts) else []
    if isinstance(node, sql.Dot):
        before, after = path_parts(node.this), path_parts(node.expression)
        return [*before, *after] if before and after else []
    if isinstance(node, sql.Bracket):
        before, places = path_parts(node.this), node.expressions
        place = places[0] if len(places) == 1 else None
        if not before or not isinstance(place, sql.Literal) or place.is_string or not place.name.isdecimal():
            return []
        return [*before, int(place.name)]
    return []


def _flat_concat(sides: Sequence[Expression]) -> Iterator[Expression]:
    for side in sides:
        if isinstance(side, Call) and side.op == "concat":
            yield from side.args
        else:
            yield side


def _is_condition(op: str) -> bool:
    return op in CONDITIONS or (op in FUNCTIONS and FUNCTIONS[op].is_condition)


def _may_be_true(leaf: Expression) -> bool:
    return not isinstance(leaf, Literal) or leaf.value is None or isinstance(leaf.value, bool)


def _folded(op: str, left: Expression, right: Expression) -> Expression:
    """Return a sum or difference of two whole numbers or two durations as one literal, anything else as a call."""
    one: Any = bound_of(left)
    other: Any = bound_of(right)
    if type(one) is type(other) and isinstance(one, (int, timedelta)) and op in ("+", "-"):
        with contextlib.suppress(OverflowError):
            return Literal(one + other if op == "+" else one - other)
    return call(op, left, right)


def _shown(text: str) -> str:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)


def _refuse(why: str, text: str, hint: str = "", name: str = "") -> NoReturn:
    shown = _shown(text)
    msg = f"cannot read the predicate '{shown}': {why}"
    raise PredicateSyntaxError(msg, name=name or shown, hint=hint or f"valid are {UNDERSTOOD}") from None


def _refuse_slip(slip: Slip | None, text: str, why: str) -> NoReturn:
    """Refuse a text, with the place of the slip below the hint."""
    hint = "" if slip is None else f"{slip.hint}{shown_at(text, slip.begin, slip.end)}"
    _refuse(why, text, hint)


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Return the aggregate in a text, such as ``avg(w.temperature)``, for a column of this name.

    Raises
    ------
    PredicateSyntaxError
        The text is not understood; the hint says what is.
    """
    call = _AGGREGATE.fullmatch(text)
    if call is None:
        _refuse_aggregate("it is not a function and its arguments", text)
    written, inner = call[1].lower(), call[2]
    function = AGGREGATE_NAMES.get(written)
    if function is None:
        hint = _NOT_HERE.get(written)
        _refuse_aggregate(
            f"there is no function {written}", text, hint and f"{hint}; valid are {UNDERSTOOD_AGGREGATES}"
        )
    if min(accumulate((character == "(") - (character == ")") for character in unquoted(inner)), default=0) < 0:
        _refuse_aggregate("it is not one function and its arguments", text)
    parts = sql_parts(inner) if inner.strip() else []
    if function == "count" and parts == ["*"]:
        return Aggregate(name, function)
    if parts and parts[0].split()[:1] and parts[0].split()[0].upper() == "DISTINCT":
        _refuse_aggregate("DISTINCT is not possible in it", text)
    wanted, has_constant = AGGREGATE_FUNCTIONS[function]
    if len(parts) != wanted + has_constant:
        _refuse_aggregate(f"{written} takes {_TAKES[wanted, has_constant]}, not {len(parts)} arguments", text)
    values = [parse_value(part) for part in parts]
    constant = _constant(function, values.pop(), text) if has_constant else None
    return Aggregate(name, function, tuple(values), constant)


def _constant(function: str, value: Expression, text: str) -> Decimal:
    plain = value.value if isinstance(value, Literal) else None
    number = Decimal(plain) if isinstance(plain, (int, Decimal)) and not isinstance(plain, bool) else None
    if function == "quantile":
        if number is None or not 0 <= number <= 1:
            _refuse_aggregate("the share of a quantile is not a number from 0 to 1", text)
    elif number is None or number != int(number) or not 1 <= number <= MAX_COLLECTED:
        _refuse_aggregate(f"the limit of collect is not a whole number from 1 to {MAX_COLLECTED}", text)
    return number.normalize()


def _refuse_aggregate(why: str, text: str, hint: str | None = None) -> NoReturn:
    shown = _shown(text)
    msg = f"cannot read the aggregate '{shown}': {why}"
    raise PredicateSyntaxError(msg, name=shown, hint=hint or f"valid are {UNDERSTOOD_AGGREGATES}")
