"""The kernels' readable twins: what every compiled kernel must answer, in NumPy.

The names are those of `KernelModule`, and the tests run the same cases over the twins and the compiled kernels. Where
the two differ, the twin is right: it is short enough to be checked by eye. ``STREAMJOIN_DS_KERNEL=reference`` makes the
package run on the twins alone.

A *condition* compares column ``left[c]`` of the probes with column ``right[c]`` of the run, both float64 or both int64:
``lo[c] <= left - right <= hi[c]``, both ends included. Floats are subtracted in IEEE float64 and then compared, so NaN
and ``inf - inf`` never match. Integers are exact: a difference that does not fit into int64 is compared all the same.

::

    grid ──► scan                     a run laid out, probed, or scanned
      ▲        ▲
      └─ runs ─┘                      few probes against all runs of a window
          ▲
    bucket, arrow_rows                a window that is neither sorted nor merged; small batches in, results out
    nearest                           the nearest partners of each probe, and how far they are, also on the globe
    periodic                          which periodic windows a result is in
    sums, partner_sums                exact sums, counts and extremes of each probe's pairs
    threads                           several of these at once, or one thread at a time

Most files have the names of the families of C sources in ``cython_kernels/``. `runs` is there in ``grid/``,
`run_columns` and `arrow_rows` in ``gather/``, the places on the globe in ``globe/``.
"""

from __future__ import annotations

from streamjoin_ds.engine.kernels.twins.arrow_rows import (
    MATCH_SLACK,
    ArrowRows,
    BatchColumns,
    BatchForm,
    ByteColumn,
    RoomColumns,
    RowsForm,
    SealForm,
    gather_bytes,
)
from streamjoin_ds.engine.kernels.twins.bucket import GRID_CHUNK_ROWS, BucketGrid, BucketIndex
from streamjoin_ds.engine.kernels.twins.grid import (
    FENCE_ROWS,
    GridProbe,
    bucket_directory,
    gather,
    grid_buckets,
    grid_order,
    grid_ordering,
    merge_order,
    probe_buckets,
    step_starts,
)
from streamjoin_ds.engine.kernels.twins.nearest import MAX_STEPS, NEAREST_TIES, NearestPairs, NearPlaces, PairDistances
from streamjoin_ds.engine.kernels.twins.partner_sums import PartnerSums
from streamjoin_ds.engine.kernels.twins.periodic import CommonWindows
from streamjoin_ds.engine.kernels.twins.run_columns import RunColumns
from streamjoin_ds.engine.kernels.twins.runs import SCAN_PAIRS, SCAN_ROWS_ALONE, RunIndex, RunsProbe
from streamjoin_ds.engine.kernels.twins.scan import SCAN_TILE_PROBES, SCAN_TILE_ROWS, Scan
from streamjoin_ds.engine.kernels.twins.sums import ExactSums, extremes, tally
from streamjoin_ds.engine.kernels.twins.threads import Gate, Task, ThreadPool

__all__ = [
    "FENCE_ROWS",
    "GRID_CHUNK_ROWS",
    "MATCH_SLACK",
    "MAX_STEPS",
    "NEAREST_TIES",
    "SCAN_PAIRS",
    "SCAN_ROWS_ALONE",
    "SCAN_TILE_PROBES",
    "SCAN_TILE_ROWS",
    "ArrowRows",
    "BatchColumns",
    "BatchForm",
    "BucketGrid",
    "BucketIndex",
    "ByteColumn",
    "CommonWindows",
    "ExactSums",
    "Gate",
    "GridProbe",
    "NearPlaces",
    "NearestPairs",
    "PairDistances",
    "PartnerSums",
    "RoomColumns",
    "RowsForm",
    "RunColumns",
    "RunIndex",
    "RunsProbe",
    "Scan",
    "SealForm",
    "Task",
    "ThreadPool",
    "bucket_directory",
    "cpu_features",
    "default_implementation",
    "extremes",
    "gather",
    "gather_bytes",
    "grid_buckets",
    "grid_order",
    "grid_ordering",
    "implementations",
    "merge_order",
    "probe_buckets",
    "step_starts",
    "tally",
]


def implementations() -> tuple[str, ...]:
    """Return the names of the implementations that can run here: the twin alone."""
    return ("reference",)


def default_implementation() -> str:
    """Return the name of the implementation that runs where none is given."""
    return "reference"


def cpu_features() -> dict[str, bool]:
    """Return no CPU feature: the twin uses none itself."""
    return {}
