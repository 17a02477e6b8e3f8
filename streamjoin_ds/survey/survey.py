"""A survey of a source: what it is, and the options with which a join reads it, each tried on the source itself.

::

    source ──► samples (how it is written) ──► clocks (which column is the time, and how) ──► trial: the first records,
               dialect, envelope, rows         column, form, unit, zone                       read as a join reads them

A way counts when most records become tuples with the times that were expected. The likeliest way that does is the
proposal. Whatever the values did not decide stands among its guesses.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.duration import duration_text
from streamjoin_ds.errors import ColumnError, StreamJoinError
from streamjoin_ds.source.records import Chunk, RawRecords, Reject, inside_form
from streamjoin_ds.source.stream_source import first_records, infer_schema
from streamjoin_ds.spec import Generator, Stream
from streamjoin_ds.spec.columns import SEQ, TIMESTAMP, TS, result_type, zones_of
from streamjoin_ds.spec.event_time import DAY_US, NO_TIME, running_maximum
from streamjoin_ds.spec.member.computed_columns import TIME_NAME, all_columns, read_columns, with_written
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.nested_path import inner_type, is_inner, path_of, path_text, with_paths
from streamjoin_ds.survey.clock import Clock, clocks_of, counting_from_a_start, moment, zone_of
from streamjoin_ds.survey.sample import Sample, given_options_of, sample_of_table, samples_of, with_options

__all__ = ["ROWS", "ColumnSeen", "Survey", "TimesOrder", "first_tuples", "rounded_up", "survey_of"]

ROWS = 10_000  # records that are read as a join reads them, at most
_FIRST = 3  # tuples that are shown
_TRIALS = 12  # ways that are tried on the source, at most
_ENOUGH = 0.98  # the share of records that must become tuples, so that no other way is tried
_LEAST = 0.5  # the share without which a way is none
_AS_LIKELY = 0.95  # the score from which on another column may be the event time as well
_SENTINELS = (-9999, -999, -99, -99.9, -999.9, -32768)  # smallest values that are hardly measured
_AGREE = 0.9  # the share of times that must be those that were expected
DELAYS_US = (0, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000, DAY_US)
_KEPT = 0.999  # the share of records that the proposed delay keeps
_SHOWN_REJECTS = 3
_DEPTH = 8  # of paths
_MANY_LATE = 0.01  # the share of late records from which on a source may have partitions


class ColumnSeen(Struct, frozen=True):
    """A column of the records that were read: its type, smallest and largest value, and the share of nulls."""

    name: str
    type: str
    least: Any
    most: Any
    nulls: float


class TimesOrder(Struct, frozen=True):
    """How the event times of records lie, in the order of the source.

    Attributes
    ----------
    first_us, last_us : int
        The smallest and the largest.
    back : float
        The share of records that are older than the one before them.
    rate : float or None
        Records a second; None where no time passes.
    step_us : int
        The median step between different times.
    gaps : int
        Steps of more than ten times that, and at least a second.
    longest_us, longest_at_us : int
        The longest step, and where it begins.
    late : tuple of (int, float)
        Delays in microseconds, and the share of records that are late with each.
    delay_us : int
        The smallest delay known that keeps 99.9 % of them.
    """

    first_us: int
    last_us: int
    back: float
    rate: float | None
    step_us: int
    gaps: int
    longest_us: int
    longest_at_us: int
    late: tuple[tuple[int, float], ...]
    delay_us: int

    @property
    def is_newest_first(self) -> bool:
        """Whether nearly all steps go back."""
        return self.back > 0.9

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> TimesOrder | None:
        """Return how the times of records lie; None where there are none."""
        parts = [(chunk.tuples.column(TS).to_numpy(), chunk.before) for chunk in chunks if chunk.tuples.num_rows]
        if not parts:
            return None
        times = np.concatenate([part for part, _ in parts])
        late_by, largest = [], NO_TIME
        for part, before in parts:
            running = running_maximum(part, None, largest)
            known = np.concatenate([[largest], running[:-1]]) if before is None else before
            late_by.append(np.where(known == NO_TIME, 0, np.maximum(known - part, 0)))
            largest = int(running[-1])
        late = np.concatenate(late_by)
        steps, ordered = np.diff(times), np.unique(times)
        forward = np.diff(ordered)
        step = int(np.median(forward)) if len(forward) else 0
        span = int(ordered[-1] - ordered[0])
        wide = forward > max(10 * step, 1_000_000)
        place = int(np.argmax(forward)) if len(forward) else 0
        return cls(
            int(ordered[0]),
            int(ordered[-1]),
            float((steps < 0).mean()) if len(steps) else 0.0,
            (len(times) - 1) * 1e6 / span if span else None,
            step,
            int(wide.sum()),
            int(forward[place]) if len(forward) else 0,
            int(ordered[place]),
            tuple((delay, float((late > delay).mean())) for delay in DELAYS_US),
            rounded_up(int(np.sort(late)[min(int(np.ceil(len(late) * _KEPT)), len(late)) - 1])),
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """What a source is, and how to read it.

    Attributes
    ----------
    name : str
        The stream's.
    location : str
        The source, as it was given.
    words : mapping of str to str
        What it is.
    stream : Stream or None
        The proposal; None where no way gave tuples.
    options : mapping
        Its options that are not at their defaults.
    clock : Clock or None
        How the event time is read.
    columns : tuple of ColumnSeen
    order : TimesOrder or None
    records, tuples : int
        How many records were read, and became tuples.
    rejects : tuple of (str, int)
        Why the others did not, and how many.
    first : tuple of mapping
        The first tuples, as the join would see them.
    guesses, remarks : tuple of str
        What the values do not decide, and what else is to be known.
    sample : pyarrow.Table or None
        The tuples that were read, in the inside form.
    schema : pyarrow.Schema or None
        The columns that are written.
    """

    name: str
    location: str
    words: Mapping[str, str]
    stream: Stream | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock | None = None
    columns: tuple[ColumnSeen, ...] = ()
    order: TimesOrder | None = None
    records: int = 0
    tuples: int = 0
    rejects: tuple[tuple[str, int], ...] = ()
    first: tuple[Mapping[str, Any], ...] = ()
    guesses: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    sample: pa.Table | None = None
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the source gave with some options."""

    stream: Stream
    sample: Sample
    clock: Clock | None
    chunks: Sequence[Chunk]
    written: pa.Schema
    nested: tuple[str, ...] = ()  # which columns are paths
    zone_guesses: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # what is said of columns that records do not have as they should

    @property
    def records(self) -> int:
        return sum(chunk.count for chunk in self.chunks)

    @property
    def tuples(self) -> int:
        return sum(chunk.tuples.num_rows for chunk in self.chunks)

    @property
    def share(self) -> float:
        return self.tuples / self.records if self.records else 0.0


