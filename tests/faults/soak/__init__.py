"""A join that runs in fast motion, a fault a minute, with a consumer beside it; exact at its end, and flat.

::

    feeder ─► files ─► life (a driver process, two worker processes) ─► Delta tables ─► consumer
      ▲                   ▲ kill, stop, power cut, full disk, other       │ follows, OPTIMIZEs, DELETEs
      │ bad files         │ settings, vacuum, repair                      ▼
      └────────────────── faults                             oracle, bounds on what may grow

The source, the cells, the commits and the tables are those of the package and of delta-rs. Processes, files, signals
and the disk are those of the system. Spark's part (offset log, commit log, state) is `checkpoint.Checkpoint`, in
Spark's own formats. It makes a batch cost tens of milliseconds instead of hundreds, so two hours hold as many batches
as half a day of triggers. A driver begins as `StreamJoin.start` does: its lock, the recovery, the tables.
`tests.faults.model.power` decides what a power cut takes, from what the processes wrote down that they forced.

``python -m tests.faults.soak --minutes 90`` runs one kind of join after the other, five minutes each; ``--kind inner
--each 90`` runs one. The kinds are those of `tests.support.kinds.KINDS`, where their records and the contract's answer
are too. DataFrames run in Spark alone (`tests.faults.campaign`, `tests.faults.endurance`), and topics have a campaign
of their own (`tests.faults.topics`). Each bound is a line of `bounds.BOUNDS`.
"""
