"""The suite of full paths: a workload's sides run in turn, every count is checked, results are medians of the runs."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.errors import ArgumentError, DependencyMissingError
from streamjoin_ds.spark.local_files import new_log
from streamjoin_ds.spec import Generator
from tests.bench.suites.oracle import count_matches
from tests.bench.suites.paths.inputs import SlicedInput, slice_input
from tests.bench.suites.paths.side_process import SideProcess, SideRun
from tests.bench.suites.processes import BenchError, load_psutil
from tests.bench.suites.sides import LOCAL, OURS, SIDES, Outcome, SideTask, check_peers
from tests.bench.suites.workloads import Workload, make_workload

__all__ = ["CountCheck", "Settings", "WorkloadResult", "measure", "run_side"]

_HANG_S = 900.0  # seconds beyond its time limit after which a side has failed


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Parameters
    ----------
    runs : int
        Measured runs of each side, after one that is not measured.
    peers : tuple of str
        Names of `SIDES` but ours.
    data : Path or None
        Folder of the recorded data.
    generated_rows : int or None
        Tuples of each stream in generated workloads; None for their fixed sizes.
    limit_s : int
        Seconds after which a peer takes no further step in a run.
    """

    runs: int
    peers: tuple[str, ...] = SIDES[1:]
    data: Path | None = None
    generated_rows: int | None = None
    limit_s: int = 20

    def __post_init__(self) -> None:
        check_peers(self.peers)
        if self.runs < 1:
            msg = "there must be at least one run"
            raise ArgumentError(msg, name="runs", hint="for example 5")


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """The measured runs of one workload.

    Attributes
    ----------
    workload : Workload
        The workload.
    window_rows : int
        Most tuples inside the windows at once, both streams together.
    cores : int
        Cores that every side could use.
    runs : mapping of side to sequence of SideRun
        The runs of each side, in their order. The n-th runs of two sides are a pair.
    """

    workload: Workload
    window_rows: int
    cores: int
    runs: Mapping[str, Sequence[SideRun]]

    @property
    def rows(self) -> int:
        """Rows of the whole input, which our side takes in."""
        return self.runs[OURS][0].outcome.rows

    def median(self, side: str, measure: Callable[[SideRun], float]) -> float:
        """Return the median of a measure over a side's runs."""
        return statistics.median(map(measure, self.runs[side]))

    @property
    def is_compared(self) -> bool:
        """Whether our side and its peers had equal batches, so that their speeds can be compared."""
        return self.workload.max_rows_per_batch is None

    @property
    def best_peer(self) -> str:
        """The fastest of the peers; "" if there is none, or if speeds are not compared."""
        peers = [side for side in self.runs if side not in (OURS, LOCAL)] if self.is_compared else []
        return min(peers, key=self.speedup, default="")

    def speedup(self, peer: str) -> float:
        """Return our rows a second divided by the peer's: the median over the pairs of runs."""
        pairs = zip(self.runs[OURS], self.runs[peer], strict=True)
        return statistics.median(ours.rows_per_second / other.rows_per_second for ours, other in pairs)


def measure(names: Sequence[str], settings: Settings, say: Callable[[str], None]) -> list[WorkloadResult]:
    """Measure workloads.

    Parameters
    ----------
    names : sequence of str
        Keys of `WORKLOADS`.
    settings : Settings
        How to measure.
    say : callable
        Takes a line about what is being done.

    Returns
    -------
    list of WorkloadResult
        The results of the workloads whose data are there; `say` was told of the others.

    Raises
    ------
    BenchError
        A side failed, or its number of matches is wrong.
    DependencyMissingError
        psutil, or what a peer needs, is not installed.
    """
    load_psutil()
    if any(peer.startswith("duckdb") for peer in settings.peers):
        _need_duckdb()
    # All names are checked before anything takes time.
    workloads = [(name, make_workload(name, settings.data, settings.generated_rows)) for name in names]
    results = []
    for name, workload in workloads:
        if workload is None:
            say(f"{name}: left out, its recorded data are not in {settings.data or 'a folder given with --data'}")
        else:
            results.append(_measured(workload, settings, say))
    return results


