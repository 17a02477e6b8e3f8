"""Joins over topics while drivers, workers and the broker are killed: ``python -m tests.faults.topics --kills 100``.

::

    load ──► sender ──► broker ◄── life: the join, a driver process, killed, and started again
    late, lagging,      restarted,    │ offsets, copied as they appear      │ tables
    silent, poisoned    aborts        ▼                                     ▼
                        topics ──► expected: who was late, who matches ──► compared, row for row

What was read when is told by the offsets alone. What is right then follows from them and from what the topics hold: it
is computed by `expected`, which `tests.faults.test_topics` compares with `streamjoin_ds.testing`.
"""
