"""What a run joins, and what must come out: the rows of a seed, and the contract's answer in plain Python."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.feed import ArrayFrontier, Frontier
from streamjoin_ds.source.generator import GENERATORS, GeneratorKind
from streamjoin_ds.source.synthetic_rows import Parameters
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.join_parts import Calculated
from streamjoin_ds.testing.arrivals import (
    ahead_rows,
    batch_watermarks,
    device_clocks,
    duplicate_rows,
    filtered_rows,
    late_rows,
)
from streamjoin_ds.testing.oracle import oracle_join
from streamjoin_ds.testing.values import plain_value
from tests.faults.model.asks import asked_of
from tests.faults.model.beside import COLUMNS as TABLE_COLUMNS
from tests.faults.model.beside import table_path, with_versions
from tests.faults.model.devices import Device, devices_of
from tests.faults.model.envelopes import Envelope, Written, envelope_of, give_devices
from tests.faults.model.local_clock import ISO, turn_of
from tests.faults.model.poison import InputFile, files_of
from tests.faults.model.schedule import CLOCKS_WRITTEN_FROM, HEADS_FROM, SHAPES_FROM, Schedule
from tests.faults.model.values import give_values, types_of
from tests.support.partitioned import arrival

__all__ = ["Case", "allow_listed", "case_of", "facts_text"]

_COLUMNS = {"ts": pa.timestamp("us", tz="UTC"), "x": pa.int64(), "y": pa.float64()}
_DEVICES = {"k": pa.string()}
_START_US = 1_704_067_200_000_000
_TICK_US = 250_000  # few different times, so that pairs exactly a window, or a delay, apart are common
_FUTURE_US = 40_000_000  # further than any `max_ahead`, which is longer than a whole run


@dataclass(frozen=True)
class Case:
    """The input of one run and the contract's answer.

    Attributes
    ----------
    rows : dict of str to list of dict
        The records of each stream; one that cannot be read has no time.
    results : list of dict
        As `streamjoin_ds.testing.oracle_join` gives them.
    late, filtered, duplicates : dict of str to list of int
        Numbers of the tuples that are late, of those that a condition on their stream leaves out, and of those that
        repeat one before them.
    compared : dict of str to tuple of str
        Columns, a letter each, whose null keeps a tuple from joining; several texts: ways of having partners.
    inputs : dict of str to str
        For each stream the one whose records it has.
    ahead : dict of str to list of int
        Numbers of the records that are too far ahead of their stream.
    ends : list of list of int
        For each batch how many records of each stream were read at its end; only if something depends on it (`given`).
    watermarks : list of int or None
        The watermark at the end of each of these batches.
    files : dict of str to tuple of InputFile
        The files of each input that is a folder.
    places : dict of str to list of (str, int)
        For each record the name of its file and its line there.
    devices : dict of str to tuple of Device
        The partitions of each stream that has any; streams over one input have the same. The order of a stream's
        records is known with the batches alone (`arrived`).
    types : dict of str to dict
        For each stream the types of its columns, by name.
    envelopes : dict of str to Envelope
        How each input is written.
    there, judges : dict of str to list
        Of streams whose devices have clocks: for each record the first batch whose planner could see it, and the clock
        that judges it.
    of, seqs : dict of str to list
        Of such a stream: for each record its partition, and the number that it has in the tables.
    """

    join: Join
    rows: dict[str, list[dict[str, Any]]]
    results: list[dict[str, Any]]
    late: dict[str, list[int]]
    filtered: dict[str, list[int]]
    compared: dict[str, tuple[str, ...]]
    inputs: dict[str, str]
    ahead: dict[str, list[int]]
    ends: tuple[tuple[int, ...], ...] = ()
    watermarks: tuple[int | None, ...] = ()
    files: dict[str, tuple[InputFile, ...]] = field(default_factory=dict)
    places: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    devices: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    of: dict[str, list[str]] = field(default_factory=dict)
    seqs: dict[str, list[int]] = field(default_factory=dict)
    duplicates: dict[str, list[int]] = field(default_factory=dict)
    types: dict[str, dict[str, pa.DataType]] = field(default_factory=dict)
    envelopes: dict[str, Envelope] = field(default_factory=dict)
    there: dict[str, list[int]] = field(default_factory=dict)
    judges: dict[str, list[int | None]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the streams' names, in order."""
        return self.join.names

    def bound(self, source: str, folder: Path, *, stops: bool = False) -> BoundJoin:
        """Return the join over files in `folder`, or over the generator `listed`.

        With `stops` it stops at a bad file.
        """
        schemas = {
            name: pa.schema([pa.field(column, kind, column != "ts") for column, kind in types.items()])
            for name, types in self.types.items()
        }
        streams = []
        for name, stream in zip(self.names, self.join.streams, strict=True):
            number = self.names.index(self.inputs[name])
            facts = {"stream": number, "rows": len(self.rows[name]), "key": _keep(self.rows[name], self.types[name])}
            envelope = self.envelopes[self.inputs[name]]
            path = folder / (f"input-{self.inputs[name]}" if self.files else self.file_name(self.inputs[name]))
            path = folder / f"devices-{self.inputs[name]}" if name in self.devices else path
            where = str(path) if source == "csv" else Generator("listed", facts)
            columns = envelope.schema(self.types[name]) if source == "csv" else None
            clocks = {"idle_timeout": stream.idle_timeout, "max_ahead": stream.max_ahead if source == "csv" else None}
            clocks["on_bad_file"] = "quarantine" if self.files and not stops else "stop"
            clocks["unique"] = stream.unique
            by = stream.partition_kind or [*stream.device_columns] or None
            clocks["partition_by"] = by if source == "csv" else None
            reading = self.devices[name][0].reading if name in self.devices else envelope.options
            clocks |= reading if source == "csv" else {}
            streams.append(Stream(name, where, delay=stream.delay, schema=columns, where=stream.where, **clocks))
        tables = [replace(table, source=str(table_path(folder))) for table in self.join.tables]
        beside = {table.name: table.schema for table in tables}
        declared = {stream.name: schemas[stream.name] if stream.schema is None else stream.schema for stream in streams}
        return bind(self.join.with_streams(streams, tables), declared | beside)

    def file_name(self, source: str) -> str:
        """Return the name of an input's one file."""
        return f"{source}.{self.envelopes[source].ending}"

    def text(self, name: str) -> Written:
        """Return a stream as it is written."""
        return self.envelopes[name].written(self.rows[name])

    def with_aside(self, asides: Mapping[str, Sequence[tuple[int, str]]]) -> Case:
        """Return the case in which further files were set aside, which nobody could foresee.

        `asides` has for each stream the number of the record, and the name of the file.
        """
        rows = {name: list(listed) for name, listed in self.rows.items()}
        places = {name: list(listed) for name, listed in self.places.items()}
        for name, found in asides.items():
            for number, file in sorted(found):
                rows[name].insert(number, dict.fromkeys(self.types[name]))
                places[name].insert(number, (file, 0))
        return _judged(replace(self, rows=rows, places=places))

    def given(self, ends: Sequence[Sequence[int]], idle: Sequence[Sequence[str]]) -> Case:
        """Return the case in which streams were idle.

        What must come out is known only with the end of each batch, and the streams that were idle then.
        """
        of_batches = [dict(zip(self.names, end, strict=True)) for end in ends]
        parted: dict[str, Any] = {"ends": of_batches, "idle": idle, "partitions": self.of}
        ahead = {name: ahead_rows(self.join, name, self.rows[name], **parted) for name in self.names}
        parted["there"] = self.there
        watermarks = batch_watermarks(self.join, self.rows, **parted)
        return replace(
            self,
            results=oracle_join(self.join, self.rows, until_us=_until(watermarks[-1:]), seqs=self.seqs, **parted),
            late={name: late_rows(self.join, name, self.rows, **parted) for name in self.names},
            ahead=ahead,
            judges={name: device_clocks(self.join, name, self.rows[name], **parted)[0] for name in self.names},
            duplicates={name: duplicate_rows(self.join, name, self.rows[name], **parted) for name in self.names},
            ends=tuple(map(tuple, ends)),
            watermarks=tuple(watermarks),
        )

    def arrived(
        self, offsets: Sequence[Mapping[str, Any]], counts: Sequence[Mapping[str, Mapping[str, int]]] = ()
    ) -> Case:
        """Return the case in which the batches had these ends, where streams have partitions or devices.

        `counts` says for each batch how many records of each stream were there when it was planned.
        """
        records: dict[str, dict[str, list[Any]]] = {}
        for name in self.names:
            whole = zip(self.rows[name], self.places[name], strict=True)
            devices = self.devices.get(name)
            of_device = {d.name: list(zip(d.rows, d.places, strict=True)) for d in devices} if devices else {}
            records[name] = of_device or {"": list(whole)}
        listed, seqs, known = arrival(self.join, offsets, records, counts=counts)
        rows = {name: [row for row, _ in found] for name, found in listed.items()}
        places = {name: [place for _, place in found] for name, found in listed.items()}
        filtered = {name: filtered_rows(self.join, name, rows[name]) for name in self.names}
        of, there = known["partitions"], known["there"]
        case = replace(self, rows=rows, places=places, seqs=seqs, of=of, filtered=filtered, there=there)
        return case.given([[end[name] for name in self.names] for end in known["ends"]], known["idle"])

    def seq(self, name: str, number: int) -> int:
        """Return the number that a record has in the tables."""
        return self.seqs[name][number] if name in self.seqs else number

    # ------------------------------------------------------------------ what each batch must say

    def largest_us(self, name: str, first: int, last: int) -> int | None:
        """Return the largest event time of the records [first, last)."""
        rows = list(enumerate(self.rows[name]))[first:last]
        times = [row["ts"] for number, row in rows if row["ts"] is not None and number not in self.ahead[name]]
        return max(times, default=None)

    def floor_us(self, name: str, number: int) -> int | None:
        """Return the watermark at the start of a record's batch, in a run whose streams were idle."""
        stream = self.names.index(name)
        batch = sum(end[stream] <= number for end in self.ends)
        return self.watermarks[batch - 1] if batch and self.watermarks else None

    def watermark_us(self, ends: Sequence[int]) -> int | None:
        """Return the watermark when so many records of each stream were read; None while one stream had no tuple."""
        lows = []
        for name, stream, end in zip(self.names, self.join.streams, ends, strict=True):
            largest = self.largest_us(name, 0, end)
            if largest is None:
                return None
            lows.append(largest - stream.delay_us)
        return min(lows)

    def ledger(self, name: str, first: int, last: int) -> dict[str, int]:
        """Return a stream's row of the ledger for the batch with the records [first, last)."""
        late = sum(first <= number < last for number in self.late[name])
        ahead = {number for number in self.ahead[name] if first <= number < last}
        rejected = sum(row["ts"] is None for row in self.rows[name][first:last]) + len(ahead)
        filtered = sum(first <= number < last and number not in ahead for number in self.filtered[name])
        repeated = self.duplicates.get(name, [])
        duplicates = sum(first <= number < last for number in repeated)
        gone = {*self.late[name], *self.filtered[name], *ahead, *repeated}
        barred = self._barred(name)
        nulls = sum(
            row["ts"] is not None and number not in gone and (number in barred or self._is_alone(name, row))
            for number, row in enumerate(self.rows[name])
            if first <= number < last
        )
        stored = last - first - late - rejected - filtered - duplicates
        return {
            "read": last - first,
            "stored": stored,
            "late": late,
            "rejected": rejected,
            "filtered": filtered,
            "duplicates": duplicates,
            "null_keys": nulls,
        }

    def _is_alone(self, name: str, row: dict[str, Any]) -> bool:
        """Whether a tuple has a null in each of its ways of having partners, or a NaN where a band compares it."""
        others = [{other} for other in self.names[1:]] if len(self.compared[name]) > 1 else [{*self.names}]
        return all(
            any(row[column] is None for column in way)
            or any(row[column] != row[column] for column in self._banded(name, other))
            for way, other in zip(self.compared[name], others, strict=True)
        )

    def _banded(self, name: str, others: set[str]) -> Iterator[str]:
        """Yield the columns of a stream that a band compares with one of these streams."""
        for predicate in self.join.predicates:
            if isinstance(predicate, Band):
                sides = predicate.left, predicate.right
                if any(side.stream in others - {name} for side in sides):
                    yield from (side.name for side in sides if side.stream == name)

    def _barred(self, name: str) -> set[int]:
        """Return the numbers of the tuples whose partners a condition on their stream alone takes."""
        join = self.join
        if not join.row_kind.lonely:
            return set()
        inner = Join(join.streams, join.predicates, join.window)
        return {*filtered_rows(inner, name, self.rows[name])} - {*self.filtered[name]}

    def punctuation_us(self, watermark_us: int | None) -> int | None:
        """Return the punctuation at a watermark: tuples wait for it, for as long as a partner may come."""
        waits = {"left": [0], "right": [1], "full": [0, 1], "semi": [0], "anti": [0]}.get(self.join.how, [])
        waits = waits if self.join.nearest is None and not self.join.reduce else [0]
        lag_us = max((self.join.window.extent(stream) for stream in waits), default=0)
        return None if watermark_us is None else watermark_us - lag_us

    def late_facts(self) -> Counter[tuple[str, int, int, int]]:
        """Return the late tuples: stream, number, time, largest time before it."""
        found: Counter[tuple[str, int, int, int]] = Counter()
        for name in self.names:
            for number in self.late[name]:
                largest, time = self._largest_before(name, number), self.rows[name][number]["ts"]
                delay_us = self.join.streams[self.names.index(name)].delay_us
                if largest is None or time >= largest - delay_us:  # it is late by the watermark alone
                    largest = self.floor_us(name, number)
                assert largest is not None
                found[name, self.seq(name, number), time, largest] += 1
        return found

    def _largest_before(self, name: str, number: int) -> int | None:
        """Return the largest event time before a record, in its partition; where devices have clocks what judges it."""
        if self.judges.get(name):
            return self.judges[name][number]
        if name not in self.of:
            return self.largest_us(name, 0, number)
        of, rows = self.of[name], self.rows[name]
        own = [n for n in range(number) if of[n] == of[number] and n not in self.ahead[name]]
        times = [rows[n]["ts"] for n in own if rows[n]["ts"] is not None]
        return max(times, default=None)

    def result_facts(
        self,
        ends: Sequence[Sequence[int]] = (),
        versions: Sequence[Sequence[Mapping[str, Any]]] = (),
        *,
        is_by_batch: bool = True,
    ) -> Counter[tuple[str, ...]]:
        """Return the results as counts of their columns' names and values, without the batch id.

        `ends` says for each batch how many records of each stream were read. With `is_by_batch` a window's order goes
        by batches. `versions` has for each batch the rows of the table that it joined, if there is one.
        """
        results = self.results
        of_batches = [dict(zip(self.names, end, strict=True)) for end in ends]
        if ends and is_by_batch:
            results = oracle_join(self.join, self.rows, ends=of_batches)
        if self.join.tables:
            results = with_versions(self.join, results, self.rows, versions, of_batches)
        found: Counter[tuple[str, ...]] = Counter()
        is_one = self.join.how in ("semi", "anti") or bool(self.join.reduce)
        shown = self.names[:1] if is_one else self.join.member_names
        columns = [f"{name}_seq" for name in shown]
        calculated = [one.name for one in self.join.select if isinstance(one, Calculated)]
        for name in (one for one in self.join.select if isinstance(one, str)):
            stream, column = name.split(".")
            every = self.types[stream] if stream in self.names else TABLE_COLUMNS
            columns += [f"{stream}_{one}" for one in (every if column == "*" else (column,))]
        for result in results:
            facts = {name: result.get(name) for name in columns} | {"event_time": result["event_time_us"]}
            numbers = {name: result[f"{name}_seq"] for name in shown}
            facts |= {f"{name}_seq": None if n is None else self.seq(name, n) for name, n in numbers.items()}
            names = [*calculated, *(one.name for one in self.join.reduce)]
            facts |= {name: result[name] for name in names}
            facts |= {name: result[name] for name in ("window_id", "rank") if name in result}
            found[facts_text(facts)] += 1
        return found


