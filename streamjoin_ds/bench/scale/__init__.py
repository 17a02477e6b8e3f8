"""Simulates layouts of up to thousands of cells, without Spark and without an engine: who is sent what, and finds what.

::

    case ──► window 0 ──► sample ──► schemes ────► simulation ──► suite ──► report
    cells,   keys, from              a layout      window 1 by    beside    table,
    streams, a seed                  each          that layout    bounds    JSON
    rates,                                                          ▲
    keys ─────────────► window 1 ─────────────────────────────► bound

`moving` follows a join over several windows: keys that drift, rates that change. Each tuple is dealt by the layout that
the package would use; what a cell would do with it is counted, not done. So a figure of this bench is no measurement of
speed.
"""
