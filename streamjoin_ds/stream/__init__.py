"""The only room that knows Structured Streaming: where the other rooms become one query.

::

    readStream.format("sensors")            one row a block and cell: cell, block, rows, largest ts
        │ groupBy(cell)                     one fat key a cell, one cell a state partition
        ▼
    applyInPandasWithState(CellFunction)    late test, engine, matches to Parquet where they are found
        │                                   one row a file, and one of counters, for each cell
        ▼
    foreachBatch(BatchCommit)               collects those rows, checks the ledger, makes one Delta commit

`StreamJoin.start` builds this query; `StreamJoin.dataframe` builds the row path for other people's DataFrames.
"""
