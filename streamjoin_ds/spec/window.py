"""Windows: which pairs of tuples are near enough, in time or in the order of arrival, to be tested at all.

One rule covers every kind (DP-Join, Definition 1): with streams *i* and *j* a pair is eligible iff
``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i``, both ends included. A kind of window says what ``pos`` is and
gives a ``W`` to each stream::

    kind        written                   pos                                 expired by
    ────────    ──────────────────────    ────────────────────────────────    ──────────────────────────
    time        15s                       event time                          low watermark
    count       last 1000                 number in the stream; for other     the streams' next numbers
                (`count_window`)          streams: how many came before
    periodic    every 10s for 60s         event time, then window ids         low watermark
                (`periodic_window`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamjoin_ds.duration import MAX_DURATION_US, Duration, duration_text, duration_us
from streamjoin_ds.errors import WindowError

__all__ = ["TimeWindow", "WindowKind", "WindowRule", "each_stream", "streams_of_text"]


@dataclass(frozen=True, slots=True)
class WindowRule:
    """The rule ``lo <= left - right <= hi`` on the positions of two streams: integers, both ends included.

    Parameters
    ----------
    left_stream, right_stream : int
        Numbers of the streams, ``left_stream < right_stream``.
    lo, hi : int
        The bounds, within int64.
    left_column, right_column : str or None
        Inside columns that hold the positions; None: the event time.
    """

    left_stream: int
    right_stream: int
    lo: int
    hi: int
    left_column: str | None = None
    right_column: str | None = None


class WindowKind(Protocol):
    """What every kind of window tells the rest of the package."""

    @property
    def kind(self) -> str:
        """Name of the kind: ``"time"``, ``"count"`` or ``"periodic"``."""

    @property
    def streams(self) -> int:
        """How many streams the window is for."""

    def extent(self, stream: int) -> int:
        """Return ``W`` of the stream with this number, in the unit of its position (for time: microseconds)."""

    def rules(self, streams: Sequence[str]) -> list[WindowRule]:
        """Return the window as interval tests: it allows a pair of tuples iff all rules of their two streams hold.

        The rules of a periodic window only find candidates: they allow some pairs more.
        """

    def stamps(self, stream: int, streams: Sequence[str]) -> tuple[str, ...]:
        """Return the inside columns (int64) that the source must stamp on this stream's tuples, besides the number."""

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """Return the position below which no tuple of this stream can be in a result with a tuple to come.

        Parameters
        ----------
        stream : int
            Number of the stream.
        watermark_us : int or None
            No tuple to come is older than this. None: not known.
        next_seq : int or None
            The next tuples of this stream have at least this number. None: not known.

        Returns
        -------
        int or None
            None: not known, so every tuple must be kept.
        """

    def describe(self, streams: Sequence[str]) -> str:
        """Return the window as a user writes it."""

    def to_facts(self) -> dict[str, object]:
        """Return the window as plain JSON values, for the fingerprint and the plan."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A time window: ``pos`` is the event time, ``W`` a duration; the result does not depend on the order of arrival.

    Parameters
    ----------
    windows_us : tuple of int
        ``W`` of each stream in microseconds, in the order of the join's streams; 0 to ten thousand years.
    """

    windows_us: tuple[int, ...]

    def __post_init__(self) -> None:
        for window_us in self.windows_us:
            if type(window_us) is not int or not 0 <= window_us <= MAX_DURATION_US:
                msg = "a time window must be whole microseconds, from 0 to 10000 years"
                raise WindowError(msg, name="window", hint="for example TimeWindow.of('15s', ['e', 'w'])")

    @property
    def kind(self) -> str:
        """``"time"``."""
        return "time"

    @property
    def streams(self) -> int:
        """How many streams the window is for."""
        return len(self.windows_us)

    def extent(self, stream: int) -> int:
        """Return ``W`` of the stream with this number, in microseconds."""
        return self.windows_us[stream]

    def rules(self, streams: Sequence[str]) -> list[WindowRule]:
        """Return one rule on the event times for each pair of streams."""
        count = len(streams)
        pairs = ((left, right) for left in range(count) for right in range(left + 1, count))
        return [WindowRule(left, right, -self.extent(left), self.extent(right)) for left, right in pairs]

    def stamps(self, stream: int, streams: Sequence[str]) -> tuple[str, ...]:
        """Return no columns: every tuple has its event time."""
        del stream, streams
        return ()

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """Return ``watermark - W``."""
        del next_seq
        return None if watermark_us is None else watermark_us - self.extent(stream)

    def to_facts(self) -> dict[str, object]:
        """Return the window as plain JSON values."""
        return {"kind": self.kind, "windows_us": list(self.windows_us)}

    @classmethod
    def of(cls, window: Duration | Mapping[str, Duration], streams: Sequence[str]) -> TimeWindow:
        """Return the window that was written.

        One duration is for all streams; ``{"e": "6h", "w": "0s"}`` or ``e=6h,w=0s`` gives one for each.

        Raises
        ------
        WindowError
            A stream has no window, or a window is for a stream that is not there.
        ArgumentError
            A duration cannot be read.
        """
        windows = each_stream(window, streams)
        if windows is None:
            return cls((duration_us(window, "window"),) * len(streams))
        return cls(tuple(duration_us(windows[name], f"window of {name}") for name in streams))

    def describe(self, streams: Sequence[str]) -> str:
        """Return the window as a user writes it: ``15s`` or ``e=6h, w=0s``."""
        if len(set(self.windows_us)) == 1:
            return duration_text(self.windows_us[0])
        return ", ".join(f"{name}={duration_text(us)}" for name, us in zip(streams, self.windows_us, strict=True))


def each_stream(window: object, streams: Sequence[str]) -> Mapping[str, object] | None:
    """Return what was written for each stream; None if one window was written for all.

    Raises
    ------
    WindowError
        A stream has no window, or a window is for a stream that is not there.
    """
    if isinstance(window, str) and "=" in window:
        window = streams_of_text(window)
    if not isinstance(window, Mapping):
        return None
    for name in window:
        if name not in streams:
            msg = f"the window names the stream '{name}', which is not in the join"
            raise WindowError(msg, name=name, hint=f"the streams are {', '.join(streams)}")
    for name in streams:
        if name not in window:
            msg = f"no window is given for the stream '{name}'"
            raise WindowError(msg, name=name, hint="give one window for all streams, or one for each")
    return window


def streams_of_text(text: str) -> dict[str, str]:
    """Return ``"e=6h,w=0s"`` as a mapping; refuse a part without a name, and a name that comes twice."""
    windows: dict[str, str] = {}
    for part in text.split(","):
        name, equals, window = (piece.strip() for piece in part.partition("="))
        if not equals or name in windows:
            msg = "the window is not of the form stream=window,stream=window, or names a stream twice"
            raise WindowError(msg, name=name, hint="for example 'e=6h,w=0s'")
        windows[name] = window
    return windows
