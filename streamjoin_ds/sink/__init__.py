"""The sink: matches become Parquet where they are found, and one Delta commit a batch on the driver.

Knows nothing of Spark: ``pyarrow`` in the worker, ``deltalake`` on the driver (ARCHITECTURE.md, "The commit protocol").

::

    worker (one per cell)                    driver (foreachBatch)
    ---------------------                    ------------------------------------------------
    matches --> TableWriter --> files        Committer.open    tables made, or proved to be ours
                     |                       Committer.commit, in this order:
                     +--> FileReport --rows-->   late, rejects    their files, if any
                          (path, rows,           ledger, metrics  what the batch read and did
                           bytes, stats)         matches          files + transaction id + punctuation
                                                 punctuations     one row: p, watermark, commit time
                                             Maintenance       what the tables say is due: compaction, log, VACUUM
    reader                                        |
    ------                                        v
    complete / between / Follower  <------  <root>, <root>_punctuations, _late, _rejects, _ledger, _metrics

* ``tables``       where the tables are and what columns they have
* ``report``       what a worker says about one file it wrote
* ``statistics``   Delta's per-file statistics
* ``writer``       Parquet files, as fast as the disk takes them
* ``retention``    how long logs and replaced files are kept
* ``log``          writing and reading single entries of a table's log
* ``snapshot``     what a table's log says up to a version
* ``guard``        is this table ours, may we write it, is this batch in it already
* ``rows``         the small tables the driver writes: ledger, metrics, punctuations
* ``target``       one table: check a snapshot, put the entry after it
* ``commit``       the commit protocol
* ``reader``       results in order, up to a punctuation, without Spark
* ``cleaning``     entries of the log and files that may go
* ``maintenance``  looks after a join's tables, by what they say
* ``sql``          the files of ``sql/``, with the table's path filled in

An entry of a log is put by us, at the version after the snapshot that was checked, and only if there is none. Nothing
is listed, and no file of the table is looked at, so a commit costs the same on an empty log and after a year.

``log`` and what imports it (``snapshot``, ``guard``, ``target``, ``commit``, ``reader``, ``cleaning``, ``maintenance``)
import ``deltalake``, whose runtime does not survive a fork: on the driver only. What this file exports is safe in a
worker.
"""

from __future__ import annotations

from streamjoin_ds.sink.report import FileReport
from streamjoin_ds.sink.tables import (
    LATE_SCHEMA,
    LEDGER_SCHEMA,
    METRICS_SCHEMA,
    PUNCTUATIONS_SCHEMA,
    REJECTS_SCHEMA,
    TableSet,
)
from streamjoin_ds.sink.writer import TableWriter

__all__ = [
    "LATE_SCHEMA",
    "LEDGER_SCHEMA",
    "METRICS_SCHEMA",
    "PUNCTUATIONS_SCHEMA",
    "REJECTS_SCHEMA",
    "FileReport",
    "TableSet",
    "TableWriter",
]
