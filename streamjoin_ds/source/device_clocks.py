"""The clocks of a stream's devices: each value of some columns has one (ARCHITECTURE.md, "Devices").

::

    records, in the stream's order    a b a c b a ...
    device                            its largest time before the record         ─┐ the larger one, minus the delay,
    stream                            the smallest of those of all devices that  ─┘ judges whether the record is late
                                      hold it, as large as it ever was

A device that joins holds the stream's clock by its first time already before: from `LOOK_AHEAD` records before its
first one on. So a slow device is not late because fast ones came first.

Both clocks are functions of the records, so no cut into batches changes them. What is not: which records were there
when a batch was planned, and that a device is silent for too long and holds the stream no longer. Both stand in the
offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.errors import ArgumentError, malformed_offset
from streamjoin_ds.spec.columns import INT64_MAX, SEQ, Int64, Mask
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.member.stream import Stream

__all__ = [
    "LOOK_AHEAD",
    "MOST_DEVICES",
    "Coming",
    "Device",
    "DeviceClocks",
    "DeviceRecords",
    "coming_in",
    "device_text",
]

MOST_DEVICES = 20_000
"""Devices of a stream that an offset tells of, at most: each takes about 40 bytes there."""
LOOK_AHEAD = 1 << 16
"""So many records before its first one a device that joins holds the stream's clock. Another number is another rule."""
# The values of a device's columns as texts, None for a null; in a stream of partitions the partition's number is first.
Device: TypeAlias = "tuple[str | None, ...]"

# So many devices join within one piece of `_lows` at most: its tables are of the square of their number.
_MOST_JOINS = 256


# A device that joins after a batch: how many records after its end, and the clock that it has then.
Coming: TypeAlias = "tuple[Device, int, int]"


def device_text(device: Device) -> str:
    """Return a device for people."""
    return "/".join("null" if part is None else part for part in device)


