"""A node of an expression with its type: what the types are, how large an exact number can get, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, columns_of

__all__ = [
    "EXACT",
    "MOST_DIGITS",
    "NESTED",
    "TIMES",
    "Typed",
    "common",
    "common_digits",
    "is_null",
    "refuse",
    "refuse_size",
]

NESTED = "list or struct"  # the family of values that are only equal or not
EXACT = ("number", "timestamp", "date", "interval", "time")
TIMES = ("timestamp", "date")
MOST_DIGITS = 76  # most digits of an exact number: those of decimal256


@dataclass(frozen=True, slots=True)
class Typed:
    """A node of an expression with its type.

    Attributes
    ----------
    op : str
        An operator of `Call`, or "column", "literal", "null" (a null of any type).
    family : str
        The family of its values (see the module); "nothing" for a null.
    args : tuple of Typed
        The operands.
    magnitude, scale : int
        For exact families: ``abs(value) * 10**scale <= magnitude``, and that product is a whole number.
    column : Column or None
        The column of the operator "column".
    value : bool, int, float or str
        The value of a literal; an exact one as the whole number ``value * 10**scale``.
    shape : str
        Of a column of lists or structs: the type that those must have with which it is compared (`shape_text`).
    """

    op: str
    family: str
    args: tuple[Typed, ...] = ()
    magnitude: int = 0
    scale: int = 0
    column: Column | None = None
    value: bool | int | float | str = False
    shape: str = ""

    @property
    def digits(self) -> int:
        """Decimal digits that hold every value of an exact node; if its scale is 0, at least 19, as any int64 needs."""
        return max(len(str(self.magnitude)), self.scale, 1 if self.scale else 19)


def is_null(node: Typed) -> bool:
    """Whether a node is a null of any type."""
    return node.family == "nothing"


def common_digits(expression: Expression, args: Sequence[Typed]) -> int:
    """Return how many digits both sides need in one scale, and one more; refuse an expression that needs too many."""
    scale = max(side.scale for side in args)
    needed = max(side.digits - side.scale for side in args) + scale + 1
    if needed > MOST_DIGITS:
        refuse_size(expression)
    return needed


def common(expression: Call, args: tuple[Typed, ...], values: Sequence[Typed]) -> Typed:
    """Return the node of a function whose result is one of some values: it has the type that holds all of them.

    Parameters
    ----------
    expression : Call
        The function.
    args : tuple of Typed
        All its operands.
    values : sequence of Typed
        Those of which its result is one.

    Raises
    ------
    PredicateError
        They have no type in common.
    """
    known = [value for value in values if not is_null(value)]
    families = {value.family for value in known}
    if not known:
        return Typed("null", "nothing")
    if families <= {"number", "float"} and "float" in families:
        return Typed(expression.op, "float", args)
    family = "timestamp" if families == set(TIMES) else known[0].family
    if families == {NESTED}:
        refuse(expression, "chooses among lists or structs", "compare their columns with = or IS [NOT] DISTINCT FROM")
    if len(families) > 1 and families != set(TIMES):
        hint = "write CAST(... AS ...), so that they have one type"
        refuse(expression, f"gives values of several types: {', '.join(sorted(families))}", hint)
    if family not in EXACT:
        return Typed(expression.op, family, args)
    common_digits(expression, known)
    scale = max(value.scale for value in known)
    magnitude = max(value.magnitude * 10 ** (scale - value.scale) for value in known)
    return Typed(expression.op, family, args, magnitude, scale)


def refuse_size(expression: Expression) -> NoReturn:
    """Refuse an expression whose numbers could need too many digits."""
    why = f"could need a number of more than {MOST_DIGITS} digits"
    refuse(expression, why, "CAST one AS DOUBLE, divide, which gives a float64 too, or move a factor to the other side")


def refuse(expression: Expression, why: str, hint: str) -> NoReturn:
    """Refuse an expression, whose text begins the message."""
    text = str(expression)
    msg = f"'{text if len(text) <= 200 else text[:200] + '...'}' {why}"
    name = str((*columns_of(expression), text[:200])[0])
    raise PredicateError(msg, name=name, hint=hint)
