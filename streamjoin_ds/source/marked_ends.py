"""The ends of a batch as its offset holds them: with waypoints, and without the partitions that are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.waypoints import Waypoint, next_waypoints

__all__ = ["marked_ends"]


def marked_ends(
    feeds: Sequence[Feed[Any]],
    reaches_us: Sequence[int | None],
    before: Sequence[Sequence[Waypoint]],
    starts: Sequence[Position],
    ends: Sequence[Position],
) -> tuple[list[Position], list[tuple[Waypoint, ...]]]:
    """Return each stream's end of a batch, and its waypoints there.

    A stream without a key, which has no reach, has no waypoints. Those of partitions stand in their positions. The
    arguments have an entry for each stream; `next_waypoints` says which.
    """
    marked: list[Position] = []
    passed: list[tuple[Waypoint, ...]] = []
    for feed, reach_us, own, start, end in zip(feeds, reaches_us, before, starts, ends, strict=True):
        marks: tuple[Waypoint, ...] = ()
        if isinstance(feed, PartitionedFeed):
            assert isinstance(end, PartitionedPosition)
            end = feed.forgetting(end)
        if reach_us is not None and isinstance(end, PartitionedPosition):
            assert isinstance(start, PartitionedPosition)
            end = end.passed(start, reach_us)
        elif reach_us is not None:
            marks = next_waypoints(own, start.to_facts(), feed.time_before(start), feed.time_before(end), reach_us)
        marked.append(end)
        passed.append(marks)
    return marked, passed