class DeviceRecords(Struct, frozen=True):
    """Which device each of some records is of.

    Attributes
    ----------
    devices : sequence of tuple
        The devices, each once.
    codes : ndarray, shape (n,), int64
        For each record the place of its device among `devices`.
    """

    devices: Sequence[Device]
    codes: Int64

    @classmethod
    def of(cls, tuples: pa.Table, columns: Sequence[str], bits: int = 0) -> DeviceRecords:
        """Return those of tuples in the inside form.

        Parameters
        ----------
        columns : sequence of str
            The columns that tell devices apart.
        bits : int
            In a stream of partitions: by how many bits ``_seq`` is shifted to give the partition's number.
        """
        parts = [_texts(tuples.column(name)) for name in columns]
        if bits:
            numbers = tuples.column(SEQ).to_numpy() >> bits
            found, places = np.unique(numbers, return_inverse=True)
            parts.insert(0, ([str(number) for number in found.tolist()], places.astype(np.int64)))
        (texts, codes), *others = parts
        devices: list[Device] = [(text,) for text in texts]
        for more, own in others:
            pairs, codes = np.unique(codes * max(len(more), 1) + own, return_inverse=True)
            devices = [(*devices[pair // len(more)], more[pair % len(more)]) for pair in pairs.tolist()]
            codes = codes.astype(np.int64)
        return cls(devices, codes)


def _texts(values: pa.ChunkedArray) -> tuple[list[str | None], Int64]:
    """Return the different values of a column as texts, None for null, and the place of each row's among them."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0, values.type))  # zero has no sign
    column = pa.chunked_array(values.chunks, values.type).combine_chunks()
    encoded = column.dictionary_encode(null_encoding="encode")
    texts = encoded.dictionary.cast(pa.string()).to_pylist()
    found: dict[str | None, int] = {}
    places = np.array([found.setdefault(text, len(found)) for text in texts], np.int64)  # NaN has many forms
    return [*found], places[encoded.indices.to_numpy()]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClocks:
    """The clocks of a stream's devices at a place in it.

    A device that is idle, and whose clock the stream's has passed, is not among them (`forgetting`).

    Attributes
    ----------
    devices : tuple
        The devices, in the order in which they joined.
    times_us : ndarray, shape (devices,), int64
        The largest event time of each, in microseconds.
    is_idle : ndarray, shape (devices,), bool
        Which of them are idle, and so do not hold the stream's clock.
    low_us : int
        The stream's clock: the smallest time of those that are not idle, or what it was before, if that is larger; the
        smallest int64 before the first record.
    seen_s : ndarray, shape (devices,), int64
        When each had records last, in seconds since 1970 of the planner's clock; 0 where nobody asks.
    silenced : tuple
        The devices that were found idle at the end of the batch that ends here.
    coming : tuple
        The devices that join soon after, as far as the planner of that batch could see.
    """

    devices: tuple[Device, ...] = ()
    times_us: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    is_idle: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    low_us: int = NO_TIME
    seen_s: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    silenced: tuple[Device, ...] = ()
    coming: tuple[Coming, ...] = ()

    def after(
        self, records: DeviceRecords, times_us: Int64, coming: Sequence[Coming] = (), look_ahead: int = LOOK_AHEAD
    ) -> tuple[Int64, DeviceClocks]:
        """Return the clock by which each of the next records is judged, and the clocks after them.

        Parameters
        ----------
        records : DeviceRecords
            The devices of the records, in the stream's order.
        times_us : ndarray, shape (n,), int64
            Their event times.
        coming : sequence of tuple
            The devices that join soon after these records.
        look_ahead : int
            So many records before its first one a device that joins holds the stream's clock.

        Returns
        -------
        ndarray, shape (n,), int64
            The largest event time before each record of its device, or the stream's clock before the record, if that
            is larger; the smallest int64 where there is neither.
        DeviceClocks
        """
        number = {device: place for place, device in enumerate(self.devices)}
        places = [number.setdefault(device, len(number)) for device in records.devices]
        known, codes = len(number), np.array(places, np.int64)[records.codes]
        for device, _, _ in coming:
            number.setdefault(device, len(number))
        clocks = _longer(self.times_us, len(number), NO_TIME)
        is_active = _longer(~self.is_idle, len(number), False)
        own = _largest_before(codes, times_us, clocks)
        is_active_after = is_active.copy()
        is_active_after[codes] = True
        # For each device that joins its first record's place, and its clock there, which it holds before already.
        first = np.full(len(number), INT64_MAX)
        np.minimum.at(first, codes, np.arange(len(codes)))
        joining = np.flatnonzero(~is_active & (first < INT64_MAX))
        held = clocks.copy()
        held[joining] = np.maximum(clocks[joining], times_us[first[joining]])
        at = [*first[joining].tolist(), *(len(codes) + place for _, place, _ in coming)]
        joining = np.array([*joining.tolist(), *(number[device] for device, _, _ in coming)], np.int64)
        held[joining[len(joining) - len(coming) :]] = [time_us for _, _, time_us in coming]
        values = np.maximum(own, held[codes]) if len(joining) else own
        joins = np.array(at, np.int64) - look_ahead
        lows = _lows(codes, times_us, values, held, is_active, joining, joins, self.low_us)
        np.maximum.at(clocks, codes, times_us)
        after = DeviceClocks(
            tuple(number)[:known],
            clocks[:known],
            ~is_active_after[:known],
            int(lows[-1]),
            _longer(self.seen_s, known, 0),
            (),
            tuple(coming),
        )
        return np.maximum(own, lows[:-1]), after

    def joining(self, heard: frozenset[Device], records: DeviceRecords, times_us: Int64) -> tuple[Coming, ...]:
        """Return the devices that join soon after a batch that begins here.

        Parameters
        ----------
        heard : frozenset of tuple
            The devices that have records in the batch.
        records, times_us
            The records after it, and their event times.
        """
        clocks = dict(zip(self.devices, self.times_us.tolist(), strict=True))
        holds = {device for device, is_idle in zip(self.devices, self.is_idle.tolist(), strict=True) if not is_idle}
        codes, firsts = np.unique(records.codes[:LOOK_AHEAD], return_index=True)
        found = sorted(zip(firsts.tolist(), codes.tolist(), strict=True))
        told = ((records.devices[code], place, int(times_us[place])) for place, code in found)
        return tuple(
            (device, place, max(time_us, clocks.get(device, NO_TIME)))
            for device, place, time_us in told
            if device not in holds and device not in heard
        )

    def settled(self, silenced: Iterable[Device], seen_s: Mapping[Device, int] | None = None) -> DeviceClocks:
        """Return the clocks at the end of a batch, once it is decided which devices are idle from here on.

        A device that is idle is forgotten when the stream's clock has passed its own: it would be judged by the
        stream's clock alone, as one that is new is.

        Parameters
        ----------
        silenced : iterable of tuple
            The devices that become idle.
        seen_s : mapping, optional
            When each device had records last.
        """
        asleep = frozenset(silenced)
        is_idle = self.is_idle.copy()
        if asleep:
            is_idle |= np.fromiter((device in asleep for device in self.devices), np.bool_, len(self.devices))
        holding = [*self.times_us[~is_idle].tolist(), *(time_us for _, _, time_us in self.coming)]
        low_us = max(self.low_us, min(holding, default=NO_TIME))
        kept = np.flatnonzero(~is_idle | (self.times_us > low_us))
        devices = tuple(self.devices[place] for place in kept.tolist())
        seen = self.seen_s[kept] if seen_s is None else np.array([seen_s.get(one, 0) for one in devices], np.int64)
        told = tuple(device for device in self.devices if device in asleep)
        return DeviceClocks(devices, self.times_us[kept], is_idle[kept], low_us, seen, told, self.coming)

    @property
    def idle(self) -> frozenset[Device]:
        """The devices that are idle and not forgotten."""
        return frozenset(self.devices[place] for place in np.flatnonzero(self.is_idle).tolist())

    @property
    def time_us(self) -> int | None:
        """The stream's clock; None before the first record."""
        return None if self.low_us == NO_TIME else self.low_us

    def check_count(self, stream: Stream, hint: str) -> None:
        """Refuse more devices than there may be at once; raise `ArgumentError`. The hint says what forgets some."""
        if len(self.devices) > MOST_DEVICES:
            columns = ", ".join(stream.device_columns)
            msg = f"stream {stream.name} has more than {MOST_DEVICES} devices at once, by {columns}"
            hint = f"{hint}, or name a column with fewer values"
            raise ArgumentError(msg, name="partition_by", hint=hint)

    @property
    def held_by(self) -> Device | None:
        """The device whose clock is the smallest of those that are not idle; None where all are, or there is none."""
        active = np.flatnonzero(~self.is_idle)
        return self.devices[active[np.argmin(self.times_us[active])]] if len(active) else None

    def time_of(self, device: Device) -> int | None:
        """Return the largest event time of a device; None where it is not known."""
        return int(self.times_us[self.devices.index(device)]) if device in self.devices else None

    def to_facts(self) -> dict[str, Any]:
        """Return the clocks as plain JSON values; empty before the first record."""
        if self.low_us == NO_TIME and not self.devices:
            return {}
        facts: dict[str, Any] = {"low": self.low_us, "names": [list(device) for device in self.devices]}
        facts["behind"] = (self.times_us - self.low_us).tolist()
        later = {"idle": np.flatnonzero(self.is_idle).tolist(), "silenced": [list(one) for one in self.silenced]}
        later["coming"] = [[list(device), place, time_us] for device, place, time_us in self.coming]
        later["seen"] = self.seen_s.tolist() if self.seen_s.any() else []
        return facts | {name: value for name, value in later.items() if value}

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> DeviceClocks:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if facts == {}:
            return cls()
        names = {"low", "names", "behind"}
        if not isinstance(facts, Mapping) or not names <= facts.keys() <= names | {
            "idle",
            "silenced",
            "seen",
            "coming",
        }:
            raise malformed_offset(name="devices", stream=stream)
        devices, silenced = _devices_in(facts["names"]), _devices_in(facts.get("silenced", []))
        behind, idle, seen = (_numbers_in(facts.get(name, [])) for name in ("behind", "idle", "seen"))
        count, low_us = 0 if devices is None else len(devices), facts["low"]
        is_whole = devices is not None and silenced is not None and None not in (behind, idle, seen)
        if not is_whole or type(low_us) is not int or len(behind or ()) != count or len(seen or ()) not in (0, count):
            raise malformed_offset(name="devices", stream=stream)
        assert devices is not None
        assert silenced is not None
        is_idle = np.zeros(count, np.bool_)
        if any(not 0 <= place < count for place in idle or ()) or len(set(devices)) < count:
            raise malformed_offset(name="devices", stream=stream)
        is_idle[np.array(idle, np.int64)] = True
        times_us, seen_s = np.array(behind, np.int64) + low_us, np.array(seen or [0] * count, np.int64)
        return cls(devices, times_us, is_idle, low_us, seen_s, silenced, coming_in(facts.get("coming", []), stream))


def coming_in(facts: object, stream: str) -> tuple[Coming, ...]:
    """Return the devices that a part of an offset says are coming; raise `OffsetError` for anything else."""
    found = facts if isinstance(facts, list) else [None]
    parts = [one if isinstance(one, list) and len(one) == 3 else [None, None, None] for one in found]
    devices, numbers = _devices_in([one[0] for one in parts]), _numbers_in([each for one in parts for each in one[1:]])
    if devices is None or numbers is None or min(numbers[::2], default=0) < 0:
        raise malformed_offset(name="devices", stream=stream)
    return tuple(zip(devices, numbers[::2], numbers[1::2], strict=True))


def _longer(values: Any, count: int, filler: int) -> Any:
    """Return a copy of an array with so many elements: fillers after its own."""
    return np.concatenate([values, np.full(count - len(values), filler, values.dtype)])


def _devices_in(facts: object) -> tuple[Device, ...] | None:
    """Return the devices that a part of an offset names; None where it names none as it should."""
    if not isinstance(facts, list) or not all(isinstance(one, list) and one for one in facts):
        return None
    if any(not isinstance(part, str | None) for one in facts for part in one):
        return None
    return tuple(map(tuple, facts))


def _numbers_in(facts: object) -> list[int] | None:
    is_list = isinstance(facts, list) and all(type(one) is int and abs(one) <= INT64_MAX for one in facts)
    return facts if is_list else None  # type: ignore[return-value]


def _largest_before(codes: Int64, times_us: Int64, clocks: Int64) -> Int64:
    """Return for each record the largest time of its device before it, given the devices' clocks before the first."""
    if not len(codes):
        return np.empty(0, np.int64)
    order = np.argsort(codes.astype(np.uint16) if len(clocks) <= 1 << 16 else codes, kind="stable")
    device, time = codes[order], times_us[order]
    low_us = int(time.min())
    width = int(time.max()) - low_us + 1
    levels = None
    if width * len(clocks) >= INT64_MAX:  # their ranks are small
        levels, time = np.unique(time, return_inverse=True)
        low_us, width = 0, len(levels)
    largest = np.maximum.accumulate(device * width + (time - low_us)) - device * width + low_us
    if levels is not None:
        largest = levels[largest]
    before = np.full(len(codes), NO_TIME)
    before[1:] = largest[:-1]
    before[np.flatnonzero(np.diff(device, prepend=-1))] = NO_TIME  # the first record of each device
    found = np.empty(len(codes), np.int64)
    found[order] = np.maximum(before, clocks[device])
    return found


def _lows(
    codes: Int64,
    times_us: Int64,
    values: Int64,
    held: Int64,
    is_active: Mask,
    joining: Int64,
    joins: Int64,
    low_us: int,
) -> Int64:
    """Return the stream's clock before each record, and after the last.

    Parameters
    ----------
    codes, times_us : ndarray, shape (n,), int64
        Each record's device, and its event time.
    values : ndarray, shape (n,), int64
        What each record's device holds before it.
    held : ndarray, shape (devices,), int64
        What each device holds before the first record. Those of the records are brought to what they hold after them.
    is_active : ndarray, shape (devices,), bool
        Which devices hold the stream's clock before the first record. Those that join are added.
    joining, joins : ndarray, int64
        The devices that join, and the records with which they begin to hold the stream's clock; a number below 0: they
        do before the first.
    low_us : int
        The stream's clock before the first record.
    """
    is_active[joining[joins < 0]] = True
    order = np.argsort(joins, kind="stable")
    order = order[(joins[order] >= 0) & (joins[order] < len(codes))]
    joining, joins = joining[order], joins[order]
    lows = np.empty(len(codes) + 1, np.int64)
    begin = 0
    for end in [*joins[_MOST_JOINS::_MOST_JOINS].tolist(), len(codes)]:
        piece, mine = slice(begin, end), slice(*np.searchsorted(joins, [begin, end]))
        np.maximum.at(held, codes[piece], times_us[piece])
        lows[piece] = _smallest(codes[piece], values[piece], joining[mine], joins[mine] - begin, held, is_active)
        is_active[joining[mine]] = True
        begin = end
    active = held[is_active]
    lows[-1] = active.min() if len(active) else NO_TIME
    return np.maximum(np.maximum.accumulate(lows), low_us)


def _smallest(codes: Int64, values: Int64, joining: Int64, joins: Int64, held: Int64, is_active: Mask) -> Int64:
    """Return for each record the smallest of what the devices hold before it that hold the stream's clock there.

    What a device holds never falls. So the smallest before a record is the smallest of what devices hold before this
    and later records of theirs, and of what they hold in the end: what they hold later is no smaller. Only a device
    that joins later must not count. So the records are cut where devices join, and devices are grouped by these cuts::

        group of devices    stretch 0 ─┤ stretch 1 ─┤ stretch 2     ┤: a device joins with this record
        0: active before        x            x            x
        1: joined at its end                 x            x         a record counts those below and left of it: the
        2: joined at its end                              x         rest of its stretch, and all stretches after it

    Parameters
    ----------
    codes, values : ndarray, shape (n,), int64
        As in `_lows`.
    joining, joins : ndarray, int64
        The devices that join, in order, and the places of the records with which they do.
    held : ndarray, shape (devices,), int64
        What the devices hold after the last record.
    is_active : ndarray, shape (devices,), bool
        Which devices hold the stream's clock before the first record.
    """
    most, cuts = len(joins), [0, *(joins + 1).tolist(), len(codes)]
    group = np.where(is_active, 0, most + 1)
    group[joining] = np.arange(1, most + 1)
    stretch = np.repeat(np.arange(most + 1), np.diff(cuts))
    of_stretch = np.full((most + 2, most + 2), INT64_MAX)
    np.minimum.at(of_stretch, (group[codes], stretch), values)
    np.minimum.at(of_stretch[:, -1], group, held)  # in the end
    later = np.minimum.accumulate(of_stretch[:, ::-1], axis=1)[:, ::-1]
    groups = np.arange(most + 1)
    has_joined = groups[:, None] <= groups
    rest = np.where(has_joined, later[: most + 1, 1:], INT64_MAX).min(axis=0)
    found = np.where(group[codes] <= stretch, values, INT64_MAX)
    for number, (begin, end) in enumerate(pairwise(cuts)):
        backwards = found[begin:end][::-1]
        found[begin:end] = np.minimum(np.minimum.accumulate(backwards), rest[number])[::-1]
    found[found == INT64_MAX] = NO_TIME  # no device holds it yet
    return found
