"""Pacing: as fast as possible, or event time at so many times a clock's speed; it moves batch ends, nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streamjoin_ds.errors import ArgumentError

__all__ = ["Pacing", "parse_pace"]

_MAX_SPEED = 1e9


def parse_pace(text: str) -> float | None:
    """``"max"`` (None: as fast as possible) or the speed of event time: 1 is real time.

    Raises
    ------
    ArgumentError
        Neither of the two.
    """
    if text.strip().lower() == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed <= _MAX_SPEED:
        msg = "the option pace is neither max nor a speed"
        raise ArgumentError(msg, name="pace", hint="max, or a number above 0: 1 is real time, 60 a minute a second")
    return speed


@dataclass(slots=True)
class Pacing:
    """Up to which event time may be read now.

    Parameters
    ----------
    speed : float or None
        Microseconds of event time a microsecond of the clock; None for no limit.
    clock : callable
        Seconds, never going back.
    """

    speed: float | None
    clock: Callable[[], float] = time.monotonic
    _origin: tuple[float, int] | None = field(default=None, init=False)

    def horizon_us(self, first_us: int | None) -> int | None:
        """The largest event time that is due; None for no limit.

        Parameters
        ----------
        first_us : int or None
            Event time of the next tuple of all streams: the clock starts with the first one it is shown.
        """
        if self.speed is None:
            return None
        now = self.clock()
        if self._origin is None:
            if first_us is None:
                return None
            self._origin = (now, first_us)
        started, event_us = self._origin
        return event_us + int((now - started) * self.speed * 1e6)