def survey_of(
    stream: Stream,
    given: Mapping[str, Any],
    rows: int = ROWS,
    now_us: int | None = None,
    table: pa.Table | None = None,
) -> Survey:
    """Return what a source is, and how to read it.

    Parameters
    ----------
    stream : Stream
        The source, with the options that the user gave.
    given : mapping
        These options: they are kept as they are.
    rows : int
        Records that are read, at most.
    now_us : int, optional
        The time now, in microseconds: by default the machine's.
    table : pyarrow.Table, optional
        Rows of a stream that has no source.

    Raises
    ------
    StreamJoinError
        The source is not there, or does not answer, or has no records.
    """
    now_us = int(time.time() * 1e6) if now_us is None else now_us
    samples = samples_of(stream) if table is None else [sample_of_table(table.slice(0, rows))]
    failed: list[tuple[str, str]] = []
    best: _Trial | None = None
    for sample, clock in _ways(stream, samples, given, now_us):
        zone, zone_guesses = ({}, ()) if clock is None else zone_of(clock, sample.columns)
        clocked = {} if clock is None else {**_time_options(clock, sample), **clock.options, **zone}
        options = {**sample.options, **clocked, **given}
        try:
            tried = _tried(stream, options, sample, clock, rows)
        except (StreamJoinError, OSError, pa.ArrowException) as error:
            failed.append((_way_words(clock), str(error).splitlines()[0]))
            continue
        if failed and clock is not None and not (clock.times_us[clock.valid] % DAY_US).any():
            failed.append((_way_words(clock), "these are days alone"))
            continue
        if tried.share < _LEAST or not _is_expected(tried):
            failed.append((_way_words(clock), f"{tried.tuples} of {tried.records} records become tuples"))
            continue
        tried = replace(tried, zone_guesses=zone_guesses)
        if best is None or tried.share > best.share + 0.02:
            best = tried
        if best.share >= _ENOUGH:
            break
    if best is None:
        return _unread(stream, samples, failed)
    if best.clock is not None and "time" not in given:
        best = replace(best, zone_guesses=(*best.zone_guesses, *_other_times(best.clock, best.sample, now_us)))
    return _surveyed(stream, best, failed if best.clock is not None else [], rows)


