"""Offsets: the positions of all streams as one JSON value, whose text Spark compares and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.plan.block_sizing import USUAL_SIZING, BlockSizing
from streamjoin_ds.plan.cell_layout import CellLayout
from streamjoin_ds.plan.epochs import Epochs
from streamjoin_ds.source.backlog import BacklogFacts
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.table_version import TableVersion, versions_from, versions_told
from streamjoin_ds.source.waypoints import Waypoint, waypoints_from

__all__ = [
    "OFFSET_VERSION",
    "ClockFacts",
    "DelayFacts",
    "LayoutFacts",
    "decode_backlog",
    "decode_clocks",
    "decode_delay",
    "decode_held_back",
    "decode_layout",
    "decode_offset",
    "decode_sizing",
    "decode_tables",
    "decode_waypoints",
    "encode_offset",
]

# The newest version. An offset has the lowest version that can hold it: 1 has no decision about a stream's clock, 2 has
# some, 3 has `unmeasured` or bytes held back, 4 has facts about the layout, 5 about delays, 6 has a layout of ranges, 7
# has a stream of many partitions, 8 a backlog, 9 tables, 10 waypoints, 11 settings of blocks other than the usual ones,
# 12 partitions that are forgotten.
OFFSET_VERSION = 12
_LATER = {"clocks", "held_back_bytes", "layout", "delay", "backlog", "tables", "waypoints", "blocks"}


_NO_TABLES: Mapping[str, TableVersion] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """What was decided about a stream's clock when a batch was planned. A replay uses the same decisions.

    Attributes
    ----------
    idle : bool
        Whether the stream is idle: it does not hold the watermark.
    seen_s : int or None
        When the stream had records last, in seconds since 1970 of the planner's clock. None where the stream has no
        `idle_timeout`.
    max_ahead_us : int or None
        How far a record of the batch may be ahead of its stream, in microseconds; None for no limit.
    unmeasured : bool
        Whether the stream's next record with an event time is measured against nothing: the stream was idle, and has
        had no event time since.
    """

    idle: bool = False
    seen_s: int | None = None
    max_ahead_us: int | None = None
    unmeasured: bool = False

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values; empty where nothing was decided."""
        facts = {"idle": self.idle or None, "max_ahead_us": self.max_ahead_us, "seen_s": self.seen_s}
        facts["unmeasured"] = self.unmeasured or None
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_facts(cls, facts: object) -> ClockFacts:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        kinds = {"idle": bool, "max_ahead_us": int, "seen_s": int, "unmeasured": bool}
        if not isinstance(facts, Mapping) or any(type(value) is not kinds.get(name) for name, value in facts.items()):
            raise _malformed(name="clocks")
        return cls(**facts)


