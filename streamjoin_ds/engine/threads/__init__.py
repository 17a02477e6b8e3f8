"""Threads of one push, and the cores that they run on.

::

    tasks       coroutines that yield kernels' tasks, done by the thread that runs them
    scheduler   several of them side by side on native threads, results in the order in which one thread would give them
    demand      how many threads a cell's batch asks for
    core_lease  cores by lock files, so that workers of one machine do not share them  ◄── cores: how many there are
"""
