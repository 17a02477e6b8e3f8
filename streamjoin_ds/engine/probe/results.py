"""Result rows: the selected columns of each stream's tuples, gathered from runs and handed to Arrow in one piece.

*Periodic windows* give a result once in each window that its tuples have in common (`WindowIds`). A tuple is in a
stretch of windows, ``first..last``. Shifted by its stream's lag, every stretch is one of the first stream's ids.
Several tuples share the stretch from the largest first to the smallest last, and a result is found once in each of
these windows. Stretches that meet in pairs meet all together. So a partial result that shares no window, and is thrown
away before the last stream has joined, could not have become a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import CommonWindows, Int64, Part, RunsProbe, Task
from streamjoin_ds.engine.scheduler import TaskCoroutine
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.selection import Selection, taken
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.calculations import Output
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.key_values import item_dtype
from streamjoin_ds.spec.window import PeriodicWindow

__all__ = ["MAX_GATHERED_ROWS", "Expansion", "PartialResults", "ResultBuilder", "WindowIds", "inside_columns"]

MAX_GATHERED_ROWS = 2**31 - 1  # kernels number rows in int32

PartialResults: TypeAlias = Mapping[int, Selection]


def inside_columns(bound: BoundJoin) -> dict[Column, tuple[int, str]]:
    """Return, for each column of a calculated one, the number of its stream or table, and its name inside."""
    return {
        column: (stream, bound.compared_name(stream, column.name))
        for output in bound.outputs
        for column in output.columns
        for stream in (bound.member_names.index(column.stream),)
    }


class ResultBuilder:
    """The builder of one join's result tables.

    Parameters
    ----------
    bound : BoundJoin
    gathered_rows : int
        Upper bound of the rows that one task gathers.

    Attributes
    ----------
    schema : pyarrow.Schema
        The schema of the table of matches, without ``batch_id``.
    """

    def __init__(self, bound: BoundJoin, gathered_rows: int = MAX_GATHERED_ROWS) -> None:
        self._piece_rows = gathered_rows
        self.schema = pa.schema([field for field in bound.result_schema if field.name != "batch_id"])
        # The event time of a result of all partners is the largest of its tuples'; of nearest ones the decided tuple's.
        self._decided = 0 if bound.distance is not None else None
        names = [[TS, SEQ] for _ in bound.member_names]
        self._placed: list[tuple[int, str] | Output] = []
        self._inside = inside_columns(bound)
        for column in bound.result:
            wanted = names[column.stream]
            inside = bound.inside_name(column.stream, column.column)
            if inside not in wanted:
                wanted.append(inside)
            self._placed.append((column.stream, inside))
        self._placed += bound.outputs
        self._placed += [(stream, SEQ) for stream in range(len(names))]
        self._gathered = [tuple(wanted) for wanted in names]
        self._kernel_parts: dict[tuple[tuple[str, ...], ...], _KernelPart] = {}

    def table(self, block: PartialResults, numbers: Int64 | None = None) -> TaskCoroutine[pa.Table]:
        """Return results as a table, step by step.

        Parameters
        ----------
        block : mapping of int to Selection
            The tuples of each result, of all streams.
        numbers : ndarray, shape (n,), int64, optional
            The window each result was found in, where windows are periodic, or the rank of its partner.
        """
        part = self._kernel_part(block)
        return self._completed(block, part, (yield from part.filling([block])), numbers)

    def table_at_once(self, block: PartialResults) -> pa.Table:
        """Return what `table` does, without tasks: for few results, gathering takes less time than a task does."""
        part = self._kernel_part(block)
        return self._completed(block, part, part.filled(block), None)

    def _completed(
        self,
        block: PartialResults,
        part: _KernelPart,
        batch: pa.RecordBatch,
        numbers: Int64 | None,
    ) -> pa.Table:
        """Return the whole table, of which a kernel gathered the columns in `batch`; Arrow gathers the others."""
        if part.is_whole and numbers is None:
            return pa.Table.from_batches([batch])
        made = dict(zip(part.places, batch.columns, strict=True))
        for place, placed in enumerate(self._placed):
            if isinstance(placed, Output):
                made[place] = placed.values(len(block[0]), lambda wanted: self._column(block, wanted))
            elif place not in made:
                made[place] = block[placed[0]].column(placed[1])
        if numbers is not None:
            made[len(self._placed)] = array_of(numbers, pa.int64())
        return pa.Table.from_arrays([made[place] for place in range(len(self.schema))], schema=self.schema)

    def _column(self, block: PartialResults, wanted: Column) -> pa.Array:
        stream, name = self._inside[wanted]
        return block[stream].column(name)

    def gathered(self, blocks: Sequence[PartialResults]) -> TaskCoroutine[list[pa.Table]]:
        """Return the results of several blocks, step by step: one table where kernels gather all, else one a block."""
        parts = [self._kernel_part(block) for block in blocks]
        if all(part is parts[0] and part.is_whole for part in parts):
            return [pa.Table.from_batches([(yield from parts[0].filling(blocks))])]
        tables = []
        for block in blocks:
            tables.append((yield from self.table(block)))  # noqa: PERF401 - a comprehension cannot wait for tasks
        return tables

    def is_plain(self, run_sets: Sequence[RunSet]) -> bool:
        """Whether kernels gather all columns of results of tuples in these runs, a set for each stream."""
        if self._decided is not None or any(isinstance(placed, Output) for placed in self._placed):
            return False
        pairs = zip(run_sets, self._gathered, strict=True)
        return all(run_set.plain(names) == names for run_set, names in pairs)

    def takes_matches(self, block: PartialResults) -> bool:
        """Whether a probing can write these results itself (`matching`): kernels gather all columns of two streams."""
        return len(block) == len(self._gathered) == 2 and self._decided is None and self._kernel_part(block).is_whole

    def matching(
        self, block: PartialResults, window: int, probing: RunsProbe, most_rows: int
    ) -> tuple[Task[int], Callable[[], pa.Table]]:
        """Return a task that writes the rows of a probing's next matches, and what makes a table of them afterwards.

        Parameters
        ----------
        block : mapping of int to Selection
            The probes themselves; of the other stream, `window`, any tuples of the window's runs.
        most_rows : int
            Of the table. The task's result is how many there are.
        """
        return self._kernel_part(block).matching(block, window, probing, most_rows)

    def _kernel_part(self, block: PartialResults) -> _KernelPart:
        plain = tuple([block[stream].run_set.plain(names) for stream, names in enumerate(self._gathered)])
        part = self._kernel_parts.get(plain)
        if part is None:
            part = self._kernel_parts[plain] = _KernelPart(self, plain, block, self._piece_rows)
        return part


class _KernelPart:
    """The result columns that kernels can gather: those of fixed width without nulls, and the event time."""

    def __init__(
        self, results: ResultBuilder, plain: Sequence[tuple[str, ...]], block: PartialResults, piece_rows: int
    ) -> None:
        self._piece_rows = piece_rows
        run_sets = [block[stream].run_set for stream in range(len(plain))]
        widths = [
            [item_dtype(stack.kinds[name]).itemsize for name in names]
            for stack, names in zip(run_sets, plain, strict=True)
        ]
        numbers: dict[tuple[int, str], int] = {}
        for stream, names in enumerate(plain):
            numbers |= {(stream, name): len(numbers) + place for place, name in enumerate(names)}
        found = {
            place: numbers[placed]
            for place, placed in enumerate(results._placed)
            if not isinstance(placed, Output) and placed in numbers
        }
        decided = results._decided
        found[len(results.schema) - 1] = len(numbers) if decided is None else numbers[decided, TS]
        module = run_sets[0].module
        self._module, self._form = module, module.RowsForm(widths, list(found.values()), greatest=decided is None)
        self._schema = pa.schema([results.schema.field(place) for place in found])
        self.places, self._plain = list(found), tuple(plain)
        self.is_whole = len(found) == len(results.schema)

    def filling(self, blocks: Sequence[PartialResults]) -> TaskCoroutine[pa.RecordBatch]:
        """Return the columns `places` of the results of all blocks, one block after the other, step by step."""
        counts = [len(block[0]) for block in blocks]
        step = self._piece_rows
        if len(blocks) == 1 and counts[0] <= step:
            return self.filled(blocks[0])
        rows, to, tasks = self._module.ArrowRows(self._form, sum(counts)), 0, []
        for block, count in zip(blocks, counts, strict=True):
            tasks += [
                rows.gathering(self._parts(block, begin, min(begin + step, count)), to + begin)
                for begin in range(0, count, step)
            ]
            to += count
        yield tasks
        return pa.RecordBatch._import_from_c(rows.exported(), self._schema)

    def filled(self, block: PartialResults) -> pa.RecordBatch:
        """Return the columns `places` of one block's results, gathered by this thread."""
        count = len(block[0])
        rows = self._module.ArrowRows(self._form, count)
        rows.gather(self._parts(block, 0, count))
        return pa.RecordBatch._import_from_c(rows.exported(), self._schema)

    def matching(
        self, block: PartialResults, window: int, probing: RunsProbe, most_rows: int
    ) -> tuple[Task[int], Callable[[], pa.Table]]:
        """See `ResultBuilder.matching`."""
        rows = self._module.ArrowRows(self._form, most_rows + self._module.MATCH_SLACK)
        probes = block[1 - window]
        own_part = probes.gathered(self._plain[1 - window], 0, len(probes))
        task = rows.matching(probing, window, block[window].run_set.columns(self._plain[window]), own_part)

        def table() -> pa.Table:
            return pa.Table.from_batches([pa.RecordBatch._import_from_c(rows.exported(), self._schema)])

        return task, table

    def _parts(self, block: PartialResults, begin: int, end: int) -> list[Part]:
        """Return what `ArrowRows.gather` needs, for the results ``begin:end`` of a block."""
        return [block[stream].gathered(names, begin, end) for stream, names in enumerate(self._plain)]


