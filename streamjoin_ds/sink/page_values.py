"""What fills a Parquet page: whole numbers as packed differences, and columns in runs. The kernels' readable twin.

`cython_kernels/pages` does the same in C. Where the two differ, this file is right.
Both take plain arrays of int32 or int64; floats, times and dates are given as the bits they consist of.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamjoin_ds.errors import KernelError

__all__ = ["Bytes", "Numbers", "compiled", "pack_differences", "pack_runs", "signed", "varint"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.signedinteger[Any]]

_BLOCK, _PARTS = 128, 4  # values that share their smallest difference, and parts of a block with a width of their own


@lru_cache(maxsize=1)
def compiled() -> Any:
    """Return the compiled module of `pack_differences` and `pack_runs`.

    None where it was not compiled, and under ``STREAMJOIN_DS_KERNEL=reference``: then pyarrow writes all files.
    """
    try:
        from streamjoin_ds._kernels import default_implementation

        return None if default_implementation() == "reference" else import_module("streamjoin_ds._kernels.pages")
    except ImportError:  # a package that was not compiled
        return None


def pack_differences(values: Numbers) -> Bytes | None:
    """Return whole numbers in Parquet's form DELTA_BINARY_PACKED; None where that is not shorter than the values.

    A block of 128 differences, which wrap around in the width of their values, has its smallest one; each quarter of it
    has as many bits as its largest remainder needs.

    Raises
    ------
    KernelError
        The values are not a plain array of int32 or int64.
    """
    _check(values)
    if not len(values):
        return None
    unsigned = values.view(f"u{values.itemsize}")
    steps = np.diff(unsigned).view(values.dtype)
    out = bytearray(varint(_BLOCK) + varint(_PARTS) + varint(len(values)) + signed(int(values[0])))
    for first in range(0, len(steps), _BLOCK):
        block = steps[first : first + _BLOCK]
        least = block.min()
        over = np.zeros(_BLOCK, np.uint64)
        over[: len(block)] = block.view(unsigned.dtype) - least.view(unsigned.dtype)
        widths = [int(part.max()).bit_length() for part in over.reshape(_PARTS, -1)]
        out += signed(int(least)) + bytes(widths)
        for part, width in zip(over.reshape(_PARTS, -1), widths, strict=True):
            bits = np.unpackbits(part.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
            out += np.packbits(bits[:, :width], bitorder="little").tobytes()
    return np.frombuffer(bytes(out), np.uint8) if len(out) < values.nbytes else None


def pack_runs(values: Numbers) -> tuple[Numbers, Bytes] | None:
    """Return values as runs of a dictionary; None where a run has fewer than two values on average.

    Returns
    -------
    tuple of ndarray
        The first value of each run: the dictionary, in which a value may stand again. And the numbers of the runs in
        Parquet's form RLE_DICTIONARY: the bits of a number, then each run's length and number.

    Raises
    ------
    KernelError
        The values are not a plain array of int32 or int64.
    """
    _check(values)
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else np.empty(0, int)
    if not 0 < len(starts) <= len(values) // 2:
        return None
    bits = max(1, (len(starts) - 1).bit_length())
    lengths = np.diff(starts, append=len(values)).tolist()
    id_bytes = (bits + 7) // 8
    out = b"".join(varint(length << 1) + run.to_bytes(id_bytes, "little") for run, length in enumerate(lengths))
    return values[starts], np.frombuffer(bytes([bits]) + out, np.uint8)


def varint(value: int) -> bytes:
    """Return a number >= 0, seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def signed(value: int) -> bytes:
    """Return a number of 64 bits, so that one near to zero is short: 0, -1, 1, -2 as 0, 1, 2, 3."""
    return varint(value << 1 if value >= 0 else ~(value << 1))


def _check(values: Numbers) -> None:
    if (
        not isinstance(values, np.ndarray)
        or values.dtype not in (np.dtype(np.int32), np.dtype(np.int64))
        or values.ndim != 1
        or not values.flags.c_contiguous
        or not values.flags.aligned
    ):
        message = "values must be a plain ndarray of int32 or int64"
        raise KernelError(message, name="values", hint="numpy.ascontiguousarray")