def _text(value: Any) -> str:
    """Return a value as text. Exact numbers are fractions, and times microseconds: parts of one are cut off."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, datetime):
        return str(math.floor(plain_value(value)))
    return str(Fraction(value)) if isinstance(value, Decimal) else str(value)


def facts_text(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row in a form that can be compared and sorted, also with nulls."""
    return tuple(f"{name}={_text(facts[name])}" for name in sorted(facts))


@lru_cache(maxsize=64)
def case_of(schedule: Schedule) -> Case:
    """Return the case of a schedule; its faults do not matter."""
    asked = asked_of(schedule)
    join = asked.join
    rows: dict[str, list[dict[str, Any]]] = {}
    types: dict[str, dict[str, pa.DataType]] = {}
    for stream in join.streams:
        source = asked.inputs[stream.name]
        further = (
            types_of(schedule.seed, source, is_generated=schedule.source != "csv") if "values" in schedule.asks else {}
        )
        types[stream.name] = _COLUMNS | further | (_DEVICES if "devices" in schedule.asks else {})
        if source not in rows:
            rows[source] = _rows(random.Random(f"{source} {schedule.seed}"), stream.delay_us, schedule, further)
            if "devices" in schedule.asks:
                give_devices(rows[source], source, schedule.seed)
        rows[stream.name] = rows[source]
    files: dict[str, tuple[InputFile, ...]] = {}
    if "quarantine" in schedule.asks and schedule.source == "csv":
        files = {name: files_of(name, rows[name], schedule.seed) for name in dict.fromkeys(asked.inputs.values())}
        records = {name: [row for file in listed for row in file.records] for name, listed in files.items()}
        rows = {name: records[source] for name, source in asked.inputs.items()}
    heads = random.Random(f"heads {schedule.seed}")
    head: dict[str, Any] = {}
    if schedule.seed >= HEADS_FROM and schedule.source == "csv" and not files:
        head = {"skip_lines": heads.choice((0, 0, 1, 3)), "header": heads.choice((0, 1, 1, 2, 3))}
        head |= {"comment": heads.choice((None, "#"))}
    if schedule.seed >= SHAPES_FROM and head:
        head |= {"delimiter": heads.choice((",", ";", "tab", "blanks")), "null_values": heads.choice((None, "?"))}
        head |= {"encoding": heads.choice(("utf-8", "utf-16", "utf-16-be", "utf-32-le"))}
        head |= {"null_values": "?"} if head["delimiter"] == "blanks" else {}  # nothing is no field
    if schedule.seed >= CLOCKS_WRITTEN_FROM and head:
        head |= {"time_format": heads.choice((None, "%d/%m/%Y %H:%M:%S.%f", "%f,%S:%M:%H day %j of %Y"))}
        # These zones' clocks do not change while the rows last: what they mean depends on nothing else.
        zones = (None, "Asia/Kathmandu", "America/St_Johns") if head["time_format"] else (None,)
        head |= {"timezone": heads.choice(zones)}
    turn = turn_of(schedule) if head else None
    if turn is not None:
        # A broken record has as many words as a record has fields, so a batch of such ones alone would end the query.
        delimiter = "tab" if head["delimiter"] == "blanks" else head["delimiter"]
        head |= {"timezone": turn.zone, "time_format": head["time_format"] or ISO, "delimiter": delimiter}
    envelopes = {source: envelope_of(schedule, source, head) for source in dict.fromkeys(asked.inputs.values())}
    for source, envelope in envelopes.items() if turn is not None else ():
        rows[source] = turn.moved(rows[source], _START_US, _TICK_US)
        is_parted = any(stream.partition_kind for stream in join.streams if asked.inputs[stream.name] == source)
        if envelope.head and not is_parted:
            rows[source], clock = turn.written(rows[source], heads)
            envelopes[source] = replace(envelope, clock=clock)
    rows = {**rows, **{name: rows[source] for name, source in asked.inputs.items()}}
    places = {
        name: [(file.name, line) for file in files[source] for line in file.lines]
        if files
        else [(f"{source}.{envelopes[source].ending}", line) for line in envelopes[source].written(rows[name]).lines]
        for name, source in asked.inputs.items()
    }
    devices = {
        stream.name: devices_of(asked.inputs[stream.name], rows[stream.name], stream.partition_kind, schedule.seed)
        for stream in join.streams
        if stream.partition_kind
    }
    of = {name: [device.name for device in listed for _ in device.rows] for name, listed in devices.items()}
    for name, listed in devices.items():
        rows[name] = [row for device in listed for row in device.rows]
        places[name] = [place for device in listed for place in device.places]
    case = Case(join, rows, [], {}, {}, asked.compared, asked.inputs, {}, files=files, places=places, types=types)
    return _judged(replace(case, devices=devices, of=of, envelopes=envelopes))


