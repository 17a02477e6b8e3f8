"""Delta tables as feeds: the rows that a table's versions add, and the results of another join in their order.

::

    change_log ──► data_file ──► delta_feed       versions ──► files with new rows ──► rows
                              results_feed        punctuations ──► rows by event time

``delta_feed`` says which of the two a stream is over, and ``change_log`` has the positions of both.
"""
