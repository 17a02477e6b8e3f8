"""The plan of one running join: what the later rooms need to know, as one frozen object and one JSON text.

`BlockSizing` is the part of a plan that decides which runs of a window become blocks, and when blocks are merged. It is
the same for all cells of a batch and stands in the batch's offset.

`AskedLayout` is what a user asks for by the option ``layout``: a kind of layout, or one grid that the join keeps to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from operator import methodcaller
from typing import Any

from streamjoin_ds.errors import ArgumentError, LayoutError
from streamjoin_ds.plan.execution import DEFAULT_EXECUTION, Execution
from streamjoin_ds.plan.key_samples import attributes_of
from streamjoin_ds.plan.layout import CellLayout, Layout, cell_labels, cell_of_label
from streamjoin_ds.plan.layout_choice import check_deciding
from streamjoin_ds.plan.range_layout import Reach, band_attributes, layout_from_facts
from streamjoin_ds.spec import BoundJoin, bound_from_facts
from streamjoin_ds.spec.columns import result_type
from streamjoin_ds.spec.join_parts import facts_html

__all__ = [
    "BLOCK_BYTES",
    "CHOICE_CELLS",
    "EXCHANGES",
    "LAYOUT_KINDS",
    "USUAL_SIZING",
    "AskedLayout",
    "BlockSizing",
    "Plan",
]

# Runs of at least this many bytes are blocks. A file costs 0.5 ms with its fsync, once. A MB in the state row costs
# about 15 ms, in every batch.
BLOCK_BYTES = 64 << 10
# The two ways in which tuples get from source to cell (ARCHITECTURE.md, "The exchange").
EXCHANGES = ("reference", "packed")
# Which layouts a join may have: those of the kind that is cheaper, grids only, or ranges only.
LAYOUT_KINDS = ("auto", "grid", "ranges")
# From how many cells on a join that may choose between the kinds looks for ranges. On 2 and 4 cells ranges save a tenth
# of the work (measured), and a change ships each tuple twice for a window.
CHOICE_CELLS = 8


@dataclass(frozen=True, slots=True)
class BlockSizing:
    """The settings of a batch that decide when a block leaves the windows.

    Cells that are given the same tuples share their blocks, and the first one that finds a block due removes it. So
    they must merge alike, also where two drivers with unlike settings have left the states of one batch. For that
    reason the settings of a batch are in its offset: whoever does the batch again does it under the same ones
    (ARCHITECTURE.md, "State and blocks").

    Attributes
    ----------
    block_bytes : int
        As in `Plan`.
    merge_runs : int or None
        As in `Execution`.
    """

    block_bytes: int = BLOCK_BYTES
    merge_runs: int | None = None

    def to_facts(self) -> dict[str, int]:
        """Return what differs from `USUAL_SIZING`, as plain JSON values."""
        facts = {} if self.block_bytes == BLOCK_BYTES else {"block_bytes": self.block_bytes}
        return facts if self.merge_runs is None else {**facts, "merge_runs": self.merge_runs}

    @classmethod
    def from_facts(cls, facts: object) -> BlockSizing:
        """Return what `to_facts` wrote; raise `ValueError` for anything else."""
        known: dict[str, Any] = dict(facts) if isinstance(facts, Mapping) else {"": None}
        if set(known) - {"block_bytes", "merge_runs"} or any(type(n) is not int or n < 0 for n in known.values()):
            msg = "these are no settings of blocks"
            raise ValueError(msg)
        return cls(**known)


USUAL_SIZING = BlockSizing()


@dataclass(frozen=True, repr=False)
class Plan:
    """A bound join, its layout of cells, and where its blocks and tables lie.

    Parameters
    ----------
    bound : BoundJoin
        The join, with its columns' types.
    layout : CellLayout
        The layout that the checkpoint began with: a grid, or ranges of a band attribute.
    partitions : int
        Number of Spark's state partitions.
    exchange : {"reference", "packed"}
        How tuples get from source to cell.
    block_root : str
        The checkpoint's folder. Below it lie the exchange's blocks, which every worker must see where the exchange is
        by reference.
    table_root : str
        The matches table. The other tables are its siblings.
    join_id : str
        Identity of the checkpoint. The table refuses another one.
    foreign : bool
        Whether the tuples come from DataFrames, which have no order of their own. Lateness is then judged by the
        watermark at each batch's start, or `in_order`.
    order_by : tuple of tuple of str
        For each stream of DataFrames the one or two columns that number its rows; empty where a row has none, and its
        number is a hash of its values.
    in_order : bool
        Whether lateness of the streams with `order_by` is judged in that order, in each partition. Checkpoints of
        former versions go on without.
    given_tables : tuple of (int, str)
        What frames of tables held at each start: the first batch that joins it, and the versions as JSON
        (`versions_told`). Where the source has offsets, these say which version a batch joins, and there is one entry.
    execution : Execution
        Options of each cell's engine.
    state_root : str
        Folder of the windows' blocks, which every worker must see; empty where windows stay inline in Spark's state.
    block_bytes : int
        Runs of at least this size are blocks. A smaller one costs less inside the state row.
    retain_batches : int
        How many batches Spark can go back by (``spark.sql.streaming.minBatchesToRetain``).
    durable : bool
        Whether a batch is forced to the device before it counts.
    commit_forces : bool
        Whether the commit forces what cells write, as it runs in their process. Their own `durable` is False then.
    layout_schedule : tuple of (int, CellLayout)
        Each layout with the number of records, of all streams together, from which on it is wanted; ascending. Empty:
        the rates decide. No layout has more cells than `cells`.
    wanted : CellLayout, optional
        The layout to go on with where the newest one has another number of cells and the rates are not known. By
        default that is `layout`.
    layout_kind : {"auto", "grid", "ranges"}
        The kind of the layouts that are chosen while the join runs.
    spark_root : str
        Folder of Spark's own files: the checkpoint's folder, or one in it. By default `block_root`.
    costs : tuple of (str, float)
        What the engine's operations cost, in nanoseconds, as it was measured at this start: so all workers choose the
        same sizes of runs. Each start measures anew, and no row depends on it. Empty: not known.
    """

    bound: BoundJoin
    layout: CellLayout
    partitions: int
    exchange: str = "reference"
    block_root: str = ""
    table_root: str = ""
    join_id: str = ""
    foreign: bool = False
    execution: Execution = DEFAULT_EXECUTION
    state_root: str = ""
    block_bytes: int = BLOCK_BYTES
    retain_batches: int = 100
    durable: bool = True
    layout_schedule: tuple[tuple[int, CellLayout], ...] = ()
    wanted: CellLayout | None = None
    spark_root: str = ""
    layout_kind: str = "grid"
    costs: tuple[tuple[str, float], ...] = ()
    order_by: tuple[tuple[str, ...], ...] = ()
    in_order: bool = False
    given_tables: tuple[tuple[int, str], ...] = ()
    commit_forces: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "spark_root", self.spark_root or self.block_root)
        if self.exchange not in EXCHANGES:
            msg = "there is no exchange of this name"
            raise ArgumentError(msg, name="exchange", hint=f"one of {', '.join(EXCHANGES)}, or auto")
        for stream, schema in zip(self.bound.member_names, self.bound.read_schemas, strict=True):
            for field in schema:  # Spark has these types as little as Delta
                result_type(field.type, f"{stream}.{field.name}")
        if self.layout.streams != len(self.bound.names):
            streams = len(self.bound.names)
            msg = f"the layout has {self.layout.streams} group counts, but the join has {streams} streams"
            hint = f"one group count for each stream, for example {'x'.join(['2'] * streams)}"
            raise LayoutError(msg, name="layout", hint=hint)
        for layout in (self.layout, *(layout for _, layout in self.layout_schedule)):
            check_deciding(self.bound, layout)
        if self.bound.decided and self.wanted not in (None, self.layout):
            msg = f"a join with {self.bound.join.asked} keeps its layout, {self.layout}"
            raise LayoutError(msg, name="layout", hint="leave it out, or use a new checkpoint and a new table")
        if any(layout.cells > self.cells for _, layout in self.layout_schedule):
            msg = f"a layout of the schedule has more cells than the plan, which has {self.cells}"
            raise LayoutError(msg, name="layout", hint=f"group counts whose product is at most {self.cells}")
        if self.partitions < 1:
            msg = "a plan needs at least one state partition"
            raise ArgumentError(msg, name="partitions", hint="set spark.sql.shuffle.partitions to at least 1")

    @property
    def told(self) -> list[tuple[str, str]]:
        """What the plan says, for people: a word, and what it stands for."""
        kind = "" if self.layout_kind == "grid" else f", {self.layout_kind} later"
        found = [("layout", f"{self.layout} = {self.layout.cells} cells{kind}"), ("exchange", self.exchange)]
        found += [("matches", self.table_root)] if self.table_root else []
        return [*self.bound.join.told, *found]

    def __repr__(self) -> str:
        title = f"Plan of {', '.join(self.bound.member_names)}"
        return "\n".join([title, *(f"  {word:<8} {text}" for word, text in self.told)])

    def _repr_html_(self) -> str:
        """Return the plan as notebooks show it."""
        return facts_html(f"Plan of {', '.join(self.bound.member_names)}", self.told)

    @cached_property
    def attributes(self) -> list[Reach]:
        """The attributes whose keys are sampled while the join runs; none where no layout of ranges may be chosen."""
        least_cells = CHOICE_CELLS if self.layout_kind == "auto" else 2
        if self.layout_kind == "grid" or self.layout_schedule or self.foreign or self.cells < least_cells:
            return []
        return attributes_of(self.bound)

    def judging_order(self, stream: int) -> tuple[str, ...]:
        """Return the columns in whose order a stream of DataFrames is judged; none where its rows have no order."""
        return self.order_by[stream] if self.in_order else ()

    @property
    def sizing(self) -> BlockSizing:
        """The settings of blocks under which this start plans batches; the usual ones where no cell shares a block."""
        if not self.state_root or self.foreign:
            return USUAL_SIZING
        return BlockSizing(self.block_bytes, self.execution.merge_runs)

    def sized(self, sizing: BlockSizing) -> Plan:
        """Return the plan for a batch that was planned under these settings of blocks."""
        if not self.state_root or self.foreign or sizing == self.sizing:
            return self
        execution = replace(self.execution, merge_runs=sizing.merge_runs)
        return replace(self, execution=execution, block_bytes=sizing.block_bytes)

    @property
    def cells(self) -> int:
        """The number of cells to which new tuples are dealt."""
        return (self.wanted or self.layout).cells

    @property
    def labels(self) -> tuple[int, ...]:
        """The grouping key of each of the `cells` cells."""
        return self.labels_of(self.cells)

    def labels_of(self, cells: int) -> tuple[int, ...]:
        """Return the grouping keys of so many cells."""
        return _labels(cells, self.partitions)

    def cell_of(self, label: int) -> int:
        """Return the cell whose grouping key is `label`."""
        return cell_of_label(label, self.partitions)

    def to_json(self) -> str:
        """Return the plan as one canonical JSON text."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)} | {"costs": dict(self.costs)}
        return json.dumps(facts, default=methodcaller("to_facts"), sort_keys=True, separators=(",", ":"))

    @classmethod
    @lru_cache(maxsize=8)  # all tasks of a query get the same text
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote."""
        facts: dict[str, Any] = json.loads(text)
        facts["bound"] = bound_from_facts(facts["bound"])
        streams, wanted = len(facts["bound"].names), facts.get("wanted")
        facts["layout"] = layout_from_facts(facts["layout"], streams)
        schedule = facts.get("layout_schedule", [])
        facts["layout_schedule"] = tuple((rows, layout_from_facts(layout, streams)) for rows, layout in schedule)
        facts["wanted"] = None if wanted is None else layout_from_facts(wanted, streams)
        facts["costs"] = tuple(facts.get("costs", {}).items())
        facts["order_by"] = tuple(map(tuple, facts.get("order_by", ())))
        facts["given_tables"] = tuple((first, versions) for first, versions in facts.get("given_tables", ()))
        facts["execution"] = Execution(**facts["execution"])
        return cls(**facts)


@lru_cache(maxsize=64)
def _labels(cells: int, partitions: int) -> tuple[int, ...]:
    return cell_labels(cells, partitions)


@dataclass(frozen=True, slots=True)
class AskedLayout:
    """The value of the option ``layout``.

    Attributes
    ----------
    kind : {"auto", "grid", "ranges"}
        The kind of the layouts that are chosen; "grid" where a grid is given.
    grid : Layout or None
        The grid that the join keeps to; None: layouts are chosen.
    """

    kind: str
    grid: Layout | None = None

    @classmethod
    def parse(cls, text: str | None, streams: int) -> AskedLayout:
        """Return what a text such as ``"ranges"`` or ``"2x3"`` asks for; None and "auto" are the same.

        Raises
        ------
        LayoutError
            The text is neither a kind nor group counts for so many streams.
        """
        kind = "auto" if text is None else text.strip()
        if kind in LAYOUT_KINDS:
            return cls(kind)
        return cls("grid", Layout.parse(kind, streams))

    def may_have_ranges(self, cells: int) -> bool:
        """Whether a join on so many cells may have ranges."""
        return self.kind == "ranges" or (self.kind == "auto" and cells >= CHOICE_CELLS)

    def check(self, bound: BoundJoin, *, whole: bool = False) -> None:
        """Refuse ranges where the join has no attribute for them, and a layout that `how` cannot have.

        Parameters
        ----------
        bound : BoundJoin
        whole : bool
            Whether nobody puts the answers of several cells together (`check_deciding`).

        Raises
        ------
        LayoutError
        """
        if self.kind == "ranges" and bound.decided:
            msg = f"{bound.join.asked} has no layouts of ranges: a tuple's partners may lie in several of them"
            raise LayoutError(msg, name="layout", hint="use auto, grid, or group counts")
        if self.grid is not None:
            check_deciding(bound, self.grid, whole=whole)
        if self.kind == "ranges" and not band_attributes(bound):
            msg = "no column of every stream is tied to the others by bands or equalities of numbers or times"
            hint = "use auto or grid: a grid works with any condition"
            raise LayoutError(msg, name="layout", hint=hint)
