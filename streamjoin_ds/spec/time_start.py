"""Event times that are counted from a start: numbers since it, or lines at a rate.

::

    time_start                     time_step
    ─────────────────────────      ──────────────────────────────────────────────────────────────────────────────
    2024-03-05T09:00:00Z           not given: the event time is a number of `time_unit` since the start
    2024-03-05T09:00:00Z           250ms, 4 Hz: record number n of a file is n steps after the start
    line 1                         line 2: both stand in the first lines of each file; the second is a rate in Hz
                                   line 2 s: it is a step in seconds

Steps are exact: a third of a second does not drift.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from msgspec import Struct

from streamjoin_ds.duration import duration_us
from streamjoin_ds.errors import ArgumentError

__all__ = ["TimeStart", "check_time_start"]

_LINE = re.compile(r"line\s+(\d{1,4})(?:\s+(hz|s))?", re.IGNORECASE)
_RATE = re.compile(r"([0-9]*\.?[0-9]+)\s*hz", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]*[.,]?[0-9]+(?:[eE][+-]?[0-9]{1,2})?")
_SECOND_US = 1_000_000


class TimeStart(Struct, frozen=True):
    """Where the times of a file's records begin, and their step.

    Parameters
    ----------
    start, step : str
        As the options say them.
    moment : callable
        Returns the event time that a text is, in microseconds; None where it is none.
    """

    start: str
    step: str
    moment: Callable[[str], int | None]

    def read(self, fields: Sequence[str]) -> tuple[int, Fraction]:
        """Return the start and the step in microseconds, of a file with these first fields of its first lines.

        Raises
        ------
        ValueError
            A line does not say what it should.
        """
        line = _LINE.fullmatch(self.start)
        start_us = self.moment(self.start if line is None else fields[int(line[1]) - 1])
        if start_us is None:
            msg = "time_start is no time, before the records" if line is None else f"line {line[1]} is no time, "
            msg += "" if line is None else "which time_start says it is,"
            raise ValueError(msg)
        line = _LINE.fullmatch(self.step)
        if line is None:
            return start_us, _step(self.step)
        number = fields[int(line[1]) - 1]
        value = Fraction(number.replace(",", ".")) if _NUMBER.fullmatch(number) else Fraction(0)
        if not value:
            msg = f"line {line[1]} is no number above 0, which time_step says it is,"
            raise ValueError(msg)
        is_step = (line[2] or "").lower() == "s"
        return start_us, value * _SECOND_US if is_step else Fraction(_SECOND_US) / value

    def __hash__(self) -> int:
        return hash((self.start, self.step))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeStart) and (self.start, self.step) == (other.start, other.step)


def _step(text: str) -> Fraction:
    """Return a step in microseconds, of a rate or a duration."""
    rate = _RATE.fullmatch(text.strip())
    if rate is None:
        return Fraction(duration_us(text, "time_step"))
    return Fraction(_SECOND_US) / Fraction(rate[1]) if Fraction(rate[1]) else Fraction(0)


def check_time_start(start: object, step: object, stream: str, lines: int | None) -> None:
    """Refuse a start or a step that says nothing.

    Parameters
    ----------
    start, step : object
        As they are given.
    stream : str
        The stream's name, for errors.
    lines : int or None
        How many lines of its files stand before the records; None: its source has no files.

    Raises
    ------
    ArgumentError
        The error names the option.
    """
    told = {"time_start": start, "time_step": step}
    for name, value in told.items():
        if value is not None and (not isinstance(value, str) or not value.strip()):
            msg = f"{name} of stream {stream} is not a text"
            raise ArgumentError(msg, name=name, hint="for example time_start='2024-03-05T09:00:00Z', time_step='4 Hz'")
    if step is not None and start is None:
        msg = f"stream {stream} has a time_step and no time_start"
        hint = "time_start says when its records begin: a time, or 'line 1' of each file"
        raise ArgumentError(msg, name="time_start", hint=hint)
    if step is not None and lines is None:
        msg = f"stream {stream} reads no files in CSV, so it cannot have time_step"
        raise ArgumentError(msg, name="time_step", hint="time_step is of files whose lines say no time")
    if step is None and start is not None and _LINE.fullmatch(str(start)):
        msg = f"time_start of stream {stream} names a line, which only files with time_step have"
        raise ArgumentError(msg, name="time_start", hint="give time_step too, or a time")
    for name, value in told.items():
        line = _LINE.fullmatch(str(value))
        if line and not 1 <= int(line[1]) <= (lines or 0):
            msg = f"{name} of stream {stream} names line {line[1]}, which is none of those before its records"
            raise ArgumentError(msg, name=name, hint=f"skip_lines={max(int(line[1]), 1)} passes over it")
    if step is not None and not _LINE.fullmatch(str(step)) and not _step(str(step)):
        msg = f"time_step of stream {stream} must be longer than 0"
        raise ArgumentError(msg, name="time_step", hint="for example '250ms', '4 Hz', or 'line 2', a rate in Hz")
