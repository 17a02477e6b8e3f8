"""Where a batch ended: by the offset log, or by the ledger where the offsets are lost.

`logged_plan` reads what was decided about a batch from Spark's offset log. `ledger_columns` says what of it the ledger
keeps, for longer than Spark and for people. Where the offsets are gone, `Ends` finds the end of a batch by the position
in its row of the ledger, else by how many records the row says were read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.spark_files import source_offset
from streamjoin_ds.errors import MALFORMED, OffsetError, TableError
from streamjoin_ds.sink.tables import decisions
from streamjoin_ds.source.batch_plan import BatchPlan, versions_from, versions_told
from streamjoin_ds.source.device_clocks import coming_in
from streamjoin_ds.source.device_feed import DeviceFeed
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.idleness import ClockFacts, ahead_limit
from streamjoin_ds.source.layout_rule import LayoutFacts
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import Position, asides_from, is_told_by_count
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spec import BoundJoin, Stream

__all__ = [
    "Ends",
    "is_always_placed",
    "ledger_columns",
    "logged_plan",
    "next_version",
    "partitions_of",
    "set_aside_so_far",
]


def logged_plan(checkpoint: Place, batch_id: int, streams: Sequence[Stream]) -> BatchPlan | None:
    """Return the plan of a batch; None where the offset log has no entry of it.

    Raises
    ------
    OffsetError
        The entry cannot be read, or is of other streams.
    """
    try:
        text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
        batch = BatchPlan.from_offset(source_offset(text), [stream.name for stream in streams])
        for number, stream in enumerate(streams):  # what the batch's ledger will say of it
            ledger_columns(batch, number, stream, 0)
            set_aside_so_far(batch, number), next_version(batch, number), partitions_of(batch, number)
    except FileNotFoundError:
        return None
    except OffsetError:
        raise
    except MALFORMED as error:
        msg = f"the offset log's entry of batch {batch_id} cannot be read"
        raise OffsetError(msg, name="offsets", hint="restore the checkpoint from a spare copy") from error
    return batch


def partitions_of(batch: BatchPlan, number: int) -> PartitionedPosition | None:
    """Return how far each partition of a stream has been read; None for a stream of one order."""
    position = _without_devices(batch.positions[number])
    return PartitionedPosition.from_facts(position, "") if "partitions" in position else None


def _without_devices(position: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts for name, facts in position.items() if name != "devices"}


def set_aside_so_far(batch: BatchPlan, number: int) -> int:
    """Return how often this batch and those before it set something of a stream aside: a file, its rest or a change."""
    return int(batch.positions[number].get("set_aside", 0))


def next_version(batch: BatchPlan, number: int) -> int | None:
    """Return the version of a stream's table that has the next row; None for a stream over something else."""
    version = batch.positions[number].get("version")
    return None if version is None else int(version)


def is_always_placed(stream: Stream) -> bool:
    """Whether the ledger has a stream's position for every batch: its decisions may depend on files as they are now."""
    return stream.quarantines or stream.max_ahead_us is not None


def ledger_columns(
    batch: BatchPlan, number: int, stream: Stream, read: int, before: BatchPlan | None = None
) -> dict[str, Any]:
    """Return a stream's columns of the ledger for a batch, which read `read` records of it.

    Of partitions the ledger has those that are not as they were in `before`, the batch before. Of devices it has those
    that became idle: their clocks follow from the records.
    """
    position = _without_devices(batch.positions[number])
    seq = position["seq"]
    aside = len(asides_from(position.get("aside", ()), seq - read, seq))
    is_counted = not is_always_placed(stream) and is_told_by_count(position)
    decided: dict[str, Any] = {"clock": batch.clocks[number].to_facts(), "position": {} if is_counted else position}
    if before is not None and "partitions" in position:
        same = before.positions[number].get("partitions", {})
        moved = {name: at for name, at in position["partitions"].items() if at != same.get(name)}
        decided |= {"position": {}, "moved": {"seq": seq, "partitions": moved}}
    clocks = batch.clocks_of_devices(number)
    told = {} if clocks is None else clocks.to_facts()
    decided["devices"] = {what: told[what] for what in ("silenced", "coming") if what in told}
    decided["epochs"] = [] if batch.layout.epochs is None else batch.layout.epochs.to_facts()
    decided["tables"] = versions_told(batch.tables)
    text = json.dumps({name: facts for name, facts in decided.items() if facts}, separators=(",", ":"))
    return {"files_set_aside": aside, "held_back_bytes": batch.held_back_bytes[number], "decided": text}


