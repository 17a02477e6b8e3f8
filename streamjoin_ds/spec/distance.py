"""Distances: an expression whose values put pairs in order, and those values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, PredicateError
from streamjoin_ds.spec.bound.bound_columns import column_type_compared
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.expression.evaluation import Rows, float_values
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import columns_of, expression_facts, normalised
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.node import Typed

__all__ = ["Distance", "distance_of"]

Float64: TypeAlias = npt.NDArray[np.float64]
Int64: TypeAlias = npt.NDArray[np.int64]

_ORDERED = ("number", "float", "interval", "timestamp", "date", "time", "nothing")
_INT64_MAX = (1 << 63) - 1
_PAST_INT64 = float(1 << 63)
_EXACT_FLOAT = float(1 << 53)  # whole numbers up to this are exact in float64
_WHOLE = pa.decimal256(76, 0)


@dataclass(frozen=True, slots=True)
class Distance:
    """What puts a tuple's partners in order.

    Attributes
    ----------
    value : Typed
        The expression: a number, a time or a duration.
    facts : str
        The normalised expression and its columns' types, as JSON.
    text : str
        The normalised expression for people.
    columns : tuple of Column
        All its columns.
    """

    value: Typed
    facts: str
    text: str
    columns: tuple[Column, ...]

    def values(self, rows: int, column: Callable[[Column], pa.Array]) -> tuple[Float64, Int64 | None]:
        """Return the distances of some pairs, in two parts: the first decides, then the second.

        Parameters
        ----------
        rows : int
            The number of pairs.
        column : callable
            As for `evaluation.holds`.

        Returns
        -------
        ndarray, shape (rows,), float64
            The distance rounded to float64, an exact one as the whole number of its last digits. NaN where it is
            null or NaN.
        ndarray, shape (rows,), int64, or None
            A number in the order of what is lacking there of an exact distance, itself rounded to float64: together
            that is 32 digits. None: nothing is lacking, for all pairs.
        """
        if self.value.family in ("float", "nothing"):
            return float_values(self.value, rows, column), None
        calculated = Rows(rows, column)
        found = calculated.array(calculated.value(self.value))
        if found.type != pa.int64():
            whole = pa.Array.from_buffers(_WHOLE, rows, found.buffers(), found.null_count, found.offset)
            try:
                found = whole.cast(pa.int64())
            except pa.ArrowInvalid:
                return _of_large(whole)
        nulls = np.asarray(found.is_null().to_numpy(zero_copy_only=False)) if found.null_count else None
        exact = (found if nulls is None else found.fill_null(0)).to_numpy()
        near = exact.astype(np.float64)
        is_rounded = rows and max(near.max(), -near.min()) >= _EXACT_FLOAT
        rest = _in_order(_rest(exact, near)) if is_rounded else None
        if nulls is not None:
            near[nulls] = np.nan
        return near, rest


def distance_of(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> Distance | None:
    """Return the distance of a nearest join with its columns' types; None of another join.

    Raises
    ------
    ArgumentError, ColumnError
        It names a stream or a column that is not there.
    PredicateError
        Its types do not go together, or its values have no distance: texts, truth values, lists.
    """
    if join.nearest is None:
        return None
    first, second = (Column(member.name, member.time) for member in join.members)
    written = join.nearest.distance(first, second)
    for column in columns_of(written):
        if column.stream not in join.member_names:
            names = join.member_names
            msg = f"the distance '{written}' names the stream '{column.stream}', which is not in the join"
            raise ArgumentError(msg, name="nearest_by", hint=names_hint(column.stream, names, "the streams are"))
    expression = normalised(written)
    columns = columns_of(expression)
    kinds = {column: column_type_compared(join, schemas, column) for column in columns}
    value = typed_value(expression, kinds.__getitem__)
    if value.family not in _ORDERED:
        msg = f"the distance '{written}' is of type {value.family}"
        raise PredicateError(msg, name="nearest_by", hint="give a number, a time or a duration: abs(e.x - w.x)")
    facts = json.dumps([expression_facts(expression), [str(kind) for kind in kinds.values()]])
    return Distance(value, facts, str(expression), columns)


def _rest(exact: Int64, near: Float64) -> Float64:
    """Return ``exact - near``, for float64 values next to int64 ones."""
    is_past = near >= _PAST_INT64  # near is 2^63 then, which int64 does not have
    held = np.where(is_past, 0.0, near).astype(np.int64)
    return np.where(is_past, exact - _INT64_MAX - 1, exact - held).astype(np.float64)


def _of_large(whole: pa.Array) -> tuple[Float64, Int64]:
    """Return the two parts of whole numbers, some of which do not fit int64."""
    near, rest = np.full(len(whole), np.nan), np.zeros(len(whole))
    for place, found in enumerate(whole.to_pylist()):
        if found is not None:
            exact = int(found)
            near[place] = float(exact)
            rest[place] = float(exact - int(near[place]))
    return near, _in_order(rest)


def _in_order(rest: Float64) -> Int64:
    """Return whole numbers that are in the order of some float64 values: their bits, without the two zeros' sign."""
    bits = (rest + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ _INT64_MAX, bits)
