"""Types of the compiled kernels; `streamjoin_ds.engine.reference` documents each name.

This file describes both the package and `native`, the extension module in it. Both have the same names, except for the
last two, which only `native` has. Methods that return a task have the type `Task` here: the tasks' own classes have no
name that Python code can use.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from streamjoin_ds import _kernels as native
from streamjoin_ds.engine.reference import kernel_objects as objects
from streamjoin_ds.engine.reference.arguments import Bound, Bytes, Column, End, Int32, Int64, Step

__all__ = [
    "FENCE_ROWS",
    "GRID_CHUNK_ROWS",
    "MAX_STEPS",
    "NEAREST_TIES",
    "SCAN_PAIRS",
    "SCAN_ROWS_ALONE",
    "SCAN_TILE_PROBES",
    "SCAN_TILE_ROWS",
    "ArrowRows",
    "BatchColumns",
    "BatchForm",
    "BucketGrid",
    "BucketIndex",
    "ByteColumn",
    "CommonWindows",
    "ExactSums",
    "Gate",
    "GridProbe",
    "NearPlaces",
    "NearestPairs",
    "PairDistances",
    "RoomColumns",
    "RowsForm",
    "RunColumns",
    "RunIndex",
    "RunsProbe",
    "Scan",
    "SealForm",
    "Task",
    "ThreadPool",
    "bucket_directory",
    "cpu_features",
    "default_implementation",
    "extremes",
    "gather",
    "gather_bytes",
    "grid_buckets",
    "grid_order",
    "grid_ordering",
    "implementations",
    "merge_order",
    "native",
    "probe_buckets",
    "step_starts",
    "tally",
]

_Made = TypeVar("_Made")
_MadeCo = TypeVar("_MadeCo", covariant=True)

GRID_CHUNK_ROWS: int
MAX_STEPS: int
NEAREST_TIES: int
FENCE_ROWS: int
SCAN_PAIRS: int
SCAN_ROWS_ALONE: int
SCAN_TILE_PROBES: int
SCAN_TILE_ROWS: int

def implementations() -> tuple[str, ...]: ...
def default_implementation() -> str: ...
def cpu_features() -> dict[str, bool]: ...
def grid_buckets(column: Column, width: Bound, offset: Bound) -> Int64: ...
def probe_buckets(left_first: Column, lo: End, hi: End, width: Bound) -> Int64: ...
def grid_order(buckets: Int64 | None, second: Column) -> Int32: ...
def grid_ordering(buckets: Int64 | None, second: Column) -> Task[Int32]: ...
def merge_order(buckets: Sequence[Int64] | None, seconds: Sequence[Column]) -> tuple[Int32, Int32]: ...
def step_starts(column: Column) -> Int32 | None: ...
def tally(positions: Int32, counts: Int64) -> None: ...
def extremes(positions: Int32, values: Column, best: Int64, *, largest: bool) -> None: ...
def bucket_directory(sorted_buckets: Int64) -> tuple[Int64, Int64]: ...
def gather(column: Column, order: Int32, out: Column | None = None) -> Column: ...
def gather_bytes(
    columns: Sequence[objects.ByteColumn], column_numbers: Int32 | int, rows: Int32
) -> tuple[Int32, Bytes, Bytes | None, int]: ...

class Task(Generic[_MadeCo]):
    def do(self) -> _MadeCo: ...

class ThreadPool:
    def __init__(self, helpers: int, cores: Sequence[int] = ()) -> None: ...
    @property
    def helpers(self) -> int: ...
    def add(self, task: objects.Task[object]) -> None: ...
    def wait(self, task: objects.Task[_Made]) -> _Made: ...
    def give_up(self, tasks: Iterable[objects.Task[object]]) -> None: ...
    def finish(self) -> None: ...
    def settle(self) -> None: ...

class Gate:
    def __init__(self) -> None: ...
    @property
    def is_mine(self) -> bool: ...
    def through(self, work: Callable[..., _Made], *given: object) -> _Made: ...

class Scan:
    def __init__(
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
    ) -> None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def implementation(self) -> str: ...
    def fill(self, out_probe: Int32, out_row: Int32) -> int: ...
    def filling(self, out_probe: Int32, out_row: Int32) -> Task[int]: ...
    def counting(self, out_counts: Int64) -> Task[None]: ...

class GridProbe:
    def __init__(
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
    ) -> None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def implementation(self) -> str: ...
    def fill(self, out_probe: Int32, out_row: Int32) -> int: ...
    def filling(self, out_probe: Int32, out_row: Int32) -> Task[int]: ...
    def counting(self, out_counts: Int64) -> Task[None]: ...

class RunIndex:
    def __init__(
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
    ) -> None: ...
    @property
    def conditions(self) -> int: ...

class BucketIndex(RunIndex):
    def __init__(
        self,
        grid: objects.BucketGrid,
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        keys: Sequence[int],
    ) -> None: ...

class RunsProbe:
    def __init__(
        self,
        left: Sequence[Column],
        indexes: Sequence[objects.RunIndex],
        *,
        implementation: str | None = None,
        last_rows: int = -1,
        left_count: int | None = None,
        slice_probes: int | None = None,
    ) -> None: ...
    @property
    def candidates(self) -> int: ...
    @property
    def is_done(self) -> bool: ...
    def fill(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> int: ...
    def filling(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> Task[int]: ...
    def counting(self, out_counts: Int64) -> Task[None]: ...

class RunColumns:
    def __init__(self, runs: Sequence[Sequence[Column]]) -> None: ...
    def gather(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> None: ...
    def gathering(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> Task[None]: ...

class CommonWindows:
    def __init__(
        self,
        every: int,
        windows: Sequence[tuple[int, int]],
        parts: Sequence[objects.Part],
    ) -> None: ...
    @property
    def is_done(self) -> bool: ...
    def filling(self, out_results: Int32, out_ids: Int64 | None = None) -> Task[int]: ...

class NearestPairs:
    def __init__(self, count: int, k: int) -> None: ...
    def select(self, positions: Int32, distances: Column) -> Int32: ...
    def keep(
        self, positions: Int32, distances: Column, ties: Sequence[Int64], run_numbers: Int32, rows: Int32
    ) -> None: ...
    def ranked(self) -> tuple[Int32, Int32, Int32]: ...

class ExactSums:
    def __init__(self, count: int) -> None: ...
    def add_floats(self, positions: Int32, values: Column) -> None: ...
    def add_integers(self, positions: Int32, values: Int64) -> None: ...
    def add_wide(self, positions: Int32, words: Int64) -> None: ...
    def digits(self) -> tuple[int, Int64]: ...
    def beyond(self) -> Column: ...

class NearPlaces:
    def __init__(self, bounds: Sequence[float], implementation: str | None = None) -> None: ...
    def decide(
        self,
        left: objects.RunColumns,
        left_runs: Int32 | int | None,
        left_rows: Int32,
        right: objects.RunColumns,
        right_runs: Int32 | int | None,
        right_rows: Int32,
        out: Bytes,
    ) -> None: ...

class PairDistances:
    def __init__(self, steps: Sequence[Step]) -> None: ...
    def fill(
        self,
        own: Sequence[Column],
        runs: objects.RunColumns,
        run_numbers: Int32 | int | None,
        positions: Int32,
        rows: Int32,
        out: Column,
    ) -> bool: ...

class ByteColumn:
    def __init__(self, offsets: Int32, data: Bytes, valid: Bytes | None = None, valid_from: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def hashes(self) -> Int64: ...

class BatchForm:
    def __init__(self, schema: pa.Schema) -> None: ...
    @property
    def schema(self) -> pa.Schema: ...

class BatchColumns:
    def __init__(self, form: objects.BatchForm, batch: pa.RecordBatch) -> None: ...
    @property
    def batch(self) -> pa.RecordBatch: ...
    @property
    def rows(self) -> int: ...
    def has_null(self, column_numbers: tuple[int, ...]) -> bool: ...
    def has_nan(self, column_numbers: tuple[int, ...]) -> bool: ...

class RoomColumns:
    def __init__(self, values: Sequence[Column | None], keys: Sequence[Column], sources: Sequence[int]) -> None: ...
    def append(self, batch: objects.BatchColumns, begin: int) -> objects.Zone: ...

class RowsForm:
    def __init__(self, parts: Sequence[Sequence[int]], exported: Sequence[int], *, greatest: bool = False) -> None: ...
    @property
    def columns(self) -> int: ...

class ArrowRows:
    def __init__(self, form: objects.RowsForm, count: int) -> None: ...
    def gather(self, parts: Sequence[objects.Part], begin: int = 0) -> None: ...
    def gathering(self, parts: Sequence[objects.Part], begin: int = 0) -> Task[None]: ...
    def put(self, column: int, values: list[Any], *, floating: bool) -> bool: ...
    def exported(self) -> int: ...

class SealForm:
    def __init__(self, keys: Sequence[tuple[int, bool]]) -> None: ...
    @property
    def keys(self) -> tuple[tuple[int, bool], ...]: ...
    def sealing(
        self,
        batch: objects.BatchColumns,
        values: Sequence[Column],
        keys: Sequence[Column | None],
        first: int,
        second: int,
        width: Bound,
    ) -> Task[objects.Zone]: ...

class BucketGrid:
    def __init__(
        self,
        columns: Sequence[Column],
        *,
        position: int,
        buckets: int,
        keys: Sequence[tuple[bool, Bound]],
        stride: int = 1,
        swept: int = 0,
    ) -> None: ...
    @property
    def columns(self) -> list[Column]: ...
    @property
    def rows(self) -> int: ...
    @property
    def inserted(self) -> int: ...
    @property
    def swept(self) -> int: ...
    @property
    def buckets(self) -> int: ...
    def enlarged(self, columns: Sequence[Column]) -> BucketGrid: ...
    def settle(self) -> None: ...
    def insert(self, columns: Sequence[Column], keys: Sequence[Column], begin: int, lowest_kept: int) -> int: ...
    def inserting(
        self, columns: Sequence[Column], keys: Sequence[Column], begin: int, lowest_kept: int, swept_buckets: int = 0
    ) -> Task[int]: ...
    def sweep(self, buckets: int, lowest_kept: int) -> int: ...
    def sweeping(self, buckets: int, lowest_kept: int) -> Task[int]: ...
    def live_rows(self, lowest_kept: int, step: int = 1) -> int: ...
    def row_numbers(self, begin: int = 0, end: int | None = None) -> Int32: ...
    def spread_rows(self, most: int) -> Int32: ...
    def crowd(self, keys: Sequence[Column], most: int) -> int: ...
    def bucket_numbers(self, keys: Sequence[Column]) -> Int32: ...

# Only `native` has these.
def scan_roof(is_float: bool = False, implementation: str | None = None) -> float: ...
def set_default_implementation(name: str) -> None: ...
