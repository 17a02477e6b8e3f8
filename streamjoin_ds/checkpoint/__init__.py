"""The checkpoint: which join it belongs to, which process drives it, what a restart finds in it, how it is mended.

::

    location     where it and its tables lie               lock, lease  one driver at a time: on a disk, in a bucket
    identity     join.json: the join and its layout        layout_notes what the driver leaves for the next layouts
    spark_files  offsets, commits, state: which are whole
        │
        ├──► batch_end                                     where a batch ended, by the offset log or the ledger
        ├──► recovery                                      what every start mends by itself
        ├──► move                                          the query goes on with another number of cells
        ├──► inspection                                    windows, blocks, and files that nothing names
        └──► repair                                        what is mended on request; no row is invented
"""
