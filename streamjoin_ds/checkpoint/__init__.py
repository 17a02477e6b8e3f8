"""The checkpoint: which join it belongs to, which process drives it, what a restart finds in it, how it is mended.

::

    identity     join.json: the join and its layout        lock        one driver at a time
    spark_files  offsets, commits, state: which are whole  table_note  where the tables lie
        │
        ├──► batch_end ──► cut_anew                        where a batch ended, by the offset log or the ledger
        ├──► recovery                                      what every start mends by itself
        ├──► inspection                                    windows, blocks, and files that nothing names
        └──► repair                                        what is mended on request; no row is invented
"""
