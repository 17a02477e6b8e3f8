"""One cell's exact join: new tuples meet the windows of the other streams, each result once.

::

    for each stream i:   new tuples of i ──► window ──► window ──► results        (MJoin)
                         then they enter the window of i

Windows of streams before *i* hold this push's tuples already, those after it do not: of the new tuples in a result, the
one of the highest-numbered stream finds it, and no other does.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import filtered
from streamjoin_ds.engine.arrays.kernels import CHUNK_ROWS, load_kernels
from streamjoin_ds.engine.arrays.keys import NullKeyMask
from streamjoin_ds.engine.explained import explained
from streamjoin_ds.engine.join_options import JoinOptions, check_ranges
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.probe.pipeline import JoinPipeline, ProbeBatch
from streamjoin_ds.engine.probe.progress import Progress
from streamjoin_ds.engine.reference.kernel_objects import BatchColumns
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.state_blob import opened_state, state_blob
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.storage.window_forms import window_forms
from streamjoin_ds.engine.storage.window_set import JoinState, WindowSet
from streamjoin_ds.engine.threads.scheduler import Scheduler
from streamjoin_ds.engine.threads.tasks import run_alone
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.bound import BoundJoin

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["WindowJoin"]

Tuples: TypeAlias = "pa.Table | pa.RecordBatch"
_log = logging.getLogger(__name__)


class WindowJoin:
    """The windows of all streams and the join of what is pushed with what is kept; no lateness, no Spark.

    Nor does it filter: a stream's `where` is decided before its tuples come here, by `JoinEngine` or by the source.

    Parameters
    ----------
    bound : BoundJoin
    kernel : str
        "auto", "reference", or one of the compiled kernels' implementations; see `kernel_names`.
    threads : int
        Kernels that work side by side on a large probe; the results and their order are the same for any number.
    cores : sequence of int
        That kernel threads are pinned to (`core_lease.leased_cores` leases some); empty: they run wherever the system
        puts them. A single thread is the caller's own, which is not touched.
    index : "auto", "scan" or mapping of stream name to "scan" or to one or two key columns
        How runs are laid out: in buckets of the first column, each sorted by the second, or sorted by the only one;
        "scan" leaves them as they came, "auto" decides run by run.
    order : "auto" or sequence of stream names
        In which order the others join the tuples of a stream; "auto" decides by estimated selectivity, push by push.
    chunk_rows : int
        Most pairs in the air at each step, and most rows of a result chunk.
    merge_runs : int or None
        Merge ratio: runs of like size are merged as soon as there are so many of them. Many: less is copied, probes
        meet more runs. None: four, or what `block_bytes` says.
    block_bytes : int or None
        What is kept will be saved as blocks, runs of so many bytes each as one: they are then merged once, many at a
        time, so that a tuple is written twice at most (`BlockMergePolicy`). None: it stays in memory.
    bucket_rows : int or None
        Windows of so many rows and more are kept in a bucket grid, two to five times as fast, where they are laid out
        by "auto" and a key narrows what a probe meets. Columns of no fixed width, and those that had a null, are beside
        it (`Payload`), at most twice as many rows as are in it. All of them is written at each `save`, strings of a
        column up to 2 GiB; windows that are saved as blocks stay in runs (None).
    tuning : Tuning
        Inside numbers, for tests and measurements; no option.

    Raises
    ------
    KernelError
        A kernel that cannot run here.
    ArgumentError
        threads, chunk_rows, merge_runs or bucket_rows out of range; an index or an order that is not of the join's
        streams.
    ColumnError
        An index on a column that is not compared.
    """

    def __init__(
        self,
        bound: BoundJoin,
        *,
        kernel: str = "auto",
        threads: int = 1,
        cores: Sequence[int] = (),
        index: str | Mapping[str, Sequence[str]] = "auto",
        order: str | Sequence[str] = "auto",
        chunk_rows: int = CHUNK_ROWS,
        merge_runs: int | None = None,
        block_bytes: int | None = None,
        bucket_rows: int | None = None,
        tuning: Tuning = DEFAULT,
    ) -> None:
        check_ranges(threads, chunk_rows, bucket_rows)
        self.bound = bound
        self.kernels = load_kernels(kernel)
        self.threads = threads
        is_own = bucket_rows is not None
        self._scheduler = Scheduler()
        if is_own or threads > 1:
            self._scheduler = Scheduler.of(self.kernels.module, threads, cores, tuning.threads, is_own=is_own)
        self.chunk_rows, self._sorted_alone_rows = chunk_rows, tuning.threads.sorted_alone_rows
        count = len(bound.names)
        self.forms = window_forms(
            bound,
            self.kernels,
            tuning,
            index=index,
            merge_runs=merge_runs,
            block_bytes=block_bytes,
            bucket_rows=bucket_rows,
        )
        self._joinable = [NullKeyMask(bound, stream) for stream in range(count)]
        self._reading: list[Generator[pa.Table]] = []
        self.progress = Progress()  # of the push that is being read, or was last
        self._order = JoinOrder(bound, order, tuning.order)
        self._joining = JoinPipeline(bound, self.kernels, self._scheduler, chunk_rows, tuning)
        empty = JoinState([Window(form) for form in self.forms], 0, 0, [0] * count, [0] * count)
        goes_on = bucket_rows is not None
        self._kept = WindowSet(empty, self._scheduler, self.kernels.module, goes_on=goes_on)
        self.result_schema = self._joining.result_schema
        told = (
            self.kernels.implementation,
            threads,
            len(cores),
            "runs" if bucket_rows is None else "runs or bucket grids",
        )
        _log.debug("kernel %s, %d threads on %d cores of their own; windows in %s", *told)

    # ------------------------------------------------------------------ pushing

    def push(
        self,
        batches: Mapping[int, Tuples | Sequence[Tuples]],
        low_watermark_us: int | None = None,
        next_seqs: Sequence[int | None] | None = None,
        *,
        beside: Any = None,
        since: JoinState | None = None,
    ) -> Iterator[pa.Table]:
        """Join new tuples with each other and with what is kept, then keep them.

        Parameters
        ----------
        batches : mapping of stream number to table, record batch, or several
            In the inside form, ``bound.tuple_schema(stream)``. Streams may be missing, tables may be empty.
        low_watermark_us : int or None
            No later tuple will be older than this. A tuple of stream i is dropped when ``ts + W_i`` is older. None:
            nothing is dropped.
        next_seqs : sequence of int or None, optional
            Of each stream a number that no later tuple of it will be below. A count window keeps its last ``k``; None:
            nothing is dropped from it. Other windows ask for the watermark alone.
        beside : object, optional
            What the caller counts: `state` has it from the moment on in which the tuples are in.
        since : JoinState, optional
            Which `state` that was made from; the push is refused where it is no longer the last.

        Yields
        ------
        pyarrow.Table
            At most ``chunk_rows`` rows of ``result_schema``; the order is a function of the pushes alone.

        Raises
        ------
        ArgumentError, ColumnError
            Before anything is joined: an unknown stream, tuples of another form. Later: another push was finished or a
            state restored while this one was being read, which is not in then.

        Notes
        -----
        The new tuples are in only when the iterator is exhausted, all at once; one that is given up, or in which an
        exception is raised from outside, leaves the windows as they were. With several threads a crew may then still
        be at it (`WindowSet`): whatever is asked next waits for that.
        """
        before = self._kept.state if since is None else since
        fresh = {}
        for stream, tables in batches.items():
            if not 0 <= stream < len(self.forms):
                msg = "a batch is for a stream that the join does not have"
                raise ArgumentError(msg, name="batches", hint=f"numbers 0 to {len(self.forms) - 1}")
            several = [tables] if isinstance(tables, (pa.Table, pa.RecordBatch)) else list(tables)
            fresh[stream] = self.forms[stream].checked(several)
        window = self.bound.join.window
        seqs = next_seqs or [None] * len(self.forms)
        lowest_kept = [window.lowest_kept(n, low_watermark_us, seq) for n, seq in enumerate(seqs)]
        return self._push(before, fresh, lowest_kept, beside)

    def probe(self, batches: Mapping[int, Tuples | Sequence[Tuples]]) -> Iterator[pa.Table]:
        """Join tuples with what is kept; they do not meet each other, and are not kept.

        Parameters and results as in `push`. What is kept is not changed, so whatever breaks off leaves nothing behind.
        """
        state = self._kept.state
        windows = list(self._kept.settled(state))
        arrivals = []
        for stream, several in sorted(batches.items()):
            tables = [several] if isinstance(several, (pa.Table, pa.RecordBatch)) else list(several)
            tuples = self.forms[stream].checked(tables)
            mask = self._joinable[stream].mask(tuples)
            if mask is not None:
                tuples = self.forms[stream].tuple_columns(filtered(tuples.batch, mask))
            if tuples.rows:
                selection = Selection.whole(self.forms[stream].sealed(tuples.batch))
                order = self._order.chosen(stream, windows, selection)
                arrivals.append(ProbeBatch(stream, selection, order, tuple(windows)))
        self.progress, results = self._joining.results(arrivals)
        self._reading.append(results)
        yield from results
        self.progress.finish()

    def _push(
        self, before: JoinState, fresh: Mapping[int, BatchColumns], lowest_kept: Sequence[int | None], beside: Any
    ) -> Iterator[pa.Table]:
        matches, streams = 0, len(self.forms)
        arrived = [fresh[stream].rows if stream in fresh else 0 for stream in range(streams)]
        null_keys = [0] * streams
        ready = {}
        for stream in sorted(fresh):
            tuples = fresh[stream]
            mask = self._joinable[stream].mask(tuples)
            if mask is not None:
                tuples = self.forms[stream].tuple_columns(filtered(tuples.batch, mask))
                null_keys[stream] = arrived[stream] - tuples.rows
            if tuples.rows:
                ready[stream] = tuples
        windows, runs = self._sealed(before, ready, sum(arrived))
        arrivals = []
        for (stream, tuples), run in zip(ready.items(), runs, strict=True):
            window, selection = windows[stream].taking(tuples, run)
            order = self._order.chosen(stream, windows, selection)
            arrivals.append(ProbeBatch(stream, selection, order, tuple(windows)))
            windows[stream] = window
        self.progress, results = self._joining.results(arrivals)
        progress = self.progress
        self._reading.append(results)
        try:
            for chunk in results:
                matches += chunk.num_rows
                progress.matches = matches
                yield chunk
                if before is not self._kept.state:
                    break
        finally:
            results.close()
        if before is not self._kept.state:
            msg = "another push was finished, or a state restored, while this one was being read"
            raise ArgumentError(msg, name="push", hint="read the results of a push to their end before the next push")
        progress.finish()
        is_due = False
        for stream, lowest in enumerate(lowest_kept):
            if lowest is not None:
                windows[stream] = windows[stream].expired(lowest, is_own=stream in ready)
            is_due = is_due or not windows[stream].is_merged
        if is_due and not self._scheduler.has_crew:
            windows = [window.merged() for window in windows]
        is_due = is_due and self._scheduler.has_crew
        stored = list(map(operator.add, before.stored, arrived))
        null_keys = list(map(operator.add, before.null_keys, null_keys))
        totals = before.matches + matches, before.pushes + 1, stored, null_keys
        self._end_readings(results)
        self._kept.state = JoinState(windows, *totals, beside, not is_due)
        if is_due:
            self._kept.take_in(waits=not self._scheduler.helpers)

    def _end_readings(self, own: Generator[pa.Table]) -> None:
        """Have nobody look at grids that are about to change, whatever broke off before."""
        reading, self._reading = self._reading, []
        for other in reading:
            if other is not own:
                other.close()
        self._scheduler.settle()

    def _sealed(
        self, before: JoinState, ready: Mapping[int, BatchColumns], rows: int
    ) -> tuple[list[Window], list[SealedRun | None]]:
        """What is kept, and what becomes of new tuples: a run of each stream's, or None where they go to the tail.

        With a crew they are put in order while those of the last push are taken in.
        """
        works = [before.windows[stream].sealing(tuples) for stream, tuples in ready.items()]
        if not any(works):
            return list(self._kept.settled(before)), [None] * len(works)
        due = [work for work in works if work is not None]
        if self._scheduler.has_crew and rows > self._sorted_alone_rows:
            with self._scheduler.staying():
                ended = self._scheduler.begun(due)
                windows, made = list(self._kept.settled(before)), ended()
        else:
            windows, made = list(self._kept.settled(before)), [run_alone(work) for work in due]
        runs = iter(made)
        return windows, [None if work is None else next(runs) for work in works]

    # ------------------------------------------------------------------ what is kept

    @property
    def state_rows(self) -> int:
        """Tuples kept, all streams together."""
        return sum(window.rows for window in self._kept.windows)

    @property
    def state(self) -> JoinState:
        """What all pushes left behind; another one with each push and restore."""
        return self._kept.state

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the join began: matches, stored_rows and null_keys a stream, expired_rows; and what is kept now.

        ``candidates`` (pairs tested) and ``partials`` (results of some streams that others were still to join) count
        since this object was made.
        """
        return self.counted(self._kept.state)

    def counted(self, state: JoinState) -> dict[str, Any]:
        """As `counters`, of a state of this join."""
        names, windows = self.bound.names, self._kept.settled(state)
        state_rows = sum(window.rows for window in windows)
        return {
            "matches": state.matches,
            "expired_rows": state.expired_rows(state_rows),
            "candidates": self._joining.candidates,
            "partials": self._joining.partials,
            "stored_rows": dict(zip(names, state.stored, strict=True)),
            "null_keys": dict(zip(names, state.null_keys, strict=True)),
            "state_rows": state_rows,
            "runs": sum(len(window.runs) for window in windows),
        }

    @property
    def windows(self) -> tuple[Window, ...]:
        """What is kept, a window a stream."""
        return tuple(self._kept.windows)

    @property
    def blocks(self) -> frozenset[str]:
        """Names of the blocks that hold what is kept; runs that were never saved with a store are in none."""
        return frozenset(run.block for window in self._kept.windows for run in window.runs if run.block is not None)

    def save(self, store: RunStore | None = None) -> bytes:
        """Everything kept and counted, as bytes that are a function of the pushes alone (see `snapshot`).

        With a `store`, large runs are written there as blocks, and the bytes have their names. While a push is being
        read it is what was before it.
        """
        return self.saved(self._kept.state, store)

    def saved(self, state: JoinState, store: RunStore | None = None) -> bytes:
        """As `save`, of a state of this join."""
        return state_blob(self.bound, self.forms, state, self._kept.settled(state), store)

    @classmethod
    def restored(
        cls,
        bound: BoundJoin,
        blob: bytes | bytearray | memoryview,
        store: RunStore | None = None,
        *,
        tuning: Tuning = DEFAULT,
        **options: Unpack[JoinOptions],
    ) -> WindowJoin:
        """The join that `save` was called on, with the same `store`; `options` and `tuning` as in the constructor.

        Raises
        ------
        StateCorruptError, StateVersionError, FingerprintMismatchError, BlockMissingError, BlockCorruptError
        """
        join = cls(bound, tuning=tuning, **options)
        join.restore(blob, store)
        return join

    def restore(
        self, blob: bytes | bytearray | memoryview, store: RunStore | None = None, *, beside: Any = None
    ) -> None:
        """Replace all that is kept by what `save` wrote; errors as `restored`, and then nothing changes; see `push`."""
        state = opened_state(self.bound, self.forms, blob, store)
        state.beside = beside
        self._joining.begin()
        self._reading = []  # they look at other grids
        self._kept.state = state
        _log.debug("restored %d rows from a state of %d bytes", self.state_rows, len(blob))

    def explain(self) -> list[str]:
        """How it joins, a line each: the kernel, the order of joining, each window, its runs and their layouts."""
        return explained(self.kernels, self.threads, self.forms, self._order, self._kept.windows)
