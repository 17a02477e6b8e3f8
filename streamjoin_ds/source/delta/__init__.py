"""Delta tables as feeds: the rows that a table's versions add, and the results of another join in their order.

::

    change_log ──► data_file ──► delta_feed       versions ──► files with new rows ──► rows
    result_files ─────────────► results_feed      punctuations ──► rows by event time
    tables     which of the two a stream is over, and its columns
    positions  how far a stream over a table has been read
"""