class Expansion:
    """Results, each once for every window that its tuples share; tasks find them.

    Attributes
    ----------
    positions, window_ids : ndarray of int32, of int64
        What the last task wrote: positions of results, and the ids of their windows.
    """

    def __init__(self, common: CommonWindows, room: int) -> None:
        self._common, self._room = common, room
        self.positions, self.window_ids = np.empty(0, np.int32), np.empty(0, np.int64)

    def filling(self) -> Task[int] | None:
        """Return a task that writes the next results; None: there are no more."""
        if self._common.is_done:
            return None
        self.positions, self.window_ids = np.empty(self._room, np.int32), np.empty(self._room, np.int64)
        return self._common.filling(self.positions, self.window_ids)


class WindowIds:
    """The windows of one periodic kind.

    Parameters
    ----------
    window : PeriodicWindow
    module : KernelModule
    gathered_rows : int
        As `ProbeTuning.gathered_rows`.
    """

    def __init__(self, window: PeriodicWindow, module: KernelModule, gathered_rows: int) -> None:
        self._module, self._every_us, self._gathered_rows = module, window.every_us, gathered_rows
        self._windows = list(zip(window.windows_us, window.lags, strict=True))
        self._most = min(-(-window_us // window.every_us) for window_us in window.windows_us)

    def meeting(self, block: dict[int, Selection]) -> TaskCoroutine[dict[int, Selection]]:
        """Return the partial results whose tuples share a window, step by step."""
        count = len(next(iter(block.values())))
        positions = np.empty(count, np.int32)
        (kept,) = yield [self._common(block).filling(positions)]
        if kept == count:
            return block
        return (yield from taken(block, positions[:kept], self._gathered_rows))

    def expanding(self, block: PartialResults, most_rows: int) -> Expansion:
        """Return each result once for every window that its tuples share, ids ascending, `most_rows` rows at a time."""
        room = min(most_rows, len(next(iter(block.values()))) * self._most)
        return Expansion(self._common(block), room)

    def _common(self, block: PartialResults) -> CommonWindows:
        streams: list[Any] = sorted(stream for stream in block if stream < len(self._windows))  # no tables
        parts = [block[stream].gathered((TS,), 0, len(block[stream])) for stream in streams]
        return self._module.CommonWindows(self._every_us, [self._windows[stream] for stream in streams], parts)
