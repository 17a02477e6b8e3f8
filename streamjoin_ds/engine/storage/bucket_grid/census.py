"""What is asked of a bucket grid now and then, of a sample of it: how many rows live, where they lie, how crowded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamjoin_ds.engine.arrays.keys import widened
from streamjoin_ds.engine.storage.bucket_grid.columns import BucketColumns
from streamjoin_ds.engine.storage.layout import Keys
from streamjoin_ds.engine.storage.sealed_run import SealedRun

__all__ = ["USUAL_CROWD", "crowd_of", "known_crowd", "live_rows", "some_keys"]

# Rows of a bucket that no grid need be made anew for. Saved states leave it out: in each it must be the same.
USUAL_CROWD = 16


def live_rows(run: BucketColumns, lowest_kept: int) -> int:
    """About how many rows are not dead: those of a sample of the buckets are counted."""
    step = max(1, run.shape.buckets // run.form.tuning.grid.counted_buckets)
    return min(run.rows, step * int(run.native.live_rows(lowest_kept, step)))


def some_keys(run: BucketColumns, lowest_kept: int) -> Keys:
    """Keys of living rows, evenly spaced over all."""
    module, rows = run.form.kernels.module, run.native.spread_rows(run.form.tuning.grid.sample_rows)
    rows = rows[module.gather(run.narrow_room(run.form.position_key), rows) >= lowest_kept]
    return [widened(module.gather(run.narrow_room(number), rows)) for number in range(len(run.form.keys))]


def crowd_of(run: BucketColumns, added: SealedRun) -> int:
    """How many rows there are, on the average, in the buckets that these rows, which are in, came to."""
    tuning = run.form.tuning.grid
    step = max(1, added.rows // tuning.crowd_sample_rows)
    keys = [np.ascontiguousarray(added.key(number)[: added.rows : step]) for number in run.shape.keys]
    crowd: int = run.native.crowd(keys, tuning.crowd_rows)
    return crowd // len(keys[0])


def known_crowd(facts: Mapping[str, Any]) -> int:
    """What a saved state says of the crowd; ValueError where it is none. Those before there was one say nothing."""
    crowd = facts.get("crowd", USUAL_CROWD)
    if type(crowd) is not int or crowd < USUAL_CROWD:
        msg = "this is no number of rows in a bucket"
        raise ValueError(msg)
    return crowd