class Ends:
    """The streams' positions at the end of a batch. `move` takes one of them to the end of the next batch.

    Parameters
    ----------
    bound : BoundJoin
        The join of the streams.
    offset : dict or None
        Where the first batch begins; None for the beginning of all streams.
    """

    def __init__(self, bound: BoundJoin, offset: Mapping[str, Any] | None) -> None:
        self._names = bound.names
        streams = bound.join.streams
        batch = None if offset is None else BatchPlan.from_offset(offset, self._names)
        begin = BatchPlan(tuple(self._names), ({},) * len(streams)) if batch is None else batch
        pairs = zip(streams, bound.read_schemas[: len(streams)], begin.positions, strict=True)
        self._feeds = {
            s.name: open_feed(s, schema, ignore_missing=isinstance(at, Mapping) and "kept" in at)
            for s, schema, at in pairs
        }
        feeds = zip(self._feeds.values(), begin.positions, strict=True)
        at = [feed.initial() if batch is None else feed.position(facts) for feed, facts in feeds]
        self._at = dict(zip(self._names, at, strict=True))
        self._clocks = dict(zip(self._names, begin.clocks, strict=True))
        # The state that is gone back to is laid out as its own offset says, perhaps in fewer cells than the ledger's
        # batches had. Every layout gives the same rows, so the batches keep that one. The rates are estimated anew.
        self._layout, self._tables, self._sizing = LayoutFacts(begin.layout.epochs), begin.tables, begin.sizing
        # For these streams the number of records does not tell what was decided when a batch was planned.
        self._decides = {
            stream.name
            for stream in streams
            if self._clocks[stream.name] != ClockFacts()
            or stream.idle_timeout_us is not None
            or stream.max_ahead_us is not None
            or stream.quarantines
        }
        self._placed = {stream.name for stream in streams if is_always_placed(stream)}

    def offset(self) -> dict[str, Any]:
        """Return the ends as an offset, as the source logs it."""
        at, clocks = tuple(at.to_facts() for at in self._at.values()), tuple(self._clocks.values())
        decided = {"layout": self._layout, "tables": self._tables, "sizing": self._sizing}
        return BatchPlan(tuple(self._names), at, clocks, **decided).to_offset()  # type: ignore[arg-type]

    def move(self, name: str, row: Mapping[str, Any]) -> str:
        """Move a stream to its end in the batch of a ledger row. Return why that cannot be done; empty if it was."""
        if row.get("decided") is None and name in self._decides:
            return "was committed by an older version, whose ledger does not record what the source decided for it"
        try:
            return self._moved(name, row["read"], decisions(row), is_old=row.get("decided") is None)
        except (OffsetError, TableError):
            return _unreadable(name)

    def _moved(self, name: str, read: int, decided: dict[str, Any], *, is_old: bool) -> str:
        self._tables = versions_from(decided.get("tables", {})) or self._tables
        feed, at, before = self._feeds[name], self._at[name], self._clocks[name]
        self._clocks[name] = now = ClockFacts.from_facts(decided.get("clock", {}))
        if not isinstance(feed, DeviceFeed):
            end = self._input_end(name, feed, at, read, decided, is_old=is_old)
        else:
            end = self._input_end(name, feed.inner, at.at, read, decided, is_old=is_old)
        if isinstance(end, str):
            return end
        if isinstance(feed, DeviceFeed):
            devices = decided.get("devices", {})
            silenced, coming = map(tuple, devices.get("silenced", ())), coming_in(devices.get("coming", []), name)
            end = feed.moved(at, end, ahead_limit(now.max_ahead_us, before), silenced, coming)
        self._at[name] = end
        return ""

    def _input_end(
        self, name: str, feed: Feed[Any], at: Any, read: int, decided: dict[str, Any], *, is_old: bool
    ) -> Position | str:
        """Return where the stream's input ends; or why that cannot be told."""
        disagree = f"cannot be done again: ledger and checkpoint disagree on the position of {name}"
        if "moved" in decided:  # what was forgotten in the batch stands in the position still, and is forgotten later
            facts, moved = at.to_facts(), decided["moved"]
            if (
                not isinstance(moved, dict)
                or not isinstance(moved.get("partitions"), dict)
                or "partitions" not in facts
            ):
                return disagree
            facts["partitions"] |= moved["partitions"]
            decided["position"] = {**facts, "seq": moved.get("seq")}
            # A partition that was forgotten and came back brings its own records, which were read before.
            if "forgotten" not in facts and _records(feed.position(decided["position"])) != _records(at) + read:
                return disagree
        if "position" in decided:
            end: Position = feed.position(decided["position"])
            return end if end.seq == at.seq + read else disagree
        if feed.frontier(at, read).rows < read:
            return f"cannot be done again: the input of stream {name} lacks some of its records"
        end = feed.advance(at, read)
        if not is_old and (name in self._placed or not is_told_by_count(end.to_facts())):
            return _unreadable(name)  # such a row has a position
        return end


def _unreadable(name: str) -> str:
    return f"cannot be done again: what the ledger says was decided for stream {name} cannot be read"


def _records(position: PartitionedPosition) -> int:
    """Return how many records of the partitions were read that a position names."""
    return sum(at.at.seq for at in position.partitions.values())
