"""Compared columns as keys: float64 or int64, the only two forms that kernels know.

::

    kind    from                                         becomes
    ─────   ─────────────────────────────────────────   ───────────────────────────────────────
    float   float32, float64, integers beside floats     float64
    int     integers, dates (days), timestamps (us),     int64
            decimals (scaled), booleans (0, 1)
    ns      timestamps (ns), from a column beside them   int64
    hash    strings, binary, lists, structs              xxh3 of the bytes, as int64
    limit   expressions that only find (`spec.limit`)    float64

A tuple with a null or NaN in any compared column has no partner. Such tuples are counted and no window keeps them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import not_null
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.expression.evaluation import holds
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.key_values import key_dtype, key_values

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "NullKeyMask",
    "compared_columns",
    "is_stored",
    "is_widened",
    "key_dtype",
    "key_values",
    "widened",
]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def compared_columns(bound: BoundJoin, stream: int, other: int | None = None) -> tuple[str, ...]:
    """Return the inside columns of a stream where a null keeps a tuple out of every result.

    These are the columns of its keys, and the columns in which a null keeps some term from being TRUE. With `other`
    they are those that are compared with that stream: a null keeps a tuple from having a partner there.
    """
    keys, terms = bound.keys[stream], bound.terms
    if other is not None:
        pair = {stream, other}
        between = [one for one in bound.conditions if {one.left_stream, one.right_stream} == pair]
        met = {one.left_key if stream < other else one.right_key for one in between}
        keys = tuple(keys[number] for number in sorted(met))
        terms = tuple(term for term in terms if set(term.streams) == pair)
    names = [bound.key_name(stream, key) for key in keys]
    rejecting = [c.name for term in terms for c in term.rejecting if c.stream == bound.member_names[stream]]
    return tuple(dict.fromkeys([*names, *(bound.compared_name(stream, name) for name in rejecting)]))


class NullKeyMask:
    """Tells which tuples of one stream may have partners.

    They have a value in every compared column, no NaN in a column of a band, also of one that a residual decides, and
    the stream's bars are TRUE for them (`BoundJoin.bars`). With `other` it tells which may have partners in that
    stream, and only what is compared with it counts.
    """

    def __init__(self, bound: BoundJoin, stream: int, other: int | None = None) -> None:
        names = bound.tuple_schema(stream).names
        self._compared = tuple(names.index(name) for name in compared_columns(bound, stream, other))
        bands = [predicate for predicate in bound.join.predicates if isinstance(predicate, Band)]
        own = bound.member_names[stream]
        if other is not None:
            pair = {own, bound.member_names[other]}
            bands = [band for band in bands if {band.left.stream, band.right.stream} == pair]
        ends = [column for band in bands for column in (band.left, band.right) if column.stream == own]
        floats = dict.fromkeys(bound.compared_name(stream, column.name) for column in ends)
        kinds = bound.tuple_schema(stream)
        self._floats = tuple(names.index(name) for name in floats if pa.types.is_floating(kinds.field(name).type))
        self._bars = bound.bars[stream] if bound.bars else ()
        self._places = {
            column: names.index(bound.compared_name(stream, column.name))
            for term in self._bars
            for column in term.columns
        }

    def mask(self, arrived: BatchColumns) -> npt.NDArray[np.bool_] | None:
        """Return which tuples do; None: all of them.

        Parameters
        ----------
        arrived : BatchColumns
            Of the stream's tuple schema.
        """
        if not self._bars and not arrived.has_null(self._compared) and not arrived.has_nan(self._floats):
            return None
        mask = np.ones(arrived.rows, dtype=np.bool_)
        for place in self._compared:
            mask &= not_null(arrived.batch.column(place))
        for place in self._floats:
            mask &= ~np.isnan(arrived.batch.column(place).to_numpy(zero_copy_only=False))
        for term in self._bars:
            mask &= holds(term.condition, arrived.rows, lambda column: arrived.batch.column(self._places[column]))
        return None if mask.all() else mask


def is_stored(kind: str) -> bool:
    """Whether a key is a column of a run: hashes and limits are. All other keys are made from their column again."""
    return kind in ("hash", "limit")


def is_widened(kind: pa.DataType) -> bool:
    """Whether kernels can widen a type's items to keys."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_date32(kind))


def widened(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values of a key as float64 or int64."""
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)