@dataclass(frozen=True, slots=True)
class LayoutFacts:
    """What was decided about the layout when a batch was planned, and the facts for the next decision.

    Attributes
    ----------
    epochs : Epochs or None
        The epochs of the batch; None: the one epoch that the checkpoint began with.
    rates : tuple of tuple of float
        Estimates of each stream's rate, in which older records count less: records and microseconds of event time, with
        three half-lives, the shortest first. Empty where no decision needs them.
    """

    epochs: Epochs | None = None
    rates: tuple[tuple[float, ...], ...] = ()

    def epochs_from(self, first: CellLayout) -> Epochs:
        """Return the epochs; where `epochs` is None, the one epoch of the checkpoint's first layout."""
        return self.epochs or Epochs.first(first)

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values; empty where there are none."""
        facts: dict[str, Any] = {}
        if self.epochs is not None:
            facts["epochs"] = self.epochs.to_facts()
        if self.rates:
            facts["rates"] = [list(rate) for rate in self.rates]
        return facts

    @classmethod
    def from_facts(cls, facts: object, streams: int) -> LayoutFacts:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or set(facts) - {"epochs", "rates"}:
            raise _malformed(name="layout")
        rates = facts.get("rates", [])
        if not isinstance(rates, list) or len(rates) not in (0, streams):
            raise _malformed(name="rates")
        for rate in rates:
            if not isinstance(rate, list) or len(rate) != 6 or not {*map(type, rate)} <= {int, float}:
                raise _malformed(name="rates")
        epochs = Epochs.from_facts(facts["epochs"], streams) if "epochs" in facts else None
        return cls(epochs, tuple(tuple(map(float, rate)) for rate in rates))


@dataclass(frozen=True, slots=True)
class DelayFacts:
    """What was known of delays when a batch was planned under a `max_delay`. It is for people: no batch depends on it.

    Attributes
    ----------
    max_delay_us : int
        The bound.
    delay_us : int or None
        The longest that a tuple of the batch before may have waited, from when the source could see it to the end of
        that batch; None: this process planned no batch before.
    waiting_rows : int
        Records that the planner saw and left for later batches. There may be more.
    """

    max_delay_us: int
    delay_us: int | None = None
    waiting_rows: int = 0

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values."""
        facts = {"max_delay_us": self.max_delay_us, "delay_us": self.delay_us, "waiting_rows": self.waiting_rows}
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_facts(cls, facts: object) -> DelayFacts:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        names = {"max_delay_us", "delay_us", "waiting_rows"}
        if (
            not isinstance(facts, Mapping)
            or not {"max_delay_us", "waiting_rows"} <= set(facts) <= names
            or any(type(value) is not int or value < 0 for value in facts.values())
        ):
            raise _malformed(name="delay")
        return cls(**facts)


def encode_offset(
    names: Sequence[str],
    positions: Sequence[Position],
    clocks: Sequence[ClockFacts] = (),
    held_back_bytes: Sequence[int] = (),
    layout: LayoutFacts | None = None,
    delay: DelayFacts | None = None,
    backlog: BacklogFacts | None = None,
    tables: Mapping[str, TableVersion] = _NO_TABLES,
    waypoints: Sequence[Sequence[Waypoint]] = (),
    sizing: BlockSizing = USUAL_SIZING,
) -> dict[str, Any]:
    """Return an offset as plain JSON values: each stream's position, and what was decided about its clock.

    The keys have one fixed order, because Spark compares offsets as text. `held_back_bytes` has the bytes of each
    stream's last line that was unfinished when the batch was planned. It is for people, and so is `backlog`: no batch
    depends on them. `waypoints` has those of each stream. `sizing` is that of the batch.
    """
    streams = {name: position.to_facts() for name, position in zip(names, positions, strict=True)}
    decided = {name: facts for name, clock in zip(names, clocks, strict=bool(clocks)) if (facts := clock.to_facts())}
    held = {name: size for name, size in zip(names, held_back_bytes, strict=bool(held_back_bytes)) if size}
    is_new = held or any("unmeasured" in facts for facts in decided.values())
    laid_out = {} if layout is None else layout.to_facts()
    has_ranges = layout is not None and layout.epochs is not None and layout.epochs.has_ranges
    has_partitions = any("partitions" in facts for facts in streams.values())
    waits = {} if backlog is None else backlog.to_facts()
    is_delayed = delay is not None
    passed = zip(names, waypoints, strict=bool(waypoints))
    marked = {name: [one.to_facts() for one in own] for name, own in passed if own}
    parts = [at for facts in streams.values() for at in facts.get("partitions", {}).values()]
    # From 2 on.
    holds = (
        bool(decided),
        bool(is_new),
        bool(laid_out),
        is_delayed,
        has_ranges,
        has_partitions,
        bool(waits),
        bool(tables),
        bool(marked) or any("waypoints" in at for at in parts),
        sizing != USUAL_SIZING,
        any("forgotten" in facts for facts in streams.values()),
    )
    version = max((number for number, holds_it in enumerate(holds, 2) if holds_it), default=1)
    delayed = {} if delay is None else delay.to_facts()
    later = {"clocks": decided, "held_back_bytes": held, "layout": laid_out, "delay": delayed, "backlog": waits}
    later["tables"] = versions_told(tables)
    later["waypoints"], later["blocks"] = marked, sizing.to_facts()
    return {"version": version, "streams": streams, **{name: facts for name, facts in later.items() if facts}}


