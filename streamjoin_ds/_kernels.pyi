"""Types of the compiled kernels; `streamjoin_ds.engine.reference` documents each name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bound = int | float

def implementations() -> tuple[str, ...]: ...
def default_implementation() -> str: ...
def cpu_features() -> dict[str, bool]: ...
def grid_buckets(column: Column, width: Bound, offset: Bound) -> Int64: ...
def probe_buckets(left_first: Column, lo: Bound, hi: Bound, width: Bound) -> Int64: ...
def grid_order(buckets: Int64 | None, second: Column) -> Int32: ...
def bucket_directory(sorted_buckets: Int64) -> tuple[Int64, Int64]: ...
def gather(column: Column, order: Int32, out: Column | None = None) -> Column: ...

class Scan:
    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[Bound],
        hi: Sequence[Bound],
        implementation: str | None = None,
        *,
        left_count: int | None = None,
        right_count: int | None = None,
    ) -> None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def implementation(self) -> str: ...
    def fill(self, out_probe: Int32, out_run: Int32) -> int: ...

class GridProbe:
    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[Bound],
        hi: Sequence[Bound],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None,
        bucket_starts: Int64 | None,
        probe_order: Int32,
        implementation: str | None = None,
        left_count: int | None = None,
        right_count: int | None = None,
    ) -> None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def implementation(self) -> str: ...
    def fill(self, out_probe: Int32, out_run: Int32) -> int: ...
