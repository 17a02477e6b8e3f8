"""Files as feeds: one stream's records in the order of its files' names, from any position.

::

    listing ──► text ──► line_blocks ──► lines ──► csv_lines, json_lines      files, text, whole lines, records
    listing ──► text ──► line_blocks ──► spool_records                        the same by frames
    listing ──► parquet_rows                                                  files, records by row number
    file_scan    the planner's look ahead      file_watch    what vanished, shrank or came too late
        └──────────────► file_feed ◄──────────────┘
"""
