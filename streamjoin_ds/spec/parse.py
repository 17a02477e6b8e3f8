"""Reads the text form of predicates with sqlglot's parser; no text is ever evaluated."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from sqlglot import expressions as sql
from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from streamjoin_ds.errors import ArgumentError, PredicateSyntaxError
from streamjoin_ds.spec.duration import signed_duration
from streamjoin_ds.spec.expression import (
    CONDITIONS,
    MAX_DEPTH,
    Call,
    Expression,
    Literal,
    Predicate,
    call,
    conjuncts,
)
from streamjoin_ds.spec.predicate import MAX_EXPONENT, Band, Bound, Column, negated

__all__ = ["UNDERSTOOD", "parse_condition", "parse_predicates", "predicates_of"]


UNDERSTOOD = (
    "abs(l.a - r.b) <= c or |l.a - r.b| <= c, l.a - r.b BETWEEN c AND d, l.a BETWEEN r.b - c AND r.b + d, l.a = r.b, "
    "l.a IS NOT DISTINCT FROM r.b, l.a BETWEEN r.lo AND r.hi (these find pairs), and conditions with = <> < <= > >=, "
    "+ - * / %, abs, sqrt, AND, OR, NOT, IS NULL, IS DISTINCT FROM, BETWEEN, IN (these decide which of the pairs "
    "stay); quote a column name that holds a dot: u.`PM2.5`"
)

_QUOTED = re.compile(r"""('[^']*'|"[^"]*"|`[^`]*`)""")
_MAX_TEXT = 10_000  # most characters of a predicate
_SHOWN = 200  # characters of it that an error shows

_NO_INTERVAL = "an INTERVAL in it must be a number and a unit, such as INTERVAL 5 SECONDS"

_Node = Any  # a node of sqlglot's tree: sqlglot renamed its classes between versions

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


