"""Reads the literals and types of sqlglot's tree: numbers, texts, times, durations, and the types of CAST."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, TypeAlias

from sqlglot import expressions as sql

from streamjoin_ds.duration import signed_duration
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.expression.predicate import MAX_EXPONENT
from streamjoin_ds.spec.expression.tree import Value
from streamjoin_ds.spec.functions import CAST_TYPES

__all__ = ["Node", "Refuse", "is_moment", "literal_value", "type_name"]

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
