"""What a user asks for in writing, as a join and how to run it.

::

    flags ───────────┐
    TOML file ───────┼──► request ──► StreamJoin, table, checkpoint, options of `start`, Spark's session
    SQL (`script`) ──┘

One table of keys (`join_keys`) says what each option may hold, whoever writes it.
"""
