"""Files as feeds: one stream's records in the order of its files, from any position.

::

    listing ──► text ──► line_blocks ──► lines ──► csv_lines, json_lines      files, text, whole lines, records
    listing ──► text ──► line_blocks ──► spool_records                        the same by frames
    listing ──► parquet_rows                                                  files, records by row number
                                               └── refused_values             values that Arrow surely refuses
    file_order   labels, by which files sort        finish_rule     when a file is finished
    folder_columns   names of folders as columns    rotation        files that were put away
    file_scan    the planner's look ahead      file_watch    what vanished, shrank or came too late
        └──────────────► file_feed ◄──────────────┘
"""
