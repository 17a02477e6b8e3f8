"""The display of a running join: a live table on a terminal; elsewhere a line every now and then, or totals as JSON."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType

import click
from rich.console import Console, Group
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.duration import EPOCH
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.logs import has_json_lines
from streamjoin_ds.sink.reader import last_punctuation, matches_there
from streamjoin_ds.source.feed import Backlog, BacklogFacts
from streamjoin_ds.spec import duration_text
from streamjoin_ds.stream.commit import BatchSummary

__all__ = ["LEDGER", "Display", "Totals", "backlog_text", "complete_before", "ledger_table", "moment"]

_log = logging.getLogger(__name__)
LEDGER = ("read", "stored", "late", "rejected", "filtered", "duplicates", "null_keys")
_PLAIN_LINE_EVERY_S = 2.0  # least seconds between two lines


def moment(microseconds: int | None) -> str | None:
    """Return an event time as ISO 8601 text in UTC; None for None."""
    if microseconds is None:
        return None
    return (EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")


def _counted(count: int, noun: str, ending: str = "es") -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def backlog_text(waits: Backlog) -> str:
    """Return a backlog as a text: its records, bytes of files that are not read, and its length in event time."""
    parts = [f"{waits.rows:,} records"] if waits.rows or not waits.size_bytes else []
    parts += [decimal(waits.size_bytes)] if waits.size_bytes else []
    parts += [duration_text(waits.ahead_us - waits.ahead_us % 1000)] if waits.ahead_us is not None else []
    return ", ".join(parts)


@dataclass
class Totals:
    """What this process has committed since the run began.

    Parameters
    ----------
    began_s : float
        When the run began, by the monotonic clock of the times that `add`, `seconds` and `facts` are given.
    held_back_bytes : dict
        For each stream, bytes of a last line without its newline, which was not read.
    files_set_aside : Counter
        For each stream, how many bad files, or rests of files, were set aside.
    lost_offsets : Counter
        For each stream, how many offsets of its topic were gone before they were read.
    backlog : BacklogFacts or None
        What the source knew and left for later when the last batch was planned; None where Spark planned it.
    """

    began_s: float
    batches: int = 0
    matches: int = 0
    match_bytes: int = 0
    ledger: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in LEDGER})
    punctuation_us: int | None = None
    largest_us: dict[str, int | None] = field(default_factory=dict)
    state_rows: int = 0
    state_bytes: int = 0
    first_batch_s: float | None = None
    last_batch_s: float | None = None
    held_back_bytes: dict[str, int] = field(default_factory=dict)
    files_set_aside: Counter[str] = field(default_factory=Counter)
    lost_offsets: Counter[str] = field(default_factory=Counter)
    backlog: BacklogFacts | None = None

    def add(self, batch: BatchSummary, now_s: float) -> None:
        """Count a committed batch."""
        self.batches += 1
        self.matches += batch.matches
        self.match_bytes += batch.match_bytes
        for name in LEDGER:
            self.ledger[name].update(getattr(batch, name))
        self.files_set_aside.update(batch.files_set_aside)
        self.lost_offsets.update(batch.lost_offsets)
        self.backlog = batch.backlog
        self.punctuation_us = batch.punctuation_us
        self.largest_us = batch.largest_us
        self.state_rows, self.state_bytes = batch.state_rows, batch.state_bytes
        self.first_batch_s = now_s if self.first_batch_s is None else self.first_batch_s
        self.last_batch_s = now_s

    @property
    def rows(self) -> int:
        """Number of rows read, all streams together."""
        return self.ledger["read"].total()

    @property
    def lag_us(self) -> int | None:
        """By how many microseconds the punctuation is behind the newest event time; None if one is not known."""
        known = [largest for largest in self.largest_us.values() if largest is not None]
        return max(known) - self.punctuation_us if known and self.punctuation_us is not None else None

    def seconds(self, now_s: float) -> float:
        """Return how many seconds the run has taken; never zero, so that rates can be computed."""
        return max(now_s - self.began_s, 1e-9)

    def facts(self, now_s: float) -> dict[str, object]:
        """Return the totals as plain JSON values."""
        seconds = self.seconds(now_s)
        return {
            "batches": self.batches,
            "matches": self.matches,
            "match_bytes": self.match_bytes,
            **{name: dict(sorted(self.ledger[name].items())) for name in LEDGER},
            "files_set_aside": {name: count for name, count in sorted(self.files_set_aside.items()) if count},
            "lost_offsets": {name: count for name, count in sorted(self.lost_offsets.items()) if count},
            "held_back_bytes": dict(sorted(self.held_back_bytes.items())),
            "backlog": None if self.backlog is None else self.backlog.to_facts(),
            "punctuation": moment(self.punctuation_us),
            "seconds": round(seconds, 3),
            "rows_per_second": round(self.rows / seconds, 1),
            "results_per_second": round(self.matches / seconds, 1),
        }


class Display:
    """Shows batches as they are committed; a context manager.

    Parameters
    ----------
    console : rich.console.Console
        The console to print on; usually standard error, so that standard output is left to results.
    clock : callable
        Returns monotonic seconds.
    quiet : bool
        True: show nothing, only count. So it is where standard error has lines of JSON: the log tells of each batch.
    name : str
        What is shown before each line, where several joins run; there is no live table then.
    """

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, quiet: bool = False, name: str = ""
    ) -> None:
        quiet = quiet or has_json_lines()
        self.console, self.clock, self.quiet, self.name = console, clock, quiet, name
        self.totals = Totals(clock())
        is_live = console.is_terminal and not quiet and not name
        self._live = Live(console=console, refresh_per_second=8, transient=True) if is_live else None
        self._said_s = float("-inf")
        self._before_s = self.totals.began_s  # when the last batch came
        self._rates = (0.0, 0.0)
        self._stream_rates: dict[str, float] = {}

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def batch(self, batch: BatchSummary) -> None:
        """Count and show one committed batch; called from the query's thread."""
        now = self.clock()
        self.totals.add(batch, now)
        seconds = max(now - self._before_s, 1e-9)
        self._before_s = now
        self._rates = (sum(batch.read.values()) / seconds, batch.matches / seconds)
        self._stream_rates = {stream: count / seconds for stream, count in batch.read.items()}
        if self._live is not None:
            self._live.update(Group(self._table(), Text(f"batch {batch.batch_id}", style="dim")))
        elif not self.quiet and now - self._said_s >= _PLAIN_LINE_EVERY_S:
            self._said_s = now
            self.console.print(self._line(batch, now), highlight=False, soft_wrap=True)

    def end(self, to: str, checkpoint: str, *, finished: bool, as_json: bool) -> None:
        """Print what was done in all: for people on the console, or as one JSON object on standard output.

        Parameters
        ----------
        to, checkpoint : str
            The join's table of matches and its checkpoint.
        finished : bool
            Whether the input has ended; False if the join was interrupted.
        as_json : bool
            Whether to print JSON.
        """
        totals = self.totals
        facts = totals.facts(self.clock()) | {"finished": finished, "table": to, "checkpoint": checkpoint}
        there = None if totals.batches else self._there(to)
        if there is not None:
            facts["punctuation"] = moment(there[1])
        if as_json:
            click.echo(json.dumps(facts))
            return
        if has_json_lines():
            facts |= {"table": loggable(to), "checkpoint": loggable(checkpoint)}
            _log.info("the run has ended" if finished else "the run was stopped", extra={"facts": facts})
            return
        if there is None:
            self.console.print(ledger_table(totals))
        for name, count in sorted((+totals.files_set_aside).items()):
            told = f"stream {name}: {count} bad files, or rests of files, were set aside; {to}_rejects names them"
            self.console.print(told)
        for name, count in sorted((+totals.lost_offsets).items()):
            told = f"stream {name}: {count:,} offsets were gone before they were read; {to}_rejects names them"
            self.console.print(told, highlight=False, soft_wrap=True)
        for name, size in totals.held_back_bytes.items():
            self.console.print(f"stream {name}: {size:,} bytes of an unfinished last line are not read yet")
        done = f"{_counted(totals.matches, 'match')} in {_counted(totals.batches, 'batch')}, {facts['seconds']:.1f} s"
        if there is not None:
            done = f"nothing new was read, {facts['seconds']:.1f} s; {there[0]:,} matches are there from before"
        told = f"{done}; {complete_before(facts)}; table: {to}"
        self.console.print(told, highlight=False, soft_wrap=True)

    @staticmethod
    def _there(to: str) -> tuple[int, int | None] | None:
        """Return how many matches a table has from earlier runs, and its punctuation; None where it has none."""
        try:
            return matches_there(to), last_punctuation(to)
        except StreamJoinError:
            return None

    def _line(self, batch: BatchSummary, now: float) -> str:
        totals = self.totals
        named = f"{self.name}: " if self.name else ""
        return (
            f"{named}{totals.seconds(now):6.1f} s  batch {batch.batch_id}: "
            f"{_counted(totals.rows, 'row', 's')} ({self._rates[0]:,.0f}/s), "
            f"{_counted(totals.matches, 'match')} ({self._rates[1]:,.0f}/s), "
            f"punctuation {moment(totals.punctuation_us) or '-'}, lag {self._lag()}"
            f"{', backlog ' + self._backlog() if totals.backlog and totals.backlog.streams else ''}"
        )

    def _lag(self) -> str:
        lag_us = self.totals.lag_us
        return "-" if lag_us is None else duration_text(lag_us - lag_us % 1000)

    def _each(self) -> str:
        matches = self.totals.matches
        return f"; {self.totals.match_bytes / matches:.1f} B each" if matches else ""

    def _backlog(self) -> str:
        waits = self.totals.backlog
        return "-" if waits is None or not waits.streams else backlog_text(waits.total)

    def _limit(self) -> str:
        """Say which streams wait, and why batches hold no more."""
        waits = self.totals.backlog
        if waits is None or not waits.streams:
            return "known and not read"
        limit = f"; batches are limited by {waits.limited_by}" if waits.limited_by else ""
        return f"of {', '.join(waits.streams)}{limit}"

    @staticmethod
    def _of_stream(rate: float, waits: Backlog | None) -> str:
        return f"{rate:,.0f}/s{f'; {backlog_text(waits)} wait' if waits else ''}"

    def _unjoined(self) -> Iterator[tuple[str, str, str]]:
        """Yield a row for rejects, and one for lost offsets, where there are any."""
        for name, counts, note in (
            ("rejected", self.totals.ledger["rejected"], "no tuples; the rejects table has them"),
            ("lost", self.totals.lost_offsets, "offsets, gone before they were read; the rejects table names them"),
        ):
            if counts.total():
                of = ", ".join(stream for stream, count in counts.items() if count)
                yield name, f"{counts.total():,}", f"of {of}: {note}"

    def _table(self) -> Table:
        totals = self.totals
        table = Table(title=None, show_header=False, box=None, padding=(0, 2))
        waits = totals.backlog.streams if totals.backlog is not None else {}
        rows = [
            ("rows", f"{totals.rows:,}", f"{self._rates[0]:,.0f}/s"),
            *(
                (f"  {stream}", f"{totals.ledger['read'][stream]:,}", self._of_stream(rate, waits.get(stream)))
                for stream, rate in self._stream_rates.items()
            ),
            ("matches", f"{totals.matches:,}", f"{self._rates[1]:,.0f}/s{self._each()}"),
            ("late", f"{totals.ledger['late'].total():,}", ""),
            *self._unjoined(),
            ("in windows", f"{totals.state_rows:,} rows", f"{totals.state_bytes / 1e6:,.1f} MB"),
            ("punctuation", moment(totals.punctuation_us) or "-", ""),
            ("lag", self._lag(), "newest event time - punctuation"),
            ("backlog", self._backlog(), self._limit()),
        ]
        for name, value, note in rows:
            table.add_row(Text(name, style="bold"), value, Text(note, style="dim"))
        return table


def complete_before(facts: Mapping[str, object]) -> str:
    """Say up to which moment the results are complete, by `Totals.facts`."""
    return f"complete before {facts['punctuation']}" if facts["punctuation"] else "no punctuation yet"


def ledger_table(totals: Totals) -> Group:
    """Return the ledger, a title and a table: read = stored + late + rejected + filtered + duplicates by stream.

    A stream is a column: 80 characters then have room for several of them. Where they do not suffice, a number goes on
    in the next line; no digit of it is left out.
    """
    table = Table()
    table.add_column("rows", overflow="fold")
    for stream in totals.ledger["read"]:
        table.add_column(Text(stream), justify="right", overflow="fold")
    for name in LEDGER:
        counts = (f"{totals.ledger[name][stream]:,}" for stream in totals.ledger["read"])
        table.add_row("null keys" if name == "null_keys" else name, *counts)
    return Group(Text("Ledger (read = stored + late + rejected + filtered + duplicates)", style="table.title"), table)
