"""The contract in plain Python: which results a join has over whole streams, and what it sets aside.

It is written to be read: no arrays, no index, one loop for each stream. It uses nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.expression.tree import streams_of
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.window import CountWindow, PeriodicWindow
from streamjoin_ds.testing.left_out import (
    NO_PARTITIONS,
    Ends,
    Idle,
    Partitions,
    Row,
    Rows,
    duplicate_rows,
    filtered_rows,
    late_rows,
    listed,
    times_of,
)
from streamjoin_ds.testing.partners import Times, nearest_rows, rows_of_each, rows_of_kind
from streamjoin_ds.testing.sums import oracle_aggregates
from streamjoin_ds.testing.values import column_value, oracle_outputs, oracle_value, plain_value
from streamjoin_ds.testing.windows import common_windows, in_time_windows, in_windows

__all__ = ["oracle_join", "oracle_numbers", "source_order"]

Seqs: TypeAlias = "Mapping[str, Sequence[int]]"

_IN_ORDER: Seqs = {}


def oracle_join(
    join: Join,
    streams: Mapping[str, Rows],
    *,
    lateness: bool = True,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = NO_PARTITIONS,
    until_us: int | None = None,
    seqs: Seqs = _IN_ORDER,
) -> list[dict[str, Any]]:
    """Return the results of a join over whole streams.

    Parameters
    ----------
    join : Join
    streams : mapping of name to table or list of dicts
        Each stream's tuples in the stream's order. A tuple's number (``_seq``) is its place in that order.
    lateness : bool
        Whether late tuples are left out.
    ends : sequence of mapping of name to int
        For each batch, how many records of each stream were read at its end. Needed for count windows over files that
        grow (see `source_order`), and with `idle`.
    idle : sequence of collection of str or (str, object)
        For each batch of `ends`, the streams that were idle at its end, and the partitions, as stream and partition;
        none where not given.
    partitions : mapping of name to sequence
        For each record of a stream with partitions the partition that it is of. The stream's tuples are then in an
        order in which each batch is a stretch, and each partition's are in the partition's order. With `ends`.
    until_us : int, optional
        With `how`: the last watermark. Tuples whose horizon it has not passed are not decided. None: all are, as at the
        end of the streams.
    seqs : mapping of name to sequence of int
        The numbers of a stream's records where they are not their places, as in a stream with partitions. They tell
        the tuples of self-joins apart, and of two partners that are equally near the smaller one is the nearer.

    Returns
    -------
    list of dict
        ``<stream>_<column>`` of every stream and column, ``<stream>_seq``, what is calculated and aggregates by their
        names, and ``event_time_us``; for periodic windows also ``window_id``, and ``rank`` where a tuple may have
        several nearest partners. All are None for a stream that lacks (`how`); a semi or anti join has the first
        stream's alone. Sorted by the numbers and the window, None last; nearest partners by their rank.
    """
    rows = {name: listed(streams[name]) for name in join.names}
    times, results = times_of(join, rows, ends, idle, partitions), []
    ranks: dict[int, int] = {}
    before, place = None, 0
    known: dict[str, Any] = {"lateness": lateness, "ends": ends, "idle": idle, "partitions": partitions, "seqs": seqs}
    pairs = _combinations(join, rows, **known)[2] if join.reduce and not join.row_kind.at_once else []
    for numbers in oracle_numbers(join, rows, until_us=until_us, **known):
        result: dict[str, Any] = {}
        for name, number in zip(join.names, numbers, strict=False):
            columns = _columns(join, name, streams[name])
            values = dict.fromkeys(columns) if number is None else rows[name][number]
            result.update({f"{name}_{column}": value for column, value in values.items()})
            result[f"{name}_seq"] = number
        chosen = {n: None if m is None else rows[n][m] for n, m in zip(join.names, numbers, strict=False)}
        result.update(oracle_outputs(join, chosen))
        if join.reduce and not join.row_kind.at_once:  # partners that are rows of a table: `beside_tables`
            (own_name, other_name), (own, *_) = join.names, numbers
            of = seqs.get(other_name)
            others = [other for one, other in pairs if one == own]
            partners = [(times[1][n], n if of is None else of[n], rows[other_name][n]) for n in others]
            result.update(oracle_aggregates(join, rows[own_name][own], partners))  # type: ignore[arg-type]
        found = [times[stream][number] for stream, number in enumerate(numbers) if number is not None]
        found = found if join.nearest is None else found[:1]
        result["event_time_us"] = max(time for time in found if time is not None)
        if join.nearest is not None and join.nearest.k > 1 and not join.row_kind.at_once:
            ranks[numbers[0]] = ranks.get(numbers[0], 0) + 1
            result["rank"] = None if numbers[1] is None else ranks[numbers[0]]
        if isinstance(join.window, PeriodicWindow):
            # `oracle_numbers` repeats a result for each window, one after the other.
            place = place + 1 if numbers == before else 0
            result["window_id"] = common_windows(join, times, numbers)[place]
        before = numbers
        results.append(result)
    return results


def oracle_numbers(
    join: Join,
    streams: Mapping[str, Rows],
    *,
    lateness: bool = True,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = NO_PARTITIONS,
    until_us: int | None = None,
    seqs: Seqs = _IN_ORDER,
) -> list[tuple[Any, ...]]:
    """Return the results as tuples' numbers, one for each stream, sorted; None for a stream that lacks comes last.

    Nearest partners are sorted by the tuple's number, then by rank. For periodic windows a result is there once for
    each window that its tuples share. Count windows go by the order of
    `source_order`, in which late and broken records have their places. A semi or anti join's results are one number.
    Arguments as for `oracle_join`.
    """
    rows = {name: listed(streams[name]) for name in join.names}
    known = {"ends": ends, "idle": idle, "partitions": partitions, "seqs": seqs}
    times, usable, found = _combinations(join, rows, lateness=lateness, **known)  # type: ignore[arg-type]
    if join.row_kind.at_once:
        return [(number,) for number in usable[0]]
    if join.nearest is not None:
        return nearest_rows(join, rows, times, usable, found, until_us, seqs.get(join.names[1]))
    if join.row_kind.of_each:
        return rows_of_each(join, times, usable, found, until_us)
    return rows_of_kind(join, times, usable, found, until_us) if join.row_kind.decided else sorted(found)


def _combinations(
    join: Join,
    streams: Mapping[str, Rows],
    *,
    lateness: bool,
    ends: Ends,
    idle: Idle,
    partitions: Partitions,
    seqs: Seqs,
) -> tuple[Times, Sequence[Sequence[int]], list[tuple[int, ...]]]:
    """Return the event times, the numbers of the tuples that may have partners, and the pairs or combinations.

    Where each other stream has partners of its own, it is the pairs: the first stream's number, the other stream, and
    its number.
    """
    rows = {name: listed(streams[name]) for name in join.names}
    order: dict[str, list[int]] = {name: [] for name in join.names}
    if isinstance(join.window, CountWindow):
        for place, (name, _) in enumerate(source_order(join, rows, ends, idle)):
            order[name].append(place)
    times, usable = times_of(join, rows, ends, idle, partitions), []
    for stream, stream_times in zip(join.streams, times, strict=True):
        known = {"ends": ends, "idle": idle, "partitions": partitions}
        late = set(late_rows(join, stream.name, rows, **known)) if lateness else set()  # type: ignore[arg-type]
        gone = late | set(filtered_rows(join, stream.name, rows[stream.name]))
        gone |= set(duplicate_rows(join, stream.name, rows[stream.name], partitions))
        usable.append([n for n, time in enumerate(stream_times) if time is not None and n not in gone])
    if join.row_kind.of_each:
        return times, usable, _pairs_of_each(join, rows, times, usable, seqs)
    places = [order[name] for name in join.names]
    partial: list[tuple[int, ...]] = [()]
    for place in range(len(join.streams)):
        partial = [
            (*numbers, number)
            for numbers in partial
            for number in usable[place]
            if in_windows(join, times, places, numbers, number)
            and _joins(join, rows, dict(enumerate(numbers)), place, number, seqs)
        ]
    if isinstance(join.window, PeriodicWindow):
        partial = [numbers for numbers in partial for _ in common_windows(join, times, numbers)]
    return times, usable, partial


def _columns(join: Join, name: str, rows: Rows) -> list[str]:
    if isinstance(rows, pa.Table):
        return list(rows.column_names)
    schema = join.streams[join.names.index(name)].schema
    return list(rows[0] if rows else schema.names if isinstance(schema, pa.Schema) else ())


def source_order(join: Join, streams: Mapping[str, Rows], ends: Ends = (), idle: Idle = ()) -> list[tuple[str, int]]:
    """Return all records of all streams, as stream and number, in the source's order.

    The order is by the largest event time so far in the record's own stream, then by the stream's place in the join,
    then by number. That holds where the source has all records at once. Where files grow, records of a later batch come
    later: with `ends` the order is by batch first. `ends` has, for each batch, how many records of each stream were
    read at its end (sums of the ledger's ``read``).
    """
    keys: list[tuple[int, int | float, int, int]] = []
    times = times_of(join, {name: listed(streams[name]) for name in join.names}, ends, idle)
    for stream, name in enumerate(join.names):
        largest: int | float = float("-inf")
        for number, time in enumerate(times[stream]):
            largest = largest if time is None else max(largest, time)
            batch = sum(end[name] <= number for end in ends)
            keys.append((batch, largest, stream, number))
    return [(join.names[stream], number) for _, _, stream, number in sorted(keys)]


def _pairs_of_each(
    join: Join, rows: Mapping[str, Sequence[Row]], times: Times, usable: Sequence[Sequence[int]], seqs: Seqs
) -> list[tuple[int, ...]]:
    return [
        (own, other, number)
        for other in range(1, len(join.names))
        for own in usable[0]
        for number in usable[other]
        if in_time_windows(join, times, (0, own), (other, number))
        and _joins(join, rows, {}, 0, own, seqs)
        and _joins(join, rows, {0: own}, other, number, seqs)
    ]


def _joins(
    join: Join,
    rows: Mapping[str, Sequence[Row]],
    numbers: Mapping[int, int],
    place: int,
    number: int,
    seqs: Seqs,
) -> bool:
    """Whether all predicates hold between a tuple of stream `place` and tuples of other streams, given by number."""

    def called(stream: str, one: int) -> int:
        return seqs[stream][one] if stream in seqs else one

    name = join.names[place]
    row = rows[name][number]
    chosen = {join.names[n]: rows[join.names[n]][other] for n, other in numbers.items()}
    for n, other in numbers.items():
        source = join.streams[place].source
        same = source is not None and join.streams[n].source == source
        if same and not join.include_self_pairs and called(join.names[n], other) == called(name, number):
            return False
    chosen[name] = row
    for predicate in join.predicates:
        if isinstance(predicate, Band):
            streams = {predicate.left.stream, predicate.right.stream}
            stands = not streams <= chosen.keys() or band_holds(join, predicate, chosen)
        else:
            streams = set(streams_of(predicate))
            stands = not streams <= chosen.keys() or oracle_value(join, predicate, chosen) is True
        if name in streams and not stands:
            return False
    return True


def band_holds(join: Join, predicate: Band, rows: Mapping[str, Row]) -> bool:
    left, right = (column_value(join, column, rows[column.stream]) for column in (predicate.left, predicate.right))
    if left is None or right is None:
        return False
    if isinstance(left, (str, bytes, bool, tuple)):
        return bool(left == right)
    if predicate.is_equality and isinstance(left, float) and isinstance(right, float):
        return left == right  # an infinity is equal to itself, though their difference is NaN
    lo, hi = predicate.lo, predicate.hi
    if isinstance(left, float) or isinstance(right, float):
        difference = float(left) - float(right)
        return float(lo) <= difference <= float(hi)  # type: ignore[arg-type]
    least, most = (Fraction(repr(end)) if isinstance(end, float) else plain_value(end) for end in (lo, hi))
    return bool(least <= left - right <= most)