class _StreamJoinPredicates(Dialect):
    """Standard SQL with both ways of quoting a name."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012
        QUOTES = ["'"]  # noqa: RUF012


def parse_predicates(texts: str | Iterable[str]) -> tuple[Predicate, ...]:
    """Return the predicates in a text, such as ``abs(e.x - w.x) <= 0.1 AND (e.id <> w.id OR e.id IS NULL)``.

    The text's ANDs part it into terms. A term that is a band or an equality between two streams becomes a `Band`, any
    other an expression. ``l.a BETWEEN r.b - c AND r.b + d`` becomes the band ``-c <= l.a - r.b <= d``: the contract
    knows only the form with the subtraction, because the two round differently (ARCHITECTURE.md, "Band").
    ``abs(l.a - r.b) < c`` becomes both: the band finds, the expression decides.

    Raises
    ------
    PredicateSyntaxError
        A text is not understood; the hint says what is.
    """
    predicates: list[Predicate] = []
    for text in [texts] if isinstance(texts, str) else texts:
        for node in _conjuncts(_tree(text)):
            predicates.extend(_term(_Reader(text).condition(node)))
    return tuple(predicates)


def predicates_of(condition: Expression) -> tuple[Predicate, ...]:
    """Return the predicates that a condition stands for, as `parse_predicates` reads them in a text."""
    return tuple(predicate for term in conjuncts(condition) for predicate in _term(term))


def parse_condition(text: str, stream: str | None = None) -> Expression:
    """Return the condition in a text.

    If `stream` is given, the condition is on that stream alone, and its columns may be written without the stream.

    Raises
    ------
    PredicateSyntaxError
        The text is not understood, or names another stream.
    """
    return _Reader(text, stream).condition(_tree(text))


def _term(expression: Expression) -> Iterator[Predicate]:
    """Give the band that a term is, or the term if it is none; for a strict comparison give both."""
    found = _band(expression)
    if found is not None:
        yield found
    if found is None or (isinstance(expression, Call) and expression.op in ("<", ">")):
        yield expression


def _band(expression: Expression) -> Band | None:
    if not isinstance(expression, Call):
        return None
    op, args = expression.op, expression.args
    if op == "=":
        return _between(args[0], args[1], 0, 0)
    if op in ("<=", "<", ">=", ">"):
        absolute, width = args if op[0] == "<" else args[::-1]
        eps = _bound(width)
        if eps is None or not isinstance(absolute, Call) or absolute.op != "abs":
            return None
        return _of_difference(absolute.args[0], negated(eps), eps)
    if op != "between":
        return None
    lo, hi = _bound(args[1]), _bound(args[2])
    if lo is not None and hi is not None:
        return _of_difference(args[0], lo, hi)
    low, high = _shifted(args[1]), _shifted(args[2])
    if low is None or high is None or low[0] != high[0]:
        return None
    return _between(args[0], low[0], low[1], high[1])


def _of_difference(difference: Expression, lo: Bound, hi: Bound) -> Band | None:
    if not isinstance(difference, Call) or difference.op != "-":
        return None
    left, right = difference.args
    return _between(left, right, lo, hi)


def _between(left: Expression, right: Expression, lo: Bound, hi: Bound) -> Band | None:
    """Return the band between two columns of different streams; None if these are not such columns."""
    columns = isinstance(left, Column) and isinstance(right, Column)
    return Band(left, right, lo, hi) if columns and left.stream != right.stream else None  # type: ignore[union-attr, arg-type]


def _shifted(expression: Expression) -> tuple[Column, Bound] | None:
    """Return ``r.b``, ``r.b - c``, ``r.b + c`` or ``c + r.b`` as the column and the signed shift; None for others."""
    if isinstance(expression, Column):
        return expression, 0
    if not isinstance(expression, Call) or expression.op not in ("+", "-"):
        return None
    column, shift = expression.args
    if expression.op == "+" and not isinstance(column, Column):
        column, shift = shift, column
    bound = _bound(shift)
    if bound is None or not isinstance(column, Column):
        return None
    return column, negated(bound) if expression.op == "-" else bound


def _bound(expression: Expression) -> Bound | None:
    value = expression.value if isinstance(expression, Literal) else None
    return value if isinstance(value, (int, Decimal, timedelta)) and not isinstance(value, bool) else None


def _tree(text: str) -> _Node:
    if len(text) > _MAX_TEXT:
        _refuse(f"it is longer than {_MAX_TEXT} characters", text)
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs") and not character.isspace() for character in text):
        _refuse("it holds invisible characters", text)
    try:
        # The text must be one condition and nothing more: `parse_one` would drop what follows a semicolon.
        trees = _StreamJoinPredicates().parse_into(sql.Condition, _without_bars(text))
    except (SqlglotError, RecursionError):
        _refuse("it is not an SQL condition", text)
    if len(trees) != 1 or trees[0] is None:
        _refuse("it is not one SQL condition", text)
    if any(node.comments for node in trees[0].walk()):
        _refuse("it holds a comment", text)
    return trees[0]


def _without_bars(text: str) -> str:
    """Return the text with ``abs(x)`` for ``|x|``; bars inside quotes stay, and pairs of bars cannot be nested."""
    parts = _QUOTED.split(text)  # every second part is quoted
    bars = 0
    for place in range(0, len(parts), 2):
        pieces = parts[place].split("|")
        for number in range(1, len(pieces)):
            bars += 1
            pieces[number] = ("abs(" if bars % 2 else ")") + pieces[number]
        parts[place] = "".join(pieces)
    return text if bars % 2 or "||" in text else "".join(parts)


def _conjuncts(node: _Node) -> list[_Node]:
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
    """

    def __init__(self, text: str, stream: str | None = None) -> None:
        self._text = text
        self._stream = stream

    def condition(self, node: _Node) -> Expression:
        """Return the expression of a node, which must be a condition: one that can be TRUE."""
        found = self.expression(node, MAX_DEPTH)
        is_value = found.op not in CONDITIONS if isinstance(found, Call) else not _may_be_true(found)
        if is_value:
            self._refuse("a part of it is a value, not a condition: it is not compared with anything")
        return found

    def expression(self, node: _Node, depth: int) -> Expression:
        """Return the expression of any node, which may have `depth` levels."""
        node = node.unnest()
        if depth == 0:
            self._refuse(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, (sql.And, sql.Or)):
            return self._flat(node, depth)
        if type(node) in _BINARY:
            left, right = (self.expression(side, depth - 1) for side in (node.this, node.expression))
            return _folded(_BINARY[type(node)], left, right)
        if isinstance(node, (sql.Not, sql.Neg, sql.Abs, sql.Sqrt)):
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
        if isinstance(node, sql.Column):
            return self._column(node)
        return self._literal(node)

    def _flat(self, node: _Node, depth: int) -> Call:
        """Return a chain such as ``a AND b AND c`` as one AND, which counts as one level."""
        kind, operands, open_nodes = type(node), [], [node]
        while open_nodes:
            inner = open_nodes.pop().unnest()
            if type(inner) is kind:
                open_nodes += [inner.expression, inner.this]
            else:
                operands.append(self.expression(inner, depth - 1))
        return Call("and" if kind is sql.And else "or", tuple(operands))

    def _unary(self, node: _Node, depth: int) -> Expression:
        inner = self.expression(node.this, depth - 1)
        if isinstance(node, sql.Not):
            return call("not", inner)
        if isinstance(node, (sql.Abs, sql.Sqrt)):
            return call("abs" if isinstance(node, sql.Abs) else "sqrt", inner)
        bound = _bound(inner)
        return call("neg", inner) if bound is None else Literal(negated(bound))  # type: ignore[arg-type]

    def _column(self, node: _Node) -> Column:
        plain = isinstance(node.this, sql.Identifier) and node.name and node.args.get("db") is None
        if not plain or not (node.table or self._stream):
            self._refuse("a column in it is not written as stream.column")
        if self._stream and node.table not in ("", self._stream):
            self._refuse(f"it names the stream '{node.table}', but may only name {self._stream}")
        return Column(node.table or self._stream or "", node.name)

    def _literal(self, node: _Node) -> Literal:
        if isinstance(node, sql.Null):
            return Literal(None)
        if isinstance(node, sql.Boolean):
            return Literal(bool(node.this))
        if isinstance(node, sql.Literal):
            return Literal(node.name if node.is_string else self._number(node.name))
        if isinstance(node, sql.Interval):
            return Literal(self._interval(node))
        if type(node) is sql.Cast and isinstance(node.this, sql.Literal) and node.this.is_string:
            return Literal(self._moment(node))
        self._refuse(f"{_named(node)} in it is not supported")

    def _moment(self, node: _Node) -> date | datetime:
        kind, written = node.args["to"].this, node.this.name
        try:
            if kind == sql.DataType.Type.DATE:
                return date.fromisoformat(written)
            if kind in (sql.DataType.Type.TIMESTAMP, sql.DataType.Type.TIMESTAMPTZ):
                moment = datetime.fromisoformat(f"{written[:-1]}+00:00" if written[-1:] in ("Z", "z") else written)
                return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        except (ValueError, OverflowError):
            self._refuse("a DATE or TIMESTAMP in it is not valid; write it like TIMESTAMP '2024-01-31 12:00:00' (UTC)")
        self._refuse("of the values with a type name only DATE '...' and TIMESTAMP '...' are supported")

    def _interval(self, node: _Node) -> timedelta:
        unit = node.args.get("unit")
        if not isinstance(node.this, sql.Literal) or not (unit is None or isinstance(unit, sql.Var)):
            self._refuse(_NO_INTERVAL)
        try:
            return signed_duration(f"{node.this.name} {unit.name if unit else ''}", "an interval")
        except ArgumentError:
            self._refuse(_NO_INTERVAL)

    def _number(self, literal: str) -> int | Decimal:
        # A Decimal keeps what was written. The number is made exact for the column's type when the join is bound.
        try:
            value = Decimal(literal)
        except InvalidOperation:
            self._refuse("a number in it cannot be read")
        if value and abs(value.adjusted()) > MAX_EXPONENT:
            self._refuse("a number in it is too large or too close to zero")
        small = -(1 << 80) < value < 1 << 80
        return int(value) if small and value == value.to_integral_value() else value

    def _refuse(self, why: str) -> NoReturn:
        _refuse(why, self._text)


def _may_be_true(leaf: Expression) -> bool:
    return not isinstance(leaf, Literal) or leaf.value is None or isinstance(leaf.value, bool)


def _folded(op: str, left: Expression, right: Expression) -> Expression:
    """Return a sum or difference of two whole numbers or two durations as one literal, anything else as a call."""
    one: Any = _bound(left)
    other: Any = _bound(right)
    if type(one) is type(other) and isinstance(one, (int, timedelta)) and op in ("+", "-"):
        with contextlib.suppress(OverflowError):
            return Literal(one + other if op == "+" else one - other)
    return call(op, left, right)


def _named(node: _Node) -> str:
    text = node.name if isinstance(node, sql.Anonymous) else node.sql(dialect=_StreamJoinPredicates)
    return f"'{text[:60]}'"


def _refuse(why: str, text: str) -> NoReturn:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)
    msg = f"cannot read the predicate '{shown}': {why}"
    raise PredicateSyntaxError(msg, name=shown, hint=f"valid are {UNDERSTOOD}") from None