def _other_times(taken: Clock, sample: Sample, now_us: int) -> list[str]:
    """Return what is said of other columns that hold times as well: which one is meant is a guess."""
    used = {*taken.time.split(" || ")}
    names: list[str] = []
    for clock in clocks_of(sample.columns, now_us):
        own = {*clock.time.split(" || ")} - {"' '"}
        if clock.score >= _AS_LIKELY and not own & used:
            used |= own
            names.append(clock.time)
    if not names:
        return []
    return [f"{', '.join(names[:_SHOWN_REJECTS])} can be read as times too; {taken.time} is taken for the event time"]


def _ways(
    stream: Stream, samples: Sequence[Sample], given: Mapping[str, Any], now_us: int
) -> Iterator[tuple[Sample, Clock | None]]:
    """Yield what is to be tried, the likeliest first."""
    count = 0
    for sample in samples:
        clocks = clocks_of(sample.columns, now_us, str(stream.location))
        if "time" in given:
            clocks = [clock for clock in clocks if clock.time == given["time"]] or [None]  # type: ignore[list-item]
        elif not sample.columns:
            clocks = [None]  # type: ignore[list-item]
        for clock in clocks[:_TRIALS]:
            count += 1
            if count <= _TRIALS:
                yield sample, clock


def _time_options(clock: Clock, sample: Sample) -> dict[str, Any]:
    """Return the options that say which column the event time is, or how it is computed.

    An expression makes the column ts, so where there is one already it gets another name.
    """
    if " || " not in clock.time or TIME_NAME not in sample.columns:
        return {"time": clock.time}
    name = next(one for one in ("at", "event_time", "time_of_record") if one not in sample.columns)
    return {"columns": {name: clock.time}, "time": name}


def _way_words(clock: Clock | None) -> str:
    if clock is None:
        return "as it is"
    options = ", ".join(f"{name}={value!r}" for name, value in clock.options.items())
    return f'time="{clock.time}"' + (f", {options}" if options else "")


def _tried(stream: Stream, options: Mapping[str, Any], sample: Sample, clock: Clock | None, rows: int) -> _Trial:
    read = with_options(stream, options, sample.location)
    written = sample.table.schema if sample.table is not None else infer_schema(read)
    own, schema = _all_columns(read, written)
    left_out: list[str] = []
    while True:
        chunks = _of_table(sample.table, own, schema) if sample.table is not None else first_records(own, schema, rows)
        records = sum(chunk.count for chunk in chunks)
        broken = Counter(reject.column for chunk in chunks for reject in chunk.rejects)
        odd = [name for name, count in broken.items() if name in schema.names and count > records * (1 - _ENOUGH)]
        if not odd or _has_time(own, odd):
            return _Trial(read, sample, clock, chunks, written, own.nested, left_out=tuple(left_out))
        left_out += [
            f"column {name}: {broken[name]:,} of {records:,} records have no {schema.field(name).type} there, and are "
            f"rejects where it is joined or selected; schema says another type, columns a null: "
            f"{name}_or_null = TRY_CAST({name} AS ...)"
            for name in odd
        ]
        schema = pa.schema([column for column in schema if column.name not in odd])


def _has_time(stream: Stream, names: Sequence[str]) -> bool:
    """Whether the event time is one of some columns, or computed of them."""
    needed = () if stream.columns is None else stream.columns.needed
    return stream.time in names or bool(set(needed) & set(names))


def _of_table(table: pa.Table, stream: Stream, schema: pa.Schema) -> list[Chunk]:
    """Return rows that were handed over, as a join makes tuples of them."""
    read = table.select(read_columns(stream, schema).names)
    return [inside_form(RawRecords(read, read.num_rows), stream, schema, 0, stream.name, np.arange(read.num_rows) + 1)]


def _all_columns(stream: Stream, written: pa.Schema) -> tuple[Stream, pa.Schema]:
    """Return a stream as a join has it, and all columns that it can read, with the types that they have in a join."""
    made = () if stream.columns is None else stream.columns.needed
    paths = [path for column in written for path in _paths(column)]
    named = [stream.time, stream.zone_column or "", *made, *stream.device_columns, *paths]
    there = with_paths(written, list(dict.fromkeys(named)))
    nested = {column.name for column in there if is_inner(column)}
    nested |= {stream.time} if inner_type(there, stream.time) is not None else set()
    own = replace(stream, nested=tuple(sorted(nested)))
    computed = with_written(own, there)
    own = own if computed is None else replace(own, columns=computed)
    outer = {column.name for column in written if paths and [*_paths(column)]} - {stream.time}
    found = {}
    for column in all_columns(own, there):
        with contextlib.suppress(ColumnError):  # a type that no join has
            kind = TIMESTAMP if column.name == stream.time else result_type(column.type, column.name)
            if column.name not in outer:
                found[column.name] = column.with_type(kind)
    return own, pa.schema([*found.values()])


