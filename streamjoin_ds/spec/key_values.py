"""Values of compared columns as keys: float64 or int64, the only two forms in which anything is compared.

The engine compares these values, and a layout of ranges deals tuples by them: both must see the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["is_float", "item_dtype", "item_values", "key_dtype", "key_values", "nullable_key_values"]

_DTYPES: dict[pa.DataType, np.dtype[Any]] = {}
# By bits. complex128 stands for any 16-byte item: such items are copied, never computed with.
_ITEMS = {8: np.uint8, 16: np.uint16, 32: np.int32, 64: np.int64, 128: np.complex128}


def item_values(array: pa.Array) -> npt.NDArray[Any]:
    """View a fixed-width array's items as NumPy items of the same width, nulls' slots included.

    Parameters
    ----------
    array : pyarrow.Array
        Of a type of 8, 16, 32, 64 or 128 bits; float64 stays float64, everything else is seen as integers or as
        opaque 16-byte items.
    """
    kind = array.type
    dtype = item_dtype(kind)
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.empty(0, dtype=dtype)
    values = np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)
    # Arrow recommends aligned buffers but does not require them; kernels do.
    return values if values.flags.aligned else values.copy()


def item_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Return the dtype of the NumPy items of a type of fixed width; see `item_values`."""
    found = _DTYPES.get(kind)
    if found is None:
        found = _DTYPES[kind] = np.dtype(np.float64 if pa.types.is_float64(kind) else _ITEMS[kind.bit_width])
    return found


def key_values(array: pa.Array, kind: str) -> npt.NDArray[Any]:
    """Return the values of a key from its column, which must have no nulls.

    Parameters
    ----------
    array : pyarrow.Array, shape (n,)
    kind : {"float", "int", "ns", "limit"}
        Hashes are the engine's: `streamjoin_ds.engine.arrays.columns.hashes_of`.

    Returns
    -------
    ndarray, shape (n,), float64 or int64
        A view of the column where its items have that form already.
    """
    types = pa.types
    if is_float(kind):
        if types.is_float64(array.type):
            return item_values(array)
        return np.ascontiguousarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    if types.is_boolean(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)
    if types.is_decimal128(array.type):
        # At most 18 digits (checked when the join was bound): the low half of the 128 bits is the number.
        return np.ascontiguousarray(item_values(array).view(np.int64)[::2])
    if types.is_date32(array.type):
        return item_values(array).astype(np.int64)
    if types.is_timestamp(array.type) or types.is_int64(array.type):
        return item_values(array)
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)


def nullable_key_values(array: pa.Array, kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return `key_values` of a column that may have nulls, with 0 for those, and which values are not null.

    The second is None where there are no nulls.
    """
    if not array.null_count:
        return key_values(array, kind), None
    has_key = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    values = np.zeros(len(array), key_dtype(kind))
    values[has_key] = key_values(array.drop_null(), kind)
    return values, has_key


def key_dtype(kind: str) -> np.dtype[Any]:
    """Return the dtype of a key's values."""
    return np.dtype(np.float64 if is_float(kind) else np.int64)


def is_float(kind: str) -> bool:
    """Whether a key's values are float64."""
    return kind in ("float", "limit")
