"""Which tuples are in which windows, in plain Python: count windows and periodic ones."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.spec.count_window import CountWindow
from streamjoin_ds.spec.periodic_window import PeriodicWindow

__all__ = ["in_count_window", "windows_of"]


def in_count_window(
    window: CountWindow, order: Sequence[Sequence[int]], left: tuple[int, int], right: tuple[int, int]
) -> bool:
    """Whether the earlier of two tuples is among the last k of its stream that precede the later one.

    A tuple is given as stream and number.
    """
    places = {stream: order[stream][number] for stream, number in (left, right)}
    (stream, number), (later, _) = (left, right) if places[left[0]] < places[right[0]] else (right, left)
    preceding = [n for n, place in enumerate(order[stream]) if place < places[later]]
    return number in preceding[max(len(preceding) - window.counts[stream], 0) :]


def windows_of(window: PeriodicWindow, stream: int, time: int) -> set[int]:
    """Return the ids of the windows ``(i*T - W, i*T]`` that hold a time, as the first stream counts them.

    Ids that an int64 cannot hold are left out.
    """
    every_us, window_us = window.every_us, window.windows_us[stream]
    near = range(time // every_us - 1, (time + window_us) // every_us + 2)
    ids = {i - window.lags[stream] for i in near if i * every_us - window_us < time <= i * every_us}
    return {i for i in ids if -(1 << 63) <= i < 1 << 63}
