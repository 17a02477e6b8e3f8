"""One side in a process of its own, and the CPU time and memory of that process and all that it starts."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from streamjoin_ds.bench.sides import Outcome, SideTask
from streamjoin_ds.errors import BenchError, DependencyMissingError
from streamjoin_ds.spark.holding import hold

if TYPE_CHECKING:
    import psutil

__all__ = ["SideProcess", "SideRun", "TreeUse", "load_psutil"]

_SAMPLE_EVERY_S = 0.5  # seconds between two samples of memory
_CLOSE_WITHIN_S = 20.0  # seconds that a side has to end before it is killed
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


def load_psutil() -> Any:
    """Return the package psutil.

    Raises
    ------
    DependencyMissingError
        It is not installed.
    """
    try:
        import psutil
    except ImportError as error:
        message = "The package psutil, which measures CPU time and memory, is not installed."
        raise DependencyMissingError(message, name="psutil", hint="pip install 'streamjoin-ds[bench]'") from error
    return psutil


class TreeUse:
    """Samples a process and all its descendants while the context lasts.

    Memory is the proportional set size where the system tells it (Linux): a page that n processes share counts 1/n in
    each. Elsewhere it is the resident size, in which shared pages count in each. Samples are 0.5 s apart: a peak that
    is shorter may be missed. The CPU time of a process that ends is kept by its parent, if that waits for it. Spark's
    workers end with nobody who waits, so the CPU time is that of the largest sample.
    """

    def __init__(self, process_id: int) -> None:
        self._root = load_psutil().Process(process_id)
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="bench-sampler", daemon=True)
        self._began = (0.0, 0.0, 0.0)
        self._most_cpu_seconds = 0.0
        self.peak_bytes = 0
        self.cpu_seconds = 0.0
        self.others_cores = 0.0

    def __enter__(self) -> TreeUse:
        self._began = (time.monotonic(), self._cpu_seconds(), _machine_cpu_seconds())
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._sampler.join()
        most_cpu_seconds = max(self._cpu_seconds(), self._most_cpu_seconds)
        ended = (time.monotonic(), most_cpu_seconds, _machine_cpu_seconds())
        elapsed_s, self.cpu_seconds, machine_s = (end - began for end, began in zip(ended, self._began, strict=True))
        self.others_cores = max(machine_s - self.cpu_seconds, 0.0) / max(elapsed_s, 1e-9)

    def _sample(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, sum(map(_memory_bytes, self._tree())))
            self._most_cpu_seconds = max(self._most_cpu_seconds, self._cpu_seconds())
            if self._stop.wait(_SAMPLE_EVERY_S):
                return

    def _tree(self) -> Iterator[psutil.Process]:
        psutil = load_psutil()
        with contextlib.suppress(psutil.NoSuchProcess):
            yield self._root
            yield from self._root.children(recursive=True)

    def _cpu_seconds(self) -> float:
        psutil = load_psutil()
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                total += times.user + times.system
                total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        return total


def _machine_cpu_seconds() -> float:
    """Return the CPU time that all processes of this machine have used, and that its host took from it, in seconds."""
    times = load_psutil().cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


def _memory_bytes(process: psutil.Process) -> int:
    psutil = load_psutil()
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return 0


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
        self.side = side
        self._log_path = log_path
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> SideProcess:
        command = [sys.executable, "-m", "streamjoin_ds.bench.paths.child", self.side]
        pipe = subprocess.PIPE
        with self._log_path.open("ab") as log:
            hold(log)
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        try:
            self._answer(_START_WITHIN_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, task: SideTask, within_s: float) -> SideRun:
        """Have the side do a task.

        Raises
        ------
        BenchError
            The side failed, died, or took longer than `within_s`.
        """
        assert self._process.stdin is not None
        with TreeUse(self._process.pid) as use:
            self._process.stdin.write(json.dumps(asdict(task)) + "\n")
            self._process.stdin.flush()
            facts = self._answer(within_s)
        return SideRun(Outcome(**facts["outcome"]), use.cpu_seconds, use.peak_bytes / 2**20, use.others_cores)

    def _answer(self, within_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=within_s)
        except queue.Empty:
            msg = f"the side {self.side} was not ready within {within_s:.0f} s"
            raise BenchError(msg, name=self.side, hint=self._hint()) from None
        facts: dict[str, Any] = {"error": "its process ended"} if line is None else json.loads(line)
        if "error" in facts:
            first = next((text.strip() for text in facts["error"].splitlines() if text.strip()), "no message")
            msg = f"the side {self.side} failed: {first[:300]}"
            raise BenchError(msg, name=self.side, hint=self._hint())
        return facts

    def _hint(self) -> str:
        return f"its output is in {self._log_path}"

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            self._answers.put(line)
        self._answers.put(None)

    def _end(self) -> None:
        """Ask the process to end; then kill it, and all that it started."""
        psutil = load_psutil()
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self._process.pid).children(recursive=True)
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # type: ignore[union-attr]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_WITHIN_S)
            self._process.kill()
            self._process.wait()
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
