"""What the engine's operations cost on this machine, and the sizes of runs that follow (CellJoin, section 6).

::

    twin of the join ──► cost_fit ──► operation_costs ──► window_costs ──► tuned
    made-up tuples       measures     as JSON in a plan   the model        seal size, merge ratio

No row of a result depends on any of it.
"""
