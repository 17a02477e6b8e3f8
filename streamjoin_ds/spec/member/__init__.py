"""The members of a join: its streams and tables, where their rows come from, and their options.

::

    option_key ──► source ──► stream ◄── unique_key   which of its tuples are duplicates
    what an option is  ▲
                   location       table               rows beside the streams

An option stands once, with the field that it is; `stream.STREAM_KEYS` and `table.TABLE_KEYS` collect them.
"""
