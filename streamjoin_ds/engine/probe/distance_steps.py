"""A distance as steps of a kernel, which reads the columns of pairs where they lie (`PairDistances`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import PairDistances, Step
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.expression.node import EXACT, Typed

__all__ = ["DistanceSteps"]

_OPS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "abs": "abs", "neg": "neg", "sqrt": "sqrt"}
_WHOLE_OPS = {"+": "int add", "-": "int sub", "*": "int mul", "abs": "int abs", "neg": "int neg"}
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_EXACT_FLOAT = 1 << 53  # whole numbers up to this are exact in float64


class _NotInSteps(Exception):
    """An expression has a part that no step does."""


class DistanceSteps:
    """The distance of a join, as far as the kernel can calculate it: with numbers and times, + - * /, abs and sqrt.

    Parameters
    ----------
    bound : BoundJoin
        With a distance.
    module : KernelModule
    """

    def __init__(self, bound: BoundJoin, module: KernelModule) -> None:
        assert bound.distance is not None, "the join has a distance"
        made = _Steps(bound)
        self._kernel: PairDistances | None = None
        try:
            made.number(bound.distance.value)
        except _NotInSteps:
            return
        # Without a column of the partners there is nothing to be read beside the probes.
        if made.columns["other"] and len(made.steps) <= module.MAX_STEPS:
            self._kernel = module.PairDistances(made.steps)
            self._own, self._other = tuple(made.columns["own"]), tuple(made.columns["other"])

    def own_columns(self, tuples: Selection) -> list[npt.NDArray[np.generic]] | None:
        """Return the decided tuples' columns as the kernel reads them; None where it cannot, and Arrow has to."""
        if self._kernel is None:
            return None
        found = []
        for name in self._own:
            values = tuples.column(name)
            if values.null_count:
                return None
            is_time = pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type)
            found.append((values.view(pa.int64()) if is_time else values).to_numpy())
        return found

    def values(
        self, own: list[npt.NDArray[np.generic]], positions: npt.NDArray[np.int32], found: Selection
    ) -> npt.NDArray[np.float64] | None:
        """Return the distances of pairs; None where the kernel cannot hold one exactly, and Arrow has to."""
        assert self._kernel is not None, "there are own columns"
        assert found.rows is not None, "partners are rows of runs"
        if found.run_set.plain(self._other) != self._other:
            return None
        out = np.empty(len(positions))
        runs = found.run_set.columns(self._other)
        return out if self._kernel.fill(own, runs, found.places, positions, found.rows, out) else None


@dataclass
class _Steps:
    """The steps of an expression; what is there twice is done once.

    An exact value that float64 holds by its type is calculated as such. Of two of them also the rounded sum, difference
    or product is right: one rounding of the exact one. All other exact values are int64.
    """

    bound: BoundJoin
    steps: list[Step] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=lambda: {"own": [], "other": []})
    known: dict[object, int] = field(default_factory=dict)

    def number(self, node: Typed) -> int:
        """Return the number of the step that gives a distance."""
        if node.family == "float" or _fits_float(node):
            return self._float(node)
        return self._whole(node)

    def _float(self, node: Typed) -> int:
        """Return the step that gives a node's values as float64: an exact one in units of its last digit."""
        if ("float", node) not in self.known:
            self.known["float", node] = self._made_float(node)
        return self.known["float", node]

    def _whole(self, node: Typed) -> int:
        """Return the step that gives an exact node's values as int64, in units of its last digit."""
        if ("int", node) not in self.known:
            self.known["int", node] = self._made_whole(node)
        return self.known["int", node]

    def _made_float(self, node: Typed) -> int:
        if node.op == "column":
            return self._column(node, is_wide=True)
        if node.op == "literal":
            return self._added("float", float(node.value if node.family == "float" else int(node.value)))
        if node.family != "float":
            if _has_one_scale(node) and node.op in _WHOLE_OPS and all(map(_fits_float, node.args)):
                return self._added(_OPS[node.op], *map(self._float, node.args))
            return self._added("widen", self._whole(node))
        if node.op not in _OPS:
            raise _NotInSteps
        return self._added(_OPS[node.op], *map(self._as_float, node.args))

    def _as_float(self, node: Typed) -> int:
        """Return the step that gives an operand of a float: its value, not its last digits."""
        if node.op == "literal" and node.scale:
            return self._added("float", float(Decimal(int(node.value)).scaleb(-node.scale)))
        if node.family not in ("float", "number") or node.scale:
            raise _NotInSteps
        return self._float(node)

    def _made_whole(self, node: Typed) -> int:
        if node.op == "column":
            return self._column(node, is_wide=False)
        if node.op == "literal":
            if not _INT64_MIN <= int(node.value) <= _INT64_MAX:
                raise _NotInSteps
            return self._added("int", int(node.value))
        if node.op not in _WHOLE_OPS or node.family not in EXACT or not _has_one_scale(node):
            raise _NotInSteps
        return self._added(_WHOLE_OPS[node.op], *map(self._whole, node.args))

    def _column(self, node: Typed, *, is_wide: bool) -> int:
        column = node.column
        assert column is not None, "it is a column"
        stream = self.bound.member_names.index(column.stream)
        name = self.bound.compared_name(stream, column.name)
        kind = self.bound.tuple_schema(stream).field(name).type
        is_float = kind in (pa.float64(), pa.float32())
        is_time = node.family in ("timestamp", "interval") and kind.bit_width == 64
        if not (is_float or is_time or pa.types.is_signed_integer(kind)):
            raise _NotInSteps
        side = "own" if stream == 0 else "other"  # rows are about the first stream's tuples
        if name not in self.columns[side]:
            self.columns[side].append(name)
        return self._added(side, self.columns[side].index(name), int(is_wide) or None, is_float=is_float)

    def _added(self, op: str, left: float, right: int | None = None, *, is_float: bool = False) -> int:
        self.steps.append((op, left, right, is_float))
        return len(self.steps) - 1


def _fits_float(node: Typed) -> bool:
    """Whether float64 holds every value of an exact node, in units of its last digit."""
    return node.family in EXACT and node.magnitude <= _EXACT_FLOAT


def _has_one_scale(node: Typed) -> bool:
    """Whether an operation works on last digits alone: a product, or operands of one scale and no dates."""
    if any(argument.family == "date" for argument in node.args):
        return False
    return node.op == "*" or all(argument.scale == node.scale for argument in node.args)
