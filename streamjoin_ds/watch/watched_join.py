"""A join as its tables tell it: totals, a history by seconds, the last batch, late rows, rejects, matches.

A batch counts once its row of the punctuations is there. That table is read first, so the others have the batch, too.
What they have of later batches waits.

Pages ask again and again, and each has most of it already. So each part of the facts has the number of the look that
changed it, and its text is made once for all pages (`told`).
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import checkpoint_place, noted_table
from streamjoin_ds.errors import LogCleanedError, StreamJoinError
from streamjoin_ds.sink.tables import BATCH_ID, TableSet
from streamjoin_ds.watch.match_picture import MatchPicture, plain_rows
from streamjoin_ds.watch.table_tail import TableTail

__all__ = ["OUTCOMES", "Point", "WatchedJoin"]

OUTCOMES = ("stored", "late", "rejected", "filtered", "duplicates")
"""What becomes of a row that is read; the ledger has a column for each."""

_POINTS = 900  # seconds with batches that the history has
_RECENT_BATCHES = 5_000  # at most so many of the batches that were there before are in the history
_SAMPLE_ROWS = 5_000  # newest late rows and rejects of which the page tells how late they are, and why
_MATCHES, _SHOWN = 400, 60  # newest matches that are kept, and rows of a table that are shown
# Seconds between two looks at the tables: a hundred times of what a look costs, between these bounds. A page asks once
# a second, and is to follow within two.
_LEAST_S, _MOST_S, _COST_TIMES = 0.4, 1.5, 100
_OPEN_S, _ALL_S = 5.0, 1.2  # a page that is open has asked within that time; all pages ask within the second one
_LEDGER = (BATCH_ID, "stream", "read", *OUTCOMES, "null_keys", "lost_offsets", "largest_ts")
_PUNCTUATIONS = (BATCH_ID, "punctuation", "watermark", "matches", "largest_ts", "committed_at")
_COUNTED = ("read", *OUTCOMES, "null_keys", "lost_offsets")
_NONE = -1  # no number of the metrics is below zero
# What a point has of the metrics: how the cells' numbers become one, and what stands for none.
_OF_POINTS = (
    ("state_rows", np.add, 0),
    ("state_bytes", np.add, 0),
    ("duration_ms", np.maximum, 0),
    ("backlog_rows", np.maximum, _NONE),
    ("backlog_us", np.maximum, _NONE),
)
_METRICS = (BATCH_ID, *(name for name, _, _ in _OF_POINTS))
# The parts of the facts, by the table whose new rows change them. What is not here is told with each answer.
_CHANGED = {
    "punctuations": ("totals", "streams", "last"),
    "ledger": ("streams",),
    "metrics": ("last", "cells"),
    "late": ("late",),
    "rejects": ("rejects",),
    "matches": ("matches",),
}
_PARTS = ("join", *dict.fromkeys(part for parts in _CHANGED.values() for part in parts))
_CELL = ("cell", "state_rows", "state_bytes", "duration_ms", "matches", "candidates", "stored_rows", "shipped_rows")
_QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(slots=True)
class Point:
    """The batches that were committed in one second of the wall clock."""

    second: int
    batches: int = 0
    matches: int = 0
    read: Counter[str] = field(default_factory=Counter)
    late: int = 0
    rejected: int = 0
    lag_us: int | None = None  # newest event time - punctuation, at the end
    backlog_rows: int | None = None
    backlog_us: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    cells_ms: int = 0  # the slowest cells, of all batches together
    batch_ms: int | None = None  # from the plan of each batch to its commit, together

    def facts(self, streams: Iterable[str]) -> list[int | None]:
        """Return the numbers in the order of `WatchedJoin.facts`' ``columns``, those of the streams at the end."""
        own = [self.second, self.batches, self.matches, self.late, self.rejected, self.lag_us, self.backlog_rows]
        own += [self.backlog_us, self.state_rows, self.state_bytes, self.cells_ms, self.batch_ms]
        return [*own, *(self.read[stream] for stream in streams)]


