"""The soak's input, and what must come out of it: a function of the seed and of what the feeder was told to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streamjoin_ds import Stream, StreamJoin, band

__all__ = ["ALONE", "HOWS", "NAMES", "TICK_US", "Recorded", "expected", "give_how", "soak_join"]

HOWS = ("inner", "left", "full", "right")
"""The kinds of joins: a seed has one of them."""
ALONE = -1  # in the place of a partner's number

NAMES = ("e", "w")
START_US = 1_704_067_200_000_000
TICK_US = 10_000  # microseconds of event time from one tuple of a stream to the next
DELAY_US = 1_000_000
JITTER_TICKS = 50  # half the delay, so that tuples are out of order and not late
_FUTURE_US = 253_402_300_799_000_000  # the last second of the year 9999: further ahead than `max_ahead`
_WINDOW_US = 2_000_000
_KEYS = 400
_EPS = 1


def give_how(root: Path, how: str) -> None:
    """Say which kind of join the soak over this folder of its input is."""
    (root / "how").write_text(how)


def soak_join(root: str) -> StreamJoin:
    """Return the join of the soak over the folders of its input; each tuple has about three partners."""
    told = Path(root) / "how"
    how = told.read_text() if told.exists() else HOWS[0]
    streams = [
        Stream(
            name,
            f"{root}/{name}",
            delay=f"{DELAY_US}us",
            schema={"ts": "int64", "x": "int64"},
            idle_timeout="2s",
            max_ahead="1h",
            on_bad_file="quarantine",
        )
        for name in NAMES
    ]
    on = [band("e.x", "w.x", _EPS)]
    return StreamJoin(streams, on=on, window=f"{_WINDOW_US}us", select=["e.x", "w.x"], how=how)  # type: ignore[arg-type]


@dataclass
class Recorded:
    """One stream's records, in the order in which they were written.

    Attributes
    ----------
    times_us : list of int
        Event times; -1 for a record that cannot be read.
    keys : list of int
        Keys; -1 for a null.
    fates : dict of str to int
        The number of records by what must become of them: stored, late, rejected.
    """

    times_us: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    is_stored: list[bool] = field(default_factory=list)
    fates: dict[str, int] = field(default_factory=lambda: {"stored": 0, "late": 0, "rejected": 0})
    largest_us: int = 0

    def __len__(self) -> int:
        return len(self.times_us)

    def line(self, dice: np.random.Generator, now_us: int, *, is_measured: bool) -> str:
        """Return the next record as a line of CSV, and note what must become of it.

        The first record of a stream that was idle is measured against nothing, so it does not come from the future:
        `is_measured` is then false.
        """
        draw = dice.random()
        key = int(dice.integers(_KEYS))
        if draw < 0.002 and is_measured:
            self._note(-1, -1, "rejected")
            return f"{_FUTURE_US},{key}\n"
        if draw < 0.005:
            self._note(-1, -1, "rejected")
            return "what is this,1\n"
        if draw < 0.02 and self.largest_us:
            time_us = self.largest_us - DELAY_US - TICK_US * int(dice.integers(1, 100))
            self._note(time_us, key, "late")
            return f"{time_us},{key}\n"
        time_us = now_us - TICK_US * int(dice.integers(JITTER_TICKS))
        if draw < 0.03:
            key = -1
        self._note(time_us, key, "stored")
        return f"{time_us},{'' if key < 0 else key}\n"

    def set_aside(self) -> None:
        """Note the record that stands for what is set aside of a bad file."""
        self._note(-1, -1, "rejected")

    def back_to(self, count: int, largest_us: int) -> None:
        """Forget all records but the first `count`, whose largest time is `largest_us`."""
        while len(self) > count:
            fate = "stored" if self.is_stored.pop() else "rejected" if self.times_us[-1] < 0 else "late"
            self.fates[fate] -= 1
            self.times_us.pop()
            self.keys.pop()
        self.largest_us = largest_us

    def _note(self, time_us: int, key: int, fate: str) -> None:
        self.times_us.append(time_us)
        self.keys.append(key)
        self.is_stored.append(fate == "stored")
        self.fates[fate] += 1
        if fate == "stored":
            self.largest_us = max(self.largest_us, time_us)


def expected(left: Recorded, right: Recorded, how: str = "inner", until_us: int = 0) -> np.ndarray:
    """Return all results as rows (left number, right number, event time), sorted; shape (n, 3), int64.

    With `how` a tuple without a partner has a row, with `ALONE` for a partner, if the watermark `until_us` has passed
    all that it could meet.
    """
    rows = [_pairs(left, right)]
    for place, side in enumerate((left, right)):
        if how in ("full", ("left", "right")[place]):
            is_met = np.zeros(len(side), bool)
            is_met[rows[0][:, place]] = True
            times = np.array(side.times_us, np.int64)
            numbers = np.flatnonzero(np.array(side.is_stored, bool) & ~is_met & (times + _WINDOW_US < until_us))
            alone = np.full((len(numbers), 3), ALONE, np.int64)
            alone[:, place], alone[:, 2] = numbers, times[numbers]
            rows.append(alone)
    found = np.concatenate(rows)
    return found[np.lexsort(found.T[::-1])]


def _pairs(left: Recorded, right: Recorded) -> np.ndarray:
    sides = []
    for side in (left, right):
        numbers = np.flatnonzero(np.array(side.is_stored, bool) & (np.array(side.keys) >= 0))
        times = np.array(side.times_us, np.int64)[numbers]
        order = np.argsort(times, kind="stable")
        numbers = numbers[order]
        sides.append((numbers, times[order], np.array(side.keys, np.int64)[numbers]))
    (left_numbers, left_times, left_keys), (right_numbers, right_times, right_keys) = sides
    first = np.searchsorted(right_times, left_times - _WINDOW_US, "left")
    last = np.searchsorted(right_times, left_times + _WINDOW_US, "right")
    found = []
    # Each step takes one distance inside the window for all left tuples at once: a few hundred steps.
    for step in range(int((last - first).max(initial=0))):
        here = np.flatnonzero(first + step < last)
        other = first[here] + step
        is_pair = np.abs(left_keys[here] - right_keys[other]) <= _EPS
        here, other = here[is_pair], other[is_pair]
        times = np.maximum(left_times[here], right_times[other])
        found.append(np.stack([left_numbers[here], right_numbers[other], times], axis=1))
    if not found:
        return np.empty((0, 3), np.int64)
    return np.concatenate(found)
