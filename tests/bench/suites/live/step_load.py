"""A load in steps: what the two streams' rates are when, and how long each tuple waited for its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamjoin_ds.source.generator import synthetic_rows
from streamjoin_ds.spec import Generator
from tests.bench.suites.live.live_process import LiveRun, wall_s
from tests.bench.suites.processes import BenchError

__all__ = ["StepLoad", "tuple_delays"]


@dataclass(frozen=True, slots=True)
class StepLoad:
    """A rate that goes up and down.

    Attributes
    ----------
    rate : int
        Tuples of each stream in a second, at once.
    times : tuple of int
        The rate of each step, as a multiple of `rate`.
    step_s : int
        Seconds of each step.
    warm_s : int
        Seconds before the first step, at `rate`: workers start and Java compiles meanwhile, and nothing is counted.
    """

    rate: int
    times: tuple[int, ...]
    step_s: int
    warm_s: int

    @property
    def rates(self) -> str:
        """The load as a generator's parameter `rates`."""
        steps = [(self.warm_s + number * self.step_s, times) for number, times in enumerate(self.times)]
        return ",".join(f"{since_s}s:{times * self.rate}" for since_s, times in [(0, 1), *steps])

    @property
    def rows(self) -> int:
        """Tuples of each stream, to the end of the last step."""
        return self.rate * (self.warm_s + self.step_s * sum(self.times))

    def by_step(self, due_s: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
        """Return the values of each step's tuples; those of the warm time are in none.

        Parameters
        ----------
        due_s : numpy.ndarray
            When each tuple was due, in seconds after the first.
        values : numpy.ndarray
            A value for each tuple.
        """
        step = np.floor((due_s - self.warm_s) / self.step_s)
        return [values[step == number] for number in range(len(self.times))]


def tuple_delays(run: LiveRun) -> tuple[np.ndarray, np.ndarray]:
    """Return for each tuple of both streams when it was due, and how long after that its batch was committed.

    The query must be paced with speed 1, and must not have been started before. A tuple is due when the source's clock
    is at its event time. That clock is not this process's, but no tuple of a batch was due after the batch was planned,
    and the last ones of a batch that took all were due just then. So the batch that was planned soonest after its last
    tuple says when the clock started. It is taken to have been planned when its trigger began, some milliseconds
    before: that makes delays longer rather than shorter.

    Returns
    -------
    due_s, delay_ms : numpy.ndarray
        Seconds after the first tuple, and milliseconds.

    Raises
    ------
    BenchError
        Spark reported no trigger that had a batch.
    """
    streams = run.task.join().streams
    frontiers = [synthetic_rows(source) for stream in streams if isinstance(source := stream.source, Generator)]
    ends = np.cumsum([batch["read"] for batch in run.batches], axis=0)
    times = [rows.frontier(0, int(end)).running_max for rows, end in zip(frontiers, ends[-1], strict=True)]
    first_us = min(int(ts[0]) for ts in times)
    triggers = {trigger["batchId"]: trigger for trigger in run.triggers}
    starts = []  # when the clock started at the latest, and what is taken for its start
    for batch, end in zip(run.batches, ends, strict=True):
        if trigger := triggers.get(batch["batch_id"]):
            last_s = (_last_us(times, end) - first_us) / 1e6
            began_s, planning_s = wall_s(trigger["timestamp"]), trigger["durationMs"].get("latestOffset", 0) / 1e3
            starts.append((began_s + planning_s - last_s, began_s - last_s))
    if not starts:
        msg = "Spark reported no trigger of the stream that had a batch"
        raise BenchError(msg, name="stream", hint="let the query run for some seconds")
    start_s = min(starts)[1]
    commits_s = np.array([batch["at_s"] for batch in run.batches]) - start_s
    due_s = [(ts - first_us) / 1e6 for ts in times]
    waits = [np.repeat(commits_s, np.diff(ends[:, number], prepend=0)) - due_s[number] for number in range(len(times))]
    return np.concatenate(due_s), 1000 * np.concatenate(waits)


def _last_us(times: Sequence[np.ndarray], end: np.ndarray) -> int:
    """Return the largest event time of the tuples before an end; `times` has all of them."""
    return max(int(ts[count - 1]) for ts, count in zip(times, end, strict=True) if count)
