"""The window rule in plain Python: which tuples of several streams may meet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.window import CountWindow, PeriodicWindow

__all__ = ["common_windows", "in_time_windows", "in_windows"]

Times: TypeAlias = "Sequence[Sequence[int | None]]"  # microseconds of every stream's records


def _in_count_window(
    window: CountWindow, order: Sequence[Sequence[int]], left: tuple[int, int], right: tuple[int, int]
) -> bool:
    """Whether the earlier of two tuples is among the last k of its stream that precede the later one.

    A tuple is given as stream and number.
    """
    places = {stream: order[stream][number] for stream, number in (left, right)}
    (stream, number), (later, _) = (left, right) if places[left[0]] < places[right[0]] else (right, left)
    preceding = bisect_left(order[stream], places[later])  # a stream's places rise with its numbers
    return preceding - window.counts[stream] <= number < preceding


def _windows_of(window: PeriodicWindow, stream: int, time: int) -> set[int]:
    """Return the ids of the windows ``(i*T - W, i*T]`` that hold a time, as the first stream counts them.

    Ids that an int64 cannot hold are left out.
    """
    every_us, window_us = window.every_us, window.windows_us[stream]
    near = range(time // every_us - 1, (time + window_us) // every_us + 2)
    ids = {i - window.lags[stream] for i in near if i * every_us - window_us < time <= i * every_us}
    return {i for i in ids if -(1 << 63) <= i < 1 << 63}


def common_windows(join: Join, times: Times, numbers: Sequence[int]) -> list[int]:
    """Return the ids of the periodic windows that some tuples share, given by their numbers."""
    assert isinstance(join.window, PeriodicWindow)
    common: set[int] | None = None
    for stream, number in enumerate(numbers):
        time = times[stream][number]
        assert time is not None
        windows = _windows_of(join.window, stream, time)
        common = windows if common is None else common & windows
    return sorted(common or ())


def in_windows(join: Join, times: Times, order: Sequence[Sequence[int]], numbers: Sequence[int], number: int) -> bool:
    """Whether the window rule holds between a tuple of the next stream and the tuples of all streams before it."""
    place = len(numbers)
    if isinstance(join.window, PeriodicWindow):
        return bool(common_windows(join, times, [*numbers, number]))
    if isinstance(join.window, CountWindow):
        return all(_in_count_window(join.window, order, (n, numbers[n]), (place, number)) for n in range(place))
    return all(in_time_windows(join, times, (n, numbers[n]), (place, number)) for n in range(place))


def in_time_windows(join: Join, times: Times, left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether the rule of time windows holds between two tuples, each given as stream and number."""
    left_time, right_time = (times[stream][number] for stream, number in (left, right))
    assert left_time is not None
    assert right_time is not None
    return -join.window.extent(left[0]) <= left_time - right_time <= join.window.extent(right[0])
