"""Windows: what a stream's tuples may still be met in, and how it is kept.

::

    new tuples ─┬─ few ──► tail ── full ──┐
                └─ many ─────────────────►├──► sealed run ──► merged ──► expired        window      (runs)
                                          └──► bucket grid ──────────► swept            its own room

    run          what all kinds of run answer        sorted_keys ◄── sealed_run, run_view
    run_base     what some kinds have in common          window_forms               what options make of all this
    run_form     a stream's columns and keys         layout, conditions, zone    the order, what it serves and skips
    run_set      the runs of a window as one         selection                   some tuples of them
    window_set   the windows of all streams          merge_policy                which runs are merged, and when
    snapshot     windows as bytes                    run_store                   large runs as blocks
"""
