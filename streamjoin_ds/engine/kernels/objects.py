"""The types of what crosses the border: arrays, numbers, and the objects that a kernel module makes.

An object's type says what the engine may ask of it, whichever module made it; the twin of the same name documents each
one. An object may be given only to the module that made it. Types cannot say so, but the twins and the compiled kernels
refuse objects of the other module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "ArrowRows",
    "BatchColumns",
    "BatchForm",
    "Bound",
    "BucketGrid",
    "ByteColumn",
    "Bytes",
    "Column",
    "CommonWindows",
    "End",
    "ExactSums",
    "Gate",
    "Int32",
    "Int64",
    "NearPlaces",
    "NearestPairs",
    "PairDistances",
    "Part",
    "PartnerSums",
    "Probing",
    "RoomColumns",
    "RowsForm",
    "RunColumns",
    "RunIndex",
    "RunsProbe",
    "SealForm",
    "Step",
    "Task",
    "ThreadPool",
    "Zone",
]

Column: TypeAlias = npt.NDArray[Any]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bound: TypeAlias = "int | float"
# An end of a condition's band. None for both: an equality of floats, which compares the values themselves.
End: TypeAlias = "int | float | None"
# What a step of `PairDistances` does: its name, what it works on (a column, a number, earlier steps), and of a column
# whether it has floats.
Step: TypeAlias = "tuple[str, int | float, int | None, bool]"
# The smallest and the largest value of each key.
Zone: TypeAlias = tuple[tuple[Bound, Bound], ...]

_Made = TypeVar("_Made")
_MadeCo = TypeVar("_MadeCo", covariant=True)


class Task(Protocol[_MadeCo]):
    """A piece of work that is done once; its arguments were checked."""

    def do(self) -> _MadeCo: ...


class ThreadPool(Protocol):
    """Threads that do tasks."""

    @property
    def helpers(self) -> int: ...
    def add(self, task: Task[object]) -> None: ...
    def wait(self, task: Task[_Made]) -> _Made: ...
    def give_up(self, tasks: Iterable[Task[object]]) -> None: ...
    def finish(self) -> None: ...
    def settle(self) -> None: ...


class Gate(Protocol):
    """A gate that lets one thread through at a time."""

    @property
    def is_mine(self) -> bool: ...
    def through(self, work: Callable[..., _Made], *given: object) -> _Made: ...


class Probing(Protocol):
    """A `Scan` or a `GridProbe`: pairs of a probe and a row, some at a time."""

    @property
    def candidates(self) -> int: ...
    @property
    def implementation(self) -> str: ...
    def fill(self, out_probe: Int32, out_row: Int32) -> int: ...
    def filling(self, out_probe: Int32, out_row: Int32) -> Task[int]: ...
    def counting(
        self, out_counts: Int64, sums: PartnerSums | None = None, run_number: int = 0, first: int = 0
    ) -> Task[None]: ...


class RunIndex(Protocol):
    """A `RunIndex` or a `BucketIndex`: all that probing a run needs and no probe changes."""

    @property
    def conditions(self) -> int: ...


class RunsProbe(Protocol):
    """Probes against many runs."""

    @property
    def candidates(self) -> int: ...
    @property
    def is_done(self) -> bool: ...
    def fill(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> int: ...
    def filling(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> Task[int]: ...
    def counting(
        self, out_counts: Int64, sums: PartnerSums | None = None, run_number: int = 0, first: int = 0
    ) -> Task[None]: ...


class RunColumns(Protocol):
    """Columns of several runs, to be gathered from."""

    def gather(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> None: ...
    def gathering(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> Task[None]: ...


class CommonWindows(Protocol):
    """The periodic windows that the tuples of some results have in common."""

    @property
    def is_done(self) -> bool: ...
    def filling(self, out_results: Int32, out_ids: Int64 | None = None) -> Task[int]: ...


class NearestPairs(Protocol):
    """The nearest pairs of each of some probes."""

    def select(self, positions: Int32, distances: Column) -> Int32: ...
    def keep(
        self, positions: Int32, distances: Column, ties: Sequence[Int64], run_numbers: Int32, rows: Int32
    ) -> None: ...
    @property
    def is_exact(self) -> bool: ...
    def taking(
        self,
        probing: RunsProbe,
        distances: PairDistances,
        own: Sequence[Column],
        runs: RunColumns,
        ties: Sequence[RunColumns],
    ) -> Task[None]: ...
    def ranked(self) -> tuple[Int32, Int32, Int32]: ...


class ExactSums(Protocol):
    """The exact sums of groups of numbers."""

    def add_floats(self, positions: Int32, values: Column) -> None: ...
    def add_integers(self, positions: Int32, values: Int64) -> None: ...
    def add_wide(self, positions: Int32, words: Int64) -> None: ...
    def digits(self) -> tuple[int, Int64]: ...
    def beyond(self) -> Column: ...


class PartnerSums(Protocol):
    """Sums and extremes of columns over partners, while these are counted."""

    def parts(self, number: int) -> tuple[Column, ...]: ...
    def left_open(self) -> npt.NDArray[np.bool_]: ...


class NearPlaces(Protocol):
    """A decision on pairs of places: far, near, or open."""

    def decide(
        self,
        left: RunColumns,
        left_runs: Int32 | int | None,
        left_rows: Int32,
        right: RunColumns,
        right_runs: Int32 | int | None,
        right_rows: Int32,
        out: Bytes,
    ) -> None: ...


class PairDistances(Protocol):
    """An expression in steps, whose last one gives the distance of a pair."""

    def fill(
        self,
        own: Sequence[Column],
        runs: RunColumns,
        run_numbers: Int32 | int | None,
        positions: Int32,
        rows: Int32,
        out: Column,
    ) -> bool: ...


class ByteColumn(Protocol):
    """Strings or binary values."""

    def __len__(self) -> int: ...
    def hashes(self) -> Int64: ...


class BatchForm(Protocol):
    """The schema of record batches."""

    @property
    def schema(self) -> pa.Schema: ...


class BatchColumns(Protocol):
    """The columns of a record batch."""

    @property
    def batch(self) -> pa.RecordBatch: ...
    @property
    def rows(self) -> int: ...
    def has_null(self, column_numbers: tuple[int, ...]) -> bool: ...
    def has_nan(self, column_numbers: tuple[int, ...]) -> bool: ...


class RoomColumns(Protocol):
    """Columns with room behind their rows."""

    def append(self, batch: BatchColumns, begin: int) -> Zone: ...


class RowsForm(Protocol):
    """The columns of rows that are gathered."""

    @property
    def columns(self) -> int: ...


# What rows are gathered from: the columns of some runs, the number of each row's run, and the rows in their runs.
Part: TypeAlias = "tuple[RunColumns, Int32 | int | None, Int32]"


class ArrowRows(Protocol):
    """Rows gathered, then handed to Arrow."""

    def gather(self, parts: Sequence[Part], begin: int = 0) -> None: ...
    def gathering(self, parts: Sequence[Part], begin: int = 0) -> Task[None]: ...
    def matching(self, probing: RunsProbe, part: int, window: RunColumns, own_part: Part) -> Task[int]: ...
    def put(self, column: int, values: list[Any], *, floating: bool) -> bool: ...
    def exported(self) -> int: ...


class SealForm(Protocol):
    """The columns of a batch that are its keys."""

    @property
    def keys(self) -> tuple[tuple[int, bool], ...]: ...
    def sealing(
        self,
        batch: BatchColumns,
        values: Sequence[Column],
        keys: Sequence[Column | None],
        first: int,
        second: int,
        width: Bound,
    ) -> Task[Zone]: ...


class BucketGrid(Protocol):
    """Rows of a window, by bucket."""

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
        self,
        columns: Sequence[Column],
        keys: Sequence[Column],
        begin: int,
        lowest_kept: int,
        swept_buckets: int = 0,
    ) -> Task[int]: ...
    def sweep(self, buckets: int, lowest_kept: int) -> int: ...
    def sweeping(self, buckets: int, lowest_kept: int) -> Task[int]: ...
    def live_rows(self, lowest_kept: int, step: int = 1) -> int: ...
    def row_numbers(self, begin: int = 0, end: int | None = None) -> Int32: ...
    def spread_rows(self, most: int) -> Int32: ...
    def crowd(self, keys: Sequence[Column], most: int) -> int: ...
    def bucket_numbers(self, keys: Sequence[Column]) -> Int32: ...
