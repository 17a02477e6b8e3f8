"""Faults: whatever dies, stops, fills up or is damaged, the tables come out the same.

::

    model/          the protocol simulator: Spark's micro-batches as a model, all of `streamjoin_ds` as it is
    simulate        schedules by the thousand: python -m tests.faults.simulate --seeds 100000 --workers 2
    planted         known bugs, one at a time, that the simulator must find
    test_seeds      random schedules                            test_exhaustive   C1 to C8, none, one and two faults
    test_storage    no room, damaged blocks                     test_delta_log    the model's log against delta-rs
    driver          the same with real processes: kill -9       (`test_driver_kill`)
"""
