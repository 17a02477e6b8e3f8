"""Estimates from some rows of a bucket grid: how many rows live, where they lie, how crowded the buckets are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamjoin_ds.engine.arrays.keys import widened
from streamjoin_ds.engine.storage.bucket_grid.columns import BucketColumns
from streamjoin_ds.engine.storage.layout_sample import Keys
from streamjoin_ds.engine.storage.sealed_run import SealedRun

__all__ = ["USUAL_CROWD", "crowd_of", "known_crowd", "live_rows", "some_keys"]

# Rows in a bucket that call for no rebuild. Saved states leave this value out, so no version may change it.
USUAL_CROWD = 16


def live_rows(run: BucketColumns, lowest_kept: int) -> int:
    """Return about how many rows are not dead, from a count in some of the buckets."""
    step = max(1, run.shape.buckets // run.form.tuning.grid.counted_buckets)
    return min(run.rows, step * int(run.native.live_rows(lowest_kept, step)))


def some_keys(run: BucketColumns, lowest_kept: int) -> Keys:
    """Return the keys of some live rows, drawn from rows that are evenly spaced over the buckets."""
    module, rows = run.form.kernels.module, run.native.spread_rows(run.form.tuning.grid.sample_rows)
    rows = rows[module.gather(run.narrow_room(run.form.position_key), rows) >= lowest_kept]
    return [widened(module.gather(run.narrow_room(number), rows)) for number in range(len(run.form.keys))]


def crowd_of(run: BucketColumns, added: SealedRun) -> int:
    """Return the average number of rows in the buckets of some of these rows, which are in the grid already."""
    tuning = run.form.tuning.grid
    step = max(1, added.rows // tuning.crowd_sample_rows)
    keys = [np.ascontiguousarray(added.key(number)[: added.rows : step]) for number in run.shape.keys]
    crowd: int = run.native.crowd(keys, tuning.crowd_rows)
    return crowd // len(keys[0])


def known_crowd(facts: Mapping[str, Any]) -> int:
    """Return the rows in a bucket that a saved state calls acceptable (`BucketRun.known_crowd`).

    States in which it is `USUAL_CROWD`, and those of earlier versions, do not name it.

    Raises
    ------
    ValueError
        It is not such a number.
    """
    crowd = facts.get("crowd", USUAL_CROWD)
    if type(crowd) is not int or crowd < USUAL_CROWD:
        msg = "this is not a number of rows in a bucket"
        raise ValueError(msg)
    return crowd
