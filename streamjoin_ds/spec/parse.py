"""The text form of predicates, read with sqlglot's parser and nothing else: no text is ever evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal, InvalidOperation

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from streamjoin_ds.errors import ArgumentError, PredicateSyntaxError
from streamjoin_ds.spec.duration import duration_us
from streamjoin_ds.spec.predicate import Band, Bound, Column, NotEqual, Predicate

__all__ = ["UNDERSTOOD", "parse_predicates"]

UNDERSTOOD = (
    "abs(l.a - r.b) <= c, l.a - r.b BETWEEN c AND d, l.a BETWEEN r.b - c AND r.b + d, l.a = r.b, l.a <> r.b, "
    "joined by AND; quote a column that holds a dot: u.`PM2.5`"
)


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
        dialect = "spark" if "`" in text else None  # back-ticks are Spark's quotes, double quotes standard SQL's
        try:
            tree = sqlglot.parse_one(text, dialect=dialect)
        except SqlglotError:
            raise _refused("it is not an SQL expression", text) from None
        predicates.extend(_predicate(node, text) for node in _conjuncts(tree))
    return tuple(predicates)


def _conjuncts(node: sql.Expression) -> list[sql.Expression]:
    node = node.unnest()
    if isinstance(node, sql.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _predicate(node: sql.Expression, text: str) -> Predicate:
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
        raise _refused("both ends of a band are included: write <= instead of <", text)
    raise _refused(f"'{node.sql()}' is not understood", text)


def _absolute(absolute: sql.Expression, width: sql.Expression, text: str) -> Band:
    absolute = absolute.unnest()
    if not isinstance(absolute, sql.Abs) or not isinstance(absolute.this.unnest(), sql.Sub):
        raise _refused("a comparison must be of abs(l.a - r.b)", text)
    difference = absolute.this.unnest()
    eps = _bound(width, text)
    return Band(_column(difference.this, text), _column(difference.expression, text), -eps, eps)


def _between(node: sql.Between, text: str) -> Band:
    subject = node.this.unnest()
    low, high = node.args["low"].unnest(), node.args["high"].unnest()
    if isinstance(subject, sql.Sub):
        left, right = _column(subject.this, text), _column(subject.expression, text)
        return Band(left, right, _bound(low, text), _bound(high, text))
    left = _column(subject, text)
    (low_column, lo), (high_column, hi) = _shifted(low, text), _shifted(high, text)
    if low_column != high_column:
        raise _refused("both ends of BETWEEN must be shifts of one column", text)
    return Band(left, low_column, lo, hi)


def _shifted(node: sql.Expression, text: str) -> tuple[Column, Bound]:
    """``r.b``, ``r.b - c`` or ``r.b + c`` as the column and the signed shift."""
    if isinstance(node, sql.Sub):
        return _column(node.this, text), -_bound(node.expression, text)
    if isinstance(node, sql.Add):
        return _column(node.this, text), _bound(node.expression, text)
    return _column(node, text), 0


def _column(node: sql.Expression, text: str) -> Column:
    node = node.unnest()
    if not isinstance(node, sql.Column) or not node.table or node.args.get("db") is not None:
        raise _refused(f"'{node.sql()}' is not stream.column", text)
    return Column(node.table, node.name)


def _bound(node: sql.Expression, text: str) -> Bound:
    node = node.unnest()
    if isinstance(node, sql.Neg):
        return -_bound(node.this, text)
    if isinstance(node, sql.Interval) and node.this is not None:
        unit = node.args.get("unit")
        try:
            return timedelta(microseconds=duration_us(f"{node.this.name} {unit.name if unit else ''}", "an interval"))
        except ArgumentError:
            raise _refused(f"'{node.sql()}' is not an interval", text) from None
    if isinstance(node, sql.Literal) and not node.is_string:
        return _number(node.name, text)
    raise _refused(f"'{node.sql()}' is not a number", text)


def _number(literal: str, text: str) -> int | Decimal:
    # Decimal keeps what was written; it is made exact for the column's type when the join is bound.
    try:
        value = Decimal(literal)
    except InvalidOperation:
        raise _refused(f"'{literal}' is not a number", text) from None
    return int(value) if value == value.to_integral_value() and abs(value) < 1 << 80 else value


def _refused(why: str, text: str) -> PredicateSyntaxError:
    return PredicateSyntaxError(f"cannot read the predicate '{text}': {why}", name=text, hint=f"understood: {UNDERSTOOD}")
