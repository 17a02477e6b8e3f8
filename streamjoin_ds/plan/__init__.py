"""The plan of a join: the layout of cells, what each copy of a tuple costs, and where Spark puts each cell.

::

    stream 0: L_0 = 2 groups ─┐          cells (S = 4 = L_0 x L_1)        state partitions
    stream 1: L_1 = 2 groups ─┤          ┌─────┬─────┐    label           ┌──────────────┐
                              └─ Layout ─► 0,0 │ 0,1 │ ───(hash)────────► │ one cell each│
                                         │ 1,0 │ 1,1 │                    └──────────────┘
                                         └─────┴─────┘

A tuple of stream *i* is dealt to one of ``L_i`` groups and copied to the ``S / L_i`` cells of its group. Every
combination of one tuple of each stream meets in exactly one cell (DP-Join, section III; DAB Join, section 4). That is a
grid. The other kind of layout deals tuples by ranges of a band attribute (`RangeLayout`). The later rooms know both as
`CellLayout`.
"""

from streamjoin_ds.plan.epochs import Epoch, Epochs, EpochsOver
from streamjoin_ds.plan.execution import (
    DEFAULT_EXECUTION,
    EXECUTION_OPTIONS,
    KERNELS,
    Execution,
    OldOptions,
    execution_of,
)
from streamjoin_ds.plan.key_samples import KeyHint, KeySample, SampledRows, attributes_of, sample_rows
from streamjoin_ds.plan.layout import (
    MAX_CELLS,
    CellLayout,
    Layout,
    cell_labels,
    cell_of_label,
    spark_hash,
    spark_partition,
)
from streamjoin_ds.plan.layout_choice import (
    Load,
    best_layouts,
    choose_layout,
    copied_streams,
    deciding_cells,
    deciding_layouts,
    keeps_whole,
    layout_cost,
    whole_layout,
)
from streamjoin_ds.plan.layout_kind import best_ranges, choose_kind, layout_by_keys
from streamjoin_ds.plan.plan import EXCHANGES, USUAL_SIZING, AskedLayout, BlockSizing, Plan
from streamjoin_ds.plan.range_choice import DEFAULT_WORK, CellWork, choose_ranges
from streamjoin_ds.plan.range_layout import (
    Difference,
    RangeLayout,
    Reach,
    band_attributes,
    is_of_ranges,
    layout_from_facts,
)

__all__ = [
    "DEFAULT_EXECUTION",
    "DEFAULT_WORK",
    "EXCHANGES",
    "EXECUTION_OPTIONS",
    "KERNELS",
    "MAX_CELLS",
    "USUAL_SIZING",
    "AskedLayout",
    "BlockSizing",
    "CellLayout",
    "CellWork",
    "Difference",
    "Epoch",
    "Epochs",
    "EpochsOver",
    "Execution",
    "KeyHint",
    "KeySample",
    "Layout",
    "Load",
    "OldOptions",
    "Plan",
    "RangeLayout",
    "Reach",
    "SampledRows",
    "attributes_of",
    "band_attributes",
    "best_layouts",
    "best_ranges",
    "cell_labels",
    "cell_of_label",
    "choose_kind",
    "choose_layout",
    "choose_ranges",
    "copied_streams",
    "deciding_cells",
    "deciding_layouts",
    "execution_of",
    "is_of_ranges",
    "keeps_whole",
    "layout_by_keys",
    "layout_cost",
    "layout_from_facts",
    "sample_rows",
    "spark_hash",
    "spark_partition",
    "whole_layout",
]
