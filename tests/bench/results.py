"""Made-up measurements, for what only arranges or checks them."""

from __future__ import annotations

from streamjoin_ds.bench.paths.side_process import SideRun
from streamjoin_ds.bench.paths.suite import WorkloadResult
from streamjoin_ds.bench.sides import OURS, Outcome
from streamjoin_ds.bench.workloads import make_workload


def run(rows: int, seconds: float, matches: int = 10, cpu_seconds: float = 1.0, peak_mib: float = 100.0) -> SideRun:
    return SideRun(Outcome(rows, matches, seconds, 4, None, "somehow"), cpu_seconds, peak_mib)


def result(name: str = "band2d-small", **runs: list[SideRun]) -> WorkloadResult:
    """`runs` by side, ``spark_tuned`` for ``spark-tuned``; ours has three runs where not given."""
    workload = make_workload(name, None)
    assert workload is not None
    ours = [run(1000, seconds) for seconds in (1.0, 4.0, 2.0)]
    sides = {side.replace("_", "-"): list(made) for side, made in runs.items()}
    return WorkloadResult(workload, 200, 2, {OURS: ours} | sides)
