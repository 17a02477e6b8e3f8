"""What the source decides about a batch when it is planned. Its JSON is the offset, whose text Spark compares and logs.

A replay does a batch by the plan that is logged, whatever clocks, files and settings say by then. A new fact about a
batch is a field of `BatchPlan`, with its place in `to_offset` and `from_offset`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamjoin_ds.errors import OffsetError, malformed_offset
from streamjoin_ds.plan.plan import USUAL_SIZING, BlockSizing
from streamjoin_ds.source.backlog import BacklogFacts
from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.source.idleness import ClockFacts
from streamjoin_ds.source.layout_rule import LayoutFacts
from streamjoin_ds.source.table_version import TableVersion, versions_from, versions_told
from streamjoin_ds.source.waypoints import Waypoint, waypoints_from

__all__ = ["OFFSET_VERSION", "BatchPlan"]

_Fact = TypeVar("_Fact")

# The newest version. An offset has the lowest version that can hold it: 1 has no decision about a stream's clock, 2 has
# some, 3 has `unmeasured` or bytes held back, 4 has facts about the layout, 5 about delays, 6 has a layout of ranges, 7
# has a stream of many partitions, 8 a backlog, 9 tables, 10 waypoints, 11 settings of blocks other than the usual ones,
# 12 partitions that are forgotten.
OFFSET_VERSION = 12
# The keys after "version" and "streams", in the one order in which they are written.
_LATER = ("clocks", "held_back_bytes", "layout", "delay", "backlog", "tables", "waypoints", "blocks")


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch as it was planned: where it ends, and what was decided on the way there.

    Attributes
    ----------
    names : tuple of str
        The streams.
    positions : tuple of mapping
        Each stream's position at the batch's end as plain JSON values. Each feed reads its own.
    clocks : tuple of ClockFacts
        What was decided about each stream's clock.
    held_back_bytes : tuple of int
        The bytes of each stream's last line that was unfinished when the batch was planned. They are for people, and so
        are `delay` and `backlog`: no batch depends on these three.
    layout : LayoutFacts
    delay : DelayFacts or None
        None where there is no `max_delay`.
    backlog : BacklogFacts
    tables : mapping of str to TableVersion
        The version of each table that the batch joins.
    waypoints : tuple of tuple of Waypoint
        Those of each stream.
    sizing : BlockSizing
    """

    names: tuple[str, ...]
    positions: tuple[Mapping[str, Any], ...]
    clocks: tuple[ClockFacts, ...] = ()
    held_back_bytes: tuple[int, ...] = ()
    layout: LayoutFacts = field(default_factory=LayoutFacts)
    delay: DelayFacts | None = None
    backlog: BacklogFacts = field(default_factory=BacklogFacts)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    waypoints: tuple[tuple[Waypoint, ...], ...] = ()
    sizing: BlockSizing = USUAL_SIZING

    def __post_init__(self) -> None:
        streams = len(self.names)
        object.__setattr__(self, "clocks", self.clocks or (ClockFacts(),) * streams)
        object.__setattr__(self, "held_back_bytes", self.held_back_bytes or (0,) * streams)
        object.__setattr__(self, "waypoints", self.waypoints or ((),) * streams)

    def to_offset(self) -> dict[str, Any]:
        """Return the plan as plain JSON values, of which each batch has one text."""
        streams = dict(zip(self.names, self.positions, strict=True))
        clocks = _by_name(self.names, [clock.to_facts() for clock in self.clocks])
        waypoints = _by_name(self.names, [[one.to_facts() for one in own] for own in self.waypoints])
        partitions = [at for facts in streams.values() for at in facts.get("partitions", {}).values()]
        held = _by_name(self.names, self.held_back_bytes)
        delay = {} if self.delay is None else self.delay.to_facts()
        layout, backlog, tables = self.layout.to_facts(), self.backlog.to_facts(), versions_told(self.tables)
        sizing = self.sizing.to_facts()
        holds = {
            2: clocks,
            3: held or any("unmeasured" in clock for clock in clocks.values()),
            4: layout,
            5: delay,
            6: self.layout.epochs is not None and self.layout.epochs.has_ranges,
            7: any("partitions" in facts for facts in streams.values()),
            8: backlog,
            9: tables,
            10: waypoints or any("waypoints" in at for at in partitions),
            11: sizing,
            12: any("forgotten" in facts for facts in streams.values()),
        }
        version = max((version for version, held_there in holds.items() if held_there), default=1)
        later = zip(_LATER, (clocks, held, layout, delay, backlog, tables, waypoints, sizing), strict=True)
        return {"version": version, "streams": streams, **{name: facts for name, facts in later if facts}}

    @classmethod
    def from_offset(cls, offset: object, names: Sequence[str]) -> BatchPlan:
        """Return the plan that `to_offset` wrote, of streams of these names.

        Raises
        ------
        OffsetError
            `offset` is no offset, is of other streams, or was written by a newer version of this package.
        """
        if not isinstance(offset, Mapping) or set(offset) - {*_LATER} != {"version", "streams"}:
            raise malformed_offset(name="offset")
        version, streams = offset["version"], offset["streams"]
        if type(version) is not int or version < 1:
            raise malformed_offset(name="version")
        if version > OFFSET_VERSION:
            msg = f"a logged offset has version {version}, but this package reads versions up to {OFFSET_VERSION}"
            hint = "run the version of streamjoin_ds that wrote the checkpoint, or a newer one"
            raise OffsetError(msg, name="version", hint=hint)
        if not isinstance(streams, Mapping):
            raise malformed_offset(name="streams")
        if set(streams) != set(names):
            msg = "a logged offset has other streams than this join"
            raise OffsetError(msg, name="streams", hint=f"the streams of this join are {', '.join(names)}")
        return cls(
            tuple(names),
            tuple(streams[name] for name in names),
            _of_each(offset, "clocks", names, ClockFacts.from_facts, {}),
            _of_each(offset, "held_back_bytes", names, _bytes_from, 0),
            LayoutFacts.from_facts(offset.get("layout", {}), len(names)),
            DelayFacts.from_facts(offset["delay"]) if "delay" in offset else None,
            BacklogFacts.from_facts(offset.get("backlog", {}), names),
            versions_from(offset.get("tables", {})),
            _of_each(offset, "waypoints", names, waypoints_from, []),
            _sizing_from(offset.get("blocks", {})),
        )


def _by_name(names: Sequence[str], values: Sequence[_Fact]) -> dict[str, _Fact]:
    """Return the values that say something, by the streams' names."""
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _of_each(
    offset: Mapping[str, Any], key: str, names: Sequence[str], read: Callable[[object], _Fact], nothing: object
) -> tuple[_Fact, ...]:
    """Return what an offset has of each stream under a key."""
    facts = offset.get(key, {})
    if not isinstance(facts, Mapping) or not set(facts) <= set(names):
        raise malformed_offset(key)
    return tuple(read(facts.get(name, nothing)) for name in names)


def _bytes_from(facts: object) -> int:
    if type(facts) is not int:
        raise malformed_offset(name="held_back_bytes")
    return facts


def _sizing_from(facts: object) -> BlockSizing:
    try:
        return BlockSizing.from_facts(facts)
    except ValueError:
        raise malformed_offset(name="blocks") from None
