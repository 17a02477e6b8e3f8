"""The join of one push's new tuples with the windows: partial results are extended stream by stream (MJoin).

::

    new tuples ──► pieces ──► candidates ──► exact and any other condition ──► ... ──► result tables
                     └──────── several at a time, where there are threads: the scheduler ──────────┘

How one stream joins partial results is a `JoinStep`: the conditions that kernels test, and the decision on what they
find. A piece yields kernels' tasks, which native threads do, and result tables. With two streams, and where all results
are expected to fit into a few chunks, all pieces find their first candidates in one step, and all results are gathered
in another. Partners of tuples that are decided at their horizon go to a `Reduction` instead of becoming rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import MAX_CONDITIONS
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import Int32, Int64, Task
from streamjoin_ds.engine.probe.probe_batch import PieceProgress, ProbeBatch, Progress
from streamjoin_ds.engine.probe.residual import Residual, settled_terms
from streamjoin_ds.engine.probe.results import MAX_GATHERED_ROWS, PartialResults, ResultBuilder, WindowIds
from streamjoin_ds.engine.probe.run_probe import RunByRunProbe, even_edges
from streamjoin_ds.engine.probe.window_probe import ProbeCursor, WindowProbe
from streamjoin_ds.engine.scheduler import ChunkCoroutine, Scheduler, TaskCoroutine, run_alone
from streamjoin_ds.engine.storage.conditions import ProbeCondition, finding, oriented
from streamjoin_ds.engine.storage.selection import Selection, keys_of, taken
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.window import PeriodicWindow

__all__ = ["Inside", "JoinPipeline", "JoinStep", "Reduction"]

_EXPECTED_TIMES = 1.2  # the rows of the last push for which there is room at first
_MORE_TIMES = 4  # the room for the table before, in each further table of a probing
_Tables: TypeAlias = "ChunkCoroutine[pa.Table]"


class Reduction(Protocol):
    """What becomes of the partners of tuples that are decided at their horizon."""

    def add(self, positions: npt.NDArray[np.int32], found: Selection, /) -> None:
        """Take some pairs: positions of decided tuples, in no order, and a partner of each. Copy what is to stay."""


class Inside(NamedTuple):
    """What becomes of partners while they are found: no pair leaves the kernels.

    Attributes
    ----------
    tasks : iterable of Task
        They probe, one after the other.
    left : callable
        Called once all are done. It returns the positions of tuples whose pairs are needed all the same; None: of none.
    """

    tasks: Iterable[Task[None]]
    left: Callable[[], Int32 | None]


class JoinStep:
    """How one stream joins partial results of others."""

    def __init__(self, bound: BoundJoin, joined: frozenset[int], stream: int) -> None:
        conditions = oriented(bound, sorted(joined), stream)
        self.stream = stream
        tested = (*conditions, *finding(bound, sorted(joined), stream))
        self.tested: tuple[ProbeCondition, ...] = tested[:MAX_CONDITIONS]
        beside = max(MAX_CONDITIONS - len(conditions), 0)
        self._decision = Residual(bound, joined, stream, conditions[MAX_CONDITIONS:])
        self._settled = settled_terms(bound, sorted(joined), stream, beside)

    def standing(self, block: dict[int, Selection], arrived: ProbeBatch) -> dict[int, Selection]:
        """Return the partial results in `block`, of new tuples, for which everything holds that no kernel tests."""
        decision = self._left(arrived)
        if decision.is_empty:
            return block
        mask = decision.mask(block)
        if mask.all():
            return block
        kept = np.flatnonzero(mask).astype(np.int32)
        return {stream: selection.take(kept) for stream, selection in block.items()}

    @property
    def is_exact(self) -> bool:
        """Whether kernels test everything, whatever the values."""
        return self._decision.is_empty

    def finds_all(self, arrived: ProbeBatch) -> bool:
        """Whether kernels test everything: each pair that they find stands."""
        return self._left(arrived).is_empty

    def standing_pairs(
        self, arrived: ProbeBatch, positions: npt.NDArray[np.int32], found: Selection
    ) -> tuple[npt.NDArray[np.int32], Selection]:
        """Return those of the pairs for which everything holds that no kernel tests."""
        decision = self._left(arrived)
        if decision.is_empty:
            return positions, found
        mask = decision.mask({arrived.stream: arrived.selection.take(positions), self.stream: found})
        if mask.all():
            return positions, found
        kept = np.flatnonzero(mask).astype(np.int32)
        return positions[kept], found.take(kept)

    def _left(self, arrived: ProbeBatch) -> Residual:
        """Return the decision without what kernels have decided, where the values allow that."""
        if not self._settled:
            return self._decision
        done = [one.term for one in self._settled if one.is_decided(arrived.range_of)]
        return self._decision.without(done) if done else self._decision


class _Begun(NamedTuple):
    """The join of many new tuples after its first step: the results that were found, and what finds the rest.

    `mark` is finished when both were read; None: the pieces in `left` finish their own.
    """

    mark: PieceProgress | None
    pairs: int  # found in the first step
    tables: list[pa.Table]
    left: list[_Tables]


class JoinPipeline:
    """The search for the results of new tuples.

    Parameters
    ----------
    bound : BoundJoin
    kernels : Kernels
    scheduler : Scheduler
    chunk_rows : int
        Upper bound of pairs held at each step, and of rows in a result table.
    tuning : Tuning

    Attributes
    ----------
    partials : int
        Partial results found so far that other streams had still to join.
    """

    def __init__(
        self, bound: BoundJoin, kernels: Kernels, scheduler: Scheduler, chunk_rows: int, tuning: Tuning = DEFAULT
    ) -> None:
        self._bound, self._kernels, self._tuning = bound, kernels, tuning
        self._slice_probes, self._chain_probes = tuning.probe.slice_probes, tuning.probe.chain_slices
        self._chain_probes *= self._slice_probes
        self._held_chunks = tuning.threads.held_chunks
        self._chunk_rows = chunk_rows
        self._finder = WindowProbe(kernels, 1, chunk_rows, tuning.probe)
        self._steps: dict[tuple[tuple[int, ...], int], JoinStep] = {}
        self.use(scheduler)
        self.result_schema = self._results.schema
        self._rows_per_probe = 0.0  # results for each new tuple, in the last push that was cut into pieces
        self.partials = 0

    def use(self, scheduler: Scheduler) -> None:
        """Have a scheduler run the pushes from now on."""
        self._scheduler = scheduler
        self._threads = self._finder.threads = scheduler.helpers + 1
        # A thread without helpers gathers everything in one task: several tasks are only of use to several threads.
        self._gathered_rows = self._tuning.probe.gathered_rows if scheduler.helpers else MAX_GATHERED_ROWS
        window = self._bound.join.window
        self._window_ids = (
            WindowIds(window, self._kernels.module, self._gathered_rows) if isinstance(window, PeriodicWindow) else None
        )
        self._results = ResultBuilder(self._bound, self._gathered_rows)

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""
        return self._finder.candidates

    def begin(self) -> None:
        """Set the counters to zero."""
        self._finder.candidates, self.partials = 0, 0

    def results(self, arrivals: Sequence[ProbeBatch]) -> tuple[Progress, Generator[pa.Table]]:
        """Return the progress of a push, and a generator of its results in tables of at most ``chunk_rows`` rows.

        A push of a few tuples is joined as it came. A larger one is cut into pieces; where their first step finds what
        fits into a few chunks, all of them take it together.
        """
        count = sum([len(arrived.selection) for arrived in arrivals])
        if count <= self._slice_probes:
            done = [PieceProgress(arrived.count_pairs) for arrived in arrivals]
            return Progress(done), self._few(arrivals, done)
        if self._is_at_once(arrivals, count):
            done = [PieceProgress(arrived.count_pairs) for arrived in arrivals]
            works = [self._joined(arrived, mark) for arrived, mark in zip(arrivals, done, strict=True)]
            return Progress(done), self._many(self._scheduler.interleaved(works), count)
        begun = self._pieces(arrivals, count)
        whole = _Begun(None, 0, [], [piece for _, piece in begun])
        return Progress([mark for mark, _ in begun]), self._many((each for each in (whole,)), count)

    def reducing(
        self,
        arrived: ProbeBatch,
        reduction: Reduction,
        inside: Callable[[ProbeCursor], Inside | None] | None = None,
    ) -> TaskCoroutine[None]:
        """Give a reduction all partners that tuples have in the window they meet, step by step; two streams only.

        `inside` returns what takes the partners of a probing within the kernels, in place of the pairs; None: the pairs
        are needed. A condition that kernels do not test needs the pairs, too.
        """
        (stream,) = arrived.order
        step = self._step((arrived.stream,), stream)
        probing = yield from self._beginning({arrived.stream: arrived.selection}, step, arrived.windows[stream])
        within = inside(probing) if inside is not None and step.finds_all(arrived) else None
        if within is None:
            yield from self._adding(arrived, step, probing, reduction.add)
            return
        for task in within.tasks:
            yield [task]
        self._finder.end(probing)
        left = within.left()
        if left is None:
            return
        part = ProbeBatch(arrived.stream, arrived.selection.take(left), arrived.order, arrived.windows)
        probing = yield from self._beginning({part.stream: part.selection}, step, part.windows[stream])
        yield from self._adding(part, step, probing, lambda positions, found: reduction.add(left[positions], found))

    def _adding(
        self, arrived: ProbeBatch, step: JoinStep, probing: ProbeCursor, add: Callable[[Int32, Selection], None]
    ) -> TaskCoroutine[None]:
        """Give all pairs of a probing to `add`, step by step."""
        while (task := probing.filling()) is not None:
            (written,) = yield [task]
            if (matched := probing.took(written)) is not None:
                add(*step.standing_pairs(arrived, *matched))
        if probing.used:
            add(*step.standing_pairs(arrived, *probing.rest()))
        self._finder.end(probing)

    def reduced(self, made: Sequence[ChunkCoroutine[pa.Table]]) -> Generator[pa.Table]:
        """Yield the tables of several coroutines that use `reducing`, in their order."""
        yield from self._scheduler.in_order(made)

    def is_written_by_probes(self, stream: int, windows: Sequence[Window]) -> bool:
        """Whether many new tuples that meet the window of `stream` have their results written by the probe.

        It takes new tuples to be as those in their own stream's window (`_is_written`).
        """
        if len(windows) != 2 or self._window_ids is not None or not windows[stream].is_grid:
            return False
        step = self._step((1 - stream,), stream)
        return step.is_exact and self._results.is_plain([window.run_set for window in windows])

    def rows(self, block: PartialResults, numbers: Int64 | None = None) -> TaskCoroutine[pa.Table]:
        """Return the result rows of a few chunks' tuples, step by step; arguments as for `ResultBuilder.table`."""
        return self._results.table(block, numbers)

    def cuts(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield where so many rows are cut into chunks: the first row of each, and the one after its last."""
        return pairwise([*range(0, count, self._chunk_rows), count] if count else [])

    def cut(self, table: pa.Table) -> Generator[pa.Table]:
        """Yield a table in tables of at most ``chunk_rows`` rows."""
        for begin, end in self.cuts(table.num_rows):
            yield table.slice(begin, end - begin)

    def shares(self, arrived: ProbeBatch, most: int) -> list[ProbeBatch]:
        """Return tuples that are to be reduced, cut for the threads, and into batches of so many at most."""
        count = len(arrived.selection)
        edges = even_edges(count, max(min(self._threads, count // self._slice_probes), -(-count // most), 1))
        return [arrived.part(begin, end) for begin, end in pairwise(edges)]

    def _few(self, arrivals: Sequence[ProbeBatch], done: Sequence[PieceProgress]) -> Generator[pa.Table]:
        """Yield the results of a few tuples; the pool helps only where a step has several tasks.

        Waking a thread costs more than such a push does. Where a stream's tuples meet one window and find few matches,
        this does the work of a piece without a coroutine's steps, which cost a push of one tuple a tenth of its time.
        """
        for arrived, mark in zip(arrivals, done, strict=True):
            if len(arrived.order) > 1 or self._window_ids is not None:
                yield from self._scheduler.one_by_one([self._piece(arrived, mark)])
                continue
            (stream,) = arrived.order
            step = self._step((arrived.stream,), stream)
            columns = [arrived.selection.key(condition.probe_key) for condition in step.tested]
            probing = self._finder.begin(step.tested, columns, len(arrived.selection), arrived.windows[stream])
            for matched in self._finder.matches(probing, mark):
                positions, found = matched
                if len(positions) > self._gathered_rows:
                    block = {arrived.stream: arrived.selection}
                    yield from self._scheduler.one_by_one([self._grown(block, matched, step, arrived.order, arrived)])
                    continue
                grown = step.standing({arrived.stream: arrived.selection.take(positions), stream: found}, arrived)
                if len(grown[stream]):
                    yield self._results.table_at_once(grown)
            mark.finish()

    def _many(self, works: Generator[_Begun], count: int) -> Generator[pa.Table]:
        """Yield the results of many tuples, `count` in all: what each work found at once, then what its pieces find."""
        rows = 0
        with closing(works):
            for begun in works:
                rows += begun.pairs
                yield from begun.tables
                for table in self._scheduler.in_order(begun.left):
                    rows += table.num_rows
                    yield table
                if begun.mark is not None:
                    begun.mark.finish()
        self._rows_per_probe = rows / count

    def _is_at_once(self, arrivals: Sequence[ProbeBatch], count: int) -> bool:
        """Whether all pieces find their first pairs in one step (`_joined`).

        That needs a pool, two streams, no periodic windows, few expected results, and windows whose probing can be cut.
        """
        if not self._scheduler.has_pool or self._window_ids is not None or any(map(self._is_written, arrivals)):
            return False
        if count * self._rows_per_probe > self._threads * self._chunk_rows:
            return False
        for arrived in arrivals:
            stream = arrived.order[0]
            if len(arrived.order) > 1:
                return False
            window = arrived.windows[stream]
            if not window.is_grid and not (self._threads > 1 and self._finder.has_groups(window, count)):
                return False
        return True

    def _joined(self, arrived: ProbeBatch, mark: PieceProgress) -> TaskCoroutine[_Begun]:
        """Begin to join new tuples with one window, step by step.

        The work is cut so that the pairs come in the order of a single probing: the probes are cut where the window is
        a bucket grid (`_even`), else the runs are (`WindowProbe.begin_parts`).
        """
        count, (stream,) = len(arrived.selection), arrived.order
        step, window = self._step((arrived.stream,), stream), arrived.windows[stream]
        if window.is_grid:
            pieces = self._even(arrived, self._threads)
            probings = [self._begun({piece.stream: piece.selection}, step, window) for piece in pieces]
        else:
            columns = [arrived.selection.key(condition.probe_key) for condition in step.tested]
            probings = self._finder.begin_parts(step.tested, columns, count, window)
            pieces = [arrived] * len(probings)
        if not all([probing.is_one_task for probing in probings]):
            # Parts that take several steps would wait for each other after the first.
            return _Begun(mark, 0, [], self._left(pieces, probings))
        tasks = [task for probing in probings if (task := probing.filling()) is not None]
        assert len(tasks) == len(probings), "nothing was asked of a new probing"
        for probing, written in zip(probings, (yield tasks), strict=True):
            probing.count(written)
        blocks: list[PartialResults] = []
        rows = 0
        for piece, probing in zip(pieces, probings, strict=True):
            if not probing.kernel.is_done or rows + probing.used > self._chunk_rows:
                break
            positions, found = probing.rest()
            blocks.append(step.standing({piece.stream: piece.selection.take(positions), stream: found}, arrived))
            rows += len(found)
        results = [block for block in blocks if len(block[stream])]
        tables = (yield from self._results.gathered(results)) if results else []
        for probing in probings[: len(blocks)]:
            self._finder.end(probing)
        return _Begun(mark, rows, tables, self._left(pieces[len(blocks) :], probings[len(blocks) :]))

    def _left(self, pieces: Sequence[ProbeBatch], probings: Sequence[ProbeCursor]) -> list[_Tables]:
        """Return the pieces that find the rest of these probings' results."""
        left = zip(pieces, probings, strict=True)
        return [self._piece(piece, PieceProgress(piece.count_pairs), probing) for piece, probing in left]

    def _even(self, arrived: ProbeBatch, wanted: int) -> list[ProbeBatch]:
        """Return new tuples that meet a bucket grid, cut into batches of like size.

        Pairs come slice by slice, and within a slice first those with the grid, then those with the tail. So a cut lies
        between two slices, or anywhere if there is no tail.
        """
        count, window = len(arrived.selection), arrived.windows[arrived.order[0]]
        most = -(-count // self._slice_probes)
        edges = even_edges(count, min(wanted, most), self._slice_probes if len(window.runs) > 1 else 1)
        return [arrived.part(begin, end) for begin, end in pairwise(edges)]

    def _pieces(self, arrivals: Sequence[ProbeBatch], count: int) -> list[tuple[PieceProgress, _Tables]]:
        """Return the pieces that join many new tuples, and the progress of each.

        With three streams and more the pieces decide the order of the results, so they are the same for any number of
        threads. With two streams the pairs of all pieces are those of one probing, in its order.
        """
        if len(arrivals[0].order) > 1:
            rows = self._chain_probes
            cuts = [(arrived, begin) for arrived in arrivals for begin in range(0, len(arrived.selection), rows)]
            return [self._marked(a.part(begin, min(begin + rows, len(a.selection)))) for a, begin in cuts]
        if self._threads == 1:
            return [self._marked(arrived) for arrived in arrivals]
        pieces = []
        for arrived in arrivals:
            window = arrived.windows[arrived.order[0]]
            if window.is_grid:
                # A piece holds a few chunks for the reader and then waits, so it should not find more than that.
                wanted = max(self._threads, int(count * self._rows_per_probe / (self._held_chunks * self._chunk_rows)))
                pieces += [self._marked(piece) for piece in self._even(arrived, wanted)]
                continue
            step = self._step((arrived.stream,), arrived.order[0])
            columns = [arrived.selection.key(condition.probe_key) for condition in step.tested]
            for probing in self._finder.begin_parts(step.tested, columns, len(arrived.selection), window):
                pieces.append(self._marked(arrived, probing))
        return pieces

    def _marked(self, arrived: ProbeBatch, probing: ProbeCursor | None = None) -> tuple[PieceProgress, _Tables]:
        count_pairs = arrived.count_pairs
        if probing is not None:
            count_pairs = partial(operator.mul, len(arrived.selection), probing.row_count)
        mark = PieceProgress(count_pairs)
        return mark, self._piece(arrived, mark, probing)

    def _piece(self, arrived: ProbeBatch, mark: PieceProgress, probing: ProbeCursor | None = None) -> _Tables:
        if probing is None and self._is_written(arrived):
            return self._written(arrived, mark)
        return self._extended({arrived.stream: arrived.selection}, arrived.order, arrived, mark, probing)

    def _is_written(self, arrived: ProbeBatch) -> bool:
        """Whether the probing of a window writes the results itself, and no pairs are kept.

        That is so where two streams join, the window is a bucket grid, kernels decide all conditions, and every column
        of the result is one of theirs: of a fixed width, without nulls, calculated of nothing. Few tuples are joined
        by pairs always (`_few`).
        """
        stream = arrived.order[0]
        window = arrived.windows[stream]
        if len(arrived.order) > 1 or self._window_ids is not None or not window.is_grid:
            return False
        probed = {arrived.stream: arrived.selection, stream: Selection(window.run_set)}
        return self._step((arrived.stream,), stream).finds_all(arrived) and self._results.takes_matches(probed)

    def _written(self, arrived: ProbeBatch, mark: PieceProgress) -> _Tables:
        """Yield the results of new tuples, which the probing of a window writes."""
        stream, count = arrived.order[0], len(arrived.selection)
        step, window = self._step((arrived.stream,), stream), arrived.windows[stream]
        probing = yield from self._beginning({arrived.stream: arrived.selection}, step, window)
        assert not isinstance(probing.kernel, RunByRunProbe), "a bucket grid is probed by one kernel"
        block = {arrived.stream: arrived.selection, stream: Selection(window.run_set)}
        most = int(count * self._rows_per_probe * _EXPECTED_TIMES) or self._chunk_rows
        while not probing.kernel.is_done:
            # Room for what the last push lets expect; each further table has more, as that was too little.
            room = min(max(most, self._kernels.module.MATCH_SLACK), self._chunk_rows)
            most = room * _MORE_TIMES
            task, table = self._results.matching(block, stream, probing.kernel, room)
            (found,) = yield [task]
            mark.tested(probing.tested_pairs)
            if found:
                yield table()
        self._finder.end(probing)
        mark.finish()

    def _extended(
        self,
        block: Mapping[int, Selection],
        order: Sequence[int],
        arrived: ProbeBatch,
        mark: PieceProgress | None,
        probing: ProbeCursor | None = None,
    ) -> _Tables:
        """Yield all results that the partial results in `block` grow into, depth first, a chunk at a time."""
        step = self._step(tuple(block), order[0])
        if probing is None:
            probing = yield from self._beginning(block, step, arrived.windows[step.stream])
        elif (matched := probing.whole_chunk()) is not None:
            yield from self._grown(block, matched, step, order, arrived)
        while (task := probing.filling()) is not None:
            (written,) = yield [task]
            if (matched := probing.took(written)) is not None:
                if mark is not None:
                    mark.tested(probing.tested_pairs)
                yield from self._grown(block, matched, step, order, arrived)
        if probing.used:
            yield from self._grown(block, probing.rest(), step, order, arrived)
        self._finder.end(probing)
        if mark is not None:
            mark.finish()

    def _grown(
        self,
        block: Mapping[int, Selection],
        matched: tuple[npt.NDArray[np.int32], Selection],
        step: JoinStep,
        order: Sequence[int],
        arrived: ProbeBatch,
    ) -> _Tables:
        """Yield all results that a chunk of matches grows into."""
        positions, found = matched
        is_small = len(positions) <= self._gathered_rows
        if is_small:
            grown = {stream: selection.take(positions) for stream, selection in block.items()}
        else:
            grown = yield from taken(block, positions, self._gathered_rows)
        grown[step.stream] = found
        grown = step.standing(grown, arrived)
        if not len(grown[step.stream]):
            return
        if len(order) > 1:
            if self._window_ids is not None:
                grown = yield from self._window_ids.meeting(grown)
            self.partials += len(grown[step.stream])
            if len(grown[step.stream]):
                yield from self._extended(grown, order[1:], arrived, None)
        elif self._window_ids is not None:
            yield from self._tables_of_windows(grown, self._window_ids)
        elif is_small:
            yield self._results.table_at_once(grown)
        else:
            yield (yield from self._results.table(grown))

    def _begun(self, block: PartialResults, step: JoinStep, window: Window) -> ProbeCursor:
        """Begin to probe the window of the stream that joins new tuples."""
        return run_alone(self._beginning(block, step, window))

    def _beginning(self, block: PartialResults, step: JoinStep, window: Window) -> TaskCoroutine[ProbeCursor]:
        """Begin to probe the window of the stream that joins the partial results in `block`, step by step."""
        count = len(next(iter(block.values())))
        if count <= self._gathered_rows:
            columns = [block[condition.stream].key(condition.probe_key) for condition in step.tested]
        else:
            wanted = [(block[condition.stream], condition.probe_key) for condition in step.tested]
            columns = yield from keys_of(wanted, self._gathered_rows)
        return self._finder.begin(step.tested, columns, count, window)

    def _step(self, joined: tuple[int, ...], stream: int) -> JoinStep:
        """Return how `stream` joins partial results of the streams in `joined`."""
        step = self._steps.get((joined, stream))
        if step is None:
            step = self._steps[joined, stream] = JoinStep(self._bound, frozenset(joined), stream)
        return step

    def _tables_of_windows(self, block: PartialResults, ids: WindowIds) -> _Tables:
        """Yield the results in `block`, each once for every periodic window that its tuples share."""
        expansion = ids.expanding(block, self._chunk_rows)
        while (task := expansion.filling()) is not None:
            (written,) = yield [task]
            if written:
                grown = yield from taken(block, expansion.positions[:written], self._gathered_rows)
                yield (yield from self._results.table(grown, expansion.window_ids[:written]))
