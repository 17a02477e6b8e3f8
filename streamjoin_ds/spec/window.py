"""Windows: which pairs of tuples are near enough, in time or in the order of arrival, to be tested at all.

One rule covers every kind (DP-Join, Definition 1): with streams *i* and *j* a pair is eligible iff
``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i``, both ends included. A kind of window says what ``pos`` is and
gives a ``W`` to each stream::

    kind        written                   pos                                 expired by
    ────────    ──────────────────────    ────────────────────────────────    ──────────────────────────
    time        15s                       event time                          low watermark
    count       last 1000                 number in the stream; for other     the streams' next numbers
                                          streams: how many came before
    periodic    every 10s for 60s         event time, then window ids         low watermark

**Count windows** hold the last k tuples of each stream (PIM-Tree, section 2.1: tuple-based sliding windows). A tuple
*j* is in the window that a tuple *i* of another stream meets iff *j* is among the last ``k`` of its stream that precede
*i* in the source's order (`event_time`). The later of two tuples meets the window of the other's stream. Let ``n`` be a
tuple's number, and ``b`` how many tuples of the other's stream precede it. Then a pair is eligible iff
::

    b(l) - n(r) <= k_r      and      b(r) - n(l) <= k_l

Both are tested for every pair, and one of them always holds. If *r* precedes *l*, at most the first ``n(l)`` tuples of
l's stream precede *r*, so ``b(r) - n(l) <= 0``; the other test says that *r* is one of the last ``k_r`` before *l*.

The tuples that count are the stream's records, by their numbers. A record that is late, broken, or has no value to
compare takes its place among the last ``k`` and matches nothing. So the window is a function of the source's order
alone: it does not depend on delays, on how the input is cut into batches, or on which columns the join reads.

Punctuations stay true. A result is found in the batch that brings the last of its tuples. That tuple is not late, so it
is not older than the largest time before it in its stream minus the delay. Hence it is not older than the watermark of
the batch before. A result's ``event_time`` is the largest of its tuples' times. So a result of a later batch has
``event_time >= p`` for the ``p`` of every batch before, in whatever order the tuples came. The kind of window does not
matter for this.

**Periodic windows** look back W every T; windows with equal ids are joined (DAB Join, section 3). Window ``i`` of a
stream covers the event times ``(i*T - W, i*T]``. A result is found once in each window that is common to its tuples,
and carries the window's id. With a lag, window ``i`` of the first stream is joined with window ``i + lag`` of another:
``wid_first = wid_other - lag``; the id is the first stream's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct

from streamjoin_ds.duration import MAX_DURATION_US, Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.columns import SEQ

__all__ = [
    "MAX_COUNT",
    "WINDOW_FORMS",
    "WINDOW_ID",
    "CountWindow",
    "PeriodicWindow",
    "TimeWindow",
    "WindowKind",
    "WindowLike",
    "WindowRule",
    "before_column",
    "each_stream",
    "parse_window",
    "streams_of_text",
    "window_from_facts",
]

# The largest k: a window that is longer than any memory is a mistake.
MAX_COUNT = 1 << 40
# Numbers of tuples are below this, so that a difference of two fits int64. As a bound it refuses no pair.
_FAR = 1 << 62
_COUNT_HINT = "for example 'last 1000', or 'r=last 1000,s=last 500'"
_COUNT_TEXT = re.compile(r"\s*last\s+([0-9][0-9_]{0,20})(?:\s+(?:tuples?|rows?))?\s*", re.IGNORECASE)
# The name of the column that says in which window a result was found.
WINDOW_ID = "window_id"
_PERIODIC_HINT = "for example 'every 10s for 60s', or 'r=every 10s for 60s,s=every 10s for 30s lag 3'"
_PERIODIC_TEXT = re.compile(
    r"\s*every\s+(.{1,200}?)\s+for\s+(.{1,200}?)(?:\s+lag\s+([+-]?[0-9]{1,18}))?\s*", re.IGNORECASE
)
WINDOW_FORMS = "15s, last 1000, every 10s for 60s, every 10s for 60s lag 3; or one for each stream: e=6h,w=0s"


class WindowRule(Struct, frozen=True):
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


def before_column(stream: str) -> str:
    """Return the name of the inside column that says how many tuples of `stream` precede a tuple."""
    return f"_before_{stream}"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The last ``k`` tuples of each stream that precede a tuple in the source's order.

    Parameters
    ----------
    counts : tuple of int
        ``k`` for each stream, in the order of the join's streams; 0 to 2^40. With 0 the stream's tuples meet only
        tuples that came before them.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        for count in self.counts:
            if type(count) is not int or not 0 <= count <= MAX_COUNT:
                msg = f"a count window must be a whole number of tuples, from 0 to {MAX_COUNT}"
                raise WindowError(msg, name="window", hint=_COUNT_HINT)

    @property
    def kind(self) -> str:
        """``"count"``."""
        return "count"

    @property
    def streams(self) -> int:
        """How many streams the window is for."""
        return len(self.counts)

    def extent(self, stream: int) -> int:
        """Return ``k`` of the stream with this number."""
        return self.counts[stream]

    def rules(self, streams: Sequence[str]) -> list[WindowRule]:
        """Return two rules for each pair of streams: ``b(l) - n(r) <= k_r`` and ``b(r) - n(l) <= k_l``."""
        rules = []
        for left in range(len(streams)):
            for right in range(left + 1, len(streams)):
                before_left, before_right = before_column(streams[left]), before_column(streams[right])
                rules.append(WindowRule(left, right, -_FAR, self.extent(right), before_right, SEQ))
                rules.append(WindowRule(left, right, -self.extent(left), _FAR, SEQ, before_left))
        return rules

    def stamps(self, stream: int, streams: Sequence[str]) -> tuple[str, ...]:
        """Return a column for each other stream: how many of its tuples precede a tuple."""
        return tuple(before_column(name) for number, name in enumerate(streams) if number != stream)

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """Return ``next_seq - k``: the tuples to come, on any stream, come after those numbered below ``next_seq``."""
        del watermark_us
        return None if next_seq is None else next_seq - self.extent(stream)

    def to_facts(self) -> dict[str, object]:
        """Return the window as plain JSON values."""
        return {"kind": self.kind, "counts": list(self.counts)}

    @classmethod
    def is_text(cls, text: object) -> bool:
        """Whether a text is meant as a count window: it begins with "last"."""
        return isinstance(text, str) and text.strip().lower().startswith("last")

    @classmethod
    def of(cls, window: str | Mapping[str, str], streams: Sequence[str]) -> CountWindow:
        """Return the window that was written.

        ``"last 1000"`` is for all streams, ``{"r": "last 1000", "s": "last 500"}`` or ``r=last 1000,s=last 500`` gives
        one for each.

        Raises
        ------
        WindowError
            The window has another form, or there is not one for each stream.
        """
        windows = each_stream(window, streams)
        if windows is None:
            return cls((_count(window, "window"),) * len(streams))
        return cls(tuple(_count(windows[name], f"window of {name}") for name in streams))

    def describe(self, streams: Sequence[str]) -> str:
        """Return the window as a user writes it: ``last 1000`` or ``r=last 1000, s=last 500``."""
        if len(set(self.counts)) == 1:
            return f"last {self.counts[0]}"
        return ", ".join(f"{name}=last {count}" for name, count in zip(streams, self.counts, strict=True))


def _count(text: object, what: str) -> int:
    match = _COUNT_TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"the {what} is not of the form 'last k', with a whole number of tuples"
        raise WindowError(msg, name=what, hint=_COUNT_HINT)
    return int(match[1].replace("_", ""))


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
                raise WindowError(msg, name="window", hint=_PERIODIC_HINT)
        if len(self.lags) != len(self.windows_us) or self.lags[:1] != (0,):
            msg = "a periodic window needs one lag for each stream, and that of the first stream must be 0"
            raise WindowError(msg, name="lag", hint="lags are counted from the windows of the first stream")
        for lag in self.lags:
            if type(lag) is not int or abs(lag) * self.every_us > MAX_DURATION_US:
                msg = "a periodic window's lag is longer than 10000 years"
                raise WindowError(msg, name="lag", hint=_PERIODIC_HINT)

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
            every_us, window_us, lag = _periodic_parts(window, "window")
            return cls(every_us, (window_us,) * len(streams), (0, *(lag,) * (len(streams) - 1)))
        parts = [_periodic_parts(windows[name], f"window of {name}") for name in streams]
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


def _periodic_parts(text: object, what: str) -> tuple[int, int, int]:
    """Return T and W in microseconds, and the lag."""
    match = _PERIODIC_TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"the {what} is not of the form 'every T for W'"
        raise WindowError(msg, name=what, hint=_PERIODIC_HINT)
    try:
        return duration_us(match[1], what), duration_us(match[2], what), int(match[3] or 0)
    except ArgumentError as error:
        msg = f"a duration in the {what} cannot be read"
        raise WindowError(msg, name=what, hint=_PERIODIC_HINT) from error


WindowLike = Duration | Mapping[str, Duration] | WindowKind


_KINDS: Mapping[str, type[TimeWindow] | type[CountWindow] | type[PeriodicWindow]] = {
    "time": TimeWindow,
    "count": CountWindow,
    "periodic": PeriodicWindow,
}


def parse_window(window: WindowLike, streams: Sequence[str]) -> WindowKind:
    """Return the window that was written, of whichever kind; one for all streams, or one for each.

    Parameters
    ----------
    window : str, timedelta, mapping of stream name to either, or WindowKind
        ``"15s"``, ``"last 1000"``, ``"every 10s for 60s lag 3"``, ``{"e": "6h", "w": "0s"}``, ``"e=6h,w=0s"``.
    streams : sequence of str
        The streams' names, in the join's order.

    Raises
    ------
    WindowError
        The window has another form, kinds are mixed, or there is not one for each stream.
    ArgumentError
        A duration cannot be read.
    """
    if isinstance(window, (TimeWindow, CountWindow, PeriodicWindow)):
        if window.streams != len(streams):
            msg = f"the window is for {window.streams} streams, but the join has {len(streams)}"
            raise WindowError(msg, name="window", hint="give one window for all streams, or one for each")
        return window
    windows = each_stream(window, streams)
    kinds = {name: _kind(text) for name, text in (windows or {"": window}).items()}
    for name, kind in kinds.items():
        if kind != next(iter(kinds.values())):
            msg = f"the windows of {next(iter(kinds))} and {name} are of different kinds"
            raise WindowError(
                msg, name=name, hint="one kind for all: time (15s), count (last 1000) or periodic (every ...)"
            )
    return _KINDS[next(iter(kinds.values()))].of(window, streams)  # type: ignore[arg-type]  # its texts were looked at


def window_from_facts(facts: Mapping[str, Any]) -> WindowKind:
    """Return the window that ``to_facts`` of any kind described."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
    kind: type[Any] = _KINDS[values.pop("kind")]
    window: WindowKind = kind(**values)
    return window


def _kind(text: object) -> str:
    if not isinstance(text, (str, timedelta)):
        msg = f"a window must be a text or a timedelta, not {type(text).__name__}"
        raise WindowError(msg, name="window", hint=WINDOW_FORMS)
    if CountWindow.is_text(text):
        return "count"
    return "periodic" if PeriodicWindow.is_text(text) else "time"
