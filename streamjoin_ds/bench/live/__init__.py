"""Live queries, measured trigger by trigger and tuple by tuple.

::

    suite ──► live_process ──► live          what is asked, a process each, the query in it
      └──► finding, report                   what was found beside its target; tables
"""
