"""The join for people without Spark: tuples in, results out, in this process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine import snapshot
from streamjoin_ds.engine.bucket_window import BUCKET_ROWS
from streamjoin_ds.engine.join import WindowJoin
from streamjoin_ds.engine.keys import INT64_MIN
from streamjoin_ds.engine.lateness import StreamClock, clock_facts, clocks_of, low_watermark
from streamjoin_ds.engine.pinning import leased_cores
from streamjoin_ds.engine.progress import Progress
from streamjoin_ds.engine.tuples import Arrival, Intake, Rows
from streamjoin_ds.errors import ArgumentError, StateCorruptError
from streamjoin_ds.spec.ahead import AheadLimit
from streamjoin_ds.spec.bound import BoundJoin, bind
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.order import preceding, running_maximum

__all__ = ["JoinEngine"]


class JoinEngine:
    """A whole join in one process: numbering, lateness and watermarks round a `WindowJoin`.

    It never waits for anything: no clock, no file, no thread of its own. Call `push` from an MQTT callback, an asyncio
    task (``await asyncio.to_thread(engine.push, ...)`` where a push may be large) or a loop over files.

    Parameters
    ----------
    join : Join or BoundJoin
    schemas : mapping of stream name to pyarrow.Schema, optional
        Of the streams whose `Stream.schema` is not given. Where neither is, the first push tells: it then holds a
        table, record batch or pandas frame of every such stream.
    kernel, threads, cores, index, order, chunk_rows, merge_runs, bucket_rows
        As in `WindowJoin`, which does the joining; filters (`Stream.where`) are decided here, before it. Windows of
        65 536 rows and more are in bucket grids. Several threads work on `cores` that the engine leases for as long as
        it lives, if so many are free; ``cores=()`` leaves them where the system puts them.

    Attributes
    ----------
    late, rejected : dict of stream name to pyarrow.Table
        Tuples of the last push that were late (inside form: ``_ts``, ``_seq``, travelling columns), and rows that had
        no event time (as they came), or one too far ahead (`Stream.max_ahead`; ``_rejected`` says why); only streams
        that had any. `counters` has the totals.

    Raises
    ------
    ArgumentError
        A stream without a schema: from the first push, and from whatever asks for types before it.

    Examples
    --------
    >>> from streamjoin_ds import Join, JoinEngine, Stream
    >>> schema = {"ts": "int64", "x": "float64"}
    >>> join = Join([Stream("e", schema=schema), Stream("w", schema=schema)], "abs(e.x - w.x) <= 0.5", "10s")
    >>> engine = JoinEngine(join)
    >>> engine.push({"e": {"ts": 1_000_000, "x": 1.0}}).num_rows
    0
    >>> engine.push({"w": [{"ts": 2_000_000, "x": 1.5}, {"ts": 2_000_000, "x": 1.6}]})["w_x"].to_pylist()
    [1.5]
    """

    def __init__(self, join: Join | BoundJoin, schemas: Mapping[str, pa.Schema] | None = None, **options: Any) -> None:
        self._asked, self._options = join, {"bucket_rows": BUCKET_ROWS, **options}
        self._schemas = {} if isinstance(join, BoundJoin) else _declared(join, schemas or {})
        self._bound: BoundJoin | None = None
        if isinstance(join, BoundJoin) or len(self._schemas) == len(join.streams):
            self._bind()
        streams = join.join.streams if isinstance(join, BoundJoin) else join.streams
        self._clocks = [StreamClock(stream.delay_us) for stream in streams]
        self._max_ahead_us = [stream.max_ahead_us for stream in streams]
        for stream in streams:
            if stream.idle_timeout is not None:
                msg = f"stream {stream.name} has an idle_timeout, and a JoinEngine has no clock"
                hint = f"leave it out, and call set_idle('{stream.name}') when you know that it is silent"
                raise ArgumentError(msg, name="idle_timeout", hint=hint)
        self._read, self._late_rows, self._rejected_rows, self._filtered_rows = ([0] * len(streams) for _ in range(4))
        self._busy = threading.Lock()
        self.late: dict[str, pa.Table] = {}
        self.rejected: dict[str, pa.Table] = {}

    def _bind(self) -> None:
        self._bound = self._asked if isinstance(self._asked, BoundJoin) else bind(self._asked, self._schemas)
        self._join = WindowJoin(self._bound, **self._with_cores(self._options))
        module = self._join.kernels.module
        self._names = self._bound.names
        self._intakes = [Intake(self._bound, stream, module) for stream in range(len(self._names))]
        self._has_stamps = any(map(self._bound.stamps, range(len(self._names))))
        self._nothing = self._join.result_schema.empty_table()

    def _with_cores(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options, with cores that are this engine's for as long as it lives."""
        threads = options.get("threads", 1)
        if "cores" in options or threads <= 1:
            return options
        lease = ExitStack()
        weakref.finalize(self, lease.close)
        return {**options, "cores": lease.enter_context(leased_cores(threads))}

    @property
    def bound(self) -> BoundJoin:
        """The join with types: known from the start where schemas are, else from the first push on."""
        if self._bound is None:
            raise self._unbound()
        return self._bound

    def _unbound(self) -> ArgumentError:
        assert not isinstance(self._asked, BoundJoin)
        missing = next(stream.name for stream in self._asked.streams if stream.name not in self._schemas)
        msg = f"stream {missing} has no schema"
        hint = "Stream(..., schema={...}), JoinEngine(join, schemas), or tables of all streams in the first push"
        return ArgumentError(msg, name=missing, hint=hint)

    @property
    def _windows(self) -> WindowJoin:
        assert self.bound is not None  # it says what is missing
        return self._join

    @property
    def result_schema(self) -> pa.Schema:
        """Of every table that `push` returns."""
        return self._windows.result_schema

    @property
    def watermark(self) -> int | None:
        """No tuple that is not late is older (microseconds); None while a stream that is not idle has had no tuple."""
        return low_watermark(self._clocks, self._clocks[0].floor)

    def set_idle(self, name: str) -> None:
        """Let time go on without a stream that is silent, until rows of it are pushed again.

        Those of them that are older than the watermark by then are late. Who calls it, and when, decides which ones: do
        so from your own clock.

        Raises
        ------
        ArgumentError
            An unknown stream, or a push is running.
        """
        names = self._asked.names
        if name not in names:
            msg = f"the join has no stream '{name}'"
            raise ArgumentError(msg, name=name, hint=f"the streams are {', '.join(names)}")
        if not self._busy.acquire(blocking=False):
            msg = "a push is running"
            raise ArgumentError(msg, name="set_idle", hint="between two pushes")
        try:
            floor = self.watermark
            self._clocks[names.index(name)].idle = True
            for clock in self._clocks:
                clock.floor = floor
        finally:
            self._busy.release()

    def push(self, rows: Mapping[str, Rows]) -> pa.Table:
        """Join new rows with each other and with those still in their windows.

        Parameters
        ----------
        rows : mapping of stream name to table, record batch, pandas frame, list of dicts, or one dict
            Each stream's rows in its order. Streams may be missing. To count windows what is pushed later comes later;
            within a push the streams are merged as a source merges them: by the largest event time so far in each.

        Returns
        -------
        pyarrow.Table
            All new results, of `result_schema`.

        Raises
        ------
        ArgumentError
            An unknown stream, rows of no known form, or a push from another thread while one is running.
        SchemaDriftError
            A column is missing or does not fit its type. After an error nothing has changed.

        See Also
        --------
        push_chunks : the same, for results that may be too many to be held at once.
        """
        chunks = list(self.push_chunks(rows))
        if len(chunks) == 1:
            return chunks[0]
        return pa.concat_tables(chunks) if chunks else self._nothing

    def push_chunks(self, rows: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """As `push`, a chunk of results at a time, each found when it is asked for.

        Parameters
        ----------
        rows : mapping of stream name to rows
            As of `push`.

        Yields
        ------
        pyarrow.Table
            At most `CHUNK_ROWS` rows of `result_schema`. Memory is bounded by the input and a chunk, however many
            results there are; `progress` says how far it is.

        Notes
        -----
        The rows are in, and `late`, `rejected` and `counters` tell of them, when the iterator is read to its end. One
        that is given up (closed, or no longer referred to) leaves the engine as it was. Until then it is being pushed:
        another push is refused.

        Examples
        --------
        >>> from streamjoin_ds import Join, JoinEngine, Stream
        >>> schema = {"ts": "int64", "x": "int64"}
        >>> engine = JoinEngine(Join([Stream("e", schema=schema), Stream("w", schema=schema)], "e.x <> w.x", "10s"))
        >>> rows = [{"ts": 0, "x": x} for x in range(1000)]
        >>> [(chunk.num_rows, engine.progress.fraction) for chunk in engine.push_chunks({"e": rows, "w": rows})][-1]
        (213184, 1.0)
        """
        if self._bound is None and not isinstance(self._asked, BoundJoin):
            found = {name: _schema_of(given) for name, given in rows.items() if name in self._asked.names}
            schemas = {name: schema for name, schema in found.items() if schema is not None} | self._schemas
            if len(schemas) == len(self._asked.streams):
                self._schemas = schemas
                self._bind()
        if self._bound is None:
            raise self._unbound()
        for name in rows:
            if name not in self._names:
                msg = f"the join has no stream '{name}'"
                raise ArgumentError(msg, name=name, hint=f"the streams are {', '.join(self._names)}")
        return self._alone(rows)

    def _alone(self, rows: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """The chunks of a push; one that is not read to its end changes nothing."""
        if not self._busy.acquire(blocking=False):
            msg = "a push is running"
            raise ArgumentError(msg, name="push", hint="one push at a time, read to its end; put a queue in front")
        before = self._clocks
        try:
            taken = self._taken(rows)
            self._clocks = taken.clocks
            yield from self._join.push(taken.tuples, self.watermark, taken.read)
            self._keep(taken)
        except BaseException:
            self._clocks = before
            raise
        finally:
            self._busy.release()

    def _taken(self, rows: Mapping[str, Rows]) -> _Taken:
        """The rows as tuples, without those that are late, rejected or filtered; nothing is changed yet."""
        floor = self.watermark
        taken = _Taken(list(self._read), [StreamClock(c.delay_us, c.largest, floor, idle=c.idle) for c in self._clocks])
        arrivals = {n: self._arrived(n, rows[name]) for n, name in enumerate(self._names) if name in rows}
        stamps = self._stamps(arrivals)
        for stream, arrival in arrivals.items():
            name = self._names[stream]
            intake, without_time = self._intakes[stream], arrival.rejected
            tuples = intake.tuples(arrival, taken.read[stream], stamps.get(stream, {}))
            taken.read[stream] += arrival.count
            taken.clocks[stream].idle &= not arrival.count
            mask = taken.clocks[stream].split(arrival.known_us)
            tuples, mask = intake.filtered(tuples, mask)
            left_out = arrival.count - tuples.num_rows
            if np.count_nonzero(mask):
                taken.late[name] = pa.Table.from_batches([tuples.filter(pa.array(mask))])
                tuples = tuples.filter(pa.array(~mask))
            if without_time is not None:
                taken.rejected[name] = without_time
                left_out -= without_time.num_rows
            taken.filtered_rows[stream] = left_out
            taken.tuples[stream] = tuples
        return taken

    def _arrived(self, stream: int, rows: Rows) -> Arrival:
        """Rows as far as their event times, those that are too far ahead told apart."""
        arrival, max_us = self._intakes[stream].read(rows), self._max_ahead_us[stream]
        if max_us is None:
            return arrival
        clock = self._clocks[stream]
        return self._intakes[stream].without_future(arrival, clock.largest, AheadLimit(max_us, not clock.idle))

    def _keep(self, taken: _Taken) -> None:
        """Put a push that is in into the ledger."""
        self._read, self.late, self.rejected = taken.read, taken.late, taken.rejected
        for stream, count in taken.filtered_rows.items():
            name = self._names[stream]
            self._late_rows[stream] += taken.late[name].num_rows if name in taken.late else 0
            self._rejected_rows[stream] += taken.rejected[name].num_rows if name in taken.rejected else 0
            self._filtered_rows[stream] += count

    @property
    def progress(self) -> Progress:
        """How far the push is that is being read, or was last: `fraction` (0 to 1) and `matches` so far."""
        return self._windows.progress

    def _stamps(self, arrivals: Mapping[int, Arrival]) -> dict[int, dict[str, npt.NDArray[np.int64]]]:
        """Of each new row how many rows of each other stream precede it, for windows that ask."""
        if not self._has_stamps:
            return {}
        running = []
        for stream, clock in enumerate(self._clocks):
            before = INT64_MIN if clock.largest is None else clock.largest
            if stream not in arrivals:
                running.append(np.empty(0, dtype=np.int64))
                continue
            arrival = arrivals[stream]
            known = arrival.times_us
            if arrival.is_timed is not None:
                known = np.where(arrival.is_timed, known, before)
            running.append(running_maximum(known, None, before))
        found = {}
        for stream in arrivals:
            others = [other for other in range(len(running)) if other != stream]
            names = zip(self.bound.stamps(stream), others, strict=True)
            found[stream] = {name: preceding(running, stream, other) + self._read[other] for name, other in names}
        return found

    @property
    def counters(self) -> dict[str, Any]:
        """The ledger and what is kept: read = stored + late + rejected + filtered, stream by stream."""
        names = self.bound.names
        return {
            **self._join.counters,
            "read_rows": dict(zip(names, self._read, strict=True)),
            "late_rows": dict(zip(names, self._late_rows, strict=True)),
            "rejected_rows": dict(zip(names, self._rejected_rows, strict=True)),
            "filtered_rows": dict(zip(names, self._filtered_rows, strict=True)),
        }

    def explain(self) -> list[str]:
        """How it joins; see `WindowJoin.explain`."""
        return self._windows.explain()

    def save(self) -> bytes:
        """Everything that decides what comes next, as bytes."""
        facts = {
            "read": self._read,
            "late": self._late_rows,
            "rejected": self._rejected_rows,
            "filtered": self._filtered_rows,
            **clock_facts(self._clocks),
        }
        return snapshot.sealed(self.bound.fingerprint, facts, [self._join.save()])

    def restore(self, blob: bytes | bytearray | memoryview) -> None:
        """Go on where `save` was called.

        Raises
        ------
        StateCorruptError, StateVersionError, FingerprintMismatchError
            And then nothing has changed.
        """
        facts, body = snapshot.opened(self.bound.fingerprint, blob)
        count = len(self.bound.names)
        if "largest_us" not in facts:
            msg = "this is the state of a WindowJoin, not of a JoinEngine"
            raise StateCorruptError(msg, name="state", hint="restore it with WindowJoin.restored")
        names = ("read", "late", "rejected", "filtered")
        read, late, rejected, left_out = (snapshot.numbers(facts, name, count) for name in names)
        clocks = clocks_of(facts, [clock.delay_us for clock in self._clocks])
        (size,) = snapshot.numbers(facts, "sizes", 1)
        self._join.restore(memoryview(body)[:size])
        self._read, self._late_rows, self._rejected_rows, self._filtered_rows = read, late, rejected, left_out
        self._clocks = clocks
        self.late, self.rejected = {}, {}


@dataclass(slots=True)
class _Taken:
    """What a push is about to change."""

    read: list[int]
    clocks: list[StreamClock]
    tuples: dict[int, pa.RecordBatch] = field(default_factory=dict)
    late: dict[str, pa.Table] = field(default_factory=dict)
    rejected: dict[str, pa.Table] = field(default_factory=dict)
    filtered_rows: dict[int, int] = field(default_factory=dict)


def _declared(join: Join, given: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The schemas that are known before any row is."""
    schemas = {stream.name: given.get(stream.name, stream.schema) for stream in join.streams}
    return {name: schema for name, schema in schemas.items() if isinstance(schema, pa.Schema)}


def _schema_of(rows: Rows) -> pa.Schema | None:
    """The schema that rows bring along; none of dicts: one of them does not tell what the next will hold."""
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return rows.schema
    columns = getattr(rows, "dtypes", None)
    return None if columns is None else pa.Schema.from_pandas(rows, preserve_index=False)
