"""Finds where a batch ended whose offsets are lost: by the position in the ledger, else by how many records it read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamjoin_ds.checkpoint.batch_end import is_always_placed
from streamjoin_ds.errors import OffsetError, TableError
from streamjoin_ds.sink.rows import decisions
from streamjoin_ds.source.batch_plan import BatchPlan, versions_from
from streamjoin_ds.source.idleness import ClockFacts
from streamjoin_ds.source.layout_rule import LayoutFacts
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import is_told_by_count
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spec import BoundJoin

__all__ = ["Ends"]


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
            or stream.on_bad_file == "quarantine"
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
        feed, at = self._feeds[name], self._at[name]
        disagree = f"cannot be done again: ledger and checkpoint disagree on the position of {name}"
        self._clocks[name] = ClockFacts.from_facts(decided.get("clock", {}))
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
            self._at[name] = feed.position(decided["position"])
            return "" if self._at[name].seq == at.seq + read else disagree
        if feed.frontier(at, read).rows < read:
            return f"cannot be done again: the input of stream {name} lacks some of its records"
        end = feed.advance(at, read)
        if not is_old and (name in self._placed or not is_told_by_count(end.to_facts())):
            return _unreadable(name)  # such a row has a position
        self._at[name] = end
        return ""


def _unreadable(name: str) -> str:
    return f"cannot be done again: what the ledger says was decided for stream {name} cannot be read"


def _records(position: PartitionedPosition) -> int:
    """Return how many records of the partitions were read that a position names."""
    return sum(at.at.seq for at in position.partitions.values())
