"""Values of columns as numbers: keys, which are float64 or int64, and hashes of rows.

Keys are the only two forms in which anything is compared. The engine compares these values, and a layout of ranges
deals tuples by them: both must see the same numbers.

`content_hash` is a 63-bit hash of a row's values, the same in every process and run. It numbers a row that has no
number, and finds equal keys of duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

__all__ = ["content_hash", "is_float", "item_dtype", "item_values", "key_dtype", "key_values", "nullable_key_values"]

_DTYPES: dict[pa.DataType, np.dtype[Any]] = {}
# By bits. complex128 stands for any 16-byte item: such items are copied, never computed with.
_ITEMS = {8: np.uint8, 16: np.uint16, 32: np.int32, 64: np.int64, 128: np.complex128}
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
_NULL = np.uint64(0xA0761D6478BD642F)  # stands for a null


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
        Hashes are the engine's: `streamjoin_ds.engine.columns.hashes_of`.

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


def content_hash(columns: Sequence[pa.Array]) -> np.ndarray:
    """Return a hash of each row's values.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        Columns of one length. Their order counts. -0.0 and 0.0 are one value, and so are all NaNs of a column.

    Returns
    -------
    numpy.ndarray of int64, shape (rows,)
        Hashes >= 0.
    """
    state = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        state = _mixed(state + _GOLDEN ^ _bits(column))
    hashes: np.ndarray = (state >> np.uint64(1)).astype(np.int64)
    return hashes


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finaliser of each number."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _bits(column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_floating(kind):
        values = column.fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        bits = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        bits = column.cast(width).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    else:
        return _hashed(column)
    return np.where(np.asarray(column.is_null()), _NULL, bits) if column.null_count else bits


def _hashed(column: pa.Array) -> np.ndarray:
    """Return the hashes of texts, bytes, decimals or nested values: one XXH3 for each distinct value."""
    plain = pa.types.is_string(column.type) or pa.types.is_binary(column.type) or pa.types.is_decimal(column.type)
    values = column if plain else pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
    coded = values.dictionary_encode()
    table = np.empty(len(coded.dictionary) + 1, np.uint64)
    for place, value in enumerate(coded.dictionary.to_pylist()):
        data = value if isinstance(value, bytes) else str(value).encode()
        table[place] = xxhash.xxh3_64_intdigest(data)
    table[-1] = _NULL
    hashes: np.ndarray = table[coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
    return hashes
