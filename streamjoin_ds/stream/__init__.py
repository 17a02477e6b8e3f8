"""Builds one query of Structured Streaming out of the other rooms.

::

    readStream.format("sensors")            one row for each block and cell: cell, block, rows, largest ts
        │ groupBy(cell)                     each cell is one key, alone in its state partition
        ▼
    applyInPandasWithState(CellFunction)    late test, engine, matches to Parquet where they are found
        │                                   for each cell: one row for each file, and one row of counters
        ▼
    foreachBatch(BatchCommit)               collects those rows, checks the ledger, commits to the Delta tables

`StreamJoin.start` builds this query. `StreamJoin.dataframe` builds the row path for DataFrames of other sources.
"""
