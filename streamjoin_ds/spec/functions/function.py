"""What a function of expressions is: how it is written, which types it takes and gives, and how it is calculated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from streamjoin_ds.spec.expression.node import Typed, Values, refuse
from streamjoin_ds.spec.expression.tree import Call

__all__ = ["Function", "Nulls", "Rows", "by_row", "checked", "constant", "floats"]

# Which null operands make the result null: any of them, all of them together, the results of a CASE, or the first.
Nulls: TypeAlias = 'Literal["any", "all", "results", "first"]'


class Rows(Protocol):
    """The rows for which a function is calculated."""

    count: int

    def value(self, node: Typed) -> Values:
        """Return a node's values in the form of its family; a scalar where all are the same."""

    def array(self, values: Values) -> pa.Array:
        """Return values as an array with one for each row."""

    def floats(self, node: Typed) -> pa.Array:
        """Return the values of a number or a float as float64."""

    def written(self, node: Typed) -> pa.Array:
        """Return the values of a column as they are: lists as lists."""

    def in_family(self, node: Typed, values: pa.Array) -> Values:
        """Return values of a column's type in the form of a node's family."""

    def alike(self, nodes: Sequence[Typed], result: Typed) -> list[Values]:
        """Return the values of several nodes in the form of `result`, which holds all of them."""


@dataclass(frozen=True)
class Function:
    """A function of expressions.

    Attributes
    ----------
    name : str
        Its name, in lower case; the operator of its `Call`.
    written : str
        How it is written.
    typed : callable
        Returns its node for operands whose types are known, or refuses them.
    values : callable
        Returns its values for some rows.
    least, most : int
        How many operands it has.
    nulls : Nulls
        Which null operands make it null. With "any" neither `typed` nor `values` are given a NULL.
    aliases : tuple of str
        Other names.
    is_condition : bool
        Whether its result may be a condition.
    is_partial : bool
        Whether null is one of its values for known operands. Else such a null stands for a failure of SQL: where rows
        can be refused, one is.
    reason : str
        Why it fails; ``{0}`` and so on are its operands that are written out.
    """

    name: str
    written: str
    typed: Callable[[Call, tuple[Typed, ...]], Typed]
    values: Callable[[Typed, Rows], Values]
    least: int = 1
    most: int = 1
    nulls: Nulls = "any"
    aliases: tuple[str, ...] = ()
    is_condition: bool = False
    is_partial: bool = False
    reason: str = ""

    def fails(self, node: Typed) -> str:
        """Return why a node of it has no value although its operands are known."""
        written = [str(argument.value) if argument.op == "literal" else "" for argument in node.args]
        return self.reason.format(*written) if self.reason else f"{self.name}() has no value for these operands"


def checked(expression: Call, args: Sequence[Typed], *families: str) -> None:
    """Refuse an operand that is of none of some families."""
    for argument in args:
        if argument.family not in families:
            valid = " or ".join(families).replace("number or float", "number")
            hint = f"{expression.op}() takes {valid}; CAST(... AS ...) makes one type of another"
            refuse(expression, f"has a {argument.family} where a {valid} belongs", hint)


def floats(expression: Call, args: tuple[Typed, ...]) -> Typed:
    """Return the node of a function of numbers that is calculated in float64."""
    checked(expression, args, "number", "float")
    return Typed(expression.op, "float", args)


def constant(expression: Call, node: Typed, family: str, what: str) -> Any:
    """Return the value of an operand that must be written out, such as a unit."""
    if node.op == "neg" and node.args[0].op == "literal" and node.family == family:
        return -int(node.args[0].value)
    if node.op != "literal" or node.family != family or node.scale:
        refuse(expression, f"needs {what} that is written out", f"write {what}, not a column or a calculation")
    return node.value


def by_row(function: Callable[..., Any], kind: pa.DataType, arrays: Sequence[pa.Array]) -> pa.Array:
    """Return what a function of plain Python says for each row; null where an operand is null.

    Of one array it is asked once for each distinct value.
    """
    if len(arrays) == 1:
        encoded = arrays[0].dictionary_encode()
        found = pa.array([None if one is None else function(one) for one in encoded.dictionary.to_pylist()], kind)
        return found.take(encoded.indices)
    listed = zip(*(array.to_pylist() for array in arrays), strict=True)
    return pa.array([None if None in row else function(*row) for row in listed], kind)
