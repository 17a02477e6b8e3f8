"""The text form of predicates, read with sqlglot's parser and nothing else: no text is ever evaluated."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from sqlglot import expressions as sql
from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from streamjoin_ds.errors import ArgumentError, PredicateSyntaxError
from streamjoin_ds.spec.duration import signed_duration
from streamjoin_ds.spec.predicate import Band, Bound, Column, NotEqual, Predicate, negated

__all__ = ["UNDERSTOOD", "parse_predicates"]

UNDERSTOOD = (
    "abs(l.a - r.b) <= c, l.a - r.b BETWEEN c AND d, l.a BETWEEN r.b - c AND r.b + d, l.a = r.b, l.a <> r.b, "
    "joined by AND; quote a column that holds a dot: u.`PM2.5`"
)

_MAX_TEXT = 10_000
_SHOWN = 200

_Node = Any  # sqlglot renamed its expression classes between versions


class _StreamJoinPredicates(Dialect):
    """Standard SQL with both ways of quoting a name."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012
        QUOTES = ["'"]  # noqa: RUF012


def parse_predicates(texts: str | Iterable[str]) -> tuple[Predicate, ...]:
    """Read conjunctions such as ``abs(e.x - w.x) <= 0.1 AND e.id <> w.id``.

    ``BETWEEN r.b - c AND r.b + d`` is read as the band ``-c <= l.a - r.b <= d``: the contract knows one form of the
    comparison, the subtraction, because the two round differently (design, section 1).

    Raises
    ------
    PredicateSyntaxError
        Anything else, with what is understood as the hint.
    """
    predicates: list[Predicate] = []
    for text in [texts] if isinstance(texts, str) else texts:
        predicates.extend(_predicate(node, text) for node in _conjuncts(_tree(text)))
    return tuple(predicates)


def _tree(text: str) -> _Node:
    if len(text) > _MAX_TEXT:
        _refuse(f"it is longer than {_MAX_TEXT} characters", text)
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs") and not character.isspace() for character in text):
        _refuse("it holds characters that cannot be seen", text)
    try:
        # One condition and nothing after it: `parse_one` would drop what follows a semicolon.
        trees = _StreamJoinPredicates().parse_into(sql.Condition, text)
    except (SqlglotError, RecursionError):
        _refuse("it is not an SQL condition", text)
    if len(trees) != 1 or trees[0] is None:
        _refuse("it is not one SQL condition", text)
    if any(node.comments for node in trees[0].walk()):
        _refuse("it holds a comment", text)
    return trees[0]


def _conjuncts(node: _Node) -> list[_Node]:
    found, open_nodes = [], [node]
    while open_nodes:
        node = open_nodes.pop().unnest()
        if isinstance(node, sql.And):
            open_nodes += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _predicate(node: _Node, text: str) -> Predicate:
    if isinstance(node, sql.Not) and isinstance(node.this.unnest(), sql.EQ):
        inner = node.this.unnest()
        return NotEqual(_column(inner.this, text), _column(inner.expression, text))
    if isinstance(node, sql.EQ):
        return Band(_column(node.this, text), _column(node.expression, text), 0, 0)
    if isinstance(node, sql.NEQ):
        return NotEqual(_column(node.this, text), _column(node.expression, text))
    if isinstance(node, sql.LTE):
        return _absolute(node.this, node.expression, text)
    if isinstance(node, sql.GTE):
        return _absolute(node.expression, node.this, text)
    if isinstance(node, sql.Between):
        return _between(node, text)
    if isinstance(node, (sql.LT, sql.GT)):
        _refuse("both ends of a band are included: write <= instead of <", text)
    _refuse("a condition in it is none of the forms that are", text)


def _absolute(absolute: _Node, width: _Node, text: str) -> Band:
    absolute = absolute.unnest()
    if not isinstance(absolute, sql.Abs) or not isinstance(absolute.this.unnest(), sql.Sub):
        _refuse("a comparison must be of abs(l.a - r.b)", text)
    difference = absolute.this.unnest()
    eps = _bound(width, text)
    return Band(_column(difference.this, text), _column(difference.expression, text), negated(eps), eps)


def _between(node: _Node, text: str) -> Band:
    if node.args.get("symmetric"):
        _refuse("BETWEEN takes its ends in their order, without SYMMETRIC", text)
    subject = node.this.unnest()
    low, high = node.args["low"].unnest(), node.args["high"].unnest()
    if isinstance(subject, sql.Sub):
        left, right = _column(subject.this, text), _column(subject.expression, text)
        return Band(left, right, _bound(low, text), _bound(high, text))
    left = _column(subject, text)
    (low_column, lo), (high_column, hi) = _shifted(low, text), _shifted(high, text)
    if low_column != high_column:
        _refuse("both ends of BETWEEN must be shifts of one column", text)
    return Band(left, low_column, lo, hi)


def _shifted(node: _Node, text: str) -> tuple[Column, Bound]:
    """``r.b``, ``r.b - c``, ``r.b + c`` or ``c + r.b`` as the column and the signed shift."""
    if isinstance(node, sql.Sub):
        return _column(node.this, text), negated(_bound(node.expression, text))
    if isinstance(node, sql.Add):
        column, shift = node.this, node.expression
        if not isinstance(column.unnest(), sql.Column):
            column, shift = shift, column
        return _column(column, text), _bound(shift, text)
    return _column(node, text), 0


def _column(node: _Node, text: str) -> Column:
    node = node.unnest()
    plain = isinstance(node, sql.Column) and isinstance(node.this, sql.Identifier)
    if not plain or not node.table or not node.name or node.args.get("db") is not None:
        _refuse("a side of a comparison is not stream.column", text)
    return Column(node.table, node.name)


def _bound(node: _Node, text: str) -> Bound:
    node = node.unnest()
    if isinstance(node, sql.Neg):
        return negated(_bound(node.this, text))
    if isinstance(node, sql.Interval):
        return _interval(node, text)
    if isinstance(node, sql.Add):  # INTERVAL 1 HOUR 30 MINUTES
        parts = (_bound(node.this, text), _bound(node.expression, text))
        if isinstance(parts[0], timedelta) and isinstance(parts[1], timedelta):
            return parts[0] + parts[1]
    if isinstance(node, sql.Literal) and not node.is_string:
        return _number(node.name, text)
    _refuse("a bound in it is neither a number nor an INTERVAL", text)


def _interval(node: _Node, text: str) -> timedelta:
    unit = node.args.get("unit")
    if not isinstance(node.this, sql.Literal) or not (unit is None or isinstance(unit, sql.Var)):
        _refuse("an INTERVAL in it is not a number and its unit", text)
    try:
        return signed_duration(f"{node.this.name} {unit.name if unit else ''}", "an interval")
    except ArgumentError:
        _refuse("an INTERVAL in it is not a number and its unit", text)


def _number(literal: str, text: str) -> int | Decimal:
    # Decimal keeps what was written; it is made exact for the column's type when the join is bound.
    try:
        value = Decimal(literal)
    except InvalidOperation:
        _refuse("a bound in it is not a number", text)
    small = -(1 << 80) < value < 1 << 80
    return int(value) if small and value == value.to_integral_value() else value


def _refuse(why: str, text: str) -> NoReturn:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)
    msg = f"cannot read the predicate '{shown}': {why}"
    raise PredicateSyntaxError(msg, name=shown, hint=f"understood: {UNDERSTOOD}") from None
