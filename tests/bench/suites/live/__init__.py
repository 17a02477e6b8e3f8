"""Measures live queries, trigger by trigger.

::

    suite ──► live_process ──► live          the measures; a process for each query; the query in it
      └──► finding, report                   measured numbers beside their bounds; tables
"""
