"""The parent's side of a live query: takes the query's events, samples its memory, and ends it, by force if asked."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from streamjoin_ds.stream.source_facts import bound_join
from tests.bench.suites.live.live import LiveTask
from tests.bench.suites.oracle import count_matches
from tests.bench.suites.paths.inputs import first_tuples
from tests.bench.suites.processes import BenchError, Child, TreeUse

__all__ = ["LiveProcess", "LiveRun", "wall_s"]

_CLOSE_WITHIN_S = 30.0  # seconds that the process has to end after its last event
_CHECKED_ROWS = 1_000_000  # rows, about, of the first batches, whose matches are counted independently


@dataclass
class LiveRun:
    """What a live query said until it ended, and what it used.

    Attributes
    ----------
    task : LiveTask
        The query.
    started_s : float
        When its process was about to be started; like all times here in seconds since 1970, by the wall clock.
    session_s : float
        When it had a Spark session.
    batches : list of dict
        Its commits, in order: ``at_s, batch_id, full, read, matches, state_rows``. A task that weighs adds
        ``block_bytes, row_bytes``: what the batch wrote of blocks and of the cells' state rows.
    triggers : list of dict
        Spark's progress of the last query's triggers: ``batchId, timestamp, durationMs``.
    empty_ms : list of float
        Milliseconds of the empty triggers in the same session, if the task asks for some.
    peak_mib, cpu_s, others_cores : float
        As in `SideRun`, where `cpu_s` is `cpu_seconds`.
    """

    task: LiveTask
    started_s: float
    session_s: float = 0.0
    batches: list[dict[str, Any]] = field(default_factory=list)
    triggers: list[dict[str, Any]] = field(default_factory=list)
    empty_ms: list[float] = field(default_factory=list)
    peak_mib: float = 0.0
    cpu_s: float = 0.0
    others_cores: float = 0.0

    def full_steps(self) -> list[tuple[float, dict[str, Any]]]:
        """Return the batches over full windows, each with the seconds since the commit before it."""
        steps = [(after["at_s"] - before["at_s"], after) for before, after in pairwise(self.batches)]
        return [step for step in steps if step[1]["full"]]

    def rate(self, of: Callable[[dict[str, Any]], float]) -> float:
        """Return the median rate of `of` over the batches over full windows: a second, from commit to commit."""
        return statistics.median(of(batch) / seconds for seconds, batch in self.full_steps())

    def bytes_per_row(self, of: str) -> float:
        """Return the bytes that batches over full windows wrote for each row read: "block_bytes" or "row_bytes"."""
        weighed = [batch for batch in self.batches if batch["full"]]
        rows: int = sum(sum(batch["read"]) for batch in weighed)
        return float(sum(batch[of] for batch in weighed) / rows)

    def waits_ms(self) -> list[float]:
        """Return samples, in milliseconds, of the wait from when a tuple is due to the commit of its batch.

        The query must be paced. No tuple is timed. With pace 1 a tuple is due when the clock is at its event time, and
        a batch is taken to hold the tuples that became due from the beginning of the trigger before to that of its own.
        The samples are spread evenly over that time, 50 for each batch.
        """
        began_s = {trigger["batchId"]: wall_s(trigger["timestamp"]) for trigger in self.triggers}
        samples = []
        for batch in self.batches:
            since, until = (began_s.get(batch["batch_id"] + step) for step in (-1, 0))
            if batch["full"] and since is not None and until is not None:
                count = 50
                due = (since + (until - since) * (number + 0.5) / count for number in range(count))
                samples += [1000 * (batch["at_s"] - at_s) for at_s in due]
        return samples

    def trigger_ms(self, phase: str = "triggerExecution") -> list[float]:
        """Return Spark's times of triggers over full windows, or of one phase of them (a key of ``durationMs``)."""
        full = {batch["batch_id"] for batch in self.batches if batch["full"]}
        return [float(trigger["durationMs"].get(phase, 0)) for trigger in self.triggers if trigger["batchId"] in full]

    def check(self) -> None:
        """Compare the matches of the first batches with an independent count.

        Raises
        ------
        BenchError
            They differ.
        """
        read, matches = [0, 0], 0
        for number, batch in enumerate(self.batches):
            more = [sum(counts) for counts in zip(read, batch["read"], strict=True)]
            if number and sum(more) > _CHECKED_ROWS:
                break
            read, matches = more, matches + batch["matches"]
        join = self.task.join()
        bound = bound_join(join)
        expected = count_matches(join, *(first_tuples(bound, stream, rows) for stream, rows in enumerate(read)))
        if matches != expected:
            msg = f"the stream gives {matches:,} matches for {sum(read):,} rows, but an independent count {expected:,}"
            raise BenchError(msg, name="stream", hint="no measurement of it is valid until both agree")


class LiveProcess:
    """A live query in its process; as a context manager it starts the query, and ends it with all that it started.

    Parameters
    ----------
    task : LiveTask
        The query.
    log_path : Path
        File for all that the process prints.
    """

    def __init__(self, task: LiveTask, log_path: Path) -> None:
        self._child = Child("live.live", json.dumps(asdict(task)), name="the stream", log_path=log_path)
        self.run = LiveRun(task, 0.0)
        self._use: TreeUse | None = None

    def __enter__(self) -> LiveProcess:
        self.run.started_s = time.time()
        self._child.__enter__()
        self._use = TreeUse(self._child.process_id)
        self._use.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._note_use()
        self.kill()

    def await_batches(self, count: int, within_s: float) -> LiveRun:
        """Wait for so many batches over full windows; the query goes on after that.

        Raises
        ------
        BenchError
            The query ended, or took longer than `within_s`.
        """
        return self._take(lambda: sum(batch["full"] for batch in self.run.batches) >= count, within_s)

    def await_end(self, within_s: float) -> LiveRun:
        """Wait until the query has done all its batches; errors are those of `await_batches`."""
        done = self._take(lambda: bool(self.run.triggers), within_s)
        self._note_use()
        self._child.end(_CLOSE_WITHIN_S)
        return done

    def kill(self) -> None:
        """Kill the query and all its processes at once: no handler of Python or Java runs."""
        self._child.kill()

    def _take(self, enough: Callable[[], bool], within_s: float) -> LiveRun:
        until_s = time.monotonic() + within_s
        while not enough():
            self._heard(self._child.answer(max(until_s - time.monotonic(), 0.01)))
        return self.run

    def _heard(self, facts: dict[str, Any]) -> None:
        event = facts.pop("event")
        if event == "session":
            self.run.session_s = facts["at_s"]
        elif event == "done":
            self.run.triggers, self.run.empty_ms = facts["triggers"], facts["empty_ms"]
        elif all(batch["batch_id"] != facts["batch_id"] for batch in self.run.batches):
            self.run.batches.append(facts)

    def _note_use(self) -> None:
        if self._use is not None:
            self._use.__exit__()
            self.run.peak_mib, self.run.cpu_s = self._use.peak_bytes / 2**20, self._use.cpu_seconds
            self.run.others_cores = self._use.others_cores
            self._use = None


def wall_s(text: str) -> float:
    """Return a time of Spark's progress in seconds since 1970."""
    # Python 3.10 does not read a Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
