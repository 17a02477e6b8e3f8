"""Windows: the tuples of each stream that others may still meet, and how they are kept.

::

    new tuples ─┬─ few ──► tail ── full ──┐
                └─ many ─────────────────►├──► sealed run ──► merged ──► expired        window      (runs)
                                          └──► bucket grid ──────────► swept            its own room

    run          the interface of every kind of run  sorted_keys ◄── sealed_run, run_view
    run_base     what some kinds have in common      window_forms        the forms that a join's options ask for
    run_form     a stream's columns and keys         layout, conditions  a run's order, the conditions that it serves
    run_set      the runs of a window as one         zone                smallest and largest keys, to skip runs by
    selection    some tuples of a run set            merge_policy        which runs are merged, and when
    window_set   the windows of all streams          run_store           large runs as blocks
    snapshot     windows as bytes
"""
