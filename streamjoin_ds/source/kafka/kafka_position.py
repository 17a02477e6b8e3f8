"""The position in a partition of a topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.source.event_time import NO_TIME

__all__ = ["KafkaPosition"]

_MAX = (1 << 63) - 1
_MOST_EPOCH = (1 << 31) - 1
_TOPIC_ID = re.compile(r"[A-Za-z0-9+/=_-]{0,64}")


@dataclass(frozen=True, slots=True)
class KafkaPosition:
    """How far a partition of a topic has been read.

    Parameters
    ----------
    seq : int
        Records so far: messages, and one for each stretch of lost offsets that was passed over.
    offset : int
        The next offset to read. Markers of transactions and compaction leave offsets without a message, so it tells
        nothing about `seq`.
    first : int
        The offset at which the stream began.
    time : int
        Largest event time so far, in microseconds UTC; the smallest int64 where there is none.
    epoch : int
        The leader epoch of the last message before `offset`: whoever leads a partition writes its own into what it
        appends. -1 where it is not known, and then it is left out of what is logged.
    topic : str
        The topic's id. It is another one where a topic was deleted and made again. Empty where the broker has no ids.
    """

    seq: int = 0
    offset: int = 0
    first: int = 0
    time: int = NO_TIME
    topic: str = ""
    epoch: int = -1

    @property
    def time_us(self) -> int | None:
        """The largest event time so far; None where there is none."""
        return None if self.time == NO_TIME else self.time

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, keys in alphabetical order."""
        return {name: value for name, value in sorted(asdict(self).items()) if name != "epoch" or value >= 0}

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> KafkaPosition:
        """Return the position that `to_facts` wrote; raise `OffsetError` for anything else."""
        known = asdict(cls())
        if not isinstance(facts, Mapping) or {*facts, "epoch"} != set(known):
            raise _malformed(stream, stream)
        for name, value in facts.items():
            low = {"time": NO_TIME, "epoch": -1}.get(name, 0)
            high = _MOST_EPOCH if name == "epoch" else _MAX
            if type(value) is not type(known[name]) or (isinstance(value, int) and not low <= value <= high):
                raise _malformed(stream, name)
        if not _TOPIC_ID.fullmatch(facts["topic"]):
            raise _malformed(stream, "topic")
        position = cls(**facts)
        if position.offset < position.first or position.seq > position.offset - position.first:
            raise _malformed(stream, "offset")
        return position


def _malformed(stream: str, name: str) -> OffsetError:
    msg = f"the logged offset of stream {stream} is malformed: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)
