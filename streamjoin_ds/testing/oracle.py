"""The contract in plain Python: which results a join has over whole streams, and what it sets aside.

It is written to be read: no arrays, no index, one loop for each stream. It uses nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.spec.count_window import CountWindow
from streamjoin_ds.spec.expression import conjuncts, normalised, streams_of
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.periodic_window import PeriodicWindow
from streamjoin_ds.spec.predicate import Band
from streamjoin_ds.testing.partners import Times, nearest_rows, rows_of_kind
from streamjoin_ds.testing.sums import oracle_aggregates
from streamjoin_ds.testing.values import column_value, event_time_us, oracle_outputs, oracle_value, plain_value
from streamjoin_ds.testing.windows import common_windows, in_windows

__all__ = [
    "ahead_rows",
    "batch_watermarks",
    "filtered_rows",
    "late_rows",
    "oracle_join",
    "oracle_numbers",
    "source_order",
]

Row: TypeAlias = "Mapping[str, Any]"
Rows: TypeAlias = "Sequence[Row] | pa.Table"
Ends: TypeAlias = "Sequence[Mapping[str, int]]"
Idle: TypeAlias = "Sequence[Collection[str | tuple[str, object]]]"
Partitions: TypeAlias = "Mapping[str, Sequence[object]]"

Seqs: TypeAlias = "Mapping[str, Sequence[int]]"

_NONE: Partitions = {}
_IN_ORDER: Seqs = {}


def oracle_join(
    join: Join,
    streams: Mapping[str, Rows],
    *,
    lateness: bool = True,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = _NONE,
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
        With nearest partners, of which the smaller number is the nearer: the numbers of a stream's records where they
        are not their places, as in a stream with partitions.

    Returns
    -------
    list of dict
        ``<stream>_<column>`` of every stream and column, ``<stream>_seq``, what is calculated and aggregates by their
        names, and ``event_time_us``; for periodic windows also ``window_id``, and ``rank`` where a tuple may have
        several nearest partners. All are None for a stream that lacks (`how`); a semi or anti join has the first
        stream's alone. Sorted by the numbers and the window, None last; nearest partners by their rank.
    """
    rows = {name: _listed(streams[name]) for name in join.names}
    times, results = _times(join, rows, ends, idle), []
    ranks: dict[int, int] = {}
    before, place = None, 0
    known: dict[str, Any] = {"lateness": lateness, "ends": ends, "idle": idle, "partitions": partitions}
    pairs = _combinations(join, rows, **known)[2] if join.reduce else []
    for numbers in oracle_numbers(join, rows, until_us=until_us, seqs=seqs, **known):
        result: dict[str, Any] = {}
        for name, number in zip(join.names, numbers, strict=False):
            columns = _columns(join, name, streams[name])
            values = dict.fromkeys(columns) if number is None else rows[name][number]
            result.update({f"{name}_{column}": value for column, value in values.items()})
            result[f"{name}_seq"] = number
        chosen = {n: None if m is None else rows[n][m] for n, m in zip(join.names, numbers, strict=False)}
        result.update(oracle_outputs(join, chosen))
        if join.reduce:
            (own_name, other_name), (own, *_) = join.names, numbers
            of = seqs.get(other_name)
            others = [other for one, other in pairs if one == own]
            partners = [(times[1][n], n if of is None else of[n], rows[other_name][n]) for n in others]
            result.update(oracle_aggregates(join, rows[own_name][own], partners))  # type: ignore[arg-type]
        found = [times[stream][number] for stream, number in enumerate(numbers) if number is not None]
        found = found if join.nearest is None else found[:1]
        result["event_time_us"] = max(time for time in found if time is not None)
        if join.nearest is not None and join.nearest.k > 1:
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
    partitions: Partitions = _NONE,
    until_us: int | None = None,
    seqs: Seqs = _IN_ORDER,
) -> list[tuple[Any, ...]]:
    """Return the results as tuples' numbers, one for each stream, sorted; None for a stream that lacks comes last.

    Nearest partners are sorted by the tuple's number, then by rank. For periodic windows a result is there once for
    each window that its tuples share. Count windows go by the order of
    `source_order`, in which late and broken records have their places. A semi or anti join's results are one number.
    Arguments as for `oracle_join`.
    """
    rows = {name: _listed(streams[name]) for name in join.names}
    times, usable, found = _combinations(join, rows, lateness=lateness, ends=ends, idle=idle, partitions=partitions)
    if join.nearest is not None:
        return nearest_rows(join, rows, times, usable, found, until_us, seqs.get(join.names[1]))
    return rows_of_kind(join, times, usable, found, until_us) if join.row_kind.decided else sorted(found)


