"""The exact join of one cell: new tuples meet the windows of the other streams, and each result is found once.

::

    for each stream i:   new tuples of i ──► window ──► window ──► results        (MJoin)
                         then they enter the window of i

Streams take their turn in the order of their numbers. So the windows of the streams before *i* hold this push's tuples
already, and those after it do not. Of the new tuples in a result, only the one of the highest-numbered stream finds it.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.cost_model import Sizing
from streamjoin_ds.engine.kernels.loading import Kernels, load_kernels
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.probe.horizons import DecidingPush, Horizons
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.probe.pipeline import JoinPipeline
from streamjoin_ds.engine.probe.probe_batch import ProbeBatch, Progress
from streamjoin_ds.engine.probe.window_probe import MIN_FREE
from streamjoin_ds.engine.scheduler import Scheduler
from streamjoin_ds.engine.sizing import Costs, sizing_of
from streamjoin_ds.engine.storage.journal import Journal, Origin
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.state_blob import opened_state, state_blob
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.storage.window_set import (
    Joinable,
    JoinState,
    TableWindows,
    Tuples,
    WindowSet,
    checked_batches,
    window_forms,
)
from streamjoin_ds.engine.tuning import CHUNK_ROWS, DEFAULT, Tuning
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan.execution import DEFAULT_EXECUTION, Execution
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["WindowJoin", "explained"]

_log = logging.getLogger(__name__)

_MAX_THREADS = 256


def explained(
    kernels: Kernels,
    threads: int,
    forms: Sequence[WindowForm],
    order: JoinOrder,
    windows: Sequence[Window],
    sizing: Sizing | None = None,
    tables: TableWindows | None = None,
    joining: JoinPipeline | None = None,
) -> list[str]:
    """Return the lines of `explain`: kernel, merge policy, order of joining, windows, runs and layouts, tables."""
    lines = [f"kernel {kernels.implementation}, {threads} threads"]
    sizes = f"{forms[0].merge_policy.describe()}, up to {forms[0].tail_rows} newest rows unsorted"
    lines.append(sizes if sizing is None else f"{sizes}: {sizing.described()}")
    told = () if tables is None else tables.described()
    if tables is None or not told:
        lines += _order_lines(order, windows)
    elif len(tables.versions) == len(told):
        lines += _order_lines(order, [*windows, *tables.windows], len(windows))
    for form, window in zip(forms, windows, strict=True):
        lines.append(f"window of {order.names[form.stream]}: {window.rows} rows in {len(window.runs)} runs")
        names = [key.column for key in form.keys]
        for run in window.runs:
            span_s = (run.newest_us - run.oldest_us) / 1e6
            lines.append(f"  {run.rows} rows over {span_s:.3f} s: {run.described(names, order.names)}")
        if joining is not None and window.is_grid and window.runs:
            written = joining.is_written_by_probes(form.stream, windows)
            lines.append(f"  its matches are {'written by the probe' if written else 'pairs first, then gathered'}")
    return [*lines, *told]


def _order_lines(order: JoinOrder, windows: Sequence[Window], streams: int | None = None) -> list[str]:
    """Return a line for each stream: the order in which the others join its new tuples, and the estimated results.

    The new tuples are taken to be like those in the stream's window. With two streams there is no order to choose, and
    no line. Where the others are asked for partners one by one, the first stream's tuples alone have an order.
    """
    if len(windows) < 3:
        return []
    names, lines = order.names, []
    if order.is_of_each:
        return [f"due {names[0]}: asked of {', then of '.join(names[n] for n in order.estimate(0, windows).order)}"]
    for stream, name in enumerate(names[:streams]):
        found = order.estimate(stream, windows)
        steps = zip(found.order, found.partials, strict=True)
        lines.append(f"new {name}: " + ", ".join(f"then {names[n]} ({partials:.3g} each)" for n, partials in steps))
    return lines


class WindowJoin:
    """The windows of all streams, and the join of new tuples with them.

    It knows nothing of lateness, filters or Spark. `JoinEngine` or the source decides a stream's `where` before the
    tuples come here.

    Parameters
    ----------
    bound : BoundJoin
    execution : Execution
        Kernel, threads, sort layout, order and merge ratio. The caller pins, by `cores`.
    cores : sequence of int
        The cores that kernel threads are pinned to (`core_lease.leased_cores` leases some). Empty: the threads run
        wherever the system puts them. With `bucket_rows` and several cores, the caller stays on the first core while it
        works with the other threads.
    chunk_rows : int
        Upper bound of the pairs that are held at each step, and of the rows of a result chunk.
    block_bytes : int or None
        The windows will be saved as blocks: each run of so many bytes or more becomes one. Runs are then merged once,
        many at a time, so that a tuple is written twice at most (`BlockMergePolicy`). None: the windows stay in memory.
    bucket_rows : int or None
        Windows of so many rows and more are kept in a bucket grid, if `index` is "auto" and a key narrows what a probe
        meets. That is two to five times as fast. Columns of no fixed width, and columns that had a null, lie beside the
        grid (`Payload`), with at most about twice as many rows as the grid holds. Each `save` writes the whole window,
        and a column of strings can then have up to 2 GiB. None: windows stay in runs; give None where they are saved as
        blocks.
    tuning : Tuning
        The engine's own numbers, for tests and measurements; it is not an option for users.
    costs : OperationCosts, Sizing, "measured" or None
        What operations cost, by which the sizes of runs in memory are chosen. "measured": they are measured in this
        process, once a stream has filled some tails with small pushes. A `Sizing` says the sizes itself. None: they are
        those of `tuning`. It is not an option for users.
    copied : collection of int
        The streams whose tuples other cells have too. What waits of them for its horizon is the same in each of these.

    Attributes
    ----------
    tables : TableWindows
        The versions of the tables that later pushes meet. Those of another engine of the same join may take its place.

    Raises
    ------
    KernelError
        The kernel cannot run here.
    ArgumentError
        threads, chunk_rows, merge_runs or bucket_rows is out of range; or an index or an order names other streams than
        the join's.
    ColumnError
        An index names a column that is not compared.
    """

    def __init__(
        self,
        bound: BoundJoin,
        *,
        execution: Execution = DEFAULT_EXECUTION,
        cores: Sequence[int] = (),
        chunk_rows: int = CHUNK_ROWS,
        block_bytes: int | None = None,
        bucket_rows: int | None = None,
        tuning: Tuning = DEFAULT,
        costs: Costs = None,
        copied: Collection[int] = (),
    ) -> None:
        threads, merge_runs = 1 if execution.threads is None else execution.threads, execution.merge_runs
        _check_ranges(threads, chunk_rows, bucket_rows)
        self.bound = bound
        self.kernels = load_kernels(execution.kernel)
        self.threads, self._cores, self._is_own = threads, tuple(cores), bucket_rows is not None
        self._tuning = tuning
        self._scheduler = self._staffed()
        self.chunk_rows = chunk_rows
        count = len(bound.names)
        # Runs that become blocks cost a file each, which is not measured: they keep the usual sizes.
        self._sizing = sizing_of(costs, bound, execution.kernel, merge_runs) if block_bytes is None else None
        self.forms = window_forms(
            bound,
            self.kernels,
            tuning,
            index=execution.sort_layouts,
            merge_runs=merge_runs,
            block_bytes=block_bytes,
            bucket_rows=bucket_rows,
            sizing=self._sizing,
        )
        self._joinable = Joinable(bound, self.forms)
        self.tables = TableWindows(self.forms[count:], self._joinable)
        self.forms = self.forms[:count]
        self._reading: list[Generator[pa.Table]] = []
        self.progress = Progress()  # of the push that is being read, or of the last one
        self._order = JoinOrder(bound, execution.order, tuning.order)
        self._joining = JoinPipeline(bound, self.kernels, self._scheduler, chunk_rows, tuning)
        self._horizons = Horizons(bound, self.forms, self._joining, self._order, tuning, copied)
        empty = JoinState([Window(form) for form in self.forms], 0, 0, [0] * count, [0] * count)
        empty.waiting = self._horizons.none_waiting()
        goes_on = bucket_rows is not None
        alone_rows = tuning.threads.sorted_alone_rows
        self._kept = WindowSet(
            empty, self._scheduler, self.kernels.module, sorted_alone_rows=alone_rows, goes_on=goes_on
        )
        self.result_schema = self._joining.result_schema
        told = "runs" if bucket_rows is None else "runs or bucket grids"
        _log.debug(
            "kernel %s, %d threads on %d cores; windows in %s", self.kernels.implementation, threads, len(cores), told
        )

    def _staffed(self) -> Scheduler:
        if self.threads == 1 and not self._is_own:
            return Scheduler()
        module, tuning = self.kernels.module, self._tuning.threads
        return Scheduler.of(module, self.threads, self._cores, tuning, is_own=self._is_own)

    def use_threads(self, threads: int, cores: Sequence[int] = ()) -> None:
        """Have later pushes use so many threads, on these cores; the arguments are those of the constructor.

        Results that are still being read are given up, and their reader gets an ArgumentError. Neither the rows nor
        their order depend on the threads.
        """
        _check_ranges(threads, self.chunk_rows, None)
        if (threads, tuple(cores)) == (self.threads, self._cores):
            return
        for reading in self._reading:
            reading.close()
        self._reading = []
        self._kept.settled(self._kept.state)  # a pool may be at work on the windows
        self.threads, self._cores = threads, tuple(cores)
        self._scheduler = self._staffed()
        self._joining.use(self._scheduler)
        self._kept.use(self._scheduler)

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
        """Join new tuples with each other and with the windows, then keep them in the windows.

        Parameters
        ----------
        batches : mapping of stream number to table, record batch, or several
            In the inside form, ``bound.tuple_schema(stream)``. Streams may be missing, tables may be empty.
        low_watermark_us : int or None
            In microseconds; no later tuple is older than this. A tuple of stream i may be dropped when ``ts`` plus the
            extent of its window (``W_i`` of a time window) is older (`BoundJoin.lowest_kept`); where the join decides
            the stream's tuples at their horizon, it is decided then. None: nothing is dropped or decided.
        next_seqs : sequence of int or None, optional
            One number for each stream: all later tuples of the stream have this number or a higher one. A count window
            keeps the ``k`` numbers before it; with None, nothing is dropped from it. Windows of other kinds use the
            watermark alone.
        beside : object, optional
            The caller's own counts. They become a part of `state` at the moment when the tuples are in.
        since : JoinState, optional
            The `state` that `beside` was computed from. The push is refused if that is no longer the last state.

        Yields
        ------
        pyarrow.Table
            At most ``chunk_rows`` rows of ``result_schema``; the order is a function of the pushes and of `costs`.

        Raises
        ------
        ArgumentError, ColumnError
            Before anything is joined: an unknown stream, tuples of another form.
        ArgumentError
            While the results are read: meanwhile another push was finished, a state restored or the threads changed.
            This push is then not in.

        Notes
        -----
        The new tuples are in when the iterator is exhausted, all at once. If the iterator is given up, or an exception
        is raised in it from outside, the windows stay as they were. With several threads, a pool may still be at work
        after the end of a push (`WindowSet`); the next call that needs the windows waits for that.
        """
        before = self._kept.state if since is None else since
        fresh = checked_batches(self.forms, batches)
        seqs = next_seqs or [None] * len(self.forms)
        lowest_kept = [self.bound.lowest_kept(n, low_watermark_us, seq) for n, seq in enumerate(seqs)]
        return self._push(before, fresh, lowest_kept, beside, low_watermark_us)

    def probe(self, batches: Mapping[int, Tuples | Sequence[Tuples]]) -> Iterator[pa.Table]:
        """Join tuples with what is kept; they do not meet each other, and are not kept.

        Parameters, results and errors as in `push`. What is kept is not changed, so whatever breaks off leaves nothing
        behind.
        """
        state = self._kept.state
        windows = [*self._kept.settled(state), *self.tables.windows]
        arrivals = []
        for stream, given in sorted(checked_batches(self.forms, batches).items()):
            tuples = self._joinable.partnered(stream, given)
            if tuples.rows:
                selection = Selection.whole(self.forms[stream].sealed(tuples.batch))
                order = self._order.chosen(stream, windows, selection)
                arrivals.append(ProbeBatch(stream, selection, order, tuple(windows)))
        self.progress, results = self._joining.results(arrivals)
        self._reading.append(results)
        yield from results
        self._check_reading(results, state, "probe")
        self._reading.remove(results)
        self.progress.finish()

    def null_keys(self, stream: int, tables: Sequence[Tuples]) -> int:
        """Return how many of a stream's tuples can have no partner (`NullKeyMask`)."""
        return self._joinable.count_alone(stream, tables)

    def _push(
        self,
        before: JoinState,
        fresh: Mapping[int, BatchColumns],
        lowest_kept: Sequence[int | None],
        beside: Any,
        watermark_us: int | None,
    ) -> Iterator[pa.Table]:
        """Join new tuples and keep them, in seven steps. What is kept changes in the sixth, by one assignment."""
        streams = len(self.forms)

        # 1. Sort the new tuples out. A tuple with a null key has no partner: it enters no window, but it is counted,
        #    and where its stream is decided it may have a row of its own. A decided stream has no window that nobody
        #    probes. So `new` has all that may be in a pair, `ready` what enters a window, `alone` the rest.
        arrived = [fresh[stream].rows if stream in fresh else 0 for stream in range(streams)]
        null_keys = [0] * streams
        ready, new, alone = {}, {}, {}
        for stream in sorted(fresh):
            tuples = self._joinable.partnered(stream, fresh[stream])
            null_keys[stream] = arrived[stream] - tuples.rows
            if stream in self._horizons.streams and null_keys[stream]:
                alone[stream] = self._joinable.alone(stream, fresh[stream])
            if tuples.rows:
                new[stream] = tuples.batch
                if stream in self._horizons.probed_windows:
                    ready[stream] = tuples

        # 2. Put them in order, while the pool still takes in those of the last push. From here on `windows` is a list
        #    of this push alone, and `before` keeps the windows as they were: a push that breaks off leaves nothing
        #    behind.
        windows, runs = self._kept.sealed(before, ready, sum(arrived))
        tables = self.tables.windows

        # 3. Let the streams take their turns. At the turn of stream i, the windows of the streams before it hold this
        #    push's tuples, and those of the streams after it do not. So each result has one turn that finds it: that of
        #    the highest-numbered of its new tuples. No window holds the tuples that probe it.
        arrivals = []
        for (stream, tuples), run in zip(ready.items(), runs, strict=True):
            window, selection = windows[stream].taking(tuples, run)
            if self._horizons.has_pairs:
                met = (*windows, *tables)
                order = self._order.chosen(stream, met, selection)
                arrivals.append(ProbeBatch(stream, selection, order, met))
            if streams > 1:  # tuples of a single stream meet no other, so none is kept
                windows[stream] = window

        # 4. Find the results, while somebody reads them. All the while the last state is `before`, and nobody gives the
        #    reading up. Where that does not hold, the push has lost results or met old windows, and is not in.
        self.progress, results = self._joining.results(arrivals)
        progress, deciding = self.progress, None
        if self._horizons.streams:
            deciding = DecidingPush(self._horizons, before.waiting, new, alone, [*windows, *tables], watermark_us)
            results = deciding.rows(results)
        self._reading.append(results)
        try:
            for chunk in results:
                progress.matches += chunk.num_rows
                yield chunk
                if before is not self._kept.state:
                    break
        finally:
            results.close()
        self._check_reading(results, before, "push")
        progress.finish()

        # 5. Let go of what no later tuple may meet: all results of this push are found. Runs that are due are merged
        #    here only if no pool does so after the push.
        is_due = False
        for stream, lowest in enumerate(lowest_kept):
            if lowest is not None:
                windows[stream] = windows[stream].expired(lowest, is_own=stream in ready)
            is_due = is_due or not windows[stream].is_merged
        if is_due and not self._scheduler.has_pool:
            windows, is_due = [window.merged() for window in windows], False

        # 6. Take effect. Before the assignment nothing of the push is in, after it everything is: windows, totals, what
        #    waits, the caller's counts. Nobody reads windows of before any more: grids may change in place from now on.
        stored = list(map(operator.add, before.stored, arrived))
        null_keys = list(map(operator.add, before.null_keys, null_keys))
        totals = before.matches + progress.matches, before.pushes + 1, stored, null_keys
        waiting = () if deciding is None else deciding.waiting
        self._end_readings(results)
        self._kept.state = JoinState(windows, *totals, beside, not is_due, waiting)

        # 7. Have the pool merge, and insert into grids. That changes no result and no total: it may end while the next
        #    push is put in order, and whoever asks for the windows goes on with it if it broke off.
        if is_due:
            self._kept.take_in(sum(arrived), waits=not self._scheduler.helpers)

    def _check_reading(self, results: Generator[pa.Table], before: JoinState, name: str) -> None:
        """Raise ArgumentError where the state is another now, or the results were given up and so ended early."""
        if before is not self._kept.state or results not in self._reading:
            msg = "another push was finished, a state restored or the threads changed, while this one was being read"
            raise ArgumentError(msg, name=name, hint="read the results to their end before anything else is asked for")

    def _end_readings(self, own: Generator[pa.Table]) -> None:
        """Close other pushes' unfinished readings and wait for the pool: bucket grids are about to change in place."""
        reading, self._reading = self._reading, []
        for other in reading:
            if other is not own:
                other.close()
        self._scheduler.settle()

    # ------------------------------------------------------------------ what is kept

    @property
    def state_rows(self) -> int:
        """How many tuples the windows hold, all streams together."""
        return self._horizons.kept_rows(self._kept.state.waiting) + sum(window.rows for window in self._kept.windows)

    @property
    def state(self) -> JoinState:
        """The windows and totals after the last finished push; each push and each restore replaces the object."""
        return self._kept.state

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the join began, and what the windows hold now.

        ``matches`` and ``expired_rows`` are totals of the join, ``stored_rows`` and ``null_keys`` totals of each
        stream. ``state_rows`` and ``runs`` are of now. ``candidates`` (pairs tested) and ``partials`` (partial results
        that other streams had still to join) count since this object was made or restored. ``undecided_rows`` is how
        many tuples wait for their horizon; those whose stream has no window count in ``state_rows`` too.
        """
        return self.counted(self._kept.state)

    def counted(self, state: JoinState) -> dict[str, Any]:
        """Return `counters` for a given state of this join."""
        names = self.bound.names
        windows = self._kept.settled(state)
        state_rows = self._horizons.kept_rows(state.waiting) + sum(window.rows for window in windows)
        return {
            "matches": state.matches,
            "expired_rows": state.expired_rows(state_rows),
            "candidates": self._joining.candidates,
            "partials": self._joining.partials,
            "stored_rows": dict(zip(names, state.stored, strict=True)),
            "null_keys": dict(zip(names, state.null_keys, strict=True)),
            "state_rows": state_rows,
            "runs": sum(len(window.runs) for window in windows),
            "undecided_rows": sum(of_stream.rows for of_stream in state.waiting),
        }

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows, one for each stream."""
        return tuple(self._kept.windows)

    @property
    def blocks(self) -> frozenset[str]:
        """Names of the blocks that hold the windows' runs, and tuples that wait.

        What was never saved with a store is in none.
        """
        runs = (run.block for window in self._kept.windows for run in window.runs)
        return self.waiting_blocks.union(name for name in runs if name is not None)

    @property
    def waiting_blocks(self) -> frozenset[str]:
        """Names of the blocks that hold tuples that wait."""
        return frozenset(name for of_stream in self._kept.state.waiting for name in of_stream.blocks)

    @property
    def kept_streams(self) -> Collection[int]:
        """The streams whose tuples are kept in windows."""
        return self._horizons.probed_windows if len(self.forms) > 1 else ()

    def save(self, store: RunStore | None = None, journal: Journal | None = None) -> bytes:
        """Return all windows and totals as bytes: a function of the pushes and of `costs` alone (see `state_blob`).

        With a `store`, large runs are written there as blocks, and the bytes hold their names. While a push is being
        read, the bytes are the state before that push. With a `journal` of the tuples that entered the windows, the
        bytes hold that in place of the windows, and are a function of the pushes alone.
        """
        return self.saved(self._kept.state, store, journal)

    def saved(self, state: JoinState, store: RunStore | None = None, journal: Journal | None = None) -> bytes:
        """Do what `save` does, for a given state of this join."""
        windows = state.windows if journal is not None else self._kept.settled(state)
        return state_blob(self.bound, self.forms, state, windows, store, journal)

    @classmethod
    def restored(
        cls,
        bound: BoundJoin,
        blob: bytes | bytearray | memoryview,
        store: RunStore | None = None,
        *,
        tuning: Tuning = DEFAULT,
        costs: Costs = None,
        **options: Any,
    ) -> WindowJoin:
        """Return a join in the state that `save` wrote; the other arguments are those of the constructor.

        Give the same `store` as to `save`.

        Raises
        ------
        StateCorruptError, StateVersionError, FingerprintMismatchError, BlockMissingError, BlockCorruptError
        """
        join = cls(bound, tuning=tuning, costs=costs, **options)
        join.restore(blob, store)
        return join

    def restore(
        self, blob: bytes | bytearray | memoryview, store: RunStore | None = None, *, beside: Any = None
    ) -> list[list[Origin]]:
        """Replace the state by one that `save` wrote; `beside` is as in `push`.

        It returns what the windows were made of, for `Journal.restored`. It raises the errors of `restored`; after an
        error nothing has changed.
        """
        state, origins = opened_state(self.bound, self.forms, blob, store, self._joinable)
        state.beside = beside
        self._joining.begin()
        self._reading = []  # unfinished readings look at the old state's grids, not at those that change from now on
        self._kept.state = state
        _log.debug("restored %d rows from a state of %d bytes", self.state_rows, len(blob))
        return origins

    def settle(self) -> None:
        """Bring windows that were restored into the form that they would have after a push."""
        state = self._kept.state
        state.is_settled = all(window.is_merged for window in state.windows)
        self._kept.settled(state)

    def explain(self) -> list[str]:
        """Return how the join works, in lines: kernel, merge policy, order of joining, each window, its runs."""
        known = self.kernels, self.threads, self.forms, self._order, self._kept.windows, self._sizing
        return explained(*known, self.tables, self._joining)


def _check_ranges(threads: int, chunk_rows: int, bucket_rows: int | None) -> None:
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
