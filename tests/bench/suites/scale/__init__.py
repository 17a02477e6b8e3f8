"""Simulates layouts of up to thousands of cells, without Spark and without an engine: what each cell is sent and finds.

::

    case ──► window 0 ──► sample ──► schemes ────► simulation ──► suite ──► report
    cells,   keys, from              a layout      window 1 by    beside    table,
    streams, a seed                  each          that layout    bounds    JSON
    rates,                                                          ▲
    keys ─────────────► window 1 ─────────────────────────────► bound

`moving` follows a join over several windows: keys that drift, rates that change. Tuples are dealt by the package's own
layouts. What a cell would do with them is counted and not done, so no figure of this bench is a measurement of speed.
"""