def decode_clocks(offset: Mapping[str, Any], names: Sequence[str]) -> list[ClockFacts]:
    """Return each stream's `ClockFacts` from an offset that `decode_offset` has checked."""
    clocks = offset.get("clocks", {})
    if not isinstance(clocks, Mapping) or not set(clocks) <= set(names):
        raise _malformed(name="clocks")
    return [ClockFacts.from_facts(clocks.get(name, {})) for name in names]


def decode_held_back(offset: Mapping[str, Any], names: Sequence[str]) -> list[int]:
    """Return each stream's bytes held back when the offset was made. `decode_offset` has checked the offset."""
    held = offset.get("held_back_bytes", {})
    if not isinstance(held, Mapping) or not set(held) <= set(names) or any(type(n) is not int for n in held.values()):
        raise _malformed(name="held_back_bytes")
    return [held.get(name, 0) for name in names]


def decode_layout(offset: Mapping[str, Any], names: Sequence[str]) -> LayoutFacts:
    """Return what an offset says about the layout. `decode_offset` has checked the offset."""
    return LayoutFacts.from_facts(offset.get("layout", {}), len(names))


def decode_delay(offset: Mapping[str, Any]) -> DelayFacts | None:
    """Return what an offset that `decode_offset` has checked says about delays; None where its batch had no bound."""
    return DelayFacts.from_facts(offset["delay"]) if "delay" in offset else None


def decode_backlog(offset: Mapping[str, Any], names: Sequence[str]) -> BacklogFacts:
    """Return what an offset that `decode_offset` has checked says about backlogs."""
    return BacklogFacts.from_facts(offset.get("backlog", {}), names)


def decode_tables(offset: Mapping[str, Any]) -> dict[str, TableVersion]:
    """Return the version of each table that an offset's batch joins; empty where there is no table."""
    return versions_from(offset.get("tables", {}))


def decode_waypoints(offset: Mapping[str, Any], names: Sequence[str]) -> list[tuple[Waypoint, ...]]:
    """Return each stream's waypoints from an offset that `decode_offset` has checked; none where it has none."""
    waypoints = offset.get("waypoints", {})
    if not isinstance(waypoints, Mapping) or not set(waypoints) <= set(names):
        raise _malformed(name="waypoints")
    return [waypoints_from(waypoints.get(name, [])) for name in names]


def decode_sizing(offset: Mapping[str, Any]) -> BlockSizing:
    """Return the settings of blocks of an offset's batch."""
    try:
        return BlockSizing.from_facts(offset.get("blocks", {}))
    except ValueError:
        raise _malformed(name="blocks") from None


def decode_offset(offset: object, names: Sequence[str]) -> list[object]:
    """Return the facts of each stream's position, in the order of `names`. Each feed reads its own facts.

    Raises
    ------
    OffsetError
        `offset` is no offset, is of other streams, or was written by a newer version of this package.
    """
    if not isinstance(offset, Mapping) or set(offset) - _LATER != {
        "version",
        "streams",
    }:
        raise _malformed(name="offset")
    version, streams = offset["version"], offset["streams"]
    if type(version) is not int or version < 1:
        raise _malformed(name="version")
    if version > OFFSET_VERSION:
        msg = f"a logged offset has version {version}, but this package reads versions up to {OFFSET_VERSION}"
        hint = "run the version of streamjoin_ds that wrote the checkpoint, or a newer one"
        raise OffsetError(msg, name="version", hint=hint)
    if not isinstance(streams, Mapping):
        raise _malformed(name="streams")
    if set(streams) != set(names):
        msg = "a logged offset has other streams than this join"
        raise OffsetError(msg, name="streams", hint=f"the streams of this join are {', '.join(names)}")
    return [streams[name] for name in names]


def _malformed(name: str) -> OffsetError:
    msg = f"a logged offset is malformed: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)