def _need_duckdb() -> None:
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        message = "The package duckdb, one of the peers, is not installed."
        hint = "make bench sets it up, or leave it out: --peer spark"
        raise DependencyMissingError(message, name="duckdb", hint=hint) from error


def _measured(workload: Workload, settings: Settings, say: Callable[[str], None]) -> WorkloadResult:
    sides = (OURS, *settings.peers)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamjoin-bench-")))
        say(f"{workload.name}: {workload.summary}")
        given = slice_input(workload, folder / "input")
        check = CountCheck(workload, given)
        log = new_log()
        processes = {side: stack.enter_context(SideProcess(side, log)) for side in sides}
        runs: dict[str, list[SideRun]] = {side: [] for side in sides}
        for number in range(settings.runs + 1):
            for side, process in processes.items():
                # The first run is not measured: compilers warm up, workers start.
                slices = 1 if number == 0 and side != OURS else workload.slices
                run = run_side(process, workload, settings, given, slices)
                check(side, run.outcome)
                say(f"  {'warm-up' if number == 0 else f'run {number} of {settings.runs}'}: {side} {_told(run)}")
                if number:
                    runs[side].append(run)
    log.unlink()
    return WorkloadResult(workload, given.window_rows, usable_core_count(), runs)


def run_side(process: SideProcess, workload: Workload, settings: Settings, given: SlicedInput, slices: int) -> SideRun:
    """Do one run of one side, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-bench-run-") as folder:
        data = None if settings.data is None else str(settings.data)
        task = SideTask(workload.name, data, settings.generated_rows, given.folder, folder, slices, settings.limit_s)
        return process.run(task, settings.limit_s + _HANG_S)


class CountCheck:
    """Compares each run's number of matches with an independent count of the same input."""

    def __init__(self, workload: Workload, given: SlicedInput) -> None:
        self._workload, self._given = workload, given
        self._tables = [given.table(name, workload.slices) for name in given.streams]
        self._counts: dict[int | None, tuple[int, int]] = {}
        if not given.whole:
            return
        _, matches = self._counted(None)
        if workload.matches is not None and matches != workload.matches:
            msg = f"{workload.name} has {matches:,} matches by an independent count, but {workload.matches:,} are known"
            raise BenchError(msg, name=workload.name, hint="use the recorded data as they are described")

    def __call__(self, side: str, outcome: Outcome) -> None:
        """Check one outcome; raise `BenchError` if its rows or matches differ from the count."""
        if outcome.until_us is None and not self._given.whole:
            rows, matches = self._known()
        else:
            rows, matches = self._counted(outcome.until_us)
        for what, found, expected in (("rows", outcome.rows, rows), ("matches", outcome.matches, matches)):
            if found != expected:
                msg = f"{side} gives {found:,} {what} on {self._workload.name}, but an independent count {expected:,}"
                raise BenchError(msg, name=side, hint="no measurement of it is valid until both agree")

    def _known(self) -> tuple[int, int]:
        """Return the rows and matches of a whole generated input of which the peers have only a part."""
        sources = [stream.source for stream in self._workload.join.streams]
        rows = sum(int(source.parameters["rows"]) for source in sources if isinstance(source, Generator))
        assert self._workload.matches is not None, "a workload with a part for its peers says what is to be found"
        return rows, self._workload.matches

    def _counted(self, until_us: int | None) -> tuple[int, int]:
        """Return the rows and matches of the tuples before an event time; None: of all tuples."""
        if until_us not in self._counts:
            tables = [self._before(number, until_us) for number in range(len(self._tables))]
            matches = count_matches(self._workload.join, tables[0], tables[1])
            self._counts[until_us] = (sum(table.num_rows for table in tables), matches)
        return self._counts[until_us]

    def _before(self, number: int, until_us: int | None) -> pa.Table:
        table = self._tables[number]
        if until_us is None:
            return table
        time = self._workload.join.streams[number].time
        return table.filter(pc.less(table[time].cast(pa.int64()), until_us))


def _told(run: SideRun) -> str:
    outcome = run.outcome
    return (
        f"{outcome.rows:,} rows in {outcome.seconds:.2f} s ({run.rows_per_second:,.0f}/s), "
        f"{outcome.matches:,} matches, {outcome.batches} batches, {run.cpu_seconds:.1f} CPU s, {run.peak_mib:,.0f} MiB"
    )
