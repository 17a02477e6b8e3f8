"""Reading the log of a Delta table: what the sink's tables and a stream over a table have in common.

::

    log_files ──► table_state        entries and checkpoints ──► the table as of a version, and onwards
                      │
    columns ◄─────────┤              the table's columns as Arrow's, and what of the protocol is refused
    deletion_vectors ─┘              which rows of a file a deletion vector has deleted

Nothing here imports deltalake: workers read too, and delta-rs does not survive a fork.
"""
