"""Counting the pairs of each probe, by writing them some at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamjoin_ds.engine.kernels.objects import Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array
from streamjoin_ds.engine.kernels.twins.threads import Task

__all__ = ["counting_pairs"]

_PAIRS = 4096  # that are written at a time


def counting_pairs(fill: Callable[[Int32, Int32], int], out_counts: Int64) -> Task[None]:
    """Return a task that adds to each probe's count how many pairs `fill` writes for it."""
    check_array(out_counts, "out_counts", np.dtype(np.int64), writeable=True)

    def count() -> None:
        probes, rows = np.empty((2, _PAIRS), np.int32)
        while written := fill(probes, rows):
            out_counts[:] += np.bincount(probes[:written], minlength=len(out_counts))

    return Task(count)
