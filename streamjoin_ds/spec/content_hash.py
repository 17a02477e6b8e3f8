"""The number of a row that has none: a 63-bit hash of its values, the same in every process and run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import xxhash

__all__ = ["content_hash"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
_NULL = np.uint64(0xA0761D6478BD642F)  # stands for a null


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
