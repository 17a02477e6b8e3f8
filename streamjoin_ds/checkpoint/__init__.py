"""What lies in a checkpoint: whose it is, who drives it, what a restart finds there, and how it is mended.

::

    identity     join.json: the join and its layout        lock        one driver at a time
    spark_files  offsets, commits, state: which are whole  table_note  where the tables lie
        │
        ├──► batch_end ──► cut_anew                        where a batch ended, from the log or the ledger
        ├──► recovery                                      what every start does by itself
        ├──► inspection                                    windows, blocks, and what nothing names
        └──► repair                                        what is done on request; no row is invented
"""
