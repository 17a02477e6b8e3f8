"""The join for people without Spark: tuples in, results out, in this process."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamjoin_ds.duration import EPOCH, MICROSECOND
from streamjoin_ds.engine.core_lease import leased_cores
from streamjoin_ds.engine.intake.engine_turn import Chunks, EngineTurn
from streamjoin_ds.engine.intake.push_intake import EngineCounters, PushIntake, seen_from, seen_state
from streamjoin_ds.engine.intake.received_rows import KnownSchemas, Rows, as_table, check_streams, given_table
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.probe.probe_batch import Progress
from streamjoin_ds.engine.sizing import Costs
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.engine.storage.bucket_grid.policy import BUCKET_ROWS
from streamjoin_ds.engine.tuning import CHUNK_ROWS, DEFAULT, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan.execution import Execution, OldOptions, execution_of
from streamjoin_ds.source.device_clocks import Device, DeviceRecords
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.table_rows import table_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["JoinEngine"]


class JoinEngine:
    """A whole join in one process: numbering, lateness and watermarks round a `WindowJoin`.

    It uses no clock and no file. It has threads of its own only with `threads` above 1. Call `push` from an MQTT
    callback, an asyncio task (``await asyncio.to_thread(engine.push, ...)`` where a push may be large) or a loop over
    files.

    Parameters
    ----------
    join : Join or BoundJoin
    schemas : mapping of stream name to pyarrow.Schema, optional
        Schemas of the streams that have no `Stream.schema`. A stream with neither takes its schema from the first push,
        which must then hold a table, record batch or pandas frame of every such stream. A table has its schema here or
        from `use_table`.
    threads : int, optional
        As in `Execution`, which may stand beside it.
    execution : Execution, optional
        How the engine works; no row depends on it. Its options were arguments here once, and still are, with a warning.
    cores : sequence of int, optional
        The cores of several threads, in place of those that the engine leases (`Execution.pin`); empty: the threads run
        wherever the system puts them.
    chunk_rows, block_bytes, bucket_rows, tuning
        As in `WindowJoin`, which does the joining. The engine decides filters (`Stream.where`) before that. Windows of
        65 536 rows and more are kept in bucket grids, unless `bucket_rows` says otherwise.
    costs : OperationCosts, Sizing, "measured" or None
        As in `WindowJoin`; by default "measured", unless there is another `tuning`. It is not an option for users.

    Attributes
    ----------
    late, rejected : dict of stream name to pyarrow.Table
        What the last push set aside, of the streams that had any. `late` holds tuples in the inside form (``_ts``,
        ``_seq``, travelling columns). `rejected` holds rows as they were pushed: without an event time, with a value
        that is out of range or null where it must not be, or too far ahead of their stream (`Stream.max_ahead`). For a
        stream with `max_ahead`, the column ``_rejected`` says why. `counters` has the totals.

    Raises
    ------
    ArgumentError
        `idle_timeout` is set on a stream. Or a stream has no schema: the first push raises this, and so does any
        attribute or method that needs the types before it.

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

    def __init__(
        self,
        join: Join | BoundJoin,
        schemas: Mapping[str, pa.Schema] | None = None,
        *,
        threads: int | None = None,
        execution: Execution | None = None,
        cores: Sequence[int] | None = None,
        chunk_rows: int = CHUNK_ROWS,
        block_bytes: int | None = None,
        bucket_rows: int | None = BUCKET_ROWS,
        tuning: Tuning = DEFAULT,
        costs: Costs = "measured",
        **old: Unpack[OldOptions],
    ) -> None:
        self._execution = execution_of(execution, threads, old)
        self._asked, self._cores = join, cores
        self._options: dict[str, Any] = {
            "execution": self._execution,
            "chunk_rows": chunk_rows,
            "block_bytes": block_bytes,
            "bucket_rows": bucket_rows,
            "tuning": tuning,
            "costs": costs if tuning is DEFAULT or costs != "measured" else None,
        }
        self._schemas = KnownSchemas(join.join if isinstance(join, BoundJoin) else join, schemas or {})
        self._bound: BoundJoin | None = None
        streams = join.join.streams if isinstance(join, BoundJoin) else join.streams
        check_streams(streams)
        self._streams, self._names = streams, tuple(stream.name for stream in streams)
        self._given_tables: dict[str, tuple[pa.Table, str]] = {}
        self._tables_given = 0
        self._first = EngineCounters.empty([stream.delay_us for stream in streams])
        self._turn = EngineTurn(load_kernels(self._execution.kernel).module.Gate())
        if isinstance(join, BoundJoin) or self._schemas.are_whole:
            self._bind()

    def _bind(self) -> None:
        bound = self._asked if isinstance(self._asked, BoundJoin) else bind(self._asked, self._schemas.known)
        self._join = WindowJoin(bound, cores=self._pinned_to(), **self._options)
        self._taking = PushIntake(bound, self._join.kernels.module)
        self._nothing = self._join.result_schema.empty_table()
        for name, given in self._given_tables.items():
            self._give_table(bound, name, *given)
        self._bound = bound  # assigned last: an exception before this line leaves the engine unbound

    def _pinned_to(self) -> Sequence[int]:
        """Return the cores that were asked for, or else cores that are leased for as long as this engine lives."""
        threads = self._execution.threads
        if self._cores is not None or threads is None or threads <= 1 or not self._execution.pin:
            return self._cores or ()
        lease = ExitStack()
        weakref.finalize(self, lease.close)
        return lease.enter_context(leased_cores(threads))

    def __repr__(self) -> str:
        join = self._asked.join if isinstance(self._asked, BoundJoin) else self._asked
        read = [f"{name} {count:,}" for name, count in zip(self._names, self._ledger.read, strict=True)]
        watermark = "not known" if self.watermark is None else str(EPOCH + self.watermark * MICROSECOND)
        facts = [*join.told, ("rows", f"{', '.join(read)} so far"), ("complete", f"before {watermark}")]
        title = f"JoinEngine of {', '.join(join.member_names)}"
        return "\n".join([title, *(f"  {word:<8} {text}" for word, text in facts)])

    @property
    def bound(self) -> BoundJoin:
        """The join with its types: known from the start where all schemas are, else from the first push on."""
        if self._bound is None:
            raise self._unbound()
        return self._bound

    def _unbound(self) -> ArgumentError:
        assert not isinstance(self._asked, BoundJoin)
        return self._schemas.missing()

    @property
    def _windows(self) -> WindowJoin:
        assert self.bound is not None  # `bound` raises an error that says what is missing
        return self._join

    @property
    def result_schema(self) -> pa.Schema:
        """The schema of every table that `push` returns."""
        return self._windows.result_schema

    @property
    def watermark(self) -> int | None:
        """Event time in microseconds: a tuple to come that is older is late. None until every stream has had a tuple.

        Idle streams are not waited for.
        """
        return self._ledger.watermark

    def set_idle(self, name: str, device: object = None) -> None:
        """Let the watermark advance without a silent stream, until rows of that stream are pushed again.

        Rows of the stream that are older than the watermark when they come are late. So the moment of this call decides
        which rows are late: choose it by a clock of your own.

        Parameters
        ----------
        name : str
        device : value or tuple of values, optional
            Of a stream with columns in `partition_by`: the device alone that is silent, by its value in this column, or
            in each of them; ``(None,)`` is the one of nulls. One that holds nothing up, as it never came or is
            forgotten, changes nothing.

        Raises
        ------
        ArgumentError
            An unknown stream, or one whose devices have no clocks; values that no device can have; a push is running;
            or the call comes from a signal handler that interrupted the engine.

        Examples
        --------
        >>> from streamjoin_ds import Join, JoinEngine, Stream
        >>> schema = {"ts": "int64", "x": "int64", "device": "string"}
        >>> readings = Stream("e", schema=schema, partition_by=["device"])
        >>> engine = JoinEngine(Join([readings, Stream("w", schema=schema)], "e.x = w.x", "10s"))
        >>> rows = [{"ts": ts, "x": 1, "device": name} for ts, name in ((100, "fast"), (1, "slow"), (200, "fast"))]
        >>> _ = engine.push({"e": rows, "w": [{"ts": 300, "x": 1}]})
        >>> engine.watermark
        1
        >>> engine.set_idle("e", "slow")
        >>> engine.watermark
        200
        """
        names = self._asked.names
        if name not in names:
            msg = f"the join has no stream '{name}'"
            raise ArgumentError(msg, name=name, hint=f"the streams are {', '.join(names)}")
        self._turn.check_idle("set_idle")
        stream = names.index(name)
        self._turn.alone(self._set_idle, stream, None if device is None else self._device(stream, device))

    def _device(self, stream: int, given: object) -> Device:
        """Return a device as it is called inside, from its values."""
        of_stream = self._streams[stream]
        columns, values = of_stream.device_columns, given if isinstance(given, tuple) else (given,)
        if not columns:
            msg = f"stream {of_stream.name} has no columns in partition_by, so none of its devices is idle by itself"
            hint = f"give Stream('{of_stream.name}', partition_by=[...]), or leave the device out"
            raise ArgumentError(msg, name="device", hint=hint)
        schema = self.bound.read_schema(stream)
        try:
            arrays = [pa.array([one], schema.field(name).type) for one, name in zip(values, columns, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            msg = f"these are no values of {', '.join(columns)} of stream {of_stream.name}"
            raise ArgumentError(msg, name="device", hint="a value, or a tuple with one for each column") from error
        return DeviceRecords.of(pa.table(arrays, names=list(columns)), columns).devices[0]

    def _set_idle(self, stream: int, device: Device | None) -> None:
        self._turn.check_idle("set_idle")
        before = self._ledger
        ledger = before.without(stream) if device is None else before.without_device(stream, device)
        if self._bound is None:
            self._first = ledger
        else:
            self._join.state.beside = ledger

    def use_table(self, name: str, rows: Rows, version: str | None = None) -> None:
        """Have later pushes join these rows as the version of a table; the first one must come before the first push.

        Results that were found before stay, and nothing is found by the call itself. Tables are not in what `save`
        returns: after `restore` in another process give them again.

        Parameters
        ----------
        name : str
        rows : table, record batch, frame, list of dicts, or one dict
            All rows of the version. The ``<table>_seq`` of a result is the row's place here, from 0 on.
        version : str, optional
            The name of the version. Where it is the version that is in use, nothing is done. By default it is new.

        Raises
        ------
        ArgumentError
            The join has no such table; a push is running; or the call comes from a signal handler.
        ColumnError, SchemaDriftError
            A column is missing, or its values do not fit. Then the version before stays.

        Examples
        --------
        >>> from streamjoin_ds import Join, JoinEngine, Stream, Table
        >>> readings = Stream("r", schema={"ts": "int64", "x": "float64"})
        >>> zones = Table("zones", schema={"lo": "float64", "hi": "float64", "name": "string"})
        >>> engine = JoinEngine(Join([readings], "r.x BETWEEN zones.lo AND zones.hi", tables=[zones]))
        >>> engine.use_table("zones", [{"lo": 0.0, "hi": 1.0, "name": "a"}, {"lo": 0.5, "hi": 2.0, "name": "b"}])
        >>> engine.push({"r": {"ts": 1, "x": 0.7}})["zones_name"].to_pylist()
        ['a', 'b']
        """
        self._turn.check_idle("use_table")
        self._turn.alone(self._use_table, name, rows, version)

    def _with_tables(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """Return rows, and the tables that wait until all types are known: they tell theirs too."""
        return {name: table for name, (table, _) in self._given_tables.items()} | dict(rows)

    def _use_table(self, name: str, rows: Rows, version: str | None) -> None:
        self._turn.check_idle("use_table")
        join = self._asked.join if isinstance(self._asked, BoundJoin) else self._asked
        given = given_table(join, name, rows, self._schemas.known.get(name))
        self._tables_given += 1
        told = f"{self._tables_given}" if version is None else f"={version}"
        if self._bound is None and not self._schemas.learn(self._with_tables({name: given})):
            self._given_tables[name] = given, told  # until all types are known
            return
        if self._bound is None:
            self._bind()
        self._give_table(self.bound, name, given, told)

    def _give_table(self, bound: BoundJoin, name: str, given: pa.Table, version: str) -> None:
        number = bound.member_names.index(name)
        self._join.tables.use(name, [table_rows(bound, number, given)], version)

    @property
    def late(self) -> dict[str, pa.Table]:
        """Tuples of the last push that were late, in the inside form; only streams that had any."""
        return self._ledger.late

    @property
    def rejected(self) -> dict[str, pa.Table]:
        """Rows of the last push that are no tuples, as they were pushed; only streams that had any."""
        return self._ledger.rejected

    @property
    def _ledger(self) -> EngineCounters:
        ledger = None if self._bound is None else self._join.state.beside
        return self._first if ledger is None else ledger

    def push(self, rows: Mapping[str, Rows]) -> pa.Table:
        """Join new rows with each other and with those still in their windows.

        Parameters
        ----------
        rows : mapping of stream name to table, record batch, frame, list of dicts, or one dict
            The rows of each stream, in the stream's order. A frame is one of pandas, or any with Arrow's PyCapsule
            interface, as those of polars and DuckDB. Streams may be missing. For count windows, all rows of a later
            push come after those of an earlier one. Within a push the streams are merged as a source merges them: by
            the largest event time so far in each stream.

        Returns
        -------
        pyarrow.Table
            All new results, of `result_schema`.

        Raises
        ------
        ArgumentError
            An unknown stream, a stream without a schema, rows of no known form, a column with more than 2 GiB of
            values, or a push while another one is running.
        ColumnError
            The time column has a type that cannot be an event time.
        SchemaDriftError
            A column is missing or does not fit its type. After an error nothing has changed.

        Notes
        -----
        An exception may come from outside: Ctrl-C, a timeout, one that is sent to this thread. Then either all of the
        push is in, with ledger and clocks, or nothing of it. The ``read_rows`` of `counters` tell which. If the push is
        in, its results are lost. To get them, restore a state that was saved before the push, and push again.

        See Also
        --------
        push_chunks : the same, for more results than memory can hold at once.
        """
        rows = self._checked(rows)
        self._turn.check_idle()
        chunks = self._turn.read_whole(self._chunks(rows))
        if len(chunks) == 1:
            return chunks[0]
        return pa.concat_tables(chunks) if chunks else self._nothing

    def push_chunks(self, rows: Mapping[str, Rows]) -> Chunks:
        """As `push`, but return an iterator of chunks of results; each chunk is found when it is asked for.

        Parameters
        ----------
        rows : mapping of stream name to rows
            As of `push`.

        Yields
        ------
        pyarrow.Table
            At most `chunk_rows` rows of `result_schema`. The memory in use does not grow with the number of results: it
            is bounded by the input and a chunk. `progress` says how much of the push is done.

        Notes
        -----
        The rows are in when the iterator has been read to its end; only then do `late`, `rejected` and `counters`
        include them. If the iterator is closed, dropped, or ends by an exception, the engine stays as it was. While the
        iterator is held between two chunks, another push is refused, and `save` gives the state before the push. After
        a `restore` the iterator cannot be read further.

        Examples
        --------
        >>> from streamjoin_ds import Join, JoinEngine, Stream
        >>> schema = {"ts": "int64", "x": "int64"}
        >>> engine = JoinEngine(Join([Stream("e", schema=schema), Stream("w", schema=schema)], "e.x <> w.x", "10s"))
        >>> rows = [{"ts": 0, "x": x} for x in range(1000)]
        >>> sum(chunk.num_rows for chunk in engine.push_chunks({"e": rows, "w": rows}))
        999000
        >>> engine.progress.fraction
        1.0
        """
        rows = self._checked(rows)
        return Chunks(self._chunks(rows), self._turn.step, self._turn.alone)

    def finish(self) -> pa.Table:
        """Return the rows of all tuples that still wait, and empty the windows: no stream has anything more to give.

        Only a join with `how` has such rows; of an inner join the table is empty. Every row that is pushed afterwards
        is late. A second call returns nothing.

        Raises
        ------
        ArgumentError
            A push is running, or a stream has no schema.

        Examples
        --------
        >>> from streamjoin_ds import Join, JoinEngine, Stream
        >>> schema = {"ts": "int64", "x": "float64"}
        >>> streams = [Stream("e", schema=schema), Stream("w", schema=schema)]
        >>> engine = JoinEngine(Join(streams, "abs(e.x - w.x) <= 0.5", "10s", how="left"))
        >>> engine.push({"e": [{"ts": 1, "x": 1.0}, {"ts": 2, "x": 7.0}], "w": {"ts": 3, "x": 1.5}}).num_rows
        1
        >>> engine.finish().select(["e_x", "w_x"]).to_pylist()
        [{'e_x': 7.0, 'w_x': None}]
        """
        self._checked({})
        self._turn.check_idle("finish")
        chunks = self._turn.read_whole(self._ending())
        return pa.concat_tables(chunks) if chunks else self._nothing

    def _ending(self) -> Generator[pa.Table]:
        state = self._join.state
        before = self._first if state.beside is None else state.beside
        end_us = self.bound.end_us
        ledger = before if before.watermark is not None and before.watermark >= end_us else before.ended(end_us)
        yield from self._join.push({}, end_us, ledger.read, beside=ledger, since=state)

    def _checked(self, rows: Mapping[str, Rows]) -> Mapping[str, Rows]:
        """Return rows for a push, and learn the types from the first ones.

        Raise ArgumentError if a type stays unknown, or a stream is unknown.
        """
        given: object = rows
        if not isinstance(given, (dict, Mapping)):  # a dict first: a class is asked sooner than an abstract one
            msg = f"a push takes rows by the names of their streams, not {type(given).__name__}"
            hint = f"write push({{{', '.join(f'{name!r}: ...' for name in self._names)}}})"
            raise ArgumentError(msg, name="rows", hint=hint)
        for name in rows:
            if name not in self._names:
                msg = f"the join has no stream '{name}'"
                raise ArgumentError(msg, name=name, hint=names_hint(name, self._names, "the streams are"))
        if self._bound is None:
            times = {stream.name: stream.time for stream in self._streams}
            rows = {name: as_table(given, f"stream {name}", times[name]) for name, given in rows.items()}
            if not isinstance(self._asked, BoundJoin) and self._schemas.learn(self._with_tables(rows)):
                self._bind()
        if self._bound is None:
            raise self._unbound()
        return rows

    def _chunks(self, rows: Mapping[str, Rows]) -> Generator[pa.Table]:
        """Yield the chunks of a push; a push that is not read to its end changes nothing."""
        state = self._join.state
        before = self._first if state.beside is None else state.beside
        taken = self._taking.taken(rows, before)
        ledger = taken.ledger(before, self._names)
        yield from self._join.push(taken.tuples, ledger.watermark, ledger.read, beside=ledger, since=state)

    @property
    def progress(self) -> Progress:
        """How much of the current or last push is done: `fraction` (0 to 1), and `matches` so far."""
        return self._windows.progress

    @property
    def counters(self) -> dict[str, Any]:
        """The ledger of each stream, and what the windows hold.

        For each stream read = stored + late + rejected + filtered + duplicate rows.
        """
        names, state = self.bound.names, self._join.state
        ledger = self._first if state.beside is None else state.beside
        return {**self._join.counted(state), **ledger.counters(names)}

    def explain(self) -> list[str]:
        """Return how the engine joins, in lines; see `WindowJoin.explain`."""
        return self._turn.alone(self._windows.explain)

    def save(self) -> bytes:
        """Return the engine's state as bytes: everything that later results depend on.

        Between two chunks of a push it is the state before the push. If another thread is at work on the engine, the
        call waits until that thread's chunk or push is done.

        Raises
        ------
        ArgumentError
            The call comes from a signal handler that interrupted a push in the same thread: it would wait for itself.
        """
        return self._turn.alone(self._saved)

    def _saved(self) -> bytes:
        state = self._windows.state
        ledger = self._first if state.beside is None else state.beside
        facts, seen = seen_state(ledger.seen)
        return state_blob.sealed(self.bound.fingerprint, ledger.to_facts() | facts, [self._join.saved(state), *seen])

    def restore(self, blob: bytes | bytearray | memoryview) -> None:
        """Replace the engine's state by one that `save` returned.

        A push that is still being read, between two chunks, is given up: reading it further raises an ArgumentError.
        If another thread is at work on the engine, the call waits as `save` does.

        Raises
        ------
        StateCorruptError, StateVersionError, FingerprintMismatchError
            The bytes cannot be restored; then nothing has changed.
        ArgumentError
            As `save`.
        """
        self._turn.alone(self._restored, blob)

    def _restored(self, blob: bytes | bytearray | memoryview) -> None:
        facts, body = state_blob.opened(self.bound.fingerprint, blob)
        ledger = EngineCounters.from_facts(facts, [clock.delay_us for clock in self._first.clocks])
        windows, *parts = state_blob.parts_of(facts, body)
        ledger.seen = seen_from(facts, parts, self.bound)
        self._join.restore(memoryview(windows), beside=ledger)
        self._turn.forget()
