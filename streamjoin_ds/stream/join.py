"""`StreamJoin`: a join that can be started on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeAlias

from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import Join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["StreamJoin"]

Index: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]]


class StreamJoin(Join):
    """A windowed band join over N streams: the object most users hold. Arguments as `Join`.

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

    def start(
        self,
        spark: SparkSession,
        to: str | PathLike[str],
        checkpoint: str | PathLike[str],
        *,
        available_now: bool = False,
        trigger: str | None = None,
        max_rows_per_batch: int | None = None,
        layout: str | None = None,
        exchange: str = "auto",
        kernel: str = "auto",
        threads: int = 1,
        pin: bool = True,
        index: Index = "auto",
        order: str | Sequence[str] = "auto",
        merge_runs: int | None = None,
        source_options: Mapping[str, str] | None = None,
        durable: bool = True,
        take_over: bool = False,
    ) -> StreamingQuery:
        """Start the join as a streaming query into Delta tables.

        Parameters
        ----------
        spark : SparkSession
        to : path
            The table of matches; ``<to>_punctuations``, ``_late``, ``_rejects``, ``_ledger``, ``_metrics`` lie beside
            it.
        checkpoint : path
            Spark's checkpoint and this join's own files; a restart with it goes on exactly where it was.
        available_now : bool
            Take in what is there, in batches, and stop.
        trigger : str, optional
            At least this long from one batch to the next ("1s"); as soon as possible where not given.
        max_rows_per_batch : int, optional
            Upper limit of a batch, all streams together.
        layout : str, optional
            Group counts ("1x2") that the join keeps to. Not given: chosen by cost for the cores there are, and changed
            while the join runs where the streams' rates change for good. How many cells there are is fixed by the first
            start; a restart may give another layout of as many.
        exchange : {"auto", "reference", "packed", "rows"}
            How tuples cross from source to cell (`explain` says which was chosen).
        kernel : str
            "auto", or the name of one kernel implementation. This and the next five change no row of the result; they
            may be others at each restart.
        threads : int
            Kernels that work side by side in each cell; there are then as many fewer cells where no layout is given.
            On a cluster set ``spark.task.cpus`` to the same.
        pin : bool
            Whether kernel threads, where a cell has more than one, are pinned to cores that it leases for the time of a
            batch; where too few are free they run unpinned.
        index : "auto", "scan", or columns
            By what windows are laid out: ``["e.latitude", "e.longitude", "w.latitude"]``, or one text with commas, or
            ``{"e": ["latitude", "longitude"], "w": "scan"}``; at most two columns of each stream, which are compared.
        order : "auto" or sequence of stream names
            In which the others join new tuples of a stream; all names, each once.
        merge_runs : int, optional
            Merge ratio: so many runs of like size become one, level by level. Where it is not given, windows in blocks
            are merged once, many runs at a time: each row is written twice at most.
        source_options : mapping of str to str, optional
            Further options of the source: ``pace`` ("max", or how many times as fast as real time), ``parts``,
            ``missing_files``, ``max_block_rows``; see `streamjoin_ds.stream.sensor_options.READER_OPTIONS`. They may be
            others at each restart.
        durable : bool
            Whether a batch is on the device before it counts, so that a power cut loses nothing and a restart goes on
            exactly. Without, some milliseconds a batch are saved; kill -9 loses nothing either way.
        take_over : bool
            Go on with a checkpoint that a driver holds which no longer works but is not gone: stopped, or cut off. If
            it wakes up it loses to this one, by name. Without, a checkpoint that is held is refused.

        Returns
        -------
        pyspark.sql.streaming.StreamingQuery

        Raises
        ------
        FingerprintMismatchError, ForeignCheckpointError, LayoutError, TableError
            The checkpoint or the table is not this join's; nothing was written.
        ArgumentError, ColumnError
            What is asked for cannot be done; nothing was written.
        CheckpointInUseError
            Another process runs the join with this checkpoint.
        RecoveryError
            A power cut or a restored copy left files that do not fit together; ``streamjoin repair`` says more.
        """
        from streamjoin_ds.stream.query import QueryOptions, start

        options = QueryOptions(
            available_now,
            trigger,
            max_rows_per_batch,
            layout,
            exchange,
            Execution(kernel, threads, pin, index, order, merge_runs),
            tuple(sorted((source_options or {}).items())),
            durable,
            take_over,
        )
        return start(self, spark, fspath(to), fspath(checkpoint), options)

    def dataframe(
        self,
        frames: Mapping[str, DataFrame],
        *,
        layout: str | None = None,
        blocks: str | PathLike[str] | None = None,
        kernel: str = "auto",
        threads: int = 1,
        pin: bool = True,
        index: Index = "auto",
        order: str | Sequence[str] = "auto",
        merge_runs: int | None = None,
    ) -> DataFrame:
        """The results as a DataFrame: streaming where the inputs are, a batch where they are static; the same rows.

        Parameters
        ----------
        frames : mapping of stream name to DataFrame
            One a stream, all streaming or all static. A streaming one needs ``withWatermark`` on the stream's time
            column: it says which tuples are late and when windows are emptied.
        layout : str, optional
            Group counts; by default one cell for each of the query's state partitions, which Spark fixes with its first
            batch (by the session's shuffle partitions of that time) and keeps. A restart under another session setting
            gives the same rows; another layout than the checkpoint's is refused by name.
        blocks : path, optional
            Folder for the windows of a streaming join that every worker sees (or a URI of a file system that Arrow
            knows, ``s3://...``): Spark's state then holds names of blocks, which begin with the query's id. Without it
            windows pass through Spark's state store in every batch, about 15 ms a MB; a worker warns in its log when
            they grow large.
        kernel, threads, pin, index, order, merge_runs
            As in `start`; they may be others at each restart. The number of cells does not depend on them.

        Notes
        -----
        Foreign DataFrames have no order inside a batch, so lateness is judged against the watermark at the batch's
        start: the smallest over the streams of the largest time so far, less the stream's `delay`. The frame's own
        watermark must have that delay; a stream without one has its frame's. Late tuples are dropped; how many is
        nowhere but in the workers' log (of `spark_session`, the file that `session_log_path` names): a warning by each
        cell that dropped any, with the stream's name, so a tuple that several cells hear of counts in each. Where they
        must be kept or counted, `start` does both. Rows that a stream's `where` leaves out tell the time here too. One
        DataFrame under two names is one input: no tuple meets itself, unless `include_self_pairs`; equal rows are
        tuples of their own. (A source that is read twice, as two DataFrames, is two inputs to Spark, and so here.)
        There is no ``seq`` in them: ``<stream>_seq`` is a hash of the tuple. Tuples cross the JVM as rows (about 1.3
        M/s on two cores); `start` is the fast way. Without an order there are no count windows: they are refused.
        """
        from streamjoin_ds.stream.frames import joined

        execution = Execution(kernel, threads, pin, index, order, merge_runs)
        return joined(self, frames, layout, None if blocks is None else fspath(blocks), execution)

    def explain(
        self,
        *,
        layout: str | None = None,
        cells: int | None = None,
        rates: Mapping[str, float] | None = None,
        exchange: str = "reference",
        kernel: str = "auto",
        threads: int = 1,
        pin: bool = True,
        index: Index = "auto",
        order: str | Sequence[str] = "auto",
        merge_runs: int | None = None,
        source_options: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> str:
        """Return the plan of a new checkpoint in words, with the three best layouts; starts no Spark.

        The schemas, and the rates that nobody says, are looked up in the sources. Arguments as in `start`, and besides:

        Parameters
        ----------
        cells : int, optional
            Cells to lay out where no `layout` is given; 2 where this is not given either.
        rates : mapping of str to float, optional
            Tuples a second by stream, to see the layout that would be chosen for them; they win over each stream's own.
        """
        from streamjoin_ds.plan import Load
        from streamjoin_ds.plan.explain import explain
        from streamjoin_ds.stream.known_rates import known_rates
        from streamjoin_ds.stream.query import bound_join, planned
        from streamjoin_ds.stream.sensor_options import checked_reader_options

        execution = Execution(kernel, threads, pin, index, order, merge_runs)
        reading = checked_reader_options(source_options or {})
        bound = bound_join(self)
        known = known_rates(bound, rates)
        load = Load.of_join(bound, known.per_s)
        plan = planned(bound, load, layout=layout, cells=cells, exchange=exchange, execution=execution, durable=durable)
        return explain(plan, load, known.origins, reading)
