"""`StreamJoin`: a join that can be started on Spark."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import Execution, OldOptions, execution_of
from streamjoin_ds.spec import Join, bind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from typing_extensions import Unpack

    from streamjoin_ds.exploration.exploration import Exploration
    from streamjoin_ds.stream.frame_query import OrderBy
    from streamjoin_ds.stream.local_query import LocalQuery
    from streamjoin_ds.stream.query_options import LocalOptions
    from streamjoin_ds.watch.watcher import Watcher

__all__ = ["StreamJoin"]


class StreamJoin(Join):
    """A windowed band join over N streams: the object that most users hold. Its arguments are those of `Join`.

    Examples
    --------
    >>> from streamjoin_ds import Stream, StreamJoin
    >>> join = StreamJoin(
    ...     [Stream("e", "eastbound.csv.gz", time="ts"), Stream("w", "westbound.csv.gz", time="ts")],
    ...     on="abs(e.latitude - w.latitude) <= 0.1 AND abs(e.altitude - w.altitude) <= 1000",
    ...     window="15s",
    ... )
    >>> join.names
    ('e', 'w')
    """

    def match(self, *frames: Any, execution: Execution | None = None, progress: bool | None = None) -> Any:
        """Return the whole result over frames, whose rows may stand in any order, as a frame of the same library.

        Parameters
        ----------
        *frames : DataFrame, Table, or list of dicts
            One for each stream, then one for each table, in the join's order; or one mapping of names to them. A frame
            is one of pandas or polars, or any with Arrow's PyCapsule interface (Arrow, DuckDB).
        execution : Execution, optional
            How the engine works.
        progress : bool, optional
            Whether to show on standard error how much is done. By default on terminals and in notebooks, of joins that
            take more than a second.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            All rows, of the library that the first frame is of; an Arrow table for any other. No row is late: `delay`,
            `max_ahead` and `idle_timeout` of streams are of no account. Of a count window the order of the rows counts.

        Raises
        ------
        ArgumentError, ColumnError, SchemaDriftError
            As of `JoinEngine.push`.

        Examples
        --------
        >>> import pandas
        >>> from streamjoin_ds import Stream, StreamJoin
        >>> e = pandas.DataFrame({"ts": pandas.to_datetime(["2024-01-01 09:07", "2024-01-01 09:00"]), "x": [7.0, 1.0]})
        >>> w = pandas.DataFrame({"ts": pandas.to_datetime(["2024-01-01 09:01"]), "x": [1.5]})
        >>> join = StreamJoin([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 0.5 WITHIN 5 MINUTES")
        >>> join.match(e, w)[["e_x", "w_x"]].to_dict("records")
        [{'e_x': 1.0, 'w_x': 1.5}]
        """
        from streamjoin_ds.stream.static_join import frames_by_name, joined_frames, like

        given = frames_by_name(self, frames)
        return like(joined_frames(self, given, execution, progress), next(iter(given.values())))

    def explore(self, *frames: Any, rows: int = 100_000) -> Exploration:
        """Return how many matches other bands, windows and delays would give, from the first tuples of the streams.

        Parameters
        ----------
        *frames : DataFrame, Table, or list of dicts
            In place of sources, as of `match`. None: the streams' sources are read.
        rows : int
            Records of each stream that are read, at most.

        Returns
        -------
        Exploration
            Curves of partners over each band, each limit and the window, with their standard errors; rows and bytes a
            day; late rows by delay; the layout. ``print`` shows it, a notebook draws it, ``save("page.html")`` makes a
            page of it.

        Raises
        ------
        ArgumentError, WindowError
            The join is none of two streams with a time window, or what was read is shorter than the window.
        """
        from streamjoin_ds.exploration.exploration import explored
        from streamjoin_ds.plan import Load
        from streamjoin_ds.stream.query import planned
        from streamjoin_ds.stream.source_facts import bound_join
        from streamjoin_ds.stream.static_join import frame_tables

        tables = frame_tables(self, frames) if frames else {}
        bound = bind(self, {name: table.schema for name, table in tables.items()}) if tables else bound_join(self)
        return explored(bound, tables, rows, lambda rates: str(planned(bound, Load.of_join(bound, rates)).layout))

    def start(
        self,
        spark: SparkSession,
        to: str | PathLike[str],
        checkpoint: str | PathLike[str],
        *,
        available_now: bool = False,
        trigger: str | None = None,
        max_rows_per_batch: int | None = None,
        max_delay: str | None = None,
        layout: str = "auto",
        cells: int | None = None,
        exchange: str = "auto",
        threads: int | None = None,
        execution: Execution | None = None,
        source_options: Mapping[str, str] | None = None,
        durable: bool = True,
        take_over: bool = False,
        restart: bool = False,
        page: str | None = None,
        metrics: str | None = None,
        otlp: bool = False,
        frames: Mapping[str, DataFrame] | None = None,
        order_by: OrderBy | None = None,
        **old: Unpack[OldOptions],
    ) -> StreamingQuery:
        """Start the join as a streaming query into Delta tables.

        Parameters
        ----------
        spark : SparkSession
            The session that runs the query.
        to : path
            The table of matches; ``<to>_punctuations``, ``_late``, ``_rejects``, ``_ledger``, ``_metrics`` lie beside
            it.
        checkpoint : path
            Folder for Spark's checkpoint and this join's own files, here or in a bucket (``s3a://bucket/folder``); a
            restart with it goes on exactly where it was.
        available_now : bool
            Whether to read what is there, in batches, and then stop.
        trigger : str, optional
            The least time from the start of one batch to the next ("1s"); by default the next follows at once.
        max_rows_per_batch : int, optional
            Most records of a batch, all streams together; 1 000 000 by default.
        max_delay : str, optional
            How long a tuple may wait from when the source can see it to the commit of its batch ("500ms"). Batches then
            have only as many rows as their measured time allows. If the machine or the load does not let the bound be
            kept, batches grow to what the load needs; the metrics say how long tuples wait, and the log warns. It may
            have another value at each start, and changes no row of the result but its `batch_id`.
        layout : "auto", "grid", "ranges" or group counts
            How tuples are dealt to cells. "grid": by number, in a grid that is chosen by cost and follows the streams'
            rates. "ranges": by ranges of a column that bands or equalities tie to one of every other stream, with a
            grid where keys are frequent; they are balanced anew when keys drift. It is refused where there is no such
            column. "auto": a grid; on 8 cells and more it changes to ranges if a sample of the keys says that they cost
            less. Group counts ("1x2"): this grid, always. A restart may give another value.
        cells : int, optional
            The number of cells, which work side by side; 1 to 4096. By default there is one on one machine, whose
            threads have the cores, and one for each core of a cluster (see `threads`). A restart may have more or fewer
            of them: tuples that are there stay where they are until they expire, and new ones go to the new cells.
        exchange : {"auto", "reference", "packed"}
            How tuples cross from source to cell (`explain` says which was chosen).
        threads : int, optional
            As in `Execution`, which may stand beside it.
        execution : Execution, optional
            How the engine of each cell works. It changes no row of the result, and may differ at each restart. Its
            options were arguments here once, and still are, with a DeprecationWarning.
        source_options : mapping of str to str, optional
            Further options of the source: ``pace`` ("max", or how many times as fast as real time), ``parts``,
            ``missing_files``, ``max_block_rows``; see `streamjoin_ds.stream.query_options.READER_OPTIONS`. They may
            differ at each restart.
        durable : bool
            Whether a batch is on the device before it counts, so that a power cut loses nothing and a restart goes on
            exactly. False saves some milliseconds a batch; kill -9 loses nothing either way.
        take_over : bool
            Whether to take a checkpoint from a driver that still holds it but no longer works: it is stopped, or cut
            off. If that driver wakes up, it is refused by name. False: a checkpoint that another driver holds is
            refused.
        restart : bool
            Whether the query is started again, in this process, when it ends by an error that may pass: a broker or a
            store that is away, a full disk, or one of Spark's own, five times in a row at most. The pauses grow from a
            second to five minutes while no batch is done. What is returned lasts as long: `awaitTermination` raises an
            error that a restart cannot mend, and `stop` ends it for good. The metrics (`restarts`) count, and the log
            says why.
        page : str, optional
            Where the query is shown on a page, live: a port of this machine ("8765"), or an IP address and a port. The
            page is of a process of its own, which reads the tables; it needs the extra ``page``. Where other machines
            reach the address, a browser needs the token that is printed with it.
        metrics : str, optional
            Where Prometheus asks for the query's metrics, as `page`; it needs the extra ``metrics``.
        otlp : bool
            Whether the query's metrics are sent by OTLP, as OpenTelemetry's environment variables say; it needs the
            extra ``otlp``.
        frames : mapping of stream or table name to DataFrame, optional
            Streaming DataFrames in place of sources: one for each stream, whose streams have no source, or for none.
            Static ones in place of the tables' sources, which are read here, once. See the notes.
        order_by : str, sequence of str, or mapping of stream name to them, optional
            With `frames`: the columns of whole numbers, at least 0, that number a stream's rows. One is the row's
            number in the stream. Of two the first is a partition's number and the second the row's in it
            (``("partition", "offset")`` of Kafka). ``<stream>_seq`` is that number; of two it is the first times 2^40
            and the second. No two rows may have one number. A row without is a reject. A row is late by the rows before
            it in its partition, wherever Spark reads them, and the stream may have an `idle_timeout`; see "Order" in
            `dataframe`. By default ``<stream>_seq`` is a hash of the row's values, which equal rows share, and a row is
            late by the watermark at the start of its batch.

        Returns
        -------
        pyspark.sql.streaming.StreamingQuery
            The running query.

        Raises
        ------
        FingerprintMismatchError, ForeignCheckpointError, LayoutError, TableError
            The checkpoint or the table is not this join's; nothing was written.
        ArgumentError, ColumnError
            An argument is wrong, or the join cannot be done; nothing was written.
        CheckpointInUseError
            Another process runs the join with this checkpoint.
        RecoveryError
            A power cut or a restored copy left files that do not fit together; ``streamjoin repair`` says more.

        Notes
        -----
        *DataFrames.* Spark plans the batches of `frames`, so their sources' own options bound them. Rows of DataFrames
        have no order. So a tuple is late iff it is older than the watermark at the start of its batch, which is the
        smallest, over the streams, of the largest event time in the batches before minus the stream's `delay`. Spark's
        own watermark is not needed and not used. Tables, punctuations, late rows, rejects and the ledger are those of
        `start`, each batch once. What needs an order, or plans batches, is refused by name: count windows,
        `idle_timeout`, `max_ahead`, `partition_by`, `unique`, `max_rows_per_batch`, `max_delay`, `source_options`. The
        layout and the number of cells stay those of the first start, and ``streamjoin repair`` does not mend such a
        checkpoint.

        *Static DataFrames.* A table's frame is read at each start, and its rows are kept under the checkpoint. Batches
        that were not planned before join them. A batch that is done again joins what it joined, whatever the frame has
        by then.
        """
        from streamjoin_ds.spark.session import living
        from streamjoin_ds.stream.query import start, tells_cores
        from streamjoin_ds.stream.query_options import QueryOptions
        from streamjoin_ds.stream.reach_watch import watch_reach
        from streamjoin_ds.stream.restarts import RestartedQuery
        from streamjoin_ds.watch.watcher import watching

        options = QueryOptions(
            available_now,
            trigger,
            max_rows_per_batch,
            max_delay,
            layout,
            exchange,
            execution_of(execution, threads, old),
            tuple(sorted((source_options or {}).items())),
            durable,
            take_over,
            cells,
            restart,
            page,
            metrics,
            otlp,
        )
        is_over_frames = frames is not None and not _is_beside(self, frames)
        if not is_over_frames:
            _check_numbering(order_by)

        def begin(restarts: int) -> StreamingQuery:
            asked, session = replace(options, restarts=restarts), living(spark)
            if frames is not None and is_over_frames:
                from streamjoin_ds.stream.frame_query import start_over_frames

                return start_over_frames(self, session, frames, order_by, fspath(to), fspath(checkpoint), asked)
            return start(self, session, fspath(to), fspath(checkpoint), asked, frames)

        with watching(options.watched(fspath(checkpoint))) as watch_until:
            query = cast("StreamingQuery", RestartedQuery(begin)) if restart else begin(0)
            watch_until(lambda: not query.isActive)
        if tells_cores(spark):  # a client of Spark Connect may not reach what the cluster reaches
            watch_reach(self, fspath(to), fspath(checkpoint), lambda: not query.isActive)
        return query

    def run_local(
        self,
        to: str | PathLike[str],
        checkpoint: str | PathLike[str],
        *,
        threads: int | None = None,
        execution: Execution | None = None,
        source_options: Mapping[str, str] | None = None,
        **options: Unpack[LocalOptions],
    ) -> LocalQuery:
        """Start the join in this process, without Spark and without Java, into the same Delta tables.

        The tables, the checkpoint, and what a restart, a kill or a power cut leave are those of `start`: a checkpoint
        that was made here goes on under Spark, and one of Spark's goes on here.

        Parameters
        ----------
        to, checkpoint : path
            As in `start`; the checkpoint is a folder on this machine.
        threads : int, optional
            As in `Execution`; by default one for each core.
        execution, source_options
            As in `start`.
        **options
            ``available_now``, ``trigger``, ``max_rows_per_batch``, ``max_delay``, ``layout``, ``cells``, ``exchange``,
            ``durable``, ``take_over``, ``restart``, ``page``, ``metrics`` and ``otlp``, as in `start`. There is one
            cell by default, and a checkpoint keeps its number of them.

        Returns
        -------
        LocalQuery
            The running query, with the methods of a `StreamingQuery`: ``awaitTermination``, ``stop``, ``isActive``,
            ``exception``, ``lastProgress``. It ends with this process.

        Raises
        ------
        StreamJoinError
            As `start`; nothing was written. Where frames are joined, and under Spark Connect, there is `start` alone.
        """
        from streamjoin_ds.stream.local_query import start_local
        from streamjoin_ds.stream.query_options import QueryOptions
        from streamjoin_ds.stream.reach_watch import watch_reach
        from streamjoin_ds.stream.restarts import RestartedQuery
        from streamjoin_ds.watch.watcher import watching

        asked = QueryOptions(
            execution=execution_of(execution, threads, {}),
            source_options=tuple(sorted((source_options or {}).items())),
            **options,
        )

        def begin(restarts: int) -> LocalQuery:
            return start_local(self, fspath(to), fspath(checkpoint), replace(asked, restarts=restarts))

        with watching(asked.watched(fspath(checkpoint))) as watch_until:
            query = cast("LocalQuery", RestartedQuery(begin)) if asked.restart else begin(0)
            watch_until(lambda: not query.isActive)
        watch_reach(self, fspath(to), fspath(checkpoint), lambda: not query.isActive)
        return query

    @staticmethod
    def page(checkpoint: str | PathLike[str], address: str = "0") -> Watcher:
        """Return a page that shows the query of a checkpoint, wherever that runs; a notebook shows it in place.

        It lasts until its ``close`` is called, or this process ends. Its ``url`` is for a browser. It needs the extra
        ``page``.

        Parameters
        ----------
        checkpoint : path
            The checkpoint of a query that has run, runs, or is about to begin.
        address : str
            As `page` of `start`; "0" is a port that is free.

        Raises
        ------
        ArgumentError
            There is nothing to listen at, at this address.
        DependencyMissingError
        """
        from streamjoin_ds.watch.watcher import Watcher, WatchOrder

        return Watcher(WatchOrder(fspath(checkpoint), address))

    def dataframe(
        self,
        frames: Mapping[str, DataFrame],
        *,
        layout: str | None = None,
        blocks: str | PathLike[str] | None = None,
        threads: int | None = None,
        execution: Execution | None = None,
        **old: Unpack[OldOptions],
    ) -> DataFrame:
        """Return the results as a DataFrame: streaming if the inputs are, else static; the rows are the same.

        .. deprecated:: 0.1
            Streaming frames, with a FutureWarning: ``start(frames=...)`` takes them 2.5 to 6 times as fast, and keeps
            late rows. Static frames stay.

        Parameters
        ----------
        frames : mapping of stream name to DataFrame
            One for each stream, all streaming or all static, and a static one for each table of the join. A streaming
            frame needs ``withWatermark`` on the stream's time column: it says which tuples are late and when windows
            are emptied.
        layout : str, optional
            Group counts. By default there is one cell for each of the query's state partitions, at most 64 (with
            ``how="full"`` one, because no commit puts the answers of several together). Spark fixes the number of
            partitions with the first batch, by the session's shuffle partitions at that time, and keeps it. A restart
            under another session setting gives the same rows. A layout other than the checkpoint's is refused by name.
        blocks : path, optional
            Folder for the windows of a streaming join, which every worker must see (or a URI of a file system that
            Arrow knows, ``s3://...``). Spark's state then holds only names of blocks, which begin with the query's id.
            Without it windows pass through Spark's state store in every batch, about 15 ms a MB; a worker warns in its
            log when they grow large.
        threads, execution
            As in `start`; they may differ at each restart. The number of cells does not depend on them.

        Raises
        ------
        WatermarkMissingError
            A streaming frame has no watermark on its stream's time column.
        WindowError
            The window is a count window.
        ArgumentError, ColumnError
            An argument or the frames are wrong, or the join cannot be done.

        Notes
        -----
        *Lateness.* Foreign DataFrames have no order inside a batch. So lateness is judged by the watermark at the
        batch's start: the smallest, over the streams, of the largest time so far minus the stream's `delay`. The
        frame's own watermark must have that delay; a stream without a delay has its frame's. Rows that a stream's
        `where` leaves out tell the time here too.

        *Late tuples* are dropped. Only the workers' log says how many (with `spark_session`, the file that
        `session_log_path` names): each cell that dropped any writes a warning with the stream's name. So a tuple that
        several cells hear of is counted in each. `start` keeps and counts late tuples.

        *Self-joins.* One DataFrame under two names is one input: no tuple meets itself, unless `include_self_pairs`
        asks for it. Equal rows are different tuples. A source that is read twice, as two DataFrames, is two inputs, to
        Spark and here.

        *Numbers and order.* DataFrames have no ``seq``: ``<stream>_seq`` is a hash of the tuple. Without an order there
        are no count windows: they are refused.

        *Tables.* A table's frame is read once, here, and its rows travel to the workers with the function of a cell
        (256 MiB at most). A restart reads it anew, and a batch that it does again joins what the frame has then;
        `start` repeats a batch with the rows that it had.

        *What each of them has.* ``start(frames=...)`` takes the same streaming frames:

        ====================  ===================================  =========================================
        what                  `dataframe`                          ``start(frames=...)``
        ====================  ===================================  =========================================
        results               a DataFrame, to be written anywhere  Delta tables, each batch once
        late tuples           a count in the workers' log          rows of the late table
        rows that are broken  a count in the workers' log          rows of the rejects table
        ledger, metrics       none                                 tables, and Spark's own progress
        punctuation           none                                 in the commit of the results
        delay                 that of the frame's watermark        the stream's own
        numbers               a hash of the row                    that, or columns (``order_by``)
        late is judged        by the watermark at a batch's start  so, or in each partition (``order_by``)
        silent partitions     hold no watermark                    with ``order_by`` until `idle_timeout`
        static frames         of streams and of tables             of tables alone
        number of cells       that of the first batch              that of the first start
        ====================  ===================================  =========================================

        Neither has count windows, `max_ahead`, `unique`, `partition_by` of streaming frames, options of files and
        topics, `max_rows_per_batch`, `max_delay`, layouts of ranges, or a layout that changes. Each is refused by name,
        and ``streamjoin repair`` mends neither one's checkpoint. `start` over sources of this package has all of it.

        *Order.* With ``order_by`` a row is late iff it is older than the largest event time before it *in its
        partition* minus the delay. Spark may read a partition in any number of tasks and batches, and in any order
        within a batch. A smaller number in a later batch comes after all rows of the batches before. The slowest
        partition holds the watermark, for ever if need be; with `idle_timeout` until it has been silent for so long, by
        the times of Spark's batches, from the first batch without its rows. A partition that is new, or was idle, is
        late also where it is older than the watermark. Without ``order_by``, and in `dataframe`, lateness is judged by
        the watermark at the batch's start. Then what is late depends on how Spark cuts the batches, and only a `delay`
        that covers the disorder between partitions leaves nothing late. A checkpoint that a version without this began
        goes on so.

        *Speed.* Tuples cross the JVM as rows. ``start(frames=...)`` takes some times as many a second
        (docs/performance.md). Sources of this package are the fast way.
        """
        from streamjoin_ds.stream.dataframe import joined

        asked = execution_of(execution, threads, old)
        results = joined(self, frames, layout, None if blocks is None else fspath(blocks), asked)
        if results.isStreaming:
            text = "dataframe() over streaming frames will go: start(frames=...) is faster, and keeps late rows"
            warnings.warn(text, FutureWarning, stacklevel=2)
        return results

    def explain(
        self,
        *,
        layout: str = "auto",
        cells: int | None = None,
        rates: Mapping[str, float] | None = None,
        exchange: str = "auto",
        threads: int | None = None,
        execution: Execution | None = None,
        source_options: Mapping[str, str] | None = None,
        durable: bool = True,
        max_delay: str | None = None,
        frames: Mapping[str, DataFrame] | None = None,
        order_by: OrderBy | None = None,
        **old: Unpack[OldOptions],
    ) -> str:
        """Return the plan of a new checkpoint in words, with the three best layouts; start no Spark.

        The schemas, and the rates that are not given, come from the sources. The arguments are those of `start`, and:

        Parameters
        ----------
        cells : int, optional
            The number of cells for which a layout is chosen if no `layout` is given; 1 by default.
        rates : mapping of str to float, optional
            Tuples a second by stream, to see the layout that would be chosen for them; they win over each stream's own.
        frames : mapping of stream or table name to DataFrame, optional
            As in `start`. Only their columns are looked at, so they may also be static, as `dataframe` takes them.
        """
        from streamjoin_ds.plan import Load, attributes_of
        from streamjoin_ds.plan.explanation import Explanation, explain
        from streamjoin_ds.source.stream_source import sampled_keys
        from streamjoin_ds.stream.frame_tables import of_frames
        from streamjoin_ds.stream.query import planned
        from streamjoin_ds.stream.query_log import first_inputs
        from streamjoin_ds.stream.query_options import checked_reader_options
        from streamjoin_ds.stream.source_facts import bound_join, known_rates

        execution = execution_of(execution, threads, old)
        if frames and not _is_beside(self, frames):
            from streamjoin_ds.stream.frame_query import planned_over_frames
            from streamjoin_ds.stream.query_options import QueryOptions

            given = tuple(sorted((source_options or {}).items()))
            options = QueryOptions(
                False, None, None, max_delay, layout, exchange, execution, given, durable, cells=cells
            )  # fmt: skip
            plan, known = planned_over_frames(self, frames, order_by, options, rates)
            origins = known.origins if known.are_known else ()
            return Explanation(explain(plan, Load.of_join(plan.bound, known.per_s), origins))
        _check_numbering(order_by)
        bounds = {} if max_delay is None else {"max_delay": max_delay}
        reading = checked_reader_options({**(source_options or {}), **bounds})
        bound = bound_join(of_frames(self, frames).join if frames else self)
        known = known_rates(bound, rates)
        load = Load.of_join(bound, known.per_s)
        plan = planned(bound, load, layout=layout, cells=cells, exchange=exchange, execution=execution, durable=durable)
        attributes = attributes_of(bound) if plan.layout_kind != "grid" and plan.cells > 1 else []
        keys = sampled_keys(bound, attributes, plan.cells) if attributes and not known.unanswered else None
        unanswered = {name: error.code for name, error in known.unanswered.items()}
        warnings, tuples = ([], {}) if unanswered else first_inputs(bound)
        origins = known.origins if known.are_known else ()
        return Explanation(explain(plan, load, origins, reading, keys, unanswered, warnings, tuples))


def _check_numbering(order_by: OrderBy | None) -> None:
    """Refuse columns that number rows where all rows are of sources, which number them."""
    if order_by is not None:
        msg = "order_by is for frames, and there are none"
        raise ArgumentError(msg, name="order_by", hint="leave it out, or give frames")


def _is_beside(join: Join, frames: Mapping[str, DataFrame]) -> bool:
    """Whether frames are of tables alone, so that the streams have sources."""
    return bool(frames and join.tables) and not set(frames) & set(join.names)
