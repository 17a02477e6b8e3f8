"""Tables beside streams: which version there is, and its rows (ARCHITECTURE.md, "A stream and a table").

::

    Table ──► open_table ──► DeltaVersions │ FileVersions       newest version, its rows
                                  └──► TableVersions ──► a block for each version, its name in the offset
"""
