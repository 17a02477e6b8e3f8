"""The totals of a run: batches added up, for a table or as one JSON object."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from rich.filesize import decimal

from streamjoin_ds.source.feed import Backlog, BacklogFacts
from streamjoin_ds.spec import duration_text
from streamjoin_ds.stream.commit import BatchSummary

__all__ = ["LEDGER", "Totals", "backlog_text", "moment"]

LEDGER = ("read", "stored", "late", "rejected", "filtered", "duplicates", "null_keys")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def moment(microseconds: int | None) -> str | None:
    """Return an event time as ISO 8601 text in UTC; None for None."""
    if microseconds is None:
        return None
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")


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
