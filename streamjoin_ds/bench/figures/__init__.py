"""Draws the figures of CellJoin and PIM-Tree again, from runs of this engine on this machine, as one HTML page.

::

    cell_join, pim_tree ──► suite ──────► child ──► trials            ──► page
    a panel is a picture:   each trial    pinned    workload: tuples      plots, tables,
    its series of trials    once          to cores  and their count       what was measured

A panel says which trials make its points. A trial says all that a point depends on, so two panels that ask for the same
trial share it. A trial counts only if the matches that its engine finds are as many as an independent count says.
"""
