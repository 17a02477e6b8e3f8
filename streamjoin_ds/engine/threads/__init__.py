"""Threads of one push, and the cores that they run on.

::

    tasks       coroutines that yield kernels' tasks: alone, or those of several side by side on native threads
    prefetch    several iterators on threads, their chunks in the order in which one thread would give them
    core_lease  cores by lock files, so that workers of one machine do not share them  ◄── cores: how many there are
"""
