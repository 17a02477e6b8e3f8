"""The sink: workers write matches as Parquet files, and the driver commits each batch to Delta tables.

The sink knows nothing of Spark. It uses ``pyarrow`` in the worker and ``deltalake`` on the driver (ARCHITECTURE.md,
"The commit protocol").

::

    worker (one per cell)                    driver (foreachBatch)
    ---------------------                    ------------------------------------------------
    matches --> TableWriter --> files        Committer.open    tables made, or proved to be ours
                     |                       Committer.commit, in this order:
                     +--> FileReport --rows-->   late, rejects    their files, if any
                          (path, rows,           ledger, metrics  what the batch read and did
                           bytes, stats)         matches          files + transaction id + punctuation
                                                 punctuations     one row: p, watermark, commit time
                                             Maintenance       compaction, log, VACUUM: what the tables say is due
    reader                                        |
    ------                                        v
    complete / between / Follower  <------  <root>, <root>_punctuations, _late, _rejects, _ledger, _metrics

* ``tables``       where the tables are, what columns they have, and the rows that the driver writes itself
* ``writer``       Parquet files, as fast as the disk takes them, with a report and statistics of each
* ``durability``   forces files to the device before a batch counts
* ``log``          opening a table, writing and reading single entries of its log
* ``snapshot``     what a table's log says up to a version
* ``guard``        is this table ours, may we write it, is this batch in it already
* ``target``       one table: check a snapshot, put the entry after it
* ``commit``       the commit protocol
* ``reader``       results in order, up to a punctuation, without Spark
* ``tail``         the newest entries of a log after a power cut
* ``compaction``   small files rewritten as large ones
* ``maintenance``  does for a join's tables what they say is due: compaction, cleaning, VACUUM

The sink itself puts an entry into a log: at the version after the snapshot that was checked, and only if the log has no
entry of that version. A commit lists no folder and looks at no file that the table already has. So it costs the same on
an empty log and after a year.

``guard``, ``log`` and the modules that import them (``target``, ``commit``, ``reader``, ``compaction``,
``maintenance``) import ``deltalake``. Its runtime does not survive a fork, so only the driver may import them.
``tables`` and ``writer`` are safe in a worker.
"""
