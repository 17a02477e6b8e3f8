"""The contract in plain Python: which results a join has over whole streams, and beside tables.

It is written to be read: no arrays, no index, one loop for each stream. It uses nothing of the engine. The window rule
says which tuples of several streams may meet. For tables see ARCHITECTURE.md, "A stream and a table".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.expression.tree import streams_of
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.window import CountWindow, PeriodicWindow
from streamjoin_ds.testing.arrivals import (
    ALL_THERE,
    NO_PARTITIONS,
    Ends,
    Idle,
    Partitions,
    Row,
    Rows,
    There,
    duplicate_rows,
    filtered_rows,
    late_rows,
    listed,
    times_of,
)
from streamjoin_ds.testing.partners import Times, nearest_rows, oracle_aggregates, rows_of_each, rows_of_kind
from streamjoin_ds.testing.values import column_value, oracle_outputs, oracle_value, plain_value

__all__ = [
    "beside_tables",
    "common_windows",
    "in_time_windows",
    "in_windows",
    "oracle_join",
    "oracle_numbers",
    "oracle_table_join",
    "source_order",
]

Seqs: TypeAlias = "Mapping[str, Sequence[int]]"
_IN_ORDER: Seqs = {}


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


def oracle_join(
    join: Join,
    streams: Mapping[str, Rows],
    *,
    lateness: bool = True,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = NO_PARTITIONS,
    there: There = ALL_THERE,
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
    there : mapping of name to sequence of int
        For each record of a stream with devices the first batch whose planner could see it; by default the first.
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
    known: dict[str, Any] = {"lateness": lateness, "ends": ends, "idle": idle, "partitions": partitions}
    known |= {"there": there, "seqs": seqs}
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
    there: There = ALL_THERE,
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
    known = {"ends": ends, "idle": idle, "partitions": partitions, "there": there, "seqs": seqs}
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
    there: There,
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
        known = {"ends": ends, "idle": idle, "partitions": partitions, "there": there}
        late = set(late_rows(join, stream.name, rows, **known)) if lateness else set()  # type: ignore[arg-type]
        gone = late | set(filtered_rows(join, stream.name, rows[stream.name]))
        gone |= set(duplicate_rows(join, stream.name, rows[stream.name], **known))  # type: ignore[arg-type]
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
        source = join.streams[place].location
        same = source is not None and join.streams[n].location == source
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


def oracle_table_join(
    join: Join,
    streams: Mapping[str, Rows],
    tables: Mapping[str, Rows] | Sequence[Mapping[str, Rows]],
    *,
    ends: Sequence[Mapping[str, int]] = (),
    **known: Any,
) -> list[dict[str, Any]]:
    """Return the results of a join of streams and tables over whole streams.

    Parameters
    ----------
    join : Join
    streams, ends, known
        As for `oracle_join`.
    tables : mapping of name to rows, or sequence of such mappings
        The rows of each table: of the only version, or for each batch of `ends` those of its version.

    Returns
    -------
    list of dict
        As `oracle_join`, with ``<table>_<column>`` and ``<table>_seq`` of each table. A result has the version of the
        batch that brought the last of its tuples. Sorted as those of the streams, then by the rows' places.
    """
    return beside_tables(join, oracle_join(join, streams, ends=ends, **known), streams, tables, ends=ends)


def beside_tables(
    join: Join,
    found_results: Sequence[Mapping[str, Any]],
    streams: Mapping[str, Rows],
    tables: Mapping[str, Rows] | Sequence[Mapping[str, Rows]],
    *,
    ends: Sequence[Mapping[str, int]] = (),
) -> list[dict[str, Any]]:
    """Return results of the streams alone, each with the rows of the tables that it meets (`oracle_table_join`)."""
    results = []
    for found in found_results:
        tuples = {name: listed(streams[name])[found[f"{name}_seq"]] for name in join.names}
        batch = max(sum(end[name] <= found[f"{name}_seq"] for end in ends) for name in join.names)
        version = tables if isinstance(tables, Mapping) else tables[batch]
        rows = [list(enumerate(listed(version[table.name]))) for table in join.tables]
        if join.row_kind.at_once:
            results += _of_one(join, found, tuples, rows[0])
            continue
        for chosen in product(*rows):
            places = {table.name: place for table, (place, _) in zip(join.tables, chosen, strict=True)}
            picked = {table.name: row for table, (_, row) in zip(join.tables, chosen, strict=True)}
            if all(_stands(join, name, {**tuples, **picked}) for name in picked):
                columns = {f"{name}_{column}": value for name, row in picked.items() for column, value in row.items()}
                results.append({**found, **columns, **{f"{name}_seq": place for name, place in places.items()}})
    return results


def _of_one(
    join: Join,
    found: Mapping[str, Any],
    tuples: Mapping[str, Mapping[str, Any]],
    rows: Sequence[tuple[int, Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the results of a tuple whose partners are rows of a table: with `how`, or summed up."""
    (name,) = [table.name for table in join.tables]
    own = [one for one in join.predicates if not isinstance(one, Band) and streams_of(one) == join.names]
    may = all(oracle_value(join, one, tuples) is True for one in own)
    partners = [(place, row) for place, row in rows if may and _stands(join, name, {**tuples, name: row})]
    if join.reduce:
        sums = oracle_aggregates(join, tuples[join.names[0]], [(0, place, row) for place, row in partners])
        return [{**found, **sums}] if partners or join.how == "left" else []
    if join.how in ("semi", "anti"):
        return [{**found}] if bool(partners) == (join.how == "semi") else []
    if join.nearest is not None:
        partners = _nearest(join, tuples, partners)
    kept: list[tuple[int | None, Mapping[str, Any]]] = [*partners]
    kept = kept or ([(None, {})] if join.how == "left" else [])
    made = [{**found, **{f"{name}_{c}": value for c, value in row.items()}, f"{name}_seq": n} for n, row in kept]
    if join.nearest is not None and join.nearest.k > 1:
        made = [{**row, "rank": rank if partners else None} for rank, row in enumerate(made, 1)]
    return made


def _nearest(
    join: Join, tuples: Mapping[str, Mapping[str, Any]], partners: Sequence[tuple[int, Mapping[str, Any]]]
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the nearest of a tuple's rows: by the distance, then by their places."""
    assert join.nearest is not None, "the join asks for the nearest"
    assert join.nearest.by is not None, "a table has no event times"
    ranked = []
    for place, row in partners:
        distance = oracle_value(join, join.nearest.by, {**tuples, join.tables[0].name: row})
        if distance is not None and distance == distance:
            ranked.append((distance, place, row))
    return [(place, row) for _, place, row in sorted(ranked, key=lambda one: one[:2])[: join.nearest.k]]


def _stands(join: Join, name: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all conditions that name a table hold, its own `where` among them."""
    where = next(table.where for table in join.tables if table.name == name)
    if where is not None and not isinstance(where, str) and oracle_value(join, where, rows) is not True:
        return False
    for predicate in join.predicates:
        if isinstance(predicate, Band):
            if name in (predicate.left.stream, predicate.right.stream) and not band_holds(join, predicate, rows):
                return False
        elif name in streams_of(predicate) and oracle_value(join, predicate, rows) is not True:
            return False
    return True
