"""Files as feeds: one stream's records in the order of its files, from any position.

::

    listing ──► text ──► text_blocks ──► csv_lines, json_lines ──► lines     files, text, whole lines or frames, records
    listing ──► row_files                                                 files, records by row number

    file_names   format, order and columns, by a file's name
    file_scan    the planner's look ahead      file_watch    what is finished, vanished, shrank or came too late
        └──────────────► file_feed ◄──────────────┘
"""