def _judged(case: Case) -> Case:
    join, rows = case.join, case.rows
    known: dict[str, Any] = {}
    if case.of:  # as if all of it were one batch
        known = {"partitions": case.of, "ends": [{name: len(rows[name]) for name in join.names}]}
    ends = known.get("ends", [{name: len(rows[name]) for name in join.names}])
    watermarks = batch_watermarks(join, rows, ends, partitions=case.of)
    return replace(
        case,
        results=oracle_join(join, rows, until_us=_until(watermarks), **known),
        late={name: late_rows(join, name, rows, **known) for name in join.names},
        filtered={name: filtered_rows(join, name, rows[name]) for name in join.names},
        duplicates={name: duplicate_rows(join, name, rows[name], case.of) for name in join.names},
        ahead={name: ahead_rows(join, name, rows[name], partitions=case.of) for name in join.names},
    )


def _until(watermarks: Sequence[int | None]) -> int:
    """Return the last watermark; before all times where none is known, so that no tuple is decided."""
    known = [watermark for watermark in watermarks if watermark is not None]
    return known[-1] if known else -(1 << 62)


def _rows(
    dice: random.Random, delay_us: int, schedule: Schedule, further: dict[str, pa.DataType]
) -> list[dict[str, Any]]:
    rows = []
    step = dice.choice((1, 2, 2, 2, 3))
    # Half of the cases have few different times and values, since errors show exactly on a bound.
    coarse = schedule.seed % 2 == 0
    values = 2 if coarse else 6
    broken = 0.06 if schedule.source == "csv" else 0.0
    for number in range(schedule.rows):
        # The delay and sometimes one step more: exactly at the bound of being late, or late by a little.
        most = delay_us // _TICK_US + (step if dice.random() < 0.3 else 0)
        behind = dice.randint(0, most)
        time = _START_US + (number * step - (behind // step * step if coarse else behind)) * _TICK_US
        if dice.random() < 0.1:
            time -= delay_us + dice.randint(1, 8) * _TICK_US
        x, y = dice.randrange(values), dice.randrange(2 * values) / 4
        row: dict[str, Any] = {"ts": time, "x": x, "y": y}
        if dice.random() < 0.06:
            row["x"] = row["y"] = None
        if dice.random() < broken:
            row = {"ts": None, "x": None, "y": None}
        rows.append(row)
    if "future" in schedule.asks:
        for row in rows:
            if row["ts"] is not None and dice.random() < 0.08:
                row["ts"] += _FUTURE_US
    if "each" in schedule.asks:  # a null in one column leaves the partners by the other
        gaps = random.Random(f"gaps {schedule.seed} {len(rows)}")
        for row in rows:
            if row["ts"] is not None and gaps.random() < 0.2:
                row[gaps.choice("xy")] = None
    if further:
        give_values(rows, further, dice)
    if "unique" in schedule.asks:  # some come again, a few records later; what came last is cut off
        again = random.Random(f"again {schedule.seed} {len(rows)}")
        for number in range(len(rows)):
            if again.random() < 0.25:
                rows.insert(number + again.randint(1, 6), dict(rows[number]))
        del rows[schedule.rows :]
    return rows


# ---------------------------------------------------------------------- the generator "listed"

_KEPT = 64
_kept: dict[int, tuple[list[dict[str, Any]], dict[str, pa.DataType]]] = {}


def _keep(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> int:
    """Keep rows for the generator, and return the key to them: the generator's parameters are plain values."""
    key = zlib.crc32(repr(rows).encode())
    _kept[key] = rows, types
    if len(_kept) > _KEPT:
        del _kept[next(iter(_kept))]
    return key


class _ListedRows:
    """A generator of given rows.

    A generator's stream is read in several parts, a file's in one.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.name = "listed"
        self._rows, self._types = _kept[parameters.integer("key", 0, 0)]
        self.columns = tuple(pa.field(name, kind) for name, kind in self._types.items() if name != "ts")
        self.rows = len(self._rows)

    def make(self, first: int, last: int, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]]:
        rows = self._rows[first:last]
        columns = {name: pa.array([row[name] for row in rows], self._types[name]) for name in names}
        return np.array([row["ts"] for row in rows], np.int64), columns

    def frontier(self, first: int, last: int) -> Frontier:
        times = np.array([row["ts"] for row in self._rows[:last]], np.int64)
        return ArrayFrontier(np.maximum.accumulate(times)[first:] if last > first else times[:0])


LISTED = GeneratorKind("rows that a test gave", _ListedRows, {"stream": "", "rows": "", "key": ""})


def allow_listed() -> None:
    """Make the generator `listed` known in this process."""
    GENERATORS["listed"] = LISTED  # type: ignore[index]
