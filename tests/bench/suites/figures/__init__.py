"""Draws the papers' figures again, from runs of this engine on this machine, as one HTML page.

::

    a file a paper      ──► suite ──────► child ──► trials            ──► page
    a panel is a picture:   each trial    pinned    workload: tuples      plots, tables,
    its series of trials    once          to cores  and their count       what was measured

Figures of many cores or machines are simulated: the cells of a layout do the same stretch one after the other
(`cell_load`), or whole batches of a query in this process (`in_process_query`), and the slowest cell counts.

A panel says which trials make its points. A trial says all that a point depends on, so two panels that ask for the same
trial share it. A trial counts only if the matches that its engine finds are as many as an independent count says.
"""
