"""Messages of two topics to committed matches: how many a second.

::

    topic_load   tuples ─► messages ─► topics of a broker ◄─ topic_query: the join, in a process of its own
                    └──► independent count of the matches            │ a line a commit
                                   └──────── compared ───────────────┴─► suite: messages a second
"""
