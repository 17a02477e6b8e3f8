"""The contract in plain Python of records as they arrive: filtered, too far ahead, late, or duplicates of earlier ones.

One loop for each stream, no arrays; nothing of the engine. `random_batches` and `shuffled_within` cut and shuffle a
stream in ways that must not change a result.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.source.device_clocks import LOOK_AHEAD
from streamjoin_ds.spec.expression.predicate import Band, Column
from streamjoin_ds.spec.expression.tree import conjuncts, normalised, streams_of
from streamjoin_ds.spec.join import Join
from streamjoin_ds.testing.partners import Times
from streamjoin_ds.testing.values import column_value, event_time_us, oracle_value

__all__ = [
    "ALL_THERE",
    "NO_PARTITIONS",
    "Ends",
    "Idle",
    "Partitions",
    "Row",
    "Rows",
    "There",
    "ahead_rows",
    "batch_watermarks",
    "device_clocks",
    "duplicate_rows",
    "filtered_rows",
    "late_rows",
    "listed",
    "random_batches",
    "shuffled_within",
    "times_of",
]

Row: TypeAlias = "Mapping[str, Any]"
Rows: TypeAlias = "Sequence[Row] | pa.Table"
Ends: TypeAlias = "Sequence[Mapping[str, int]]"
Idle: TypeAlias = "Sequence[Collection[str | tuple[str, object]]]"
Partitions: TypeAlias = "Mapping[str, Sequence[object]]"
There: TypeAlias = "Mapping[str, Sequence[int]]"
NO_PARTITIONS: Partitions = {}
ALL_THERE: There = {}


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
        for number, row in enumerate(listed(rows))
        if _time(join, name, row) is not None
        and any(oracle_value(join, condition, {name: row}) is not True for condition in conditions)
    ]


def ahead_rows(
    join: Join, name: str, rows: Rows, *, ends: Ends = (), idle: Idle = (), partitions: Partitions = NO_PARTITIONS
) -> list[int]:
    """Return the numbers of a stream's records that are further ahead of those before them than `max_ahead` allows.

    Their event times do not count. The stream's first event time is measured against nothing, and so is the first one
    that moves its clock after it was idle. In a stream with partitions all of that is said of each of them.
    """
    stream = join.streams[join.names.index(name)]
    if stream.max_ahead_us is None:
        return []
    of = partitions.get(name)
    if of is not None:
        records, found = listed(rows), []
        for one in dict.fromkeys(of):
            own = [number for number, other in enumerate(of) if other == one]
            own_ends = [{name: sum(number < end[name] for number in own)} for end in ends]
            own_idle = [[name] if (name, one) in names else [] for names in idle]
            there = [records[number] for number in own]
            found += [own[place] for place in ahead_rows(join, name, there, ends=own_ends, idle=own_idle)]
        return sorted(found)
    ahead: list[int] = []
    largest, is_measured = None, False
    began = {end[name] for end, names in zip(ends, idle, strict=False) if name in names}
    for number, row in enumerate(listed(rows)):
        time = _time(join, name, row)
        is_measured = is_measured and number not in began
        if time is None:
            continue
        if is_measured and largest is not None and time > largest + stream.max_ahead_us:
            ahead.append(number)
            continue
        if largest is None or time > largest:
            largest, is_measured = time, True
    return ahead


def duplicate_rows(
    join: Join,
    name: str,
    rows: Rows,
    partitions: Partitions = NO_PARTITIONS,
    *,
    ends: Ends = (),
    idle: Idle = (),
    there: There = ALL_THERE,
) -> list[int]:
    """Return the numbers of a stream's duplicates (`Stream.unique`).

    A tuple is one where a tuple before it in its stream has the same key, and an event time no further away than the
    windows of its own stream and the longest of the others together (the span), and is remembered: it is no older than
    the largest time so far minus the delay and the span. What is filtered is none, but may have come before. A null or
    NaN in a key is equal to nothing. In a stream with partitions all of that holds in each of them alone. So it does in
    each device of a stream that has devices, where the clock that judges a tuple takes the place of the largest time.

    Parameters
    ----------
    ends, idle, there
        Of a stream that has devices, as in `device_clocks`.
    """
    place = join.names.index(name)
    stream, records, of = join.streams[place], listed(rows), partitions.get(name)
    key = stream.unique_key
    if not key:
        return []
    others = [join.window.extent(other) for other in range(len(join.names)) if other != place]
    span_us = join.window.extent(place) + max(others, default=0)
    filtered = set(filtered_rows(join, name, records))
    known = {"ends": ends, "idle": idle, "partitions": partitions, "there": there}
    judges = device_clocks(join, name, records, **known)[0]  # type: ignore[arg-type]
    seen: dict[object, list[tuple[list[Any], int]]] = {}
    furthest: dict[object, int] = {}
    found: list[int] = []
    for number, row in enumerate(records):
        time = _time(join, name, row)
        if time is None:
            continue
        values = [column_value(join, Column(name, column), row) for column in key]
        is_known = all(value is not None and value == value for value in values)
        within = (None if of is None else of[number], _device(stream.device_columns, row))
        largest = judges[number] if judges else furthest.get(within)
        oldest = time - span_us if largest is None else max(time, largest - stream.delay_us) - span_us
        before = seen.setdefault(within, [])
        is_repeated = any(values == other and oldest <= when <= time + span_us for other, when in before)
        if is_known and is_repeated and number not in filtered:
            found.append(number)
        if is_known:
            before.append((values, time))
        furthest[within] = max(furthest.get(within, time), time)
    return found


def _device(columns: Sequence[str], row: Row) -> tuple[object, ...]:
    return tuple(None if row[column] is None else str(row[column]) for column in columns)


def late_rows(
    join: Join,
    name: str,
    rows: Rows | Mapping[str, Rows],
    *,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = NO_PARTITIONS,
    there: There = ALL_THERE,
) -> list[int]:
    """Return the numbers of a stream's late tuples: older than the largest event time before them minus the delay.

    Tuples that are filtered out tell the time, and are not late. Where streams were idle, a tuple is also late if it is
    older than the watermark at its batch's start. For that `rows` must have the rows of all streams. In a stream with
    partitions the event times before a tuple are those of its partition, and the watermark may be past a partition that
    is new, or was idle. In a stream with devices a clock takes their place (`device_clocks`).
    """
    streams = rows if isinstance(rows, Mapping) else {name: rows}
    own = listed(streams[name])
    ahead = set(ahead_rows(join, name, own, ends=ends, idle=idle, partitions=partitions))
    gone, moving = {*filtered_rows(join, name, own), *ahead}, set(range(len(own))) - ahead
    delay_us = join.streams[join.names.index(name)].delay_us
    has_floors = any(idle) or bool(partitions)
    floors = [None, *batch_watermarks(join, streams, ends, idle, partitions, there)] if has_floors else [None]
    repeated = set(duplicate_rows(join, name, own, partitions, ends=ends, idle=idle, there=there))
    late = []
    before: dict[object, int] = {}  # the largest event time so far of each partition
    of = partitions.get(name)
    judges = device_clocks(join, name, own, ends=ends, idle=idle, partitions=partitions, there=there)[0]
    for number, row in enumerate(own):
        time = _time(join, name, row)
        if time is None or number not in moving:
            continue
        floor = floors[min(sum(end[name] <= number for end in ends), len(floors) - 1)]
        partition = None if of is None else of[number]
        judge = judges[number] if judges else before.get(partition)
        behind = judge is not None and time < judge - delay_us
        if (behind or (floor is not None and time < floor)) and number not in gone and number not in repeated:
            late.append(number)
        before[partition] = max(before.get(partition, time), time)
    return late


def device_clocks(
    join: Join,
    name: str,
    rows: Rows,
    *,
    ends: Ends = (),
    idle: Idle = (),
    partitions: Partitions = NO_PARTITIONS,
    there: There = ALL_THERE,
) -> tuple[list[int | None], list[int | None]]:
    """Return the clock that judges each record of a stream whose devices have clocks, and that at each batch's end.

    The first is the larger one of the largest time before the record of its device, and of the stream's clock. The
    stream's is the smallest of those of all devices that hold it, and never falls. A device holds it from
    `device_clocks.LOOK_AHEAD` records before its first one on, as far as these were there when the batch was planned,
    to the end of a batch at which it is idle, as `idle` says by stream and values. In a stream with partitions each has
    devices of its own, whose records come in the order of the plans: by batch, then by the largest time so far in the
    partition. Both are empty where the stream's devices have no clocks.

    Parameters
    ----------
    there : mapping of name to sequence of int
        For each record the first batch whose planner could see it. By default all are there from the start.
    """
    columns = join.streams[join.names.index(name)].device_columns
    if not columns:
        return [], []
    records, of = listed(rows), partitions.get(name)
    times = times_of(join, {**{one: [] for one in join.names}, name: records}, ends, idle, partitions)
    own = times[join.names.index(name)]
    batches = [sum(end[name] <= number for end in ends) for number in range(len(records))]
    since = there.get(name) or [0] * len(records)
    keys: list[tuple[Any, ...]] = []
    furthest: dict[object, int] = {}
    for number, time in enumerate(own):
        if of is None:
            keys.append((batches[number], number))
            continue
        before = furthest.get(of[number], float("-inf"))
        furthest[of[number]] = max(before, before if time is None else time)  # type: ignore[assignment]
        keys.append((batches[number], furthest[of[number]], list(dict.fromkeys(of)).index(of[number]), number))

    def device_of(number: int) -> tuple[object, ...]:
        return (*(() if of is None else (of[number],)), *_device(columns, records[number]))

    clocks: dict[tuple[object, ...], int] = {}
    active: set[tuple[object, ...]] = set()
    low: int | None = None
    judges: list[int | None] = [None] * len(records)
    lows: list[int | None] = []
    order = [number for number in sorted(range(len(records)), key=keys.__getitem__) if own[number] is not None]

    def advanced(place: int, batch: int) -> int | None:
        """Return the stream's clock before the record at a place, as a planner of a batch knows it."""
        held = {device: clocks[device] for device in active}
        for number in [each for each in order[place : place + LOOK_AHEAD] if since[each] <= batch]:
            device, time = device_of(number), own[number]
            assert time is not None
            held.setdefault(device, max(time, clocks.get(device, time)))
        known = [one for one in (low, min(held.values(), default=None)) if one is not None]
        return max(known, default=None)

    place = 0
    for batch in range(len(ends) + 1):
        while place < len(order) and batches[order[place]] == batch:
            number, device, time = order[place], device_of(order[place]), own[order[place]]
            assert time is not None
            low = advanced(place, batch)
            judges[number] = max(one for one in (clocks.get(device), low) if one is not None)
            clocks[device] = max(clocks.get(device, time), time)
            active.add(device)
            place += 1
        if batch < len(ends):
            low = advanced(place, batch)
            active -= {one[1] for one in (idle[batch] if idle else ()) if isinstance(one, tuple) and one[0] == name}
            low = advanced(place, batch)
            lows.append(low)
    return judges, lows


