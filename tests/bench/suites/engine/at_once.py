"""Joins of all tuples of a window at once, timed in the same way for the engine and its peers."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["timed_joins"]


def timed_joins(
    made: Callable[[], Callable[[], int]], window_rows: int, pushes: int, compared: int
) -> dict[str, float]:
    """Join a window of each of two streams `pushes` times, and return what was measured.

    Parameters
    ----------
    made : callable
        Called before each join, and not timed: returns what does the join, and returns the number of its matches.
    window_rows : int
        Tuples of each stream.
    pushes, compared : int
        How often it is done; "matches" counts those of the first `compared`.
    """
    matches, elapsed_s = 0, 0.0
    for number in range(pushes):
        join = made()
        began = time.perf_counter()
        found = join()
        elapsed_s += time.perf_counter() - began
        matches += found if number < compared else 0
    return {"rows_per_second": 2 * pushes * window_rows / elapsed_s, "matches": matches}
