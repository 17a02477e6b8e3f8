"""Makes the forms of a join's windows from the join's options, and brings new tuples into these forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.storage.bucket_grid.policy import BucketGridPolicy
from streamjoin_ds.engine.storage.forced_index import forced_index
from streamjoin_ds.engine.storage.merge_policy import chosen_merge_policy
from streamjoin_ds.engine.storage.window import RunSizing, WindowForm
from streamjoin_ds.engine.tuning import Tuning
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["Tuples", "checked_batches", "window_forms"]

Tuples: TypeAlias = "pa.Table | pa.RecordBatch"


def window_forms(
    bound: BoundJoin,
    kernels: Kernels,
    tuning: Tuning,
    *,
    index: str | Mapping[str, Sequence[str]],
    merge_runs: int | None,
    block_bytes: int | None,
    bucket_rows: int | None,
    sizing: RunSizing | None = None,
) -> tuple[WindowForm, ...]:
    """Return a form for each stream and table; options are those of `WindowJoin`, the sizes of runs those of `sizing`.

    Raises
    ------
    ArgumentError, ColumnError
        As `forced_index` and `chosen_merge_policy`.
    """
    forms = []
    for stream, layout in enumerate(forced_index(bound, index)):
        if stream >= len(bound.names):  # the rows of a table are one run, which nothing is added to
            forms.append(WindowForm(bound, stream, kernels, layout, tuning=tuning))
            continue
        extent = bound.kept_extent(stream)
        merging = chosen_merge_policy(merge_runs, block_bytes, extent, tuning.merging)
        grid = None
        if bucket_rows is not None and layout == "auto":
            is_sampled = len(bound.member_names) > 2
            grid = BucketGridPolicy(bucket_rows, extent, is_sampled=is_sampled, tuning=tuning.grid)
        forms.append(WindowForm(bound, stream, kernels, layout, merging, grid, tuning=tuning, sizing=sizing))
    return tuple(forms)


def checked_batches(
    forms: Sequence[WindowForm], batches: Mapping[int, Tuples | Sequence[Tuples]]
) -> dict[int, BatchColumns]:
    """Return the new tuples of each stream as kernels read them.

    Raises
    ------
    ArgumentError
        A batch is for a stream that the join does not have.
    ColumnError
        As `RunForm.checked`.
    """
    fresh = {}
    for stream, tables in batches.items():
        if not 0 <= stream < len(forms):
            msg = "a batch is for a stream that the join does not have"
            raise ArgumentError(msg, name="batches", hint=f"stream numbers from 0 to {len(forms) - 1}")
        several = [tables] if isinstance(tables, (pa.Table, pa.RecordBatch)) else list(tables)
        fresh[stream] = forms[stream].checked(several)
    return fresh
