"""The options of a join: their types as keyword arguments, and the ranges of the numbers among them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from streamjoin_ds.engine.arrays.kernels import CHUNK_ROWS
from streamjoin_ds.engine.probe.match_buffer import MIN_FREE
from streamjoin_ds.errors import ArgumentError

__all__ = ["JoinOptions", "check_ranges"]

_MAX_THREADS = 256


class JoinOptions(TypedDict, total=False):
    """The keyword arguments of a `WindowJoin`, which documents them; callers hand them on as one dict."""

    kernel: str
    threads: int
    cores: Sequence[int]
    index: str | Mapping[str, Sequence[str]]
    order: str | Sequence[str]
    chunk_rows: int
    merge_runs: int | None
    block_bytes: int | None
    bucket_rows: int | None
    copied: Collection[int]


def check_ranges(threads: int, chunk_rows: int, bucket_rows: int | None) -> None:
    """Raise ArgumentError where a number is out of range; the choice of a merge policy checks `merge_runs`."""
    if not 1 <= threads <= _MAX_THREADS:
        msg = "the number of threads is out of range"
        raise ArgumentError(msg, name="threads", hint=f"1 to {_MAX_THREADS}")
    if not MIN_FREE <= chunk_rows <= CHUNK_ROWS:
        msg = "chunk_rows is out of range"
        raise ArgumentError(msg, name="chunk_rows", hint=f"{MIN_FREE} to {CHUNK_ROWS}")
    if bucket_rows is not None and bucket_rows < 1:
        msg = "bucket_rows is out of range"
        raise ArgumentError(msg, name="bucket_rows", hint="1 or more, or None")
