"""Made-up measurements, for tests of code that only arranges or checks them; and the command itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bench.suites.paths.side_process import SideRun
from tests.bench.suites.paths.suite import WorkloadResult
from tests.bench.suites.processes import ENVIRONMENT
from tests.bench.suites.sides import OURS, Outcome
from tests.bench.suites.workloads import make_workload


def run(rows: int, seconds: float, matches: int = 10, cpu_seconds: float = 1.0, peak_mib: float = 100.0) -> SideRun:
    return SideRun(Outcome(rows, matches, seconds, 4, None, "somehow"), cpu_seconds, peak_mib)


def result(name: str = "band2d-small", **runs: list[SideRun]) -> WorkloadResult:
    """Return a result with these `runs` by side; the side ``spark-tuned`` is passed as ``spark_tuned``.

    Our side has three runs of 1.0, 4.0 and 2.0 seconds, unless `runs` has it.
    """
    workload = make_workload(name, None)
    assert workload is not None
    ours = [run(1000, seconds) for seconds in (1.0, 4.0, 2.0)]
    sides = {side.replace("_", "-"): list(made) for side, made in runs.items()}
    return WorkloadResult(workload, 200, 2, {OURS: ours} | sides)


def bench(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Return what ``python -m tests.bench`` did, as a process of its own."""
    command = [sys.executable, "-m", "tests.bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=ENVIRONMENT, timeout=900)
