"""Pacing: a stream is read as fast as possible, or event time runs at a multiple of a clock's speed.

Pacing moves the ends of batches and changes nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streamjoin_ds.errors import ArgumentError

__all__ = ["Pacing", "parse_pace"]

_MAX_SPEED = 1e9  # largest speed that the option accepts, in seconds of event time per second


def parse_pace(text: str) -> float | None:
    """Return the speed of event time that a text asks for; None for ``"max"``, as fast as possible.

    A speed of 1 is real time.

    Raises
    ------
    ArgumentError
        The text is neither ``"max"`` nor a number above 0 and at most 10^9.
    """
    if text.strip().lower() == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed <= _MAX_SPEED:
        msg = "the option pace is neither max nor a number above 0"
        raise ArgumentError(
            msg, name="pace", hint="max, or a speed: 1 is real time, 60 is a minute of event time a second"
        )
    return speed


@dataclass(slots=True)
class Pacing:
    """The event time up to which records may be read now.

    Parameters
    ----------
    speed : float or None
        Microseconds of event time per microsecond of the clock; None for no limit.
    clock : callable
        Returns seconds and never goes back.
    """

    speed: float | None
    clock: Callable[[], float] = time.monotonic
    _origin: tuple[float, int] | None = field(default=None, init=False)

    def horizon_us(self, first_us: int | None) -> int | None:
        """Return the largest event time that is due, in microseconds UTC; None for no limit.

        Parameters
        ----------
        first_us : int or None
            Event time of the next tuple of all streams; None where there is none. The clock starts at the first call
            that gives one. Before that call there is no limit.
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
