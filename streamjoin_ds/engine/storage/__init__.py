"""Windows: the tuples of each stream that others may still meet, and how they are kept.

::

    new tuples ─┬─ few ──► tail ── full ──┐
                └─ many ─────────────────►├──► sealed run ──► merged ──► expired        window      (runs)
                                          └──► bucket grid ──────────► swept            its own room

    run           the interface of every kind of run      run_form      a stream's columns, keys and zone maps
    sealed_run    a sorted run, and how one is made       tail          the newest tuples, in order of arrival
    sort_layout   the order of a run                      sorted_keys   keys in such an order
    conditions    the conditions that an order serves     merge_policy  which runs are merged, and when
    run_set       the runs of a window as one             selection     some tuples of a run set
    window        the window of one stream                window_set    the windows of all streams and tables
    waiting       tuples that wait for their horizon      run_store     large runs as blocks
    state_blob    windows as bytes
"""
