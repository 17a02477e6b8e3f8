"""What must be in the tables at the end, and what is there: every result once, every record accounted for.

The contract is asked for a stretch of event time after the other, each with the records that its results may be of, in
two processes.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from streamjoin_ds import CountWindow, StreamJoin
from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.faults.soak.consumer import DELETED_COLUMN, DELETED_REST, DELETED_STEP, Consumer
from tests.faults.soak.feeder import Feeder
from tests.faults.soak.rows import DELAY_US, FATES, START_US, Recorded
from tests.support.kinds import Kind, Record, fact_of, told

__all__ = ["Stretch", "differences", "stretches"]

_ASIDE = " is set aside"
_CHANGED = "what the file holds now" + _ASIDE
_STRETCH_US = 40_000_000
_MARGIN_ROWS = 120  # more than a count window holds, and than may be out of order
_FEW_RECORDS = 5_000  # that are compared before another process has begun
_SHOWN = 3  # results that are shown of those that differ

Fact: TypeAlias = "tuple[int, tuple[str, ...]]"  # an event time, and columns as texts
Ends: TypeAlias = "Sequence[Mapping[str, int]]"


@dataclass(frozen=True)
class Stretch:
    """The records of which the results between two event times may be.

    Attributes
    ----------
    begin_us, end_us : int
        The event times, the first one included.
    rows : dict of str to list of dict
    ends : list of dict
        For a count window: as for `oracle_join`.
    until_us : int
        The last watermark.
    """

    begin_us: int
    end_us: int
    rows: Mapping[str, Sequence[Record]]
    ends: Ends
    until_us: int

    def results(self, kind: Kind) -> list[Record]:
        """Return the contract's results of the stretch."""
        # A record's fate was decided where it was written, so nothing of it is asked here.
        join = kind.join("", delay=f"{DELAY_US}us", unique=None)
        known: dict[str, Any] = {"lateness": bool(self.ends), "ends": self.ends, "until_us": self.until_us}
        found = kind.results(join, self.rows, **known)
        return [row for row in found if self.begin_us <= row["event_time_us"] < self.end_us]


def stretches(kind: Kind, recorded: Mapping[str, Recorded], ends: Ends) -> Iterator[Stretch]:
    """Yield the stretches of what was written.

    Parameters
    ----------
    kind : Kind
    recorded : dict of str to Recorded
    ends : sequence of dict
        For each batch, how many records of each stream were read at its end.
    """
    join = kind.join("", delay=f"{DELAY_US}us")
    until_us = min(side.largest_us for side in recorded.values()) - DELAY_US
    times = {name: np.array(side.times_us, np.int64) for name, side in recorded.items()}
    is_stored = {name: side.has_fate("stored") for name, side in recorded.items()}
    last_us = max(int(listed.max(initial=0)) for listed in times.values())
    is_count = isinstance(join.window, CountWindow)
    margin_us = 0 if is_count else 2 * max(join.window.extent(place) for place in range(len(recorded)))
    places = _places(join, recorded, ends) if is_count else {}
    begin_us = 0
    for end_us in (*range(START_US, last_us, _STRETCH_US), last_us + 1):
        near = {
            name: np.flatnonzero(is_stored[name] & (begin_us - margin_us <= at) & (at < end_us + margin_us))
            for name, at in times.items()
        }
        if is_count:
            near = _with_neighbours(places, near)
        rows = {name: side.at(near[name]) for name, side in recorded.items()}
        yield Stretch(begin_us, end_us, rows, _ends_of(ends, near) if is_count else (), until_us)
        begin_us = end_us


def _places(join: StreamJoin, recorded: Mapping[str, Recorded], ends: Ends) -> dict[str, np.ndarray]:
    """Return the place of each record in the order of the source (`source_order`), by stream."""
    keys = []
    for stream, (name, side) in enumerate(recorded.items()):
        numbers = np.arange(len(side))
        batch = np.searchsorted(np.array([end[name] for end in ends], np.int64), numbers, "right")
        largest = np.maximum.accumulate(np.array(side.times_us, np.int64))
        keys.append(np.stack([batch, largest, np.full(len(side), stream), numbers]))
    order = np.lexsort(np.concatenate(keys, axis=1)[::-1])
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    begins = np.cumsum([0, *(len(side) for side in recorded.values())])
    return {name: places[begins[n] : begins[n + 1]] for n, name in enumerate(recorded)}


