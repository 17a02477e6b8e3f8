"""A layout that follows the rates beside one that is fixed: the same input, by live queries that take turns.

::

    rate of s   1x ────────────┐                         the cells' layout follows: 4x4 ──► 1x16
                               └─ 20x ─────────────────► and beside it is kept:     4x4
    rate of r   1x ────────────────────────────────────►

What is shipped does not depend on the machine's load: both queries cut the same batches. Wall times do, so the queries
take turns, and their CPU time is told too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.bench.suites.live.finding import Finding, StreamSettings
from tests.bench.suites.live.live import LiveTask
from tests.bench.suites.live.live_process import LiveRun
from tests.bench.suites.live.query_runs import done, query_folder
from tests.bench.suites.live.step_load import StepLoad
from tests.bench.suites.processes import BenchError

__all__ = ["RateChange", "RateRun", "measure_rates"]

_CELLS, _SQUARE = 16, "4x4"
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class RateChange:
    """Two streams of equal rates; after a third of the time the second one's rate grows.

    Attributes
    ----------
    rate : int
        Tuples of each stream in a second, at first.
    ratio : int
        How many times as fast the second stream is after that; 1: its rate stays.
    length_s : int
        Seconds of event time; a multiple of 3.
    batches : int
        Into how many batches the input is cut.
    window_share : int
        How many windows the length has.
    """

    rate: int
    ratio: int
    length_s: int
    batches: int
    window_share: int

    @property
    def rows(self) -> int:
        """Tuples of both streams together."""
        return self.rate * self.length_s * (4 + 2 * self.ratio) // 3

    def task(self, folder: str, layout: str) -> LiveTask:
        """Return a query over the load, in this layout of 16 cells."""
        return LiveTask(
            folder,
            self.rate,
            self.length_s * _SECOND_US // self.window_share,
            10,
            0,
            -(-self.rows // self.batches),
            rows=self.rows,
            second_rates=f"0s:{self.rate},{self.length_s // 3}s:{self.rate * self.ratio}",
            cells=_CELLS,
            layout=layout,
        )

    def run(self, layout: str) -> RateRun:
        """Return what a query in this layout did; raise a `BenchError` if it failed or its matches are wrong."""
        with query_folder() as folder:
            task = self.task(folder, layout)
            run = done(task)
            return RateRun.of(run, _metrics(task))


@dataclass(frozen=True, slots=True)
class RateRun:
    """What one query did, to the batch in which it had read all.

    Attributes
    ----------
    wall_s : float
        Seconds from the first commit to the last: the start of Java and workers is not in it.
    cpu_s : float
        CPU seconds of all its processes, their start among them.
    read, matches, shipped, layouts : tuple
        For each batch the tuples read of both streams, the matches, the tuples sent to cells, and the layout.
    trigger_ms : dict of int to float
        Milliseconds of each batch's trigger, by Spark.
    skipped : int
        Numbers of batches, between the first and the last, that were not committed or read nothing.
    peak_mib, others_cores : float
        As in `SideRun`.
    """

    wall_s: float
    cpu_s: float
    read: tuple[int, ...]
    matches: tuple[int, ...]
    shipped: tuple[int, ...]
    layouts: tuple[str, ...]
    trigger_ms: dict[int, float]
    skipped: int
    peak_mib: float
    others_cores: float

    @classmethod
    def of(cls, run: LiveRun, metrics: Sequence[dict[str, Any]]) -> RateRun:
        """Return the facts of a run, and of the rows of its metrics."""
        shipped: dict[int, int] = {}
        layouts: dict[int, str] = {}
        for row in metrics:
            number = row["batch_id"]
            shipped[number] = shipped.get(number, 0) + row["shipped_rows"]
            layouts[number] = row["layout"]
        batches, read = [], 0
        for batch in run.batches:  # the query goes on until it is stopped
            if read >= run.task.rows:
                break
            batches.append(batch)
            read += sum(batch["read"])
        numbers = [batch["batch_id"] for batch in batches]
        empty = sum(not sum(batch["read"]) for batch in batches)
        return cls(
            batches[-1]["at_s"] - batches[0]["at_s"],
            run.cpu_s,
            tuple(sum(batch["read"]) for batch in batches),
            tuple(batch["matches"] for batch in batches),
            tuple(shipped[number] for number in numbers),
            tuple(layouts[number] for number in numbers),
            {trigger["batchId"]: float(trigger["durationMs"]["triggerExecution"]) for trigger in run.triggers},
            numbers[-1] + 1 - len(numbers) + empty,
            run.peak_mib,
            run.others_cores,
        )

    @property
    def changing(self) -> tuple[int, ...]:
        """The batches with another layout than the batch before them."""
        return tuple(after for (_, before), (after, layout) in pairwise(enumerate(self.layouts)) if layout != before)

    @property
    def epochs(self) -> tuple[str, ...]:
        """The layouts, one after the other."""
        return (self.layouts[0], *(self.layouts[number] for number in self.changing))

    def changing_over_others(self) -> list[float]:
        """Return the trigger of each changing batch over the median of the ten nearest others.

        The nearest are taken, because what else the machine does changes in the course of minutes. The first batches
        are no others: Java compiles, and workers start.
        """
        known = {number: took for number, took in self.trigger_ms.items() if number < len(self.layouts)}
        others = [number for number in known if number not in self.changing and number >= _WARM]
        ratios = []
        for changing in self.changing:
            nearest = sorted(others, key=lambda number: abs(number - changing))[:_NEAREST]
            if changing in known and nearest:
                ratios.append(known[changing] / statistics.median(known[number] for number in nearest))
        return ratios

    def changing_over(self, other: RateRun) -> float:
        """Return the longest trigger of a changing batch, over that of the same batch in another run."""
        shared = [number for number in self.changing if number in self.trigger_ms and number in other.trigger_ms]
        return max((self.trigger_ms[number] / other.trigger_ms[number] for number in shared), default=1.0)


def measure_rates(settings: StreamSettings, say: Callable[[str], None]) -> Iterator[Finding]:
    """Measure a layout of 16 cells that follows the rates beside a fixed square, where rates change and where not.

    Raises
    ------
    BenchError
        A query failed, or its matches are wrong, or not those of the other one.
    """
    if settings.quick:
        changes = (RateChange(1_100, 20, 60, 12, 12), RateChange(5_000, 1, 30, 6, 10))
    else:
        changes = (RateChange(2_000, 20, 600, 48, 40), RateChange(14_000, 1, 600, 48, 40))
    turns = 1 if settings.quick else _TURNS
    for change in changes:
        yield from _compared(change, turns, settings, say)
    yield from _paused(settings, say)


def _compared(
    change: RateChange, turns: int, settings: StreamSettings, say: Callable[[str], None]
) -> Iterator[Finding]:
    """Let the queries take turns, the other one first each time, and yield what they did."""
    workload = f"band2d, 1:1 then 1:{change.ratio}" if change.ratio > 1 else "band2d, 1:1"
    pairs: list[tuple[RateRun, RateRun]] = []
    for turn in range(turns):
        runs = {layout: change.run(layout) for layout in (("grid", _SQUARE), (_SQUARE, "grid"))[turn % 2]}
        follows, fixed = runs["grid"], runs[_SQUARE]
        if (follows.read, follows.matches) != (fixed.read, fixed.matches):
            msg = f"the layouts give {sum(follows.matches):,} and {sum(fixed.matches):,} matches"
            raise BenchError(msg, name="rates", hint="no measurement is valid until both agree")
        pairs.append((follows, fixed))
        say(
            f"  {workload}: {follows.wall_s:.0f} s by {', '.join(follows.epochs)}, {fixed.wall_s:.0f} s by {_SQUARE}; "
            f"CPU {follows.cpu_s:.0f} and {fixed.cpu_s:.0f} s"
        )

    def share(of: Callable[[RateRun], float]) -> float:
        return 100 * statistics.median(of(follows) / of(fixed) for follows, fixed in pairs)

    follows, fixed = pairs[0]
    common: dict[str, Any] = {
        "peak_mib": max(follows.peak_mib for follows, _ in pairs),
        "others_cores": max(run.others_cores for pair in pairs for run in pair),
    }
    changes = change.ratio > 1
    note = (
        f"{_CELLS} cells; {sum(follows.read):,} tuples, {len(follows.read)} batches, windows of "
        f"1/{change.window_share} of the time; {', '.join(follows.epochs)} beside {_SQUARE}; both have "
        f"{sum(follows.matches):,} matches"
    )
    shipped = [sum(run.shipped) / sum(run.read) for run in (follows, fixed)]
    yield Finding(workload, "copies", shipped[0], "a tuple", None, None, _SQUARE, shipped[1], note=note)
    at_most = settings.bound(60.0 if changes else 100.0)
    yield Finding(workload, "shipped_share", share(lambda run: sum(run.shipped)), "%", None, at_most)
    walls = [statistics.median(run.wall_s for run in of) for of in zip(*pairs, strict=True)]
    note = f"from the first commit to the last; {turns} runs of each, in turns"
    yield Finding(workload, "wall", walls[0], "s", None, None, _SQUARE, walls[1], note=note, **common)
    at_most = settings.bound(100.0 if changes else 103.0)
    yield Finding(workload, "wall_share", share(lambda run: run.wall_s), "%", None, at_most)
    note = "of all processes, with their start; it depends less than the time on what else the machine does"
    yield Finding(workload, "cpu_share", share(lambda run: run.cpu_s), "%", note=note)
    skipped = float(sum(run.skipped for pair in pairs for run in pair))
    yield Finding(workload, "batches_skipped", skipped, "batches", None, settings.bound(0.0))
    if changes:
        yield Finding(workload, "layouts", float(len(follows.epochs)), "layouts")
        pause = statistics.median(follows.changing_over(fixed) for follows, fixed in pairs)
        note = f"trigger of the batch that changes the layout, over that of the same tuples by {_SQUARE}"
        yield Finding(workload, "changing_over_fixed", pause, "times", note=note)


def _paused(settings: StreamSettings, say: Callable[[str], None]) -> Iterator[Finding]:
    """Measure in real time how long the triggers take that change the layout, beside the others of the same query."""
    times = (20,) if settings.quick else (20, 1, 20, 1)
    load = StepLoad(500, times, 15, 15) if settings.quick else StepLoad(500, times, 60, 30)
    length_s = load.warm_s + load.step_s * len(times)
    window_s = load.step_s // 5
    say(f"  {load.rate:,} tuples/s a stream in real time, one of them 20 times that in every other step")
    with query_folder() as folder:
        task = LiveTask(
            folder, load.rate, window_s * _SECOND_US, 10, 0, _MOST_ROWS, pace="1", cells=_CELLS, layout="grid",
            rows=load.rate * length_s + load.rows, second_rates=load.rates,
        )  # fmt: skip
        run = RateRun.of(done(task), _metrics(task))
    workload = f"band2d, {load.rate:,}/s, one stream up to 20 times, real time"
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    ratios = run.changing_over_others()
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    note = (
        f"{_CELLS} cells; median of the batches that change the layout ({told}), "
        f"each over the median of its ten nearest others; {len(run.read)} batches; {', '.join(run.epochs)}"
    )
    pause = statistics.median(ratios) if ratios else 1.0
    yield Finding(workload, "changing_trigger", pause, "times", None, settings.bound(1.3), note=note, **common)
    yield Finding(workload, "batches_skipped", float(run.skipped), "batches", None, settings.bound(0.0))


def _metrics(task: LiveTask) -> list[dict[str, Any]]:
    """Return what the metrics of a query say of its batches and cells."""
    table = scanned(DeltaTable(TableSet(str(task.table)).metrics))
    rows: list[dict[str, Any]] = table.to_table(columns=["batch_id", "shipped_rows", "layout"]).to_pylist()
    return rows


_MOST_ROWS = 1_000_000  # of a batch in real time
_TURNS = 3  # runs of each query
_NEAREST = 10  # batches that a changing one is compared with
_WARM = 5  # first batches of a run that are not measured
