"""The members of a join: its streams and tables, where their rows come from, and their options.

::

    source ──► stream ◄── stream_keys      a stream's options, as they are written in TOML, flags and SQL
       │          ▲
       │          └────── unique_key       which of its tuples are duplicates
       └─────► table                       rows beside the streams
"""
