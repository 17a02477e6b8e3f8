"""What a feed of many partitions asks of whoever finds them: files, sub-folders, the partitions of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.position import Position

__all__ = ["Inputs"]


class Inputs(Protocol):
    """The partitions of a stream as they are now. Files are one kind (`files.file_partitions`)."""

    @property
    def threads(self) -> int:
        """How many partitions the planner may look at side by side."""

    @property
    def passed_over(self) -> Sequence[str]:
        """Names that lie where the partitions do and are none."""

    @property
    def looks(self) -> int:
        """How many stamps of forgotten partitions a plan asks for; 0: there are no stamps, and none is forgotten."""

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """Return the names of the partitions that are there, sorted."""

    def follow(self, leader: Any) -> None:
        """From now on tell the names that others over the same input were told last, and the same beginnings."""

    def feed(self, name: str) -> Feed[Any]:
        """Return the feed of one partition."""

    def begins(self, names: Sequence[str], *, at_start: bool) -> Mapping[str, Position]:
        """Return where partitions that are new begin; `at_start`: nothing of the stream has been read."""

    def begin_of(self, name: str, at: Position) -> Position:
        """Return where a partition began that has been read up to here."""

    def stamp(self, name: str) -> int | None:
        """Return a digest of how a partition's files look: one that has more to be read has another.

        None: there are no files.
        """

    def may_be_gone(self, at: Position) -> bool:
        """Whether a partition that was read up to here may have vanished."""

    def gone(self, name: str) -> StreamJoinError:
        """Return the error for a partition that has vanished."""