def _combinations(
    join: Join, streams: Mapping[str, Rows], *, lateness: bool, ends: Ends, idle: Idle, partitions: Partitions
) -> tuple[Times, Sequence[Sequence[int]], list[tuple[int, ...]]]:
    """Return the event times, the numbers of the tuples that may have partners, and the pairs or combinations."""
    rows = {name: _listed(streams[name]) for name in join.names}
    order: dict[str, list[int]] = {name: [] for name in join.names}
    if isinstance(join.window, CountWindow):
        for place, (name, _) in enumerate(source_order(join, rows, ends, idle)):
            order[name].append(place)
    times, usable = _times(join, rows, ends, idle), []
    for stream, stream_times in zip(join.streams, times, strict=True):
        known = {"ends": ends, "idle": idle, "partitions": partitions}
        late = set(late_rows(join, stream.name, rows, **known)) if lateness else set()  # type: ignore[arg-type]
        gone = late | set(filtered_rows(join, stream.name, rows[stream.name]))
        usable.append([n for n, time in enumerate(stream_times) if time is not None and n not in gone])
    places = [order[name] for name in join.names]
    partial: list[tuple[int, ...]] = [()]
    for place in range(len(join.streams)):
        partial = [
            (*numbers, number)
            for numbers in partial
            for number in usable[place]
            if in_windows(join, times, places, numbers, number) and _joins(join, rows, numbers, place, number)
        ]
    if isinstance(join.window, PeriodicWindow):
        partial = [numbers for numbers in partial for _ in common_windows(join, times, numbers)]
    return times, usable, partial


def _columns(join: Join, name: str, rows: Rows) -> list[str]:
    if isinstance(rows, pa.Table):
        return list(rows.column_names)
    schema = join.streams[join.names.index(name)].schema
    return list(rows[0] if rows else schema.names if isinstance(schema, pa.Schema) else ())


def filtered_rows(join: Join, name: str, rows: Rows) -> list[int]:
    """Return the numbers of a stream's tuples that a condition on this stream alone leaves out.

    Where a tuple without a partner makes a row, a condition of the predicates leaves none out: it takes its partners.
    """
    stream = join.streams[join.names.index(name)]
    lonely = {"left": [0], "right": [1], "full": [0, 1], "anti": [0]}.get(join.how, [])
    conditions = [
        part
        for predicate in join.predicates
        if not isinstance(predicate, Band) and join.names.index(name) not in lonely
        for part in conjuncts(normalised(predicate))
        if streams_of(part) == (name,)
    ]
    if stream.where is not None and not isinstance(stream.where, str):
        conditions.append(stream.where)
    return [
        number
        for number, row in enumerate(_listed(rows))
        if _time(join, name, row) is not None
        and any(oracle_value(join, condition, {name: row}) is not True for condition in conditions)
    ]


def ahead_rows(join: Join, name: str, rows: Rows, *, ends: Ends = (), idle: Idle = ()) -> list[int]:
    """Return the numbers of a stream's records that are further ahead of those before them than `max_ahead` allows.

    Their event times do not count. The stream's first event time is measured against nothing, and so is the first one
    after the stream was idle.
    """
    stream = join.streams[join.names.index(name)]
    if stream.max_ahead_us is None:
        return []
    ahead: list[int] = []
    largest, is_measured = None, False
    began = {end[name] for end, names in zip(ends, idle, strict=False) if name in names}
    for number, row in enumerate(_listed(rows)):
        time = _time(join, name, row)
        is_measured = is_measured and number not in began
        if time is None:
            continue
        if is_measured and largest is not None and time > largest + stream.max_ahead_us:
            ahead.append(number)
            continue
        largest, is_measured = time if largest is None else max(largest, time), True
    return ahead


def late_rows(
    join: Join,
    name: str,
    rows: Rows | Mapping[str, Rows],
    *,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = _NONE,
) -> list[int]:
    """Return the numbers of a stream's late tuples: older than the largest event time before them minus the delay.

    Tuples that are filtered out tell the time, and are not late. Where streams were idle, a tuple is also late if it is
    older than the watermark at its batch's start. For that `rows` must have the rows of all streams. In a stream with
    partitions the event times before a tuple are those of its partition, and the watermark may be past a partition that
    is new, or was idle.
    """
    streams = rows if isinstance(rows, Mapping) else {name: rows}
    own = _listed(streams[name])
    gone = {*filtered_rows(join, name, own), *ahead_rows(join, name, own, ends=ends, idle=idle)}
    moving = set(range(len(own))) - set(ahead_rows(join, name, own, ends=ends, idle=idle))
    delay_us = join.streams[join.names.index(name)].delay_us
    has_floors = any(idle) or bool(partitions)
    floors = [None, *batch_watermarks(join, streams, ends, idle, partitions)] if has_floors else [None]
    late = []
    before: dict[object, int] = {}  # the largest event time so far of each partition
    of = partitions.get(name)
    for number, row in enumerate(own):
        time = _time(join, name, row)
        if time is None or number not in moving:
            continue
        floor = floors[min(sum(end[name] <= number for end in ends), len(floors) - 1)]
        partition = None if of is None else of[number]
        behind = partition in before and time < before[partition] - delay_us
        if (behind or (floor is not None and time < floor)) and number not in gone:
            late.append(number)
        before[partition] = max(before.get(partition, time), time)
    return late