def _with_neighbours(places: Mapping[str, np.ndarray], near: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the numbers of all records between those given, in the order of the source, and of some around them."""
    there = np.concatenate([places[name][numbers] for name, numbers in near.items()])
    if not len(there):
        return {**near}
    found = {}
    for name, listed in places.items():
        first = int(np.searchsorted(listed, there.min())) - _MARGIN_ROWS
        last = int(np.searchsorted(listed, there.max())) + _MARGIN_ROWS
        found[name] = np.arange(max(first, 0), min(last, len(listed)))
    return found


def _ends_of(ends: Ends, near: Mapping[str, np.ndarray]) -> list[dict[str, int]]:
    """Return the ends of batches as they are seen by a stretch of each stream."""
    firsts = {name: int(numbers[0]) if len(numbers) else 0 for name, numbers in near.items()}
    found: list[dict[str, int]] = []
    for end in ends:
        own = {name: min(max(end[name] - firsts[name], 0), len(numbers)) for name, numbers in near.items()}
        if not found or own != found[-1]:
            found.append(own)
    return found


@dataclass(frozen=True)
class _Found:
    """What a reader has of a stretch; it must have what is before a punctuation, or what was not deleted."""

    results: pa.Table
    complete_us: int | None = None
    deleted_us: int = 0

    def has(self, row: Record) -> bool:
        if self.complete_us is not None:
            return bool(row["event_time_us"] < self.complete_us)
        is_chosen = row[DELETED_COLUMN] is not None and row[DELETED_COLUMN] % DELETED_STEP == DELETED_REST
        return not (is_chosen and row["event_time_us"] < self.deleted_us)

    def facts(self) -> Counter[Fact]:
        times_us = self.results.column(EVENT_TIME).cast(pa.int64()).to_pylist()
        return _facts(self.results.to_pylist(), times_us)


def _facts(rows: Sequence[Record], times_us: Sequence[int]) -> Counter[Fact]:
    names = told(rows[0]) if rows else []
    return Counter((time_us, fact_of(row, names)) for row, time_us in zip(rows, times_us, strict=True))


def _compared(kind: Kind, stretch: Stretch, found: Sequence[_Found]) -> list[tuple[list[Fact], list[Fact]]]:
    """Return what each reader has lost of a stretch, and what it has too much."""
    results, differing = stretch.results(kind), []
    for one in found:
        rows = [row for row in results if one.has(row)]
        want, have = _facts(rows, [row["event_time_us"] for row in rows]), one.facts()
        differing.append((sorted((want - have).elements()), sorted((have - want).elements())))
    return differing


def differences(
    root: Path, feeder: Feeder, dropped: Counter[tuple[str, str]], consumer: Consumer, processes: int
) -> list[str]:
    """Return what is not as it must be, as texts.

    Parameters
    ----------
    root : Path
        The folder of the tables.
    feeder : Feeder
    dropped : Counter of (stream, file)
        Bad files (`poison.Poison.dropped`).
    consumer : Consumer
        The consumer, after its last look.
    processes : int
        How many processes compare.
    """
    tables, recorded, found = TableSet(str(root / "matches")), feeder.recorded, []
    ledger = _rows(tables.ledger)
    facts = _rows(tables.matches)
    table = facts.select([EVENT_TIME, *told(facts.column_names)]).sort_by(EVENT_TIME)
    followed = pa.concat_tables([table.slice(0, 0), *consumer.followed])
    times = {what: _times_us(rows) for what, rows in (("table", table), ("follower", followed))}
    if np.any(np.diff(times["follower"]) < 0):
        found.append("the follower gave results out of order")
        followed = followed.sort_by(EVENT_TIME)
        times["follower"] = _times_us(followed)
    lost: dict[str, list[Fact]] = defaultdict(list)
    surplus: dict[str, list[Fact]] = defaultdict(list)

    def asked() -> Iterator[tuple[Kind, Stretch, list[_Found]]]:
        for stretch in stretches(feeder.kind, recorded, _batch_ends(ledger, feeder.names)):
            cut = {what: np.searchsorted(at, (stretch.begin_us, stretch.end_us)) for what, at in times.items()}
            of_table, of_follower = (
                rows.slice(cut[what][0], cut[what][1] - cut[what][0]).combine_chunks()
                for what, rows in (("table", table), ("follower", followed))
            )
            yield (
                feeder.kind,
                stretch,
                [
                    _Found(of_table, deleted_us=consumer.deleted_before_us),
                    _Found(of_follower, complete_us=consumer.punctuation_us),
                ],
            )

    is_small = sum(map(len, recorded.values())) < _FEW_RECORDS
    for answer in _each(asked(), 1 if is_small else processes):
        for what, (less, more) in zip(times, answer, strict=True):
            lost[what] += less
            surplus[what] += more
    for what, listed in times.items():
        if lost[what] or surplus[what]:
            found.append(
                f"the {what} has {len(listed)} results; lost {len(lost[what])} {lost[what][:_SHOWN]}, "
                f"surplus {len(surplus[what])} {surplus[what][:_SHOWN]}"
            )
    return found + _of_fates(tables, ledger, recorded) + _of_files(tables, dropped)


def _each(asked: Iterator[tuple[Any, ...]], processes: int) -> Iterator[list[tuple[list[Fact], list[Fact]]]]:
    if processes < 2:
        yield from (_compared(*arguments) for arguments in asked)
        return
    # delta-rs does not survive a fork
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        waiting: deque[Future[Any]] = deque()
        for arguments in asked:
            waiting.append(pool.submit(_compared, *arguments))
            if len(waiting) > 4 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _rows(path: str) -> pa.Table:
    return scanned(DeltaTable(path)).to_table()


def _times_us(rows: pa.Table) -> np.ndarray:
    return rows.column(EVENT_TIME).cast(pa.int64()).to_numpy()


def _batch_ends(ledger: pa.Table, names: str) -> list[dict[str, int]]:
    """Return how many records of each stream were read at the end of each batch."""
    read: dict[int, dict[str, int]] = {}
    for row in ledger.select(["batch_id", "stream", "read"]).to_pylist():
        read.setdefault(row["batch_id"], {})[row["stream"]] = row["read"]
    ends, so_far = [], dict.fromkeys(names, 0)
    for batch in sorted(read):
        so_far = {name: count + read[batch].get(name, 0) for name, count in so_far.items()}
        ends.append(so_far)
    return ends


def _of_fates(tables: TableSet, ledger: pa.Table, recorded: Mapping[str, Recorded]) -> list[str]:
    """Compare the ledger's counts, and the rows that are kept of records that were not joined."""
    found = []
    rows_of_ledger = ledger.to_pylist()
    kept = {"late": tables.late, "rejected": tables.rejects}
    rows = {fate: Counter(_rows(path)["stream"].to_pylist()) for fate, path in kept.items()}
    for name, side in recorded.items():
        for fate, count in {"read": len(side), **{fate: side.count(fate) for fate in FATES}}.items():
            said = sum(row[fate] or 0 for row in rows_of_ledger if row["stream"] == name)
            if said != count:
                found.append(f"the ledger says {said} {fate} of stream {name}, not {count}")
            if fate in rows and rows[fate][name] != count:
                found.append(f"{rows[fate][name]} rows are kept of {count} {fate} of stream {name}")
    return found


def _of_files(tables: TableSet, dropped: Counter[tuple[str, str]]) -> list[str]:
    """Check that the rejects name every bad file once."""
    rows = [row for row in _rows(tables.rejects).to_pylist() if (row["text"] or "").endswith(_ASIDE)]
    named = Counter((row["stream"], "" if row["text"] == _CHANGED else Path(row["file"]).name) for row in rows)
    lost, surplus = dropped - named, named - dropped
    return [f"the rejects lack files {dict(lost)}, and have {dict(surplus)}"] if lost or surplus else []
