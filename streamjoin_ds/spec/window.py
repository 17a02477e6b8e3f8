"""Windows: which pairs of tuples are near enough in time to be asked about at all.

One rule covers every kind (DP-Join, Definition 1): with streams *i* and *j* a pair is eligible iff
``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i``, both ends included. A kind of window says what ``pos`` is and
gives a ``W`` to each stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamjoin_ds.errors import WindowError
from streamjoin_ds.spec.duration import MAX_DURATION_US, Duration, duration_text, duration_us

__all__ = ["TimeWindow", "Window"]


class Window(Protocol):
    """What every kind of window tells the rest of the house."""

    @property
    def kind(self) -> str:
        """Name of the kind: ``"time"``."""

    def extent(self, stream: int) -> int:
        """``W`` of the stream with this number, in units of its position (for time: microseconds)."""

    def to_facts(self) -> dict[str, object]:
        """The window as plain JSON values, for the fingerprint and the plan."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """``pos`` is the event time, ``W`` a duration per stream; the result does not depend on the order of arrival.

    Parameters
    ----------
    windows_us : tuple of int
        One a stream, in the order of the join's streams; >= 0, at most ten thousand years.
    """

    windows_us: tuple[int, ...]

    def __post_init__(self) -> None:
        for window_us in self.windows_us:
            if type(window_us) is not int or not 0 <= window_us <= MAX_DURATION_US:
                msg = "a window is not a number of microseconds between 0 and 10000 years"
                raise WindowError(msg, name="window", hint="for example TimeWindow.of('15s', ['e', 'w'])")

    @property
    def kind(self) -> str:
        """``"time"``."""
        return "time"

    def extent(self, stream: int) -> int:
        """``W`` of the stream with this number, in microseconds."""
        return self.windows_us[stream]

    def to_facts(self) -> dict[str, object]:
        """The window as plain JSON values."""
        return {"kind": self.kind, "windows_us": list(self.windows_us)}

    @classmethod
    def of(cls, window: Duration | Mapping[str, Duration], streams: Sequence[str]) -> TimeWindow:
        """One duration for all streams, ``{"e": "6h", "w": "0s"}``, or the text ``"e=6h,w=0s"``.

        Raises
        ------
        WindowError
            A stream without a window, or a window for a stream that is not there.
        """
        if isinstance(window, str) and "=" in window:
            window = _split(window)
        if not isinstance(window, Mapping):
            return cls((duration_us(window, "window"),) * len(streams))
        for name in window:
            if name not in streams:
                msg = f"window names the stream '{name}', which is not in the join"
                raise WindowError(msg, name=name, hint=f"the streams are {', '.join(streams)}")
        for name in streams:
            if name not in window:
                msg = f"window says nothing of the stream '{name}'"
                raise WindowError(msg, name=name, hint="give one duration for all streams, or one for each")
        return cls(tuple(duration_us(window[name], f"window of {name}") for name in streams))

    def describe(self, streams: Sequence[str]) -> str:
        """``15s`` or ``e=6h, w=0s``."""
        if len(set(self.windows_us)) == 1:
            return duration_text(self.windows_us[0])
        return ", ".join(f"{name}={duration_text(us)}" for name, us in zip(streams, self.windows_us, strict=True))


def _split(text: str) -> dict[str, str]:
    windows: dict[str, str] = {}
    for part in text.split(","):
        name, equals, duration = (piece.strip() for piece in part.partition("="))
        if not equals or name in windows:
            msg = "window is not of the form stream=duration,stream=duration"
            raise WindowError(msg, name=name, hint="for example 'e=6h,w=0s', each stream once")
        windows[name] = duration
    return windows
