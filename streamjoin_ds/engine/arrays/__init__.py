"""Columns and keys as kernels know them, and memory for them.

::

    Arrow column ──► columns: items, bytes ──► keys: float64 or int64 ──► kernels: native, or the twins
                                                 memory: huge pages for large runs
"""
