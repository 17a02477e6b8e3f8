"""Which terms of a condition are bands between two streams, in whatever form they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal

from streamjoin_ds.spec.expression.predicate import Band, Bound, Column, negated
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, Predicate, conjuncts

__all__ = ["band_and_term", "bound_of", "predicates_of"]


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
