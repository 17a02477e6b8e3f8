"""Periodic windows: every T a window looks back W; windows with equal ids are joined (DAB Join, section 3).

Window ``i`` of a stream covers the event times ``(i*T - W, i*T]``. A result is found once in each window that is common
to its tuples, and carries the window's id. With a lag, window ``i`` of the first stream is joined with window
``i + lag`` of another: ``wid_first = wid_other - lag``; the id is the first stream's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamjoin_ds.duration import MAX_DURATION_US, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.window import WindowRule, each_stream

__all__ = ["WINDOW_ID", "PeriodicWindow"]

# The name of the column that says in which window a result was found.
WINDOW_ID = "window_id"

_HINT = "for example 'every 10s for 60s', or 'r=every 10s for 60s,s=every 10s for 30s lag 3'"
_TEXT = re.compile(r"\s*every\s+(.{1,200}?)\s+for\s+(.{1,200}?)(?:\s+lag\s+([+-]?[0-9]{1,18}))?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PeriodicWindow:
    """A periodic window: ``pos`` is the event time, and a result is found once in each window common to its tuples.

    Parameters
    ----------
    every_us : int
        ``T`` in microseconds, the same for all streams; 1 to ten thousand years.
    windows_us : tuple of int
        ``W`` of each stream in microseconds; 1 to ten thousand years. If it is shorter than ``T``, tuples between two
        windows are in none.
    lags : tuple of int
        A lag for each stream, that of the first 0: window ``i`` of the first stream meets window ``i + lag`` of this
        one.
    """

    every_us: int
    windows_us: tuple[int, ...]
    lags: tuple[int, ...]

    def __post_init__(self) -> None:
        for number in (self.every_us, *self.windows_us):
            if type(number) is not int or not 1 <= number <= MAX_DURATION_US:
                msg = "T and W of a periodic window must be whole microseconds, from 1 to 10000 years"
                raise WindowError(msg, name="window", hint=_HINT)
        if len(self.lags) != len(self.windows_us) or self.lags[:1] != (0,):
            msg = "a periodic window needs one lag for each stream, and that of the first stream must be 0"
            raise WindowError(msg, name="lag", hint="lags are counted from the windows of the first stream")
        for lag in self.lags:
            if type(lag) is not int or abs(lag) * self.every_us > MAX_DURATION_US:
                msg = "a periodic window's lag is longer than 10000 years"
                raise WindowError(msg, name="lag", hint=_HINT)

    @property
    def kind(self) -> str:
        """``"periodic"``."""
        return "periodic"

    @property
    def streams(self) -> int:
        """How many streams the window is for."""
        return len(self.windows_us)

    def extent(self, stream: int) -> int:
        """Return how long a tuple of this stream may wait for others, in microseconds."""
        others = [lag for number, lag in enumerate(self.lags) if number != stream]
        lag_us = (max(others, default=0) - self.lags[stream]) * self.every_us
        return max(self.windows_us[stream] - 1 + lag_us, 0)

    def rules(self, streams: Sequence[str]) -> list[WindowRule]:
        """Return one rule for each pair of streams: how far apart the event times of a common window can be."""
        rules = []
        for left in range(len(streams)):
            for right in range(left + 1, len(streams)):
                shift_us = (self.lags[right] - self.lags[left]) * self.every_us
                lo, hi = 1 - self.windows_us[left] - shift_us, self.windows_us[right] - 1 - shift_us
                rules.append(WindowRule(left, right, lo, hi))
        return rules

    def stamps(self, stream: int, streams: Sequence[str]) -> tuple[str, ...]:
        """Return no columns: window ids are made from the event time."""
        del stream, streams
        return ()

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """Return ``watermark - extent``."""
        del next_seq
        return None if watermark_us is None else watermark_us - self.extent(stream)

    def to_facts(self) -> dict[str, object]:
        """Return the window as plain JSON values."""
        windows_us, lags = list(self.windows_us), list(self.lags)
        return {"kind": self.kind, "every_us": self.every_us, "windows_us": windows_us, "lags": lags}

    @classmethod
    def is_text(cls, text: object) -> bool:
        """Whether a text is meant as a periodic window: it begins with "every"."""
        return isinstance(text, str) and text.strip().lower().startswith("every")

    @classmethod
    def of(cls, window: str | Mapping[str, str], streams: Sequence[str]) -> PeriodicWindow:
        """Return the window that was written.

        ``"every 10s for 60s"`` is for all streams; a mapping, or ``r=every 10s for 60s,s=every 10s for 30s``, gives one
        for each. ``lag 3`` at the end is the lag of that stream; in a text for all streams it is the lag of all but the
        first.

        Raises
        ------
        WindowError
            The window has another form, there is not one for each stream, or their ``T`` differ.
        """
        windows = each_stream(window, streams)
        if windows is None:
            every_us, window_us, lag = _parts(window, "window")
            return cls(every_us, (window_us,) * len(streams), (0, *(lag,) * (len(streams) - 1)))
        parts = [_parts(windows[name], f"window of {name}") for name in streams]
        for name, part in zip(streams, parts, strict=True):
            if part[0] != parts[0][0]:
                msg = f"the windows of {streams[0]} and {name} have different periods"
                raise WindowError(msg, name=name, hint="give every stream the same 'every'; 'for' and 'lag' may differ")
        return cls(parts[0][0], tuple(part[1] for part in parts), tuple(part[2] for part in parts))

    def describe(self, streams: Sequence[str]) -> str:
        """Return it as a user writes it: ``every 10s for 1m`` or ``r=every 10s for 1m, s=every 10s for 30s lag 3``."""
        texts = [f"every {duration_text(self.every_us)} for {duration_text(us)}" for us in self.windows_us]
        if len(set(self.windows_us)) == 1 and not any(self.lags):
            return texts[0]
        lags = [f" lag {lag}" if lag else "" for lag in self.lags]
        return ", ".join(f"{name}={text}{lag}" for name, text, lag in zip(streams, texts, lags, strict=True))


def _parts(text: object, what: str) -> tuple[int, int, int]:
    """Return T and W in microseconds, and the lag."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"the {what} is not of the form 'every T for W'"
        raise WindowError(msg, name=what, hint=_HINT)
    try:
        return duration_us(match[1], what), duration_us(match[2], what), int(match[3] or 0)
    except ArgumentError as error:
        msg = f"a duration in the {what} cannot be read"
        raise WindowError(msg, name=what, hint=_HINT) from error
