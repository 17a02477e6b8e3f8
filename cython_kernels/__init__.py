"""The join core in C: SIMD band scan, grid probe, grid order, gather. It knows nothing of streams.

::

    kernels.pyx ───► simd/dispatch.c ──x scan/scan_scalar.c   grid/grid_probe_scalar.c   one row at a time
    checks, GIL      CPU asked once   ├─x scan/scan_avx2.c     grid/grid_probe_avx2.c     four rows (x86-64)
       │                              └─x scan/scan_avx512.c   grid/grid_probe_avx512.c   eight rows (x86-64)
       │                                  scan_template.h        grid_probe_template.h    the loops, over lanes_*.h
       ├──────────► grid/runs_probe.c                         a few probes against all runs: both of these, in turn
       ├──────────► bucket/bucket_grid.c ─x bucket_probe_*.c  a large window: rows in chunks by their cell; its probes
       ├──────────► threads/thread_pool.c                     threads that do kernels' tasks without Python's lock
       ├──────────► gather/arrow_rows.c                       small batches in, results out, by Arrow's C data interface
       ├──────────► gather/gather_bytes.c, hash_bytes.c       strings and binary values
       ├──────────► nearest/nearest.c                         the nearest partners of each probe, kept while pairs come
       ├──────────► nearest/distances.c                       distances of pairs, read where the columns lie
       ├──────────► sums/sums.c                               exact sums, counts and extremes of each probe's pairs
       ├──────────► globe/near_places.c ──x near_*.c          pairs of places within a distance, some pairs at a time
       ├──────────► periodic/windows.c                        periodic windows that the tuples of a result share
       └──────────► grid/grid_buckets.c, grid_order.c, gather/gather.c                      laying runs out

    A ───► B: A calls B       A ───x B: A selection one of the B when the module is loaded

A folder holds one family: its C, its headers, and the ``.pxi`` that `kernels.pyx` includes for it. ``scan/`` has the
conditions (`band.h`) and the nested loop; ``grid/`` lays runs out in order and probes them; ``bucket/`` is the bucket
grid; ``gather/`` copies rows and columns; ``nearest/`` keeps the nearest pairs; ``sums/`` adds numbers exactly;
``globe/`` decides distances; ``periodic/`` knows periodic windows; ``threads/`` runs tasks; ``simd/`` has the registers
and asks the CPU. Includes name the folder.

Every name has a readable twin in ``streamjoin_ds.engine.kernels.twins``, which documents it; where the two differ, the
twin is right. Only this file reads the variable ``STREAMJOIN_DS_KERNEL``: ``reference``, ``auto``, or one of those that
`implementations` returns. It does so when a process first imports the kernels. So each Spark worker goes by its own
variable (``spark.executorEnv.STREAMJOIN_DS_KERNEL``).

`messages.pyx` with ``kafka/`` is an extension of its own, loaded where a topic is read: a consumer over librdkafka, and
the frames of JSON messages. Its twins are in ``streamjoin_ds.source.kafka``. `pages.pyx` with ``pages/`` is one too:
what fills Parquet's pages, with its twin in ``streamjoin_ds.sink.page_values``.

CONTRIBUTING.md says where a new kernel is wired; setup.py finds its files by their folder.
"""

import os

from . import native

__all__ = ["default_implementation", "native"]

_requested = os.environ.get("STREAMJOIN_DS_KERNEL", "")
if _requested not in ("", "auto", "reference"):
    native.set_default_implementation(_requested)


def default_implementation():
    """Return the name of the implementation that runs where none is given; "reference" stands for the twins."""
    return "reference" if _requested == "reference" else native.default_implementation()