def batch_watermarks(
    join: Join,
    streams: Mapping[str, Rows],
    ends: Ends,
    idle: Idle = (),
    partitions: Partitions = NO_PARTITIONS,
    there: There = ALL_THERE,
) -> list[int | None]:
    """Return the watermark at the end of each batch; None until it is known. It never falls.

    It is the smallest, over the streams that are not idle, of the largest event time minus the delay. In a stream with
    partitions that is the smallest of those of its partitions that are not idle and of which a record was read; where
    all of them are idle, the largest. In a stream with devices it is the stream's clock (`device_clocks`).

    Parameters
    ----------
    ends : sequence of mapping of name to int
        For each batch, how many records of each stream were read at its end.
    idle : sequence of collection of str or (str, object)
        For each batch, the streams and the partitions that were idle at its end; none where not given.
    partitions : mapping of name to sequence
        See `oracle_join`.
    there : mapping of name to sequence of int
        See `device_clocks`.
    """
    records = {name: listed(streams[name]) for name in join.names}
    times = dict(zip(join.names, times_of(join, records, ends, idle, partitions), strict=True))
    watermarks: list[int | None] = []
    before: int | None = None
    known = {"ends": ends, "idle": idle, "partitions": partitions, "there": there}
    devices = {name: device_clocks(join, name, records[name], **known)[1] for name in join.names}  # type: ignore[arg-type]
    for batch, end in enumerate(ends):
        asleep = idle[batch] if idle else ()
        lows = []
        for stream in join.streams:
            if stream.name not in asleep:
                read = times[stream.name][: end[stream.name]]
                asleep_here = {one[1] for one in asleep if isinstance(one, tuple) and one[0] == stream.name}
                by_device = devices[stream.name]
                largest = by_device[batch] if by_device else _low(read, partitions.get(stream.name), asleep_here)
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


def times_of(
    join: Join, rows: Mapping[str, Sequence[Row]], ends: Ends, idle: Idle, partitions: Partitions = NO_PARTITIONS
) -> Times:
    """Return the event times of every stream's records; None for records without one, and for those too far ahead."""
    times = []
    for name in join.names:
        ahead = set(ahead_rows(join, name, rows[name], ends=ends, idle=idle, partitions=partitions))
        times.append([None if n in ahead else _time(join, name, row) for n, row in enumerate(rows[name])])
    return times


def _time(join: Join, name: str, row: Row) -> int | None:
    stream = join.streams[join.names.index(name)]
    return event_time_us(row[stream.time], stream.time_unit)


def listed(rows: Rows) -> Sequence[Row]:
    """Return records as a sequence of mappings."""
    if isinstance(rows, pa.Table):
        found: list[dict[str, Any]] = rows.to_pylist()
        return found
    return rows
