"""The contract of rows about a tuple's partners, in plain Python: tuples without one, and the nearest ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.join import Join
from streamjoin_ds.testing.values import oracle_value

__all__ = ["Times", "nearest_rows", "rows_of_each", "rows_of_kind"]

Times: TypeAlias = "Sequence[Sequence[int | None]]"  # microseconds of every stream's records


def rows_of_kind(
    join: Join,
    times: Times,
    usable: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, ...]],
    until_us: int | None,
) -> list[tuple[Any, ...]]:
    """Return the results of a join of another kind than inner, or of one that sums up partners, from its pairs."""
    lonely: list[list[int]] = []
    for stream, numbers in enumerate(usable):
        found = {pair[stream] for pair in pairs}
        wanted = [number for number in numbers if (number in found) == (join.how in ("semi", "inner"))]
        wanted = [*numbers] if join.reduce and join.how == "left" else wanted
        lonely.append([n for n in wanted if _is_decided(join, stream, times[stream][n], until_us)])
    if join.how in ("semi", "anti") or join.reduce:
        return sorted((number,) for number in lonely[0])
    rows: list[tuple[Any, ...]] = list(pairs)
    if join.how in ("left", "full"):
        rows += [(number, None) for number in lonely[0]]
    if join.how in ("right", "full"):
        rows += [(None, number) for number in lonely[1]]
    return sorted(rows, key=lambda numbers: [(number is None, number or 0) for number in numbers])


def rows_of_each(
    join: Join,
    times: Times,
    usable: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, ...]],
    until_us: int | None,
) -> list[tuple[Any, ...]]:
    """Return the decided tuples of the first stream with a partner in each other stream, or in none of them."""
    others = range(1, len(join.names))
    met = {number: {other for own, other, _ in pairs if own == number} for number in usable[0]}
    wanted = set(others) if join.how == "semi" else set()
    chosen = [number for number in usable[0] if met[number] == wanted]
    return [(n,) for n in sorted(chosen) if _is_decided(join, 0, times[0][n], until_us)]


def nearest_rows(
    join: Join,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    times: Times,
    usable: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, ...]],
    until_us: int | None,
    seqs: Sequence[int] | None = None,
) -> list[tuple[Any, ...]]:
    """Return each decided tuple of the first stream with its nearest partners, the nearest first.

    `seqs` are the numbers of the second stream's records, where they are not their places.
    """
    assert join.nearest is not None, "the join asks for the nearest"
    (first, second), (left, right) = join.streams, join.names
    by = join.nearest.by or Call("abs", (Call("-", (Column(left, first.time), Column(right, second.time))),))
    found: list[tuple[Any, ...]] = []
    for number in usable[0]:
        time = times[0][number]
        if not _is_decided(join, 0, time, until_us):
            continue
        ranked = []
        for own, other in pairs:
            other_time = times[1][other]
            assert time is not None, "a usable tuple has an event time"
            assert other_time is not None, "a usable tuple has an event time"
            is_wrong = {"backward": other_time > time, "forward": other_time < time}
            if own != number or is_wrong.get(join.nearest.direction, False):
                continue
            distance = oracle_value(join, by, {left: rows[left][own], right: rows[right][other]})
            if distance is not None and not (isinstance(distance, float) and math.isnan(distance)):
                ranked.append((distance, other_time, other if seqs is None else seqs[other], other))
        nearest = [other for *_, other in sorted(ranked)[: join.nearest.k]]
        found += [(number, other) for other in nearest]
        if not nearest and join.how == "left":
            found.append((number, None))
    return found


def _is_decided(join: Join, stream: int, time: int | None, until_us: int | None) -> bool:
    """Whether the watermark has passed a tuple's horizon: nothing that it could meet can come any more."""
    assert time is not None
    return until_us is None or time + join.window.extent(stream) < until_us