def as_written(parts: Sequence[str | int]) -> str:
    """Return a path as a condition has it: names that are no words stand in back-ticks."""
    names = (part if isinstance(part, int) else part if part.isidentifier() else f"`{part}`" for part in parts)
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)[1:]


def _paths(column: pa.Field) -> Iterator[str]:
    """Yield the paths to plain values in a column of structs, and to the first element of lists in it."""
    if not pa.types.is_struct(column.type):
        return
    open_: list[tuple[tuple[str | int, ...], pa.DataType]] = [((column.name,), column.type)]
    while open_:
        parts, kind = open_.pop(0)
        if pa.types.is_struct(kind):
            open_ += [((*parts, field.name), field.type) for field in kind]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            open_.append(((*parts, 0), kind.value_type))
        elif len(parts) <= _DEPTH and not pa.types.is_null(kind):
            yield path_text(parts)


def _is_expected(tried: _Trial) -> bool:
    """Whether the times that were read are those that the values were taken to say."""
    clock = tried.clock
    if clock is None or "timezone" in clock.options or "timezone" in given_options_of(tried.stream):
        return True
    expected = clock.times_us[clock.valid]
    read = [chunk.tuples.column(TS).to_numpy() for chunk in tried.chunks]
    times = np.concatenate(read)[: max(len(expected) // 2, 1)] if read else np.zeros(0, np.int64)
    return not len(times) or float(np.isin(times, expected).mean()) >= _AGREE


def _unread(stream: Stream, samples: Sequence[Sample], failed: Sequence[tuple[str, str]]) -> Survey:
    sample = samples[0] if samples else Sample({}, {}, {})
    tried = tuple(f"tried {way}: {why}" for way, why in dict(failed).items())
    if not failed:
        tried = ("no column holds times that are known here: time and time_format say which one it is, and its form",)
    tried = (*tried, *counting_from_a_start(sample.columns))
    if any(why.startswith("0 of 0 ") for _, why in failed):
        tried = (*tried, "a last line without its end is read once it has one, or a later file is there")
    columns = tuple(_column(name, values) for name, values in sample.columns.items())
    remarks = (
        *sample.remarks,
        *tried,
        "what Spark or pandas reads can be joined too: start(frames=...), JoinEngine.push",
    )
    return Survey(
        stream.name, str(stream.location), sample.words, None, sample.options, columns=columns, remarks=remarks
    )


def _surveyed(stream: Stream, found: _Trial, failed: Sequence[tuple[str, str]], rows: int) -> Survey:
    order = TimesOrder.of(found.chunks)
    guesses, remarks = [*found.sample.guesses], [*found.sample.remarks, *found.left_out]
    read = found.stream
    if found.clock is not None:
        guesses += [*found.clock.guesses, *found.zone_guesses]
        guesses += _zone_guess(found.clock, read)
        if not (found.clock.times_us[found.clock.valid] % DAY_US).any():
            guesses.append("the times are days alone, at midnight: the time of day may stand in another column")
    for way, why in failed:
        guesses.append(f"{way} seemed likelier, but {why}")
    if order is not None:
        found, order, told = _with_order(found, order, rows)
        read = found.stream
        remarks += told
    table = pa.Table.from_batches([chunk.tuples for chunk in found.chunks])
    paths = {name: as_written(path_of(name) or (name,)) for name in found.nested}
    table = table.rename_columns([paths.get(name, name) for name in table.column_names])
    rejects = Counter(_reason(reject) for chunk in found.chunks for reject in chunk.rejects)
    names = [name for name in table.column_names if name not in (TS, SEQ)]
    columns = tuple(_column(name, table.column(name)) for name in names)
    remarks += [
        f"{column.name} has {column.least:g}, which often stands for a missing value: null_values says that it does"
        for column in columns
        if isinstance(column.least, (int, float)) and column.least in _SENTINELS
    ]
    given = given_options_of(read)
    needed = {name: value for name, value in found.sample.options.items() if name not in given}
    return Survey(
        stream.name,
        _location(read),
        found.sample.words,
        read,
        {**given, **needed},
        found.clock,
        columns,
        order,
        found.records,
        found.tuples,
        tuple(rejects.most_common(_SHOWN_REJECTS)),
        tuple(first_tuples(table)),
        tuple(dict.fromkeys(guesses)),
        tuple(dict.fromkeys(remarks)),
        table,
        found.written,
    )


def _location(stream: Stream) -> str:
    if stream.source is None:
        return ""
    if not isinstance(stream.source, Generator):
        return str(stream.source)
    query = "&".join(f"{name}={value}" for name, value in stream.source.parameters.items())
    return f"gen:{stream.source.name}{'?' * bool(query)}{query}"


def _zone_guess(clock: Clock, stream: Stream) -> list[str]:
    if not clock.is_local or stream.time in zones_of(stream.schema) or "timezone" in given_options_of(stream):
        return []
    return ["the times say no zone and are taken as UTC: timezone='Europe/Berlin' says that they are those of a place"]


def _with_order(found: _Trial, order: TimesOrder, rows: int) -> tuple[_Trial, TimesOrder, list[str]]:
    """Return the trial with partitions, or with the delay that keeps nearly all records, and what is said of it."""
    stream = found.stream
    if order.is_newest_first:
        return found, order, ["the newest record stands first, so all others are late: sort the file by time before"]
    if not order.late[0][1] or stream.delay_us or isinstance(stream.source, Generator):
        return found, order, []
    if order.late[0][1] > _MANY_LATE and stream.source is not None and stream.partition_kind is None:
        for options, told in _partitions(found):
            with contextlib.suppress(StreamJoinError, OSError, pa.ArrowException):
                apart = replace(found, stream=with_options(stream, options))
                own, schema = _all_columns(apart.stream, found.written)
                apart = replace(apart, chunks=first_records(own, schema, rows))
                better = TimesOrder.of(apart.chunks)
                if better is not None and better.late[0][1] < _MANY_LATE / 10 and apart.share >= found.share:
                    return apart, better, [f"{told}: in one order {order.late[0][1]:.0%} of the records would be late"]
    if order.delay_us >= 30 * DAY_US:
        return found, order, ["the times go back by months, so no delay is proposed: read it by device, or sort it"]
    delay = duration_text(order.delay_us)
    read = with_options(stream, {"delay": delay})
    return replace(found, stream=read), order, [f"a delay of {delay} keeps 99.9 % of these records"]


def _partitions(found: _Trial) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield options by which a source has many orders, each of which may be one by time."""
    if not isinstance(found.stream.source, Files):
        return
    if "files" in found.sample.words:
        yield {"partition_by": "file"}, "each file is a partition, with an order of its own"
    table = pa.Table.from_batches([chunk.tuples for chunk in found.chunks])
    times = table.column(TS).to_numpy()
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in (TS, SEQ) or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            continue
        codes = table.column(name).combine_chunks().dictionary_encode()
        places = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = np.argsort(places, kind="stable")
        steps, same = np.diff(times[order]), np.diff(places[order]) == 0
        if 1 < len(codes.dictionary) <= len(times) // 5 and not (steps[same] < 0).any():
            yield {"partition_by": [name]}, f"each value of {name} is a partition, with an order of its own"


def rounded_up(us: int) -> int:
    """Return a duration that is not shorter, of one unit."""
    for unit_us in (DAY_US, 3_600_000_000, 60_000_000, 1_000_000, 1_000):
        if us > 3 * unit_us or (us >= unit_us and us % unit_us == 0):
            return -(-us // unit_us) * unit_us
    return us


def _reason(reject: Reject) -> str:
    return f"column {reject.column}: {reject.reason}" if reject.column else reject.reason


def _column(name: str, values: pa.Array | pa.ChunkedArray) -> ColumnSeen:
    least = most = None
    known = values.drop_null()
    if len(known):
        try:
            ends = pc.min_max(known)
            least, most = (_value(ends[end]) for end in ("min", "max"))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            least = most = None
    return ColumnSeen(name, str(values.type), least, most, values.null_count / max(len(values), 1))


def _value(scalar: pa.Scalar) -> Any:
    """Return a value as JSON has it; a time as a text in UTC."""
    kind = scalar.type
    if pa.types.is_timestamp(kind) and scalar.is_valid:
        return moment(scalar.cast(pa.timestamp("us", tz=kind.tz)).value) if kind.unit != "us" else moment(scalar.value)
    value = scalar.as_py()
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(value)


def first_tuples(table: pa.Table) -> Iterator[Mapping[str, Any]]:
    """Yield the first tuples of a table in the inside form, as plain JSON values: the event time, then the columns."""
    names = [name for name in table.column_names if name not in (TS, SEQ)]
    for row in range(min(_FIRST, table.num_rows)):
        told = {"event time": moment(table.column(TS)[row].as_py())}
        yield told | {name: _value(table.column(name)[row]) for name in names}
