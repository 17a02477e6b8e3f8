"""Files as feeds: one stream's records in the order of its files, from any position.

::

    listing ──► text ──► text_blocks ──► csv_lines, json_lines ──► lines     files, text, whole lines or frames, records
                  ▲ archives, decoders, inner_records, metric_lines          what makes the text of a file's bytes
    listing ──► row_files ──► row_formats                                    files, records by number, groups of rows

    file_names   format, order and columns, by a file's name
    file_columns the columns of all files, before a join begins
    file_scan    the planner's look ahead      file_watch    what is finished, vanished, shrank or came too late
        └──────────────► file_feed ◄──────────────┘
"""
