"""Times of a growing file by the clock of a zone that changes while they last: hours that it shows twice, or skips."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.faults.model.schedule import ENVELOPES_FROM, TURNS_FROM, TURNS_WITH_ALL_FROM, Schedule
from tests.support.local_times import EPOCH, LocalOrder, meanings, shown

__all__ = ["ISO", "Turn", "turn_of"]

ISO = "%Y-%m-%dT%H:%M:%S.%f"
_HOUR_US = 3_600_000_000
# When a zone's clock changes, in UTC, and what it shows there first and last: of twice the same, or of what it skips.
_CHANGES = (
    ("Europe/Berlin", datetime(2024, 10, 27, 1)),
    ("Europe/Berlin", datetime(2024, 3, 31, 1)),
    ("America/New_York", datetime(2024, 11, 3, 6)),
    ("America/New_York", datetime(2024, 3, 10, 7)),
    ("Australia/Lord_Howe", datetime(2024, 4, 6, 15)),  # half an hour
    ("Australia/Lord_Howe", datetime(2024, 10, 5, 15, 30)),
    ("Africa/Casablanca", datetime(2024, 3, 10, 2)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10)),  # a day is skipped
)


@dataclass(frozen=True)
class Turn:
    """A change of a zone's clock within a run.

    Attributes
    ----------
    zone : str
    at_us : int
        The moment of the change.
    begin_us : int
        The moment at which the run begins.
    per_hour : int
        Ticks of an hourly series: so many come one after the other, and then none for the rest of an hour. 0: the ticks
        go on.
    """

    zone: str
    at_us: int
    begin_us: int
    per_hour: int

    def moved(self, rows: Sequence[dict[str, Any]], start_us: int, tick_us: int) -> list[dict[str, Any]]:
        """Return records whose first time is about `start_us` with times around the change."""
        return [row if row["ts"] is None else row | {"ts": self._moved(row["ts"] - start_us, tick_us)} for row in rows]

    def _moved(self, past_us: int, tick_us: int) -> int:
        if not self.per_hour:
            return self.begin_us + past_us
        hours, ticks = divmod(past_us // tick_us, self.per_hour)
        return self.begin_us + hours * _HOUR_US + ticks * tick_us + past_us % tick_us

    def written(
        self, rows: Sequence[dict[str, Any]], dice: random.Random
    ) -> tuple[list[dict[str, Any]], list[datetime | None]]:
        """Return the records with the times that they have by what the clock shows, and that; None: they show nothing.

        Where the clock skips times, some records show one of those.
        """
        order, found, clock = LocalOrder(), [], []
        before, after = (shown(self.zone, self.at_us + step) for step in (-1, 0))
        skipped = (after - before) // timedelta(microseconds=1) - 1
        for row in rows:
            local = None if row["ts"] is None else shown(self.zone, row["ts"])
            if local is not None and skipped > 0 and dice.random() < 0.08:
                local = before + timedelta(microseconds=dice.randrange(1, skipped + 1))
            ts = None
            if local is not None:
                earlier, gap = meanings(self.zone, local)
                ts = None if gap < 0 else order.next(earlier, gap)[0]
            found.append(dict.fromkeys(row) if ts is None else row | {"ts": ts})
            clock.append(local)
        return found, clock


def turn_of(schedule: Schedule) -> Turn | None:
    """Return the change of a clock within a run, as its seed says; None: there is none."""
    if not (TURNS_FROM <= schedule.seed < ENVELOPES_FROM or schedule.seed >= TURNS_WITH_ALL_FROM):
        return None
    dice = random.Random(f"turn {schedule.seed}")
    if "future" in schedule.asks or dice.random() < 0.3:  # a record from the future is measured by what it means
        return None
    zone, at = dice.choice(_CHANGES)
    at_us = (at - EPOCH) // timedelta(microseconds=1)
    if "periodic" not in schedule.asks and dice.random() < 0.5:
        before_us = dice.choice((1, 2, 3)) * _HOUR_US - dice.choice((0, 0, 600, 1800, 3000)) * 1_000_000
        return Turn(zone, at_us, at_us - before_us, dice.choice((1, 2, 4)))
    return Turn(zone, at_us, at_us - dice.choice((1, 3, 6)) * 1_000_000, 0)
