"""The soak's records, and the join over them: a function of the kind, the seed and what the feeder was told to do."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.kinds import KINDS, Kind, Record, is_repeated, record_of

if TYPE_CHECKING:
    from streamjoin_ds import StreamJoin

__all__ = ["DELAY_US", "FATES", "STEP_ROWS", "Recorded", "give_kind", "soak_join", "soak_kind"]

FATES = ("stored", "late", "rejected", "duplicates")
"""What must become of a record: columns of the ledger."""

START_US = 1_704_067_200_000_000
TICK_US = 250_000  # microseconds of event time from one tuple of a stream to the next
STEP_ROWS = 20
# A stream may be a step behind another one that was just written, and idle: with the jitter that is half the delay.
DELAY_US = 20_000_000
JITTER_US = 5_000_000
_FUTURE = datetime(9999, 12, 31, tzinfo=timezone.utc)  # further ahead than `max_ahead`
_BROKEN = "what is this"
_PARTITIONS = 3
_DEVICES = 13  # as many names as `record_of` gives, null among them
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def give_kind(root: Path, name: str) -> None:
    """Say of which kind the join over this folder of its input is."""
    (root / "kind").write_text(name)


def soak_kind(root: str | Path) -> Kind:
    """Return the kind of the join over a folder of its input."""
    return KINDS[(Path(root) / "kind").read_text()]


def soak_join(root: str) -> StreamJoin:
    """Return the join of the soak over the folders of its input."""
    kind = soak_kind(root)
    options: dict[str, Any] = {}
    if kind.form == "csv":
        options["on_bad_file"] = "quarantine"
    if kind.form == "delta":
        options["starting_version"] = 0  # what is there at the first start has the order in which it was written too
    if _may_have_bound(kind):
        options["max_ahead"] = "1h"
    return kind.join(root, delay=f"{DELAY_US}us", idle_timeout="2s", **options)


def _may_have_bound(kind: Kind) -> bool:
    """Whether records from the future are told."""
    return not kind.is_twice  # refused beside `unique`


class Recorded:
    """One stream's records, in the order in which they were written.

    A record has its place here for an id, which tells all of its columns but the event time.

    Parameters
    ----------
    kind : Kind
    name : str

    Attributes
    ----------
    times_us : array of int
        Event times; -1 for a record that cannot be read.
    partitions : int
        Its partitions, or its devices.
    """

    def __init__(self, kind: Kind, name: str) -> None:
        self._kind, self._name = kind, name
        self.times_us, self._ids, self._fates = array("q"), array("q"), bytearray()
        self.partitions = _PARTITIONS if kind.form == "folder" else _DEVICES if kind.by_device else 1
        self._devices: dict[str | None, int] = {}
        self._largest_us = [0] * self.partitions
        self._is_measured = [False] * self.partitions

    def __len__(self) -> int:
        return len(self.times_us)

    def partition_of(self, number: int) -> int:
        """Return the partition, or the device, of the record at this place."""
        if self._kind.by_device:
            name = record_of(self._name, number, _EPOCH)["name"]
            return self._devices.setdefault(name, len(self._devices))
        return number % self.partitions

    @property
    def largest_us(self) -> int:
        """Return the largest event time; of a stream with partitions, of that which is behind the others."""
        return min(self._largest_us)

    def count(self, fate: str) -> int:
        """Return of how many records this must become."""
        return self._fates.count(FATES.index(fate))

    def pause(self) -> None:
        """Note that the stream may have been idle.

        Until a record of a partition moves its clock, they are measured against nothing: see
        `streamjoin_ds.spec.event_time.too_far_ahead`.
        """
        self._is_measured = [False] * self.partitions

    def next(self, dice: np.random.Generator, now_us: int) -> Iterator[Record]:
        """Yield the next record, and again if it is one that comes twice; note what must become of it.

        One that is measured against nothing does not come from the future.
        """
        number, part = len(self), self.partition_of(len(self))
        draw, fate, largest_us = dice.random(), "stored", self._largest_us[part]
        time_us = now_us - int(dice.integers(JITTER_US))
        record = record_of(self._name, number, _EPOCH + timedelta(microseconds=time_us))
        if draw < 0.005:
            is_ahead = draw < 0.002 and self._is_measured[part]
            fate, time_us, record["ts"] = "rejected", -1, _FUTURE if is_ahead else self._broken()
        elif draw < 0.02 and largest_us:
            fate, time_us = "late", largest_us - DELAY_US - 1 - int(dice.integers(10_000_000))
            record["ts"] = _EPOCH + timedelta(microseconds=time_us)
        else:
            self._largest_us[part] = max(largest_us, time_us)
            self._is_measured[part] |= time_us > largest_us and _may_have_bound(self._kind)
        self._note(number, time_us, fate)
        yield record
        if fate == "stored" and self._kind.is_twice and is_repeated(number):
            self._note(number, time_us, "duplicates")
            yield record

    def set_aside(self) -> None:
        """Note the record that stands for what is set aside of a bad file."""
        self._note(-1, -1, "rejected")

    def back_to(self, count: int, largest_us: int) -> None:
        """Forget all records but the first `count`, whose largest time is `largest_us`."""
        del self.times_us[count:], self._ids[count:], self._fates[count:]
        self._largest_us[0] = largest_us

    def has_fate(self, fate: str) -> np.ndarray:
        """Return for each record whether this must become of it."""
        return np.frombuffer(bytes(self._fates), np.uint8) == FATES.index(fate)

    def at(self, places: Iterable[int]) -> list[Record]:
        """Return the records at these places; those that cannot be read have no time."""
        found = []
        for place in places:
            time_us = self.times_us[place]
            record = record_of(self._name, self._ids[place], _EPOCH + timedelta(microseconds=time_us))
            found.append(record if time_us >= 0 else {**record, "ts": None})
        return found

    def _broken(self) -> str | None:
        return None if self._kind.form == "delta" else _BROKEN

    def _note(self, number: int, time_us: int, fate: str) -> None:
        self.times_us.append(time_us)
        self._ids.append(number)
        self._fates.append(FATES.index(fate))
