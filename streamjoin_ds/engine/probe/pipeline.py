"""Joining the new tuples of one push with the windows: partial results are extended stream by stream (MJoin).

::

    new tuples ──► pieces ──► candidates ──► exact and any other condition ──► ... ──► result tables
                     └──────── several at a time, where there are threads: `threads.prefetch` ────────┘

Where all that is found fits a few chunks, and there are two streams, candidates and results are the tasks of a crew
(`threads.tasks`): Python's part of one stream is done while kernels are at the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.probe.progress import PieceProgress, Progress
from streamjoin_ds.engine.probe.residual import Residual
from streamjoin_ds.engine.probe.results import PartialResults, ResultBuilder
from streamjoin_ds.engine.probe.window_ids import WindowIds
from streamjoin_ds.engine.probe.window_probe import SLICE_PROBES, ProbeCursor, WindowProbe
from streamjoin_ds.engine.reference.kernel_objects import Crew
from streamjoin_ds.engine.storage.conditions import MAX_CONDITIONS, ProbeCondition, oriented
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.threads.core_lease import staying_on
from streamjoin_ds.engine.threads.prefetch import HELD_CHUNKS, in_order
from streamjoin_ds.engine.threads.tasks import TaskCoroutine, run_interleaved
from streamjoin_ds.spec.bound import BoundJoin
from streamjoin_ds.spec.periodic_window import PeriodicWindow

__all__ = ["JoinPipeline", "ProbeBatch"]

# Slices of probes in one piece, in joins of three streams and more.
_CHAIN_SLICES = 4

_Made = TypeVar("_Made")


@dataclass(slots=True, eq=False)
class ProbeBatch:
    """New tuples of one stream, and what they are to meet; never changed (see `Selection`).

    Attributes
    ----------
    stream : int
    selection : Selection
    order : sequence of int
        In which the other streams join them.
    windows : sequence of Window
        Of all streams, as these tuples find them.
    """

    stream: int
    selection: Selection
    order: Sequence[int]
    windows: Sequence[Window]

    def part(self, begin: int, end: int) -> ProbeBatch:
        """Those from `begin` to before `end`."""
        if begin == 0 and end == len(self.selection):
            return self
        return ProbeBatch(self.stream, self.selection.part(begin, end), self.order, self.windows)

    def count_pairs(self) -> int:
        """How many pairs they could form with the tuples they meet first."""
        return len(self.selection) * self.windows[self.order[0]].rows


class JoinPipeline:
    """Finds the results that new tuples have.

    Parameters
    ----------
    bound : BoundJoin
    kernels : Kernels
    executor : concurrent.futures.Executor, optional
    threads : int
        Number of threads, including the caller's.
    chunk_rows : int
        Upper bound of pairs held at each step, and of rows in a result table.
    core : int, optional
        Where the caller stays while other threads are at work.
    crew : Crew, optional
        As many threads for kernels alone.

    Attributes
    ----------
    partials : int
        Results of some streams, found so far, that others were still to join.
    """

    def __init__(
        self,
        bound: BoundJoin,
        kernels: Kernels,
        executor: Executor | None,
        threads: int,
        chunk_rows: int,
        core: int | None = None,
        crew: Crew | None = None,
    ) -> None:
        self._bound = bound
        self._executor, self._threads, self._chunk_rows, self._core = executor, threads, chunk_rows, core
        self._finder = WindowProbe(kernels, executor, threads, chunk_rows)
        self._steps: dict[tuple[tuple[int, ...], int], _JoinStep] = {}
        window = bound.join.window
        self._window_ids = WindowIds(window) if isinstance(window, PeriodicWindow) else None
        self._results = ResultBuilder(bound)
        self.result_schema = self._results.schema
        self._crew = crew
        self._rows_per_probe = 0.0  # of the last push that was cut into pieces
        self.partials = 0
        self._counting = kernels.module.Gate()

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""
        return self._finder.candidates

    def begin(self) -> None:
        """Count from nothing again."""
        self._finder.candidates, self.partials = 0, 0

    def results(self, arrivals: Sequence[ProbeBatch]) -> tuple[Progress, Generator[pa.Table]]:
        """All results of new tuples, a table of at most ``chunk_rows`` rows at a time, and how far it is with them."""
        count = sum([len(arrived.selection) for arrived in arrivals])
        if count > SLICE_PROBES and self._is_at_once(arrivals, count):
            done = [PieceProgress(arrived.count_pairs) for arrived in arrivals]
            return Progress(done), self._found_at_once(arrivals, done)
        pieces = arrivals if count <= SLICE_PROBES else self._pieces(arrivals, count)
        done = [PieceProgress(piece.count_pairs) for piece in pieces]
        if len(pieces) == 1:  # as mostly where tuples come one by one: no step that it could do without
            (only,) = pieces
            return Progress(done), self._extended(
                {only.stream: only.selection}, only.order, only.windows, done[0], self._crew
            )
        return Progress(done), self._found(pieces, done, pieces is not arrivals)

    def _found(self, pieces: Sequence[ProbeBatch], done: Sequence[PieceProgress], ahead: bool) -> Generator[pa.Table]:
        if not ahead or self._executor is None:
            for piece, mark in zip(pieces, done, strict=True):
                yield from self._piece(piece, mark, self._crew)
            return
        # A thread that waited for others of its pool might wait for itself.
        found = [self._piece(piece, mark, None) for piece, mark in zip(pieces, done, strict=True)]
        rows = 0
        for chunk in self._ahead(found):
            rows += chunk.num_rows
            yield chunk
        self._rows_per_probe = rows / sum([len(piece.selection) for piece in pieces])

    def _ahead(self, found: Sequence[Iterator[pa.Table]]) -> Generator[pa.Table]:
        """Chunks of all pieces, which several threads work on."""
        if self._executor is None:
            for piece in found:
                yield from piece
            return
        with closing(in_order(found, self._executor, self._threads)) as chunks:
            while True:
                with staying_on(self._core):
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                yield chunk

    def _is_at_once(self, arrivals: Sequence[ProbeBatch], count: int) -> bool:
        """Whether all pairs are looked for at once: new tuples of two streams."""
        if self._crew is None or self._window_ids is not None:
            return False
        if count * self._rows_per_probe > self._threads * self._chunk_rows:
            return False
        for arrived in arrivals:
            stream = arrived.order[0]
            if len(arrived.order) > 1:
                return False
            window = arrived.windows[stream]
            if not window.is_grid and not (self._crew.helpers and self._finder.has_parts(window, count)):
                return False
        return True

    def _found_at_once(self, arrivals: Sequence[ProbeBatch], done: Sequence[PieceProgress]) -> Generator[pa.Table]:
        assert self._crew is not None, "without a crew nothing is found at once"
        rows = 0
        with closing(run_interleaved(self._crew, [self._joined(arrived) for arrived in arrivals])) as works:
            for mark in done:
                with staying_on(self._core):
                    pairs, tables, left = next(works)
                rows += pairs
                yield from tables
                for table in self._ahead(left):
                    rows += table.num_rows
                    yield table
                mark.finish()
        self._rows_per_probe = rows / sum([len(arrived.selection) for arrived in arrivals])

    def _joined(self, arrived: ProbeBatch) -> TaskCoroutine[tuple[int, list[pa.Table], list[Iterator[pa.Table]]]]:
        """New tuples that meet a window, step by step: how many pairs are found at once, results among them, the rest.

        Cut so that the pairs' order is that of one probing: a grid's probes, or the runs that all of them meet.
        """
        count, (stream,) = len(arrived.selection), arrived.order
        step, window = self._step((arrived.stream,), stream), arrived.windows[stream]
        if window.is_grid:
            slices = -(-count // (self._threads * SLICE_PROBES))
            pieces = self._cut([arrived], slices * SLICE_PROBES)
            probings = [self._begun({piece.stream: piece.selection}, step, window) for piece in pieces]
        else:
            columns = [arrived.selection.key(condition.probe_key) for condition in step.tested]
            probings = self._finder.begin_parts(step.tested, columns, count, window)
            pieces = [arrived] * len(probings)
        written = yield [self._finder.filling(probing) for probing in probings]
        for probing, filled in zip(probings, written, strict=True):
            probing.filled = filled
        blocks: list[PartialResults] = []
        rows = 0
        for piece, probing in zip(pieces, probings, strict=True):
            if not probing.kernel.is_done or rows + (probing.filled or 0) > self._chunk_rows:
                break
            positions, found = probing.found()
            blocks.append(step.standing({piece.stream: piece.selection.take(positions), stream: found}))
            rows += len(found)
        results = [block for block in blocks if len(block[stream])]
        tables = (yield from self._results.gathered(results)) if results else []
        for probing in probings[: len(blocks)]:
            self._finder.end(probing)
        left = zip(pieces[len(blocks) :], probings[len(blocks) :], strict=True)
        rest: list[Iterator[pa.Table]] = [
            self._piece(piece, PieceProgress(piece.count_pairs), None, probing) for piece, probing in left
        ]
        return rows, tables, rest

    def begun(self, works: Sequence[TaskCoroutine[_Made]]) -> Callable[[], list[_Made]]:
        """Begin several works, side by side (`threads.tasks`); the answer ends them, once, and tells what they made."""
        assert self._crew is not None, "works are begun side by side by a crew"
        going = run_interleaved(self._crew, works)

        def ended() -> list[_Made]:
            with closing(going):
                return list(going)

        return ended

    def staying(self) -> AbstractContextManager[None]:
        """Keep the caller on the core that is its own while a crew works with it."""
        return staying_on(self._core)

    @staticmethod
    def _cut(arrivals: Sequence[ProbeBatch], rows: int) -> list[ProbeBatch]:
        """New tuples in pieces of so many."""
        pieces = []
        for arrived in arrivals:
            edges = [*range(0, len(arrived.selection), rows), len(arrived.selection)]
            pieces += [arrived.part(begin, end) for begin, end in pairwise(edges)]
        return pieces

    def _pieces(self, arrivals: Sequence[ProbeBatch], count: int) -> Sequence[ProbeBatch]:
        """Many new tuples in pieces for several threads; as they are, where it is not worth it.

        Only where bucket grids are all that they meet: their probes are sliced whatever the number of threads. Where
        partial results meet another stream the pieces decide the order, and are the same for any number.
        """
        is_chain = len(arrivals[0].order) > 1
        if self._executor is None and not is_chain:
            return arrivals
        met = [arrived.windows[stream] for arrived in arrivals for stream in arrived.order]
        if not all(window.is_grid for window in met):
            return arrivals
        # Whoever works for the reader keeps a few chunks and then waits: pieces are to have no more than that.
        wanted = max(self._threads, int(count * self._rows_per_probe / (HELD_CHUNKS * self._chunk_rows)))
        slices = _CHAIN_SLICES if is_chain else -(-count // (wanted * SLICE_PROBES))
        return self._cut(arrivals, slices * SLICE_PROBES)

    def _piece(
        self, arrived: ProbeBatch, mark: PieceProgress, crew: Crew | None, probing: ProbeCursor | None = None
    ) -> Generator[pa.Table]:
        block = {arrived.stream: arrived.selection}
        yield from self._extended(block, arrived.order, arrived.windows, mark, crew, probing)
        mark.finish()

    def _extended(
        self,
        block: Mapping[int, Selection],
        order: Sequence[int],
        windows: Sequence[Window],
        mark: PieceProgress | None,
        crew: Crew | None,
        probing: ProbeCursor | None = None,
    ) -> Generator[pa.Table]:
        """All results that a block of partial results grows into, depth first, a chunk at a time."""
        step = self._step(tuple(block), order[0])
        if probing is None:
            probing = self._begun(block, step, windows[step.stream])
        for positions, found in self._finder.matches(probing, mark):
            grown = {stream: selection.take(positions) for stream, selection in block.items()}
            grown[step.stream] = found
            grown = step.standing(grown)
            if self._window_ids is not None:
                grown = self._window_ids.meeting(grown)
            if not len(grown[step.stream]):
                continue
            if len(order) == 1:
                yield from self._tables(grown, crew)
            else:
                self._counting.through(self._count, len(grown[step.stream]))
                yield from self._extended(grown, order[1:], windows, None, crew)

    def _count(self, partials: int) -> None:
        self.partials += partials

    def _begun(self, block: PartialResults, step: _JoinStep, window: Window) -> ProbeCursor:
        """A block of partial results on its way through the window of the stream that joins them."""
        columns = [block[condition.stream].key(condition.probe_key) for condition in step.tested]
        return self._finder.begin(step.tested, columns, len(next(iter(block.values()))), window)

    def _step(self, joined: tuple[int, ...], stream: int) -> _JoinStep:
        """How a stream joins partial results of others."""
        step = self._steps.get((joined, stream))
        if step is None:
            step = self._steps[joined, stream] = _JoinStep(self._bound, frozenset(joined), stream)
        return step

    def _tables(self, block: PartialResults, crew: Crew | None) -> Iterable[pa.Table]:
        """The results of a block of all streams: one each, or one for each window they were found in."""
        if self._window_ids is None:
            return (self._results.table(block, crew),)
        expanded = self._window_ids.expanded(block, self._chunk_rows)
        return (self._results.table(grown, crew, window_ids) for grown, window_ids in expanded)


class _JoinStep:
    """How one stream joins partial results of others."""

    def __init__(self, bound: BoundJoin, joined: frozenset[int], stream: int) -> None:
        conditions = oriented(bound, sorted(joined), stream)
        self.stream = stream
        self.tested: tuple[ProbeCondition, ...] = conditions[:MAX_CONDITIONS]
        self._decision = Residual(bound, joined, stream, conditions[MAX_CONDITIONS:])

    def standing(self, block: dict[int, Selection]) -> dict[int, Selection]:
        """What is left of a block when that is decided, too, which kernels do not test."""
        if self._decision.is_empty:
            return block
        mask = self._decision.mask(block)
        if mask.all():
            return block
        kept = np.flatnonzero(mask).astype(np.int32)
        return {stream: selection.take(kept) for stream, selection in block.items()}
