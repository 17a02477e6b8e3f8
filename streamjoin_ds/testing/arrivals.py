"""Ways to cut and to shuffle a stream that must not change a result."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["random_batches", "shuffled_within"]


def random_batches(rows: Sequence[Any], seed: int, most: int = 8) -> Iterator[Sequence[Any]]:
    """Yield a stream in at most `most` batches, some of which may be empty. Their concatenation is the stream."""
    chooser = random.Random(seed)
    cuts = sorted(chooser.randint(0, len(rows)) for _ in range(chooser.randint(0, most - 1)))
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        yield rows[start:stop]


def shuffled_within(times_us: Sequence[int], delay_us: int, seed: int) -> list[int]:
    """Return an order of arrival in which no tuple is late: the tuples' numbers, each delayed by at most `delay_us`."""
    chooser = random.Random(seed)
    arrivals = [(time + chooser.randint(0, delay_us), chooser.random(), n) for n, time in enumerate(times_us)]
    return [number for _, _, number in sorted(arrivals)]