def batch_watermarks(
    join: Join, streams: Mapping[str, Rows], ends: Ends, idle: Idle = (), partitions: Partitions = _NONE
) -> list[int | None]:
    """Return the watermark at the end of each batch; None until it is known. It never falls.

    It is the smallest, over the streams that are not idle, of the largest event time minus the delay. In a stream with
    partitions that is the smallest of those of its partitions that are not idle and of which a record was read; where
    all of them are idle, the largest.

    Parameters
    ----------
    ends : sequence of mapping of name to int
        For each batch, how many records of each stream were read at its end.
    idle : sequence of collection of str or (str, object)
        For each batch, the streams and the partitions that were idle at its end; none where not given.
    partitions : mapping of name to sequence
        See `oracle_join`.
    """
    listed = {name: _listed(streams[name]) for name in join.names}
    times = dict(zip(join.names, _times(join, listed, ends, idle), strict=True))
    watermarks: list[int | None] = []
    before: int | None = None
    for batch, end in enumerate(ends):
        asleep = idle[batch] if idle else ()
        lows = []
        for stream in join.streams:
            if stream.name not in asleep:
                read = times[stream.name][: end[stream.name]]
                asleep_here = {one[1] for one in asleep if isinstance(one, tuple) and one[0] == stream.name}
                largest = _low(read, partitions.get(stream.name), asleep_here)
                lows.append(None if largest is None else largest - stream.delay_us)
        known_lows = [low for low in lows if low is not None]
        if known_lows and len(known_lows) == len(lows):
            before = min(known_lows) if before is None else max(before, min(known_lows))
        watermarks.append(before)
    return watermarks


def _low(times: Sequence[int | None], of: Sequence[object] | None, asleep: Collection[object]) -> int | None:
    """Return the largest time; of a stream with partitions the smallest of the largest times of those that are active.

    None where there is no time, or where an active partition has none.
    """
    largest: dict[object, int | None] = {}
    for number, time in enumerate(times):
        partition = None if of is None else of[number]
        before = largest.setdefault(partition, None)
        if time is not None:
            largest[partition] = time if before is None else max(before, time)
    active = [time for partition, time in largest.items() if of is None or partition not in asleep]
    known = [time for time in active if time is not None]
    if not active:
        return max((time for time in largest.values() if time is not None), default=None)
    return min(known) if len(known) == len(active) else None


def source_order(join: Join, streams: Mapping[str, Rows], ends: Ends = (), idle: Idle = ()) -> list[tuple[str, int]]:
    """Return all records of all streams, as stream and number, in the source's order.

    The order is by the largest event time so far in the record's own stream, then by the stream's place in the join,
    then by number. That holds where the source has all records at once. Where files grow, records of a later batch come
    later: with `ends` the order is by batch first. `ends` has, for each batch, how many records of each stream were
    read at its end (sums of the ledger's ``read``).
    """
    keys: list[tuple[int, int | float, int, int]] = []
    times = _times(join, {name: _listed(streams[name]) for name in join.names}, ends, idle)
    for stream, name in enumerate(join.names):
        largest: int | float = float("-inf")
        for number, time in enumerate(times[stream]):
            largest = largest if time is None else max(largest, time)
            batch = sum(end[name] <= number for end in ends)
            keys.append((batch, largest, stream, number))
    return [(join.names[stream], number) for _, _, stream, number in sorted(keys)]


def _joins(join: Join, rows: Mapping[str, Sequence[Row]], numbers: Sequence[int], place: int, number: int) -> bool:
    """Whether all predicates hold between a tuple of stream `place` and the tuples of the streams before it."""
    name = join.names[place]
    row = rows[name][number]
    chosen = {join.names[n]: rows[join.names[n]][numbers[n]] for n in range(place)}
    for n in range(place):
        source = join.streams[place].source
        same = source is not None and join.streams[n].source == source
        if same and not join.include_self_pairs and numbers[n] == number:
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
    if isinstance(left, (str, bytes, bool)):
        return bool(left == right)
    lo, hi = predicate.lo, predicate.hi
    if isinstance(left, float) or isinstance(right, float):
        difference = float(left) - float(right)
        return float(lo) <= difference <= float(hi)  # type: ignore[arg-type]
    least, most = (Fraction(repr(end)) if isinstance(end, float) else plain_value(end) for end in (lo, hi))
    return bool(least <= left - right <= most)


def _times(join: Join, rows: Mapping[str, Sequence[Row]], ends: Ends, idle: Idle) -> Times:
    """Return the event times of every stream's records; None for records without one, and for those too far ahead."""
    times = []
    for name in join.names:
        ahead = set(ahead_rows(join, name, rows[name], ends=ends, idle=idle))
        times.append([None if n in ahead else _time(join, name, row) for n, row in enumerate(rows[name])])
    return times


def _time(join: Join, name: str, row: Row) -> int | None:
    stream = join.streams[join.names.index(name)]
    return event_time_us(row[stream.time], stream.time_unit)


def _listed(rows: Rows) -> Sequence[Row]:
    if isinstance(rows, pa.Table):
        listed: list[dict[str, Any]] = rows.to_pylist()
        return listed
    return rows
