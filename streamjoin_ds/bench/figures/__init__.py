"""The figures of CellJoin and PIM-Tree drawn again, from runs of this engine on this machine, as one HTML page.

::

    cell_join, pim_tree ──► suite ──────► child ──► trials            ──► page
    a panel a picture:      each trial    pinned    workload: tuples      plots, tables,
    its series of trials    once          to cores  and their count       what was measured

A panel says which trials make its points; a trial says all that a point depends on, so two panels that ask for the same
share it. What a trial's engine finds is compared with a count that owes nothing to the engine, or it does not count.
"""
