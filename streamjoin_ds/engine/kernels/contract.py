"""The contract of a kernel module: every name that the engine may ask one for, and how each is called.

::

    engine ──► KernelModule ◄── mypy ──────────────────────── twins     readable NumPy
                    ▲   ▲
                    │   └────── tests/kernels/test_border.py ─ native   compiled from cython_kernels/
               NativeModule ◄── streamjoin_ds/_kernels.pyi

The border is written here and in `objects`, and nowhere else. The twins document what each name does. mypy compares the
twins with the contract. Compiled code has no types, so tests compare its names and signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Bound, Bytes, Column, End, Int32, Int64, Step

__all__ = ["LIMB_BITS", "MAX_CONDITIONS", "KernelModule", "NativeModule"]

LIMB_BITS = 30  # of the digits of exact sums
MAX_CONDITIONS = 16  # of one probe


class KernelModule(Protocol):
    """Every name that the engine may ask a kernel module for; classes stand as functions that make their objects."""

    GRID_CHUNK_ROWS: int
    MATCH_SLACK: int
    MAX_STEPS: int
    NEAREST_TIES: int
    FENCE_ROWS: int
    SCAN_PAIRS: int
    SCAN_ROWS_ALONE: int
    SCAN_TILE_PROBES: int
    SCAN_TILE_ROWS: int

    # ---- which implementation runs
    def implementations(self) -> tuple[str, ...]: ...
    def default_implementation(self) -> str: ...
    def cpu_features(self) -> dict[str, bool]: ...

    # ---- runs laid out
    def grid_buckets(self, column: Column, width: Bound, offset: Bound) -> Int64: ...
    def probe_buckets(self, left_first: Column, lo: End, hi: End, width: Bound) -> Int64: ...
    def grid_order(self, buckets: Int64 | None, second: Column) -> Int32: ...
    def grid_ordering(self, buckets: Int64 | None, second: Column) -> objects.Task[Int32]: ...
    def merge_order(self, buckets: Sequence[Int64] | None, seconds: Sequence[Column]) -> tuple[Int32, Int32]: ...
    def step_starts(self, column: Column) -> Int32 | None: ...
    def bucket_directory(self, sorted_buckets: Int64) -> tuple[Int64, Int64]: ...
    def SealForm(self, keys: Sequence[tuple[int, bool]]) -> objects.SealForm: ...

    # ---- probes
    def Scan(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        implementation: str | None = None,
        *,
        unrolled: bool = True,
        left_count: int | None = None,
        right_count: int | None = None,
    ) -> objects.Probing: ...
    def GridProbe(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None,
        bucket_starts: Int64 | None,
        probe_order: Int32,
        fences: Column | None = None,
        steps: Int32 | None = None,
        implementation: str | None = None,
        left_count: int | None = None,
        right_count: int | None = None,
        past: int = -1,
        interval_lo: float = 0.0,
    ) -> objects.Probing: ...
    def RunIndex(
        self,
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None = None,
        bucket_starts: Int64 | None = None,
        fences: Column | None = None,
        steps: Int32 | None = None,
        zone: Sequence[tuple[Bound, Bound]] | None = None,
        right_count: int | None = None,
        past: int = -1,
        interval_lo: float = 0.0,
    ) -> objects.RunIndex: ...
    def RunsProbe(
        self,
        left: Sequence[Column],
        indexes: Sequence[objects.RunIndex],
        *,
        implementation: str | None = None,
        last_rows: int = -1,
        left_count: int | None = None,
        slice_probes: int | None = None,
    ) -> objects.RunsProbe: ...

    def CommonWindows(
        self, every: int, windows: Sequence[tuple[int, int]], parts: Sequence[objects.Part]
    ) -> objects.CommonWindows: ...

    def ExactSums(self, count: int) -> objects.ExactSums: ...
    def PartnerSums(
        self,
        count: int,
        columns: objects.RunColumns,
        wanted: Sequence[tuple[int, str, str]],
        implementation: str | None = None,
    ) -> objects.PartnerSums: ...
    def tally(self, positions: Int32, counts: Int64) -> None: ...
    def extremes(self, positions: Int32, values: Column, best: Int64, *, largest: bool) -> None: ...
    def NearestPairs(self, count: int, k: int) -> objects.NearestPairs: ...
    def NearPlaces(self, bounds: Sequence[float], implementation: str | None = None) -> objects.NearPlaces: ...
    def PairDistances(self, steps: Sequence[Step]) -> objects.PairDistances: ...

    # ---- the bucket grid
    def BucketGrid(
        self,
        columns: Sequence[Column],
        *,
        position: int,
        buckets: int,
        keys: Sequence[tuple[bool, Bound]],
        stride: int = 1,
        swept: int = 0,
    ) -> objects.BucketGrid: ...
    def BucketIndex(
        self,
        grid: objects.BucketGrid,
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        keys: Sequence[int],
    ) -> objects.RunIndex: ...

    # ---- rows gathered, from Arrow and for it
    def gather(self, column: Column, order: Int32, out: Column | None = None) -> Column: ...
    def gather_bytes(
        self, columns: Sequence[objects.ByteColumn], column_numbers: Int32 | int, rows: Int32
    ) -> tuple[Int32, Bytes, Bytes | None, int]: ...
    def RunColumns(self, runs: Sequence[Sequence[Column]]) -> objects.RunColumns: ...
    def ByteColumn(
        self, offsets: Int32, data: Bytes, valid: Bytes | None = None, valid_from: int = 0
    ) -> objects.ByteColumn: ...
    def BatchForm(self, schema: pa.Schema) -> objects.BatchForm: ...
    def BatchColumns(self, form: objects.BatchForm, batch: pa.RecordBatch) -> objects.BatchColumns: ...
    def RoomColumns(
        self, values: Sequence[Column | None], keys: Sequence[Column], sources: Sequence[int]
    ) -> objects.RoomColumns: ...
    def RowsForm(
        self, parts: Sequence[Sequence[int]], exported: Sequence[int], *, greatest: bool = False
    ) -> objects.RowsForm: ...
    def ArrowRows(self, form: objects.RowsForm, count: int) -> objects.ArrowRows: ...

    # ---- threads
    def ThreadPool(self, helpers: int, cores: Sequence[int] = ()) -> objects.ThreadPool: ...
    def Gate(self) -> objects.Gate: ...


class NativeModule(KernelModule, Protocol):
    """What the compiled module has besides: the twins have one implementation, and no loop to be measured."""

    def set_default_implementation(self, name: str) -> None: ...
    def scan_roof(self, is_float: bool = False, implementation: str | None = None) -> float: ...
