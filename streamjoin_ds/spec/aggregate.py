"""Aggregates over the partners of a tuple, as they were written: ``avg(w.temperature)``, ``arg_min(w.id, e.x - w.x)``.

::

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

The contract is in ARCHITECTURE.md, "Sums over partners".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamjoin_ds.spec.expression.tree import Expression, expression_facts, expression_from

__all__ = ["FUNCTIONS", "MAX_COLLECTED", "NAMES", "Aggregate"]

MAX_COLLECTED = 100_000  # the largest limit of collect

# How many expressions each function takes, and whether a constant follows them.
FUNCTIONS = {
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
NAMES = {name: name for name in FUNCTIONS} | {
    "mean": "avg",
    "stddev_samp": "stddev",
    "min_by": "arg_min",
    "max_by": "arg_max",
    "percentile": "quantile",
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One column of a reduction.

    Parameters
    ----------
    name : str
        The column's name in the result.
    function : str
        A name of `FUNCTIONS`.
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
