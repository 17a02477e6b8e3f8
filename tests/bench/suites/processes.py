"""The one runner of processes: a module in a process of its own, asked and answered in lines of JSON.

::

    parent: Child                                child: answers()
      │── arguments ─────────────────────────────►│
      │◄─ {"ready": true}                ─────────│
      │── {...}  ask ────────────────────────────►│  one thing to do
      │◄─ {...} or {"error": "CODE: ..."} ────────│
      └── end of input ──────────────────────────►   the child ends; then it and all that it started are killed

What the child prints besides goes to a log, as does what libraries print to standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from streamjoin_ds.errors import DependencyMissingError, StreamJoinError
from streamjoin_ds.spark.local_files import hold

if TYPE_CHECKING:
    import psutil

__all__ = ["ENVIRONMENT", "BenchError", "Child", "TreeUse", "answers", "load_psutil", "serve"]

_ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))}
"""The environment of a child: it finds the suites wherever it runs."""

_SAMPLE_EVERY_S = 0.5  # seconds between two samples of memory
_CLOSE_WITHIN_S = 20.0  # seconds that a child has to end before it is killed


class BenchError(StreamJoinError):
    """A side of a benchmark failed, or its matches differ from an independent count, so its measurements are void."""

    code = "BENCH"


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
        raise DependencyMissingError(message, name="psutil", hint="make bench sets it up") from error
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


class Child:
    """A module that runs as a process of its own; as a context manager it starts the process and ends it.

    Parameters
    ----------
    module : str
        Module to run; its name is that below the suites (``engine.child``).
    arguments : str
        What it is given on the command line.
    name : str, keyword-only
        What is measured, for errors.
    log_path : Path, optional
        File for all that the process prints besides; it stays. By default it is one that goes with the process.
    """

    def __init__(self, module: str, *arguments: str, name: str, log_path: Path | None = None) -> None:
        self._command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
        self._name, self._log_path = name, log_path
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> Child:
        # Closed by `end`. The child's own descriptor holds the lock of a log that stays.
        self._log = tempfile.TemporaryFile("w+") if self._log_path is None else self._log_path.open("a+")
        if self._log_path is not None:
            hold(self._log.fileno())
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=self._log, text=True, env=ENVIRONMENT
        )
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def process_id(self) -> int:
        """The process's number."""
        return self._process.pid

    def ask(self, facts: object, within_s: float | None = None) -> dict[str, Any]:
        """Have the child do one thing, and return its answer; errors are those of `answer`."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, as `answer` says
            self._process.stdin.write(json.dumps(facts) + "\n")
            self._process.stdin.flush()
        return self.answer(within_s)

    def answer(self, within_s: float | None = None) -> dict[str, Any]:
        """Return the child's next line.

        Raises
        ------
        BenchError
            The child failed, or ended, or took longer than `within_s`.
        """
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            self._fail(f"is not ready within {within_s:.0f} s")
        if line is None:
            self._process.wait()
            self._log.seek(0)
            self._fail(f"ended: {(self._log.read().strip().splitlines() or ['it printed nothing'])[-1][:300]}")
        facts: dict[str, Any] = json.loads(line)
        if "error" in facts:
            first = next((text.strip() for text in facts["error"].splitlines() if text.strip()), "no message")
            self._fail(f"failed: {first[:300]}")
        return facts

    def all_answers(self, within_s: float) -> list[dict[str, Any]]:
        """Return all lines until the child ends by itself, with status 0; errors are those of `answer`."""
        found: list[dict[str, Any]] = []
        until_s = time.monotonic() + within_s
        while True:
            try:
                line = self._lines.get(timeout=max(until_s - time.monotonic(), 0.01))
            except queue.Empty:
                self._fail(f"is not done within {within_s:.0f} s")
            if line is None:
                break
            found.append(json.loads(line))
        if self._process.wait():
            self._fail("failed")
        return found

    def end(self, within_s: float = _CLOSE_WITHIN_S) -> None:
        """Ask the process to end; then kill it, and all that it started."""
        tree = self._tree()
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        self._kill(tree)

    def kill(self) -> None:
        """Kill the process and all that it started at once: no handler of Python or Java runs."""
        self._kill(self._tree())

    def _tree(self) -> list[psutil.Process]:
        psutil = load_psutil()
        try:
            return list(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def _kill(self, tree: list[psutil.Process]) -> None:
        psutil = load_psutil()
        self._process.kill()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._log.close()

    def _fail(self, what: str) -> NoReturn:
        msg = f"{self._name} {what}"
        hint = "run it alone" if self._log_path is None else f"its output is in {self._log_path}"
        raise BenchError(msg, name=self._name, hint=hint)

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(None)


def answers() -> Callable[[object], None]:
    """Return what writes an answer, in a child: standard output is for answers alone from now on."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(facts: object) -> None:
        kept.write(json.dumps(facts) + "\n")
        kept.flush()

    return answer


def serve(begin: Callable[[], Callable[[Any], object]]) -> None:
    """Do what is asked until standard input ends, in a child; `begin` makes what does one thing. Errors are answers."""
    answer = answers()

    def tried(work: Callable[[], object]) -> object:
        try:
            return work()
        except Exception as error:
            traceback.print_exception(error)
            answer({"error": str(error) or type(error).__name__})
            return None

    do = tried(begin)
    if do is None:
        return
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        done = tried(lambda: do(asked))  # type: ignore[operator]  # noqa: B023 (called at once)
        if done is not None:
            answer(done)
