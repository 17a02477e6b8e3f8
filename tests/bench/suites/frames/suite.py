"""The suite of DataFrames: rows a second to committed matches, by `start(frames=...)` and by `dataframe()`."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.suites.frames.frame_load import FrameLoad
from tests.bench.suites.live.finding import Finding
from tests.bench.suites.live.query_runs import answered, query_folder, query_log
from tests.bench.suites.processes import BenchError, load_psutil

__all__ = ["TIMES", "FrameSettings", "measure_frames"]

TIMES = 3.0
"""How many times as many rows a second `start(frames=...)` must take as `dataframe()`."""
_WAYS = ("start", "dataframe")
_WITHIN_S = 900.0


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """How to measure.

    Attributes
    ----------
    rows : int
        Tuples of each stream.
    batches : int
    keys : int
        Of `FrameLoad`: fewer keys, more matches.
    runs : int
        Of each way, in turn.
    quick : bool
        Whether this only shows that all works. There is then no bound.
    """

    rows: int = 4_000_000
    batches: int = 16
    keys: int = 50_000
    runs: int = 3
    quick: bool = False


@dataclass(frozen=True, slots=True)
class _FrameRun:
    per_second: float  # from the first commit to the last
    peak_mib: float
    others_cores: float


def measure_frames(settings: FrameSettings, say: Callable[[str], None]) -> Iterator[Finding]:
    """Measure both ways over the same files.

    Raises
    ------
    BenchError
        A query failed, or its matches are wrong.
    DependencyMissingError
        psutil is not installed.
    """
    load_psutil()
    load = FrameLoad(settings.rows, settings.batches, settings.keys)
    runs: dict[str, list[_FrameRun]] = {way: [] for way in _WAYS}
    with query_folder() as folder:
        load.write(Path(folder))
        expected = load.matches()
        say(f"  {2 * load.rows:,} rows in {load.batches} batches; {expected:,} matches")
        for _ in range(settings.runs):
            for way in _WAYS:
                runs[way].append(_run(load, Path(folder), way, expected))
                say(f"  {way}: {runs[way][-1].per_second:,.0f} rows/s")
    workload = f"frames of Parquet, {expected:,} matches"
    rates = {way: statistics.median(run.per_second for run in of_way) for way, of_way in runs.items()}
    for way in _WAYS:
        yield Finding(
            f"{workload}: {way}",
            "rows_per_second",
            rates[way],
            "rows/s",
            None,
            note=f"from the first of {load.batches} commits to the last; {settings.runs} runs",
            peak_mib=max(run.peak_mib for run in runs[way]),
            others_cores=max(run.others_cores for run in runs[way]),
        )
    bound = None if settings.quick else TIMES
    yield Finding(workload, "start_over_dataframe", rates["start"] / rates["dataframe"], "times", bound)


def _run(load: FrameLoad, folder: Path, way: str, expected: int) -> _FrameRun:
    with query_log() as log:
        given = {"way": way, "folder": str(folder), "load": asdict(load)}
        [answer], use = answered("frames.frame_query", given, log, name="frames", within_s=_WITHIN_S)
        shutil.rmtree(folder / way)
        if answer["matches"] != expected:
            msg = f"the join by {way} gave {answer['matches']:,} matches, but an independent count {expected:,}"
            raise BenchError(msg, name="frames", hint="no measurement of it is valid until both agree")
        times = answer["commits_s"][: load.batches]  # one more, without rows, may follow
        rows = 2 * load.rows * (len(times) - 1) / len(times)
        rate = rows / (times[-1] - times[0]) if len(times) > 1 else float("nan")
        return _FrameRun(rate, use.peak_bytes / 2**20, use.others_cores)
