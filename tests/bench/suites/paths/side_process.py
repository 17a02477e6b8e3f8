"""One side in a process of its own, and the CPU time and memory of that process and all that it starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.suites.processes import Child, TreeUse
from tests.bench.suites.sides import Outcome, SideTask

__all__ = ["SideProcess", "SideRun"]

_START_WITHIN_S = 180.0  # seconds that a side has to start


@dataclass(frozen=True, slots=True)
class SideRun:
    """An outcome, and what it cost.

    Attributes
    ----------
    outcome : Outcome
        What the run did.
    cpu_seconds : float
        User and system time of the process and all its descendants.
    peak_mib : float
        Largest sum of their memory at one time; pages that they share count once (`TreeUse`).
    others_cores : float
        Cores that everything else on the machine kept busy meanwhile, on average. They make a rate too low.
    """

    outcome: Outcome
    cpu_seconds: float
    peak_mib: float
    others_cores: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Input rows a second, both streams together."""
        return self.outcome.rows / self.outcome.seconds

    @property
    def results_per_second(self) -> float:
        """Matches a second."""
        return self.outcome.matches / self.outcome.seconds

    @property
    def cpu_us_per_row(self) -> float:
        """CPU time for each input row, in microseconds."""
        return self.cpu_seconds * 1e6 / max(self.outcome.rows, 1)


class SideProcess:
    """A side in its own process; as a context manager it starts the process and ends it.

    Parameters
    ----------
    side : str
        The side's name.
    log_path : Path
        File for all that the process prints.
    """

    def __init__(self, side: str, log_path: Path) -> None:
        self._child = Child("paths.child", side, name=f"the side {side}", log_path=log_path)

    def __enter__(self) -> SideProcess:
        self._child.__enter__()
        try:
            self._child.answer(_START_WITHIN_S)
        except BaseException:
            self._child.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def run(self, task: SideTask, within_s: float) -> SideRun:
        """Have the side do a task; raise a `BenchError` if it failed, died, or took longer than `within_s`."""
        with TreeUse(self._child.process_id) as use:
            outcome = Outcome(**self._child.ask(asdict(task), within_s))
        return SideRun(outcome, use.cpu_seconds, use.peak_bytes / 2**20, use.others_cores)
