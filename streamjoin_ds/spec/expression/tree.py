"""Expressions over the streams' columns, as a small tree: conditions and values as they were written.

::

    text ── parse ──► Expression ── normalised, conjuncts ──► terms ── typed ──► evaluated
                     (what was written)   (one form of each meaning)  (`types`)  (`evaluation`)

Conditions have SQL's three values. A comparison with null is unknown, and so is one with NaN (ARCHITECTURE.md,
"Residual"). AND, OR and NOT are Kleene's. A pair or a tuple is kept only where the whole condition is TRUE. Because NaN
is unknown too, ``NOT a < b`` is ``b <= a``; so NOT can be moved down to IS NULL and to boolean columns.

Some terms of a condition are bands between two streams, in whatever form they were written (`band_and_term`). Bands
find pairs, other conditions decide on them.

An aggregate is over the partners of a tuple: ``avg(w.temperature)``, ``arg_min(w.id, e.x - w.x)``. The contract is in
ARCHITECTURE.md, "Sums over partners"::

    function             takes        Spark's names        over partners without any value it is
    ──────────────────   ──────────   ──────────────────   ─────────────────────────────────────
    count                * or x       count                0
    sum, min, max        x            the same             null
    avg                  x            avg, mean            null
    stddev               x            stddev, stddev_samp  null, also over one value
    first, last          x            the same             null
    arg_min, arg_max     x, by        min_by, max_by       null
    quantile             x, share     percentile           null
    collect              x, limit     -                    an empty list
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, TypeAlias

from msgspec import Struct

from streamjoin_ds.duration import EPOCH, MICROSECOND, duration_text
from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.expression.predicate import Band, Bound, Column, negated

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "AGGREGATE_NAMES",
    "COMPARISONS",
    "CONDITIONS",
    "MAX_COLLECTED",
    "MAX_DEPTH",
    "Aggregate",
    "Call",
    "Expression",
    "Literal",
    "Predicate",
    "band_and_term",
    "bound_of",
    "call",
    "columns_of",
    "conjuncts",
    "expression_facts",
    "expression_from",
    "normalised",
    "not_equal",
    "predicates_of",
    "streams_of",
]

MAX_DEPTH = 64  # how deep a condition may be nested

_PLAIN = Context(prec=10_000)  # makes 0.10 the same as 0.1; it has more digits than a text may have, and never rounds
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED = {">": "<", ">=": "<="}

COMPARISONS = tuple(_OPPOSITE)
# Operators whose result is TRUE, FALSE or unknown; all others give a value.
CONDITIONS = (*COMPARISONS, "same", "and", "or", "not", "is_null", "between", "in")
_OPERATORS = (*CONDITIONS, "+", "-", "*", "/", "%", "neg")  # all others are functions

Value: TypeAlias = "bool | int | Decimal | str | timedelta | date | datetime | time | None"
Expression: TypeAlias = "Column | Literal | Call"
# What a user can ask of a join: bands find pairs, other conditions decide on them.
Predicate: TypeAlias = "Band | Expression"
MAX_COLLECTED = 100_000  # the largest limit of collect
# How many expressions each function takes, and whether a constant follows them.
AGGREGATE_FUNCTIONS = {
    "count": (1, False),
    "sum": (1, False),
    "min": (1, False),
    "max": (1, False),
    "avg": (1, False),
    "stddev": (1, False),
    "first": (1, False),
    "last": (1, False),
    "arg_min": (2, False),
    "arg_max": (2, False),
    "quantile": (1, True),
    "collect": (1, True),
}
# Other names of the functions, mostly Spark's.
AGGREGATE_NAMES = {name: name for name in AGGREGATE_FUNCTIONS} | {
    "mean": "avg",
    "stddev_samp": "stddev",
    "min_by": "arg_min",
    "max_by": "arg_max",
    "percentile": "quantile",
}


class Literal(Struct, frozen=True):
    """A value that was written: NULL, a truth value, an exact number, a text, a duration, a date, or a time."""

    value: Value

    def __str__(self) -> str:
        value = self.value
        if value is None or isinstance(value, bool):
            return str(value).upper().replace("NONE", "NULL")
        if isinstance(value, str):
            return f"'{value.replace(chr(39), chr(39) * 2)}'"
        if isinstance(value, timedelta):
            sign = "-" if value < timedelta(0) else ""
            return f"{sign}INTERVAL '{duration_text(abs(value) // MICROSECOND)}'"
        if isinstance(value, datetime):
            return f"TIMESTAMP '{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(sep=' ')}'"
        if isinstance(value, time):
            return f"TIME '{value.isoformat()}'"
        return f"DATE '{value.isoformat()}'" if isinstance(value, date) else str(value)


class Call(Struct, frozen=True):
    """An operator and its operands.

    Parameters
    ----------
    op : str
        A comparison (``= <> < <= > >=``), ``+ - * / %``, ``neg``, ``and`` and ``or`` (two or more operands), ``not``,
        ``is_null``, ``same`` (IS NOT DISTINCT FROM), ``between`` (value, low, high), ``in`` (value, then the list), or
        the name of a function (`functions`).
    args : tuple of Expression
        The operands.
    """

    op: str
    args: tuple[Expression, ...]

    def __str__(self) -> str:
        if self.op not in _OPERATORS:
            return _function_text(self.op, self.args)
        first, *others = (_operand(argument) for argument in self.args)
        if self.op == "neg":
            return f"-({self.args[0]})"
        if self.op == "not":
            inner = self.args[0]
            if isinstance(inner, Call) and inner.op == "is_null":
                return f"{_operand(inner.args[0])} IS NOT NULL"
            if isinstance(inner, Call) and inner.op == "same":
                return " IS DISTINCT FROM ".join(map(_operand, inner.args))
            return f"NOT ({inner})"
        if self.op == "is_null":
            return f"{first} IS NULL"
        if self.op == "same":
            return f"{first} IS NOT DISTINCT FROM {others[0]}"
        if self.op == "between":
            return f"{first} BETWEEN {others[0]} AND {others[1]}"
        if self.op == "in":
            return f"{first} IN ({', '.join(others)})"
        return f" {self.op.upper()} ".join([first, *others])


def call(op: str, *args: Expression) -> Call:
    """Return ``Call(op, args)``."""
    return Call(op, args)


def not_equal(left: str | Column, right: str | Column) -> Call:
    """Return the condition ``left <> right``; it is not TRUE for null and NaN. It decides on pairs, and finds none."""
    left, right = Column.of(left), Column.of(right)
    if left.stream == right.stream:
        msg = f"{left} and {right} are columns of one stream, but a predicate compares two streams"
        raise PredicateError(msg, name=str(left), hint="for a self-join, list the input twice under two names")
    return call("<>", left, right)


def columns_of(expression: Expression) -> tuple[Column, ...]:
    """Return the columns in an expression, each once, sorted."""
    return tuple(sorted({leaf for leaf in _leaves(expression) if isinstance(leaf, Column)}))


def streams_of(expression: Expression) -> tuple[str, ...]:
    """Return the streams whose columns are in an expression, each once, sorted."""
    return tuple(sorted({column.stream for column in columns_of(expression)}))


def conjuncts(expression: Expression) -> list[Expression]:
    """Return the conditions that must all hold for an expression: the operands of its topmost ANDs."""
    if isinstance(expression, Call) and expression.op == "and":
        return [part for argument in expression.args for part in conjuncts(argument)]
    return [expression]


def normalised(expression: Expression, *, fails: bool = False) -> Expression:
    """Return the one form for all ways of writing the same, as far as that can be told without types.

    BETWEEN and IN become comparisons, ``>`` becomes ``<``, NOT moves down to IS NULL and to columns, nested ANDs become
    one, and so do nested ORs. Operands whose order does not matter are sorted, and of equal operands of AND and OR one
    is kept. TRY_CAST is CAST, but for where a value that cannot be calculated `fails`, and is not null.
    """
    return _normal(expression if fails else _as_cast(expression), negated=False)


def _as_cast(expression: Expression) -> Expression:
    if not isinstance(expression, Call):
        return expression
    return Call("cast" if expression.op == "try_cast" else expression.op, tuple(map(_as_cast, expression.args)))


def expression_facts(expression: Expression) -> list[object]:
    """Return the expression as plain JSON values; `expression_from` makes the expression of them again."""
    if isinstance(expression, Column):
        return ["column", expression.stream, expression.name]
    if isinstance(expression, Call):
        return [expression.op, *map(expression_facts, expression.args)]
    value = expression.value
    if value is None or isinstance(value, (bool, str)):
        return ["plain", value]
    if isinstance(value, timedelta):
        return ["us", value // MICROSECOND]
    if isinstance(value, datetime):
        return ["instant", (value - EPOCH) // MICROSECOND]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, time):
        return ["time", value.isoformat()]
    return ["number", str(_PLAIN.normalize(value) if isinstance(value, Decimal) else value)]


def expression_from(facts: Sequence[Any]) -> Expression:
    """Return the expression that `expression_facts` described."""
    op, *rest = facts
    if op == "column":
        return Column(*rest)
    reader = _READERS.get(op)
    return Literal(reader(rest[0])) if reader else Call(op, tuple(expression_from(argument) for argument in rest))


def _number_from(text: str) -> int | Decimal:
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)


_READERS: dict[str, Callable[[Any], Value]] = {
    "plain": lambda value: value,
    "us": lambda us: timedelta(microseconds=us),
    "instant": lambda us: EPOCH + timedelta(microseconds=us),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "number": _number_from,
}


def _operand(expression: Expression) -> str:
    is_open = isinstance(expression, Call) and expression.op in (*_OPERATORS, "like", "rlike")
    return f"({expression})" if is_open else str(expression)


def _function_text(op: str, args: Sequence[Expression]) -> str:
    """Return a function as it is written."""
    if op == "like":
        escape = f" ESCAPE {args[2]}" if len(args) == 3 else ""
        return f"{_operand(args[0])} LIKE {_operand(args[1])}{escape}"
    if op == "rlike":
        return f"{_operand(args[0])} RLIKE {_operand(args[1])}"
    if op == "case":
        pairs = [f"WHEN {args[place]} THEN {args[place + 1]}" for place in range(0, len(args) // 2 * 2, 2)]
        return " ".join(["CASE", *pairs, *([f"ELSE {args[-1]}"] if len(args) % 2 else []), "END"])
    if op in ("cast", "try_cast", "extract") and len(args) == 2:
        word = next((str(one.value) for one in args if isinstance(one, Literal)), "")
        if op != "extract" and isinstance(args[1], Literal):
            return f"{op.upper()}({args[0]} AS {str(args[1].value).upper()})"
        return f"extract({word.upper()} FROM {args[1]})"
    return f"{op}({', '.join(map(str, args))})"


def _leaves(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Call):
        for argument in expression.args:
            yield from _leaves(argument)
    else:
        yield expression


def _normal(expression: Expression, *, negated: bool) -> Expression:
    if isinstance(expression, Call) and expression.op in ("and", "or", "not", "between", "in", *COMPARISONS):
        return _normal_condition(expression, negated)
    if isinstance(expression, Call):
        args = tuple(_normal(argument, negated=False) for argument in expression.args)
        expression = Call(expression.op, _sorted(args) if expression.op in ("+", "*", "same") else args)
    elif isinstance(expression, Literal) and isinstance(expression.value, bool):
        return Literal(expression.value != negated)
    return call("not", expression) if negated else expression


def _normal_condition(expression: Call, negated: bool) -> Expression:
    op, args = expression.op, expression.args
    if op == "not":
        return _normal(args[0], negated=not negated)
    if op == "between":
        return _normal(call("and", call("<=", args[1], args[0]), call("<=", args[0], args[2])), negated=negated)
    if op == "in":
        return _normal(Call("or", tuple(call("=", args[0], item) for item in args[1:])), negated=negated)
    if op in ("and", "or"):
        if negated:
            op = "or" if op == "and" else "and"
        operands: dict[str, Expression] = {}
        for argument in args:
            inner = _normal(argument, negated=negated)
            flat = inner.args if isinstance(inner, Call) and inner.op == op else (inner,)
            operands.update((_sort_key(operand), operand) for operand in flat)
        together = tuple(operands[key] for key in sorted(operands))
        return together[0] if len(together) == 1 else Call(op, together)
    left, right = (_normal(argument, negated=False) for argument in args)
    op = _OPPOSITE[op] if negated else op
    if op in _TURNED:
        op, left, right = _TURNED[op], right, left
    return Call(op, _sorted((left, right)) if op in ("=", "<>") else (left, right))


def _sorted(args: Sequence[Expression]) -> tuple[Expression, ...]:
    return tuple(sorted(args, key=_sort_key))


def _sort_key(expression: Expression) -> str:
    return json.dumps(expression_facts(expression))


def predicates_of(condition: Expression, rounds: Callable[[Column], bool] | None = None) -> tuple[Predicate, ...]:
    """Return the predicates that a condition stands for.

    Parameters
    ----------
    condition : Expression
    rounds : callable, optional
        Whether sums of a column are rounded: then ``l.a BETWEEN r.b - c AND r.b + c`` is decided as it is written, and
        is no band on ``l.a - r.b``, which is rounded elsewhere. By default it is that band.
    """
    return tuple(predicate for term in conjuncts(condition) for predicate in band_and_term(term, rounds))


def band_and_term(expression: Expression, rounds: Callable[[Column], bool] | None = None) -> Iterator[Predicate]:
    """Give the band that a term is, or the term if it is none; for a strict comparison give both."""
    found = _band(expression)
    if found is not None and rounds is not None and _is_sum(expression) and (rounds(found.left) or rounds(found.right)):
        found = None
    if found is not None:
        yield found
    if found is None or (isinstance(expression, Call) and expression.op in ("<", ">")):
        yield expression


def _band(expression: Expression) -> Band | None:
    if not isinstance(expression, Call):
        return None
    op, args = expression.op, expression.args
    if op == "=":
        return _between(args[0], args[1], 0, 0, is_equality=True)
    if op in ("<=", "<", ">=", ">"):
        absolute, width = args if op[0] == "<" else args[::-1]
        eps = bound_of(width)
        if eps is None or not isinstance(absolute, Call) or absolute.op != "abs":
            return None
        return _of_difference(absolute.args[0], negated(eps), eps)
    if op != "between":
        return None
    lo, hi = bound_of(args[1]), bound_of(args[2])
    if lo is not None and hi is not None:
        return _of_difference(args[0], lo, hi)
    low, high = _shifted(args[1]), _shifted(args[2])
    if low is None or high is None or low[0] != high[0]:
        return None
    # ``l.a BETWEEN r.b AND r.b`` compares values, as ``l.a = r.b`` does.
    return _between(args[0], low[0], low[1], high[1], is_equality=not low[1] and not high[1])


def _is_sum(expression: Expression) -> bool:
    """Whether a BETWEEN adds a number to a column."""
    if not isinstance(expression, Call) or expression.op != "between":
        return False
    ends = [_shifted(end) for end in expression.args[1:]]
    return any(end is not None and end[1] and not isinstance(end[1], timedelta) for end in ends)


def _of_difference(difference: Expression, lo: Bound, hi: Bound) -> Band | None:
    if not isinstance(difference, Call) or difference.op != "-":
        return None
    left, right = difference.args
    return _between(left, right, lo, hi)


def _between(left: Expression, right: Expression, lo: Bound, hi: Bound, *, is_equality: bool = False) -> Band | None:
    """Return the band between two columns of different streams; None if these are not such columns."""
    columns = isinstance(left, Column) and isinstance(right, Column)
    if not columns or left.stream == right.stream:  # type: ignore[union-attr]
        return None
    return Band(left, right, lo, hi, is_equality)  # type: ignore[arg-type]


def _shifted(expression: Expression) -> tuple[Column, Bound] | None:
    """Return ``r.b``, ``r.b - c``, ``r.b + c`` or ``c + r.b`` as the column and the signed shift; None for others."""
    if isinstance(expression, Column):
        return expression, 0
    if not isinstance(expression, Call) or expression.op not in ("+", "-"):
        return None
    column, shift = expression.args
    if expression.op == "+" and not isinstance(column, Column):
        column, shift = shift, column
    bound = bound_of(shift)
    if bound is None or not isinstance(column, Column):
        return None
    return column, negated(bound) if expression.op == "-" else bound


def bound_of(expression: Expression) -> Bound | None:
    """Return the bound that a literal is; None if it is none."""
    value = expression.value if isinstance(expression, Literal) else None
    return value if isinstance(value, (int, Decimal, timedelta)) and not isinstance(value, bool) else None


class Aggregate(Struct, frozen=True):
    """One column of a reduction.

    Parameters
    ----------
    name : str
        The column's name in the result.
    function : str
        A name of `AGGREGATE_FUNCTIONS`.
    args : tuple of Expression
        What it is over; empty for ``count(*)``.
    constant : Decimal or None
        The share of a quantile, from 0 to 1; the limit of collect, from 1 to `MAX_COLLECTED`.
    """

    name: str
    function: str
    args: tuple[Expression, ...] = ()
    constant: Decimal | None = None

    def __str__(self) -> str:
        constant = () if self.constant is None else (f"{self.constant:f}",)
        return f"{self.function}({', '.join([*map(str, self.args), *constant]) or '*'})"

    def to_facts(self) -> list[object]:
        """Return the aggregate as plain JSON values; `from_facts` makes the aggregate of them again."""
        constant = None if self.constant is None else str(self.constant)
        return [self.name, self.function, [expression_facts(argument) for argument in self.args], constant]

    @classmethod
    def from_facts(cls, facts: Sequence[Any]) -> Aggregate:
        """Return the aggregate that `to_facts` described."""
        name, function, args, constant = facts
        args = tuple(expression_from(argument) for argument in args)
        return cls(name, function, args, None if constant is None else Decimal(constant))
