"""Reads windows of every kind: from texts and mappings that a user writes, and from plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from streamjoin_ds.duration import Duration
from streamjoin_ds.errors import WindowError
from streamjoin_ds.spec.count_window import CountWindow
from streamjoin_ds.spec.periodic_window import PeriodicWindow
from streamjoin_ds.spec.window import TimeWindow, WindowKind, each_stream

__all__ = ["WINDOW_FORMS", "WindowLike", "parse_window", "window_from_facts"]

WindowLike = Duration | Mapping[str, Duration] | WindowKind

WINDOW_FORMS = "15s, last 1000, every 10s for 60s, every 10s for 60s lag 3; or one for each stream: e=6h,w=0s"

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