_COLUMNS = (
    "second", "batches", "matches", "late", "rejected", "lag_us", "backlog_rows", "backlog_us", "state_rows",
    "state_bytes", "cells_ms", "batch_ms",
)  # fmt: skip


@dataclass(slots=True)
class _History:
    """All that was read since the tables were opened."""

    totals: dict[str, Counter[str]] = field(default_factory=dict)  # by stream: the ledger's counts
    counts: Counter[str] = field(default_factory=Counter)  # batches, matches, and what the metrics count
    points: dict[int, Point] = field(default_factory=dict)  # by second, the oldest first
    seconds: dict[int, int] = field(default_factory=dict)  # of recent batches
    largest_us: dict[str, int] = field(default_factory=dict)
    commit: dict[str, Any] = field(default_factory=dict)  # the newest row of the punctuations
    batch: dict[str, Any] = field(default_factory=dict)  # what all cells of the newest batch say alike
    cells: list[dict[str, Any]] = field(default_factory=list)
    lateness: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLE_ROWS))
    late: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    rejects: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    matches: pa.Table | None = None
    read: int = -1  # the newest batch that was read of all tables


class WatchedJoin:
    """Follows the tables of a join; safe for threads.

    Parameters
    ----------
    checkpoint : str
        The join's checkpoint; it need not be there yet.
    clock : callable
        Seconds that only grow.
    spent : callable
        CPU seconds of the thread that asks.

    Raises
    ------
    ArgumentError
        The checkpoint is neither a folder nor in S3.
    """

    def __init__(
        self,
        checkpoint: str,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self.checkpoint = checkpoint
        self.problem: str | None = None
        self.has_ended = False
        self._place = checkpoint_place(checkpoint)
        self._clock, self._spent, self._lock = clock, spent, threading.Lock()
        self._polled_s, self._pause_s = float("-inf"), _LEAST_S
        self._identity: CheckpointIdentity | None = None
        self._spark: Place = self._place
        self._picture: MatchPicture | None = None
        self._tails: dict[str, TableTail] = {}
        self.history = _History()
        self._asked_s = float("-inf")  # when a page asked last
        self._end_told = threading.Event()
        self._run, self._looks = secrets.token_hex(4), 1
        self._changed = dict.fromkeys(_PARTS, 1)  # the look that changed a part
        self._texts: dict[str, bytes] = {}  # of parts, as JSON

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams' names; empty while there is no checkpoint."""
        return () if self._identity is None else self._identity.bound.names

    @property
    def name(self) -> str:
        """The folder's name of the table of matches; that of the checkpoint while there is none."""
        root = self._tails["matches"].path if self._tails else str(self._place)
        return root.rstrip("/").rpartition("/")[2]

    def poll(self) -> None:
        """Read what is new, unless that was done just now. What cannot be read is said in `problem`."""
        with self._lock:
            if self._clock() - self._polled_s < self._pause_s:
                return
            self._looks += 1
            began_s = self._spent()
            try:
                self._poll()
                self.problem = None
            except LogCleanedError:  # the next look begins anew
                self._tails, self.history = {}, _History()
                self._note(*_PARTS)
            except StreamJoinError as error:
                self.problem = error.message
            except OSError as error:
                self.problem = f"the tables cannot be read: {type(error).__name__}"
            self._polled_s = self._clock()
            self._pause_s = min(max(_LEAST_S, _COST_TIMES * (self._spent() - began_s)), _MOST_S)

    def _note(self, *parts: str) -> None:
        for part in parts:
            self._changed[part] = self._looks
            self._texts.pop(part, None)

    def _poll(self) -> None:
        if not self._tails and not self._open():
            return
        is_first = not self.history.commit
        if commits := self._new("punctuations"):
            self._take_commits(_together(commits))
        elif is_first:
            return
        newest = self.history.commit[BATCH_ID]
        if newest == self.history.read:  # a batch's punctuation is the last that it commits
            return
        if ledger := self._new("ledger", 0, newest):
            self._take_ledger(_together(ledger))
        if metrics := self._new("metrics", min(self.history.seconds, default=0) if is_first else 0, newest):
            self._take_metrics(_together(metrics))
        for table in self._new("late", 0, newest):
            self._take_late(table)
        for table in self._new("rejects", 0, newest):
            self._take_rejects(table)
        if matches := self._new("matches", 0, newest):
            kept = [self.history.matches] if self.history.matches is not None else []
            every = _together([*kept, *matches])
            self.history.matches = every.slice(max(0, every.num_rows - _MATCHES)).combine_chunks()
        self.history.read = newest

    def _new(self, name: str, *batches: int) -> list[pa.Table]:
        """Return the new rows of a table, and note what of the facts they change."""
        tables = self._tails[name].poll(*batches)
        if tables:
            self._note(*_CHANGED[name])
        return tables

    def _open(self) -> bool:
        self._identity = CheckpointIdentity.load(self._place)
        if self._identity is None:
            return False
        self._spark = self._identity.spark_folder(self._place)
        self._picture = MatchPicture.of(self._identity.bound)
        try:
            tables = TableSet(noted_table(self._place))
        except (OSError, ValueError):  # the query is about to begin
            return False
        self._tails = {
            "punctuations": TableTail(tables.punctuations, _PUNCTUATIONS),
            "ledger": TableTail(tables.ledger, _LEDGER),
            "metrics": TableTail(tables.metrics, _METRICS, repeated=("backlog",), newest_whole=True),
            "late": TableTail(tables.late, most_rows=_SAMPLE_ROWS),
            "rejects": TableTail(tables.rejects, most_rows=_SAMPLE_ROWS),
            "matches": TableTail(tables.matches, most_rows=_MATCHES),
        }
        self._note(*_PARTS)
        return True

    def _take_commits(self, table: pa.Table) -> None:
        history = self.history
        history.counts["batches"] += table.num_rows
        history.counts["matches"] += int(_filled(table, "matches", 0).sum())
        for row in _newest(table, _RECENT_BATCHES):
            second = row["committed_at"] // 1_000_000
            history.seconds[row[BATCH_ID]] = second
            point = history.points.setdefault(second, Point(second))
            point.batches += 1
            point.matches += row["matches"]
            point.lag_us = _difference(row["largest_ts"], row["punctuation"])
            if (planned_ms := self._planned_ms(row[BATCH_ID])) is not None:
                took = max(0, row["committed_at"] // 1000 - planned_ms)
                point.batch_ms = (point.batch_ms or 0) + took
                row["batch_ms"] = took
            history.commit = row
        for second in sorted(history.points)[:-_POINTS]:
            del history.points[second]
        oldest = min(history.points, default=0)
        history.seconds = {batch: second for batch, second in history.seconds.items() if second >= oldest}

    def _planned_ms(self, batch: int) -> int | None:
        """Return when a batch was planned, in milliseconds since 1970, as the checkpoint's log of offsets says."""
        if not isinstance(self._spark, Path):  # a request for each batch would be too many
            return None
        with (
            contextlib.suppress(OSError, ValueError, KeyError, TypeError),
            (self._spark / "offsets" / str(batch)).open() as file,
        ):
            file.readline()
            return int(json.loads(file.readline())["batchTimestampMs"])
        return None

    def _point_of(self, batch: int) -> Point | None:
        second = self.history.seconds.get(batch)
        return None if second is None else self.history.points.get(second)

    def _take_ledger(self, table: pa.Table) -> None:
        streams = np.array(table.column("stream").to_pylist(), dtype=object)
        for name in _COUNTED:
            if name in table.column_names:
                counts = _filled(table, name, 0)
                for stream in set(streams):
                    self.history.totals.setdefault(stream, Counter())[name] += int(counts[streams == stream].sum())
        for row in _newest(table, _RECENT_BATCHES * len(self.streams)):
            if (point := self._point_of(row[BATCH_ID])) is not None:
                point.read[row["stream"]] += row["read"]
                point.late += row["late"]
                point.rejected += row["rejected"]
            if row.get("largest_ts") is not None:
                self.history.largest_us[row["stream"]] = row["largest_ts"]

    def _take_metrics(self, table: pa.Table) -> None:
        batches, place = np.unique(table.column(BATCH_ID).to_numpy(), return_inverse=True)
        found: dict[str, list[int | None]] = {}
        for name, joined, absent in _OF_POINTS:
            if name not in table.column_names:
                found[name] = [None] * len(batches)
                continue
            of_batch = np.full(len(batches), absent, np.int64)
            joined.at(of_batch, place, _filled(table, name, absent))
            found[name] = [None if value == _NONE else int(value) for value in of_batch]
        for number, batch in enumerate(batches):
            if (point := self._point_of(int(batch))) is not None:
                point.state_rows = found["state_rows"][number] or 0
                point.state_bytes = found["state_bytes"][number] or 0
                point.cells_ms += found["duration_ms"][number] or 0
                point.backlog_rows, point.backlog_us = found["backlog_rows"][number], found["backlog_us"][number]
        of_newest = np.flatnonzero(place == len(batches) - 1)
        newest = table.slice(of_newest[0], of_newest[-1] - of_newest[0] + 1)
        # What all cells say alike is taken of one: the backlog of a thousand partitions is a long text.
        alike = [name for name in newest.column_names if name not in _CELL]
        (self.history.batch,) = newest.slice(0, 1).select(alike).to_pylist()
        cells = [row for row in newest.select([*_CELL, BATCH_ID]).to_pylist() if row.pop(BATCH_ID) == batches[-1]]
        self.history.cells = sorted(cells, key=lambda row: row["cell"])

    def _take_late(self, table: pa.Table) -> None:
        rows = _integers(table).to_pylist()
        self.history.lateness += [(row["stream"], row["largest_ts"] - row["ts"]) for row in rows]
        self.history.late += rows[-_SHOWN:]

    def _take_rejects(self, table: pa.Table) -> None:
        rows = table.to_pylist()
        self.history.reasons.update((row["stream"], row["reason"]) for row in rows)
        self.history.rejects += rows[-_SHOWN:]

    # ------------------------------------------------------------------ what is told

    def facts(self, after: int = 0) -> dict[str, Any]:
        """Return what the page shows, as plain JSON values; of the history the points from a second on."""
        with self._lock:
            return {**self._state_facts(), **self._point_facts(after), **{name: self.part(name) for name in _PARTS}}

    def told(self, after: int = 0, seen: str = "") -> bytes:
        """Return what of `facts` is new to a page, as JSON, and the name of this state of them as ``seen``.

        Parameters
        ----------
        after : int
            As for `facts`.
        seen : str
            What the page was given as ``seen`` with its last answer; that of another process means nothing.
        """
        run, _, number = seen.partition("-")
        known = int(number) if run == self._run and number.isdecimal() else 0
        with self._lock:
            self._asked_s = self._clock()
            newest = max(self._changed.values())
            told = {"seen": f"{self._run}-{newest}", **self._state_facts()}
            if max(self._changed[part] for part in ("streams", "last", "cells")) > known:
                told |= self._point_facts(after)
            parts = [name for name in _PARTS if self._changed[name] > known]
            for name in parts:
                if name not in self._texts:
                    self._texts[name] = _encoded(self.part(name))
            new = [b'"%b":%b' % (name.encode(), self._texts[name]) for name in parts]
        if told["has_ended"]:
            self._end_told.set()
        return b",".join([_encoded(told)[:-1], *new]) + b"}"

    def end(self, patience_s: float) -> None:
        """Note that the query has ended; return when the pages that are open were told, or after some seconds."""
        self.has_ended = True
        if self._clock() - self._asked_s < _OPEN_S and self._end_told.wait(patience_s):
            threading.Event().wait(_ALL_S)

    def _state_facts(self) -> dict[str, Any]:
        return {"has_ended": self.has_ended, "problem": self.problem}

    def _point_facts(self, after: int) -> dict[str, Any]:
        points = sorted(point for point in self.history.points.items() if point[0] >= after)
        return {"columns": [*_COLUMNS, *self.streams], "points": [point.facts(self.streams) for _, point in points]}

    def part(self, name: str) -> Any:
        """Return one part of the facts."""
        match name:
            case "join":
                return self._join_facts()
            case "totals":
                return {name: self.history.counts[name] for name in ("batches", "matches")}
            case "streams":
                return {stream: self._stream_facts(stream) for stream in self.streams}
            case "last":
                return self._last_facts()
            case "cells":
                return self.history.cells
            case "late":
                return self._late_facts()
            case "rejects":
                return self._reject_facts()
            case _:
                return self._match_facts()

    def _join_facts(self) -> dict[str, Any] | None:
        if self._identity is None:
            return None
        bound = self._identity.bound
        return {
            "name": self.name,
            "on": [str(predicate) for predicate in bound.join.predicates],
            "window": bound.join.window.describe(bound.names),
            "how": bound.how,
            "id": self._identity.join_id[:8],
        }

    def _stream_facts(self, name: str) -> dict[str, Any]:
        largest_us, watermark_us = self.history.largest_us.get(name), self.history.commit.get("watermark")
        ahead = _difference(largest_us, watermark_us)
        return {**self.history.totals.get(name, {}), "largest_us": largest_us, "ahead_us": ahead}

    def _last_facts(self) -> dict[str, Any] | None:
        if not self.history.commit:
            return None
        commit, batch = self.history.commit, dict(self.history.batch)
        for name in ("backlog", "table_versions"):
            batch[name] = json.loads(batch.get(name) or "null")
        names = {"punctuation": "punctuation_us", "watermark": "watermark_us", "largest_ts": "largest_us"}
        told = {names.get(name, name): value for name, value in commit.items()}
        lag_us = _difference(commit["largest_ts"], commit["punctuation"])
        return {**batch, **told, "committed_ms": commit["committed_at"] // 1000, "lag_us": lag_us}

    def _late_facts(self) -> dict[str, Any]:
        by_stream: dict[str, list[int]] = {}
        for name, late_us in self.history.lateness:
            by_stream.setdefault(name, []).append(late_us)
        quantiles = {}
        for name, values in by_stream.items():
            values.sort()
            quantiles[name] = [values[min(len(values) - 1, int(share * len(values)))] for share in _QUANTILES]
        return {
            "sample": len(self.history.lateness),
            "quantiles_us": quantiles,
            "rows": _newest_first(self.history.late),
        }

    def _reject_facts(self) -> dict[str, Any]:
        reasons = [[stream, reason, count] for (stream, reason), count in self.history.reasons.most_common(12)]
        return {"reasons": reasons, "rows": _newest_first(self.history.rejects)}

    def _match_facts(self) -> dict[str, Any]:
        table = self.history.matches
        if table is None or self._picture is None:
            return {"columns": [], "rows": [], "picture": None}
        shown = table.slice(max(0, table.num_rows - _SHOWN))
        rows = plain_rows(shown)[::-1]
        return {"columns": table.column_names, "rows": rows, "picture": self._picture.facts(table)}


def _encoded(facts: Any) -> bytes:
    return json.dumps(facts, allow_nan=False, separators=(",", ":")).encode()


def _together(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of several tables; older ones may have fewer columns."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def _batch_of(row: Mapping[str, Any]) -> int:
    return int(row[BATCH_ID])


def _filled(table: pa.Table, name: str, absent: int) -> npt.NDArray[np.int64]:
    """Return the whole numbers of a column, with `absent` in place of nulls."""
    # No `fill_null` of Arrow: with `filter` and `group_by` it is of a part of Arrow that takes long to load.
    numbers: npt.NDArray[Any] = table.column(name).to_numpy()
    if numbers.dtype.kind == "f":  # there are nulls
        numbers = np.where(np.isnan(numbers), absent, numbers)
    return numbers.astype(np.int64)


def _newest(table: pa.Table, most: int) -> list[dict[str, Any]]:
    """Return the last rows of a table, whose files are in order, by their batches; timestamps as whole numbers."""
    return sorted(_integers(table.slice(max(0, table.num_rows - most))).to_pylist(), key=_batch_of)


def _integers(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps are microseconds since 1970."""
    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(place, column.name, table.column(place).cast(pa.int64()))
    return table


def _difference(later_us: int | None, earlier_us: int | None) -> int | None:
    return None if later_us is None or earlier_us is None else later_us - earlier_us


def _newest_first(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seq"} for row in reversed(list(rows))]
