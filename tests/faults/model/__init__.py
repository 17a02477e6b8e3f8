"""A model of Spark's micro-batch protocol with every fault that it may meet, around the real source, cells and sink.

::

    schedule ──► world ──► driver ──► read tasks ──► cell tasks ──► BatchCommit ──► log of the table
    (faults)       │         ▲  offsets/n      state of version n+1      │             commits/n
                   │         └──────────── kill, stall, no room ─────────┘
                   └──► invariants: the oracle's rows once, late rows, ledger, punctuations, state, blocks

Everything of `streamjoin_ds` is real, the tables' logs too (`delta_log`; a run can have delta-rs put the entries, as on
an object store). Spark is modelled (`checkpoint`, `driver`). Arrow parses the same bytes of CSV once a run (`parsing`).
If a schedule asks for it, some drivers are the package's own, without Spark (`local_driver`), drivers are started with
settings of their own (`settings`), streams read folders with bad files in them (`poison`, `input_files`), and tables
are looked after (`upkeep`).
Between any two file operations a process can die, stop and go on later, or find the disk full (`disk`, `process`).
"""
