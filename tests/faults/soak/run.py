"""A soak from its first file to its verdict."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.faults.soak.bounds import Samples
from tests.faults.soak.consumer import DELETED_REST, DELETED_STEP, Consumer, triples
from tests.faults.soak.feeder import Feeder
from tests.faults.soak.rows import NAMES, expected

__all__ = ["FAULTS", "Soak", "Verdict"]

FAULTS = {
    "driver": "the driver and its workers are killed",
    "worker": "a worker is killed, its task is tried again",
    "sleeper": "the driver sleeps, another one takes its place, and it wakes",
    "restart": "the driver ends by itself, and starts under other settings",
    "full": "no room on the disk until the driver has stopped",
    "silence": "a stream falls silent, and comes back",
    "reader": "the consumer is restarted",
}
_STEP_ROWS = 20
_BACKLOG_STEPS = 6  # written and not read yet
_STALLED_S = 120.0  # without a batch though there is input: the join hangs
_FULL_BYTES = 3 << 20  # left on a full disk


@dataclass
class Verdict:
    """What came of a soak."""

    seconds: float
    batches: int
    results: int
    faults: Counter[str]
    samples: Samples
    violations: list[str] = field(default_factory=list)


class Soak:
    """One soak.

    Parameters
    ----------
    root, input_root : Path
        Where checkpoint and tables lie, on a small file system of its own where the disk is to fill up; and the input.
    seconds, fault_every_s : float
        For how long, and how often something goes wrong.
    seed : int
    kinds : sequence of str
        Of `FAULTS`.
    tell : callable
        Called with a line for each thing that went wrong.
    """

    def __init__(
        self,
        root: Path,
        input_root: Path,
        *,
        seconds: float,
        fault_every_s: float,
        seed: int,
        kinds: tuple[str, ...] = tuple(FAULTS),
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.root, self.seconds, self.fault_every_s = root, seconds, fault_every_s
        self.kinds, self._tell = kinds, tell
        self._began = time.monotonic()
        self._dice = random.Random(seed)
        self.feeder = Feeder(input_root, seed, _STEP_ROWS)
        (root / "input").symlink_to(input_root)
        self.consumer = Consumer(root / "matches")
        self.samples = Samples()
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self._life: subprocess.Popen[bytes] | None = None
        self._lives = self._looks = 0
        self._lines = _Lines(root / "batches.jsonl")
        self._back_at = 0.0

    def run(self) -> Verdict:
        """Feed, break, watch, and compare at the end."""
        self._began = began = time.monotonic()
        self._start()
        next_fault = began + self.fault_every_s
        next_look = began
        order: list[str] = []
        try:
            while (now := time.monotonic()) < began + self.seconds and not self.violations:
                self._feed()
                if now >= next_fault:
                    if not order:  # each kind once, then each again in another order
                        order = self._dice.sample(self.kinds, len(self.kinds))
                    self._break(order.pop())
                    next_fault = time.monotonic() + self.fault_every_s
                if now >= next_look:
                    self._look()
                    next_look = now + 2.0
                time.sleep(0.005)
            self._end()
        finally:
            self._kill()
        seconds = time.monotonic() - began
        self.samples.tables(self.root)
        self.samples.commits(self.root)
        self._compare()
        self.violations += self.samples.broken()
        results = sum(map(len, self.consumer.followed))
        return Verdict(seconds, self._lines.batches, results, self.faults, self.samples, self.violations)

    # ------------------------------------------------------------------ the input

    def _feed(self) -> None:
        """Write on while the driver keeps up; see that it lives."""
        if self.feeder.silent is not None and time.monotonic() >= self._back_at and self._has_read_all():
            self.feeder.come_back()
            self._wait("all that a stream wrote that came back is read", self._has_read_all)
        read = self._lines.read()
        if all(len(self.feeder.recorded[name]) - read[name] < _BACKLOG_STEPS * _STEP_ROWS for name in NAMES):
            self.feeder.step()
        if self._life is not None and self._life.poll() is not None:
            self._fail(f"a driver ended with {self._life.returncode}")
        elif time.monotonic() - self._lines.grew_at > _STALLED_S:
            self._fail(f"no batch for {_STALLED_S:g} s")

    def _has_read_all(self) -> bool:
        read = self._lines.read()
        return all(read[name] >= len(self.feeder.recorded[name]) for name in NAMES)

    # ------------------------------------------------------------------ the driver

    def _start(self) -> None:
        """Start a driver under settings of its own."""
        settings = {
            "exchange": self._dice.choice(("reference", "reference", "packed")),
            "threads": self._dice.choice((1, 1, 2)),
            "max_rows_per_batch": self._dice.choice((40, 60, 200)),
        }
        self._lives += 1
        with (self.root / f"life-{self._lives % 20:02d}.log").open("wb") as log:
            self._life = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.soak.life", str(self.root), json.dumps(settings)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._log_path = Path(log.name)

    def _tree(self) -> list[psutil.Process]:
        """Return the driver and its workers, the driver first."""
        if self._life is None:
            return []
        with contextlib.suppress(psutil.Error):
            driver = psutil.Process(self._life.pid)
            return [driver, *driver.children(recursive=True)]
        return []

    def _kill(self) -> None:
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._life is not None:
            self._life.wait()
        self._life = None

    def _stop(self, marker: str, most_s: float = 120.0) -> None:
        """Let the driver end by itself: "stop" after the batch at hand, "drain" when all is read."""
        (self.root / marker).touch()
        assert self._life is not None
        try:
            if self._life.wait(most_s):
                self._fail(f"a driver that was to end ended with {self._life.returncode}")
        except subprocess.TimeoutExpired:
            self._fail(f"a driver did not end within {most_s:g} s")
        (self.root / marker).unlink()

    def _wait(self, what: str, done: Callable[[], bool], most_s: float = 120.0) -> None:
        until = time.monotonic() + most_s
        while not done():
            if self._life is None or self._life.poll() is not None:
                return self._fail(f"a driver ended while {what}")
            if time.monotonic() > until:
                return self._fail(f"not within {most_s:g} s: {what}")
            time.sleep(0.01)
        return None

    def _fail(self, text: str) -> None:
        tail = self._log_path.read_text(errors="replace")[-3_000:]
        self.violations.append(f"{text}; batch {self._lines.batches}; its last words:\n{tail}")

    # ------------------------------------------------------------------ what goes wrong

    def _break(self, kind: str) -> None:
        self.faults[kind] += 1
        began = time.monotonic()
        getattr(self, f"_break_{kind}")()
        took_s = time.monotonic() - began
        self._tell(f"{began - self._began:8.1f} s, batch {self._lines.batches}: {kind}, which took {took_s:.1f} s")

    def _break_driver(self) -> None:
        self._kill()
        self._start()

    def _break_worker(self) -> None:
        workers = self._tree()[1:]
        if workers:
            with contextlib.suppress(psutil.Error):
                self._dice.choice(workers).kill()

    def _break_restart(self) -> None:
        self._stop("stop")
        self._start()

    def _break_reader(self) -> None:
        self.consumer.begin_anew()

    def _break_silence(self) -> None:
        if self.feeder.silent is None:
            self.feeder.fall_silent(self._dice.choice(NAMES))
            self._back_at = time.monotonic() + self.fault_every_s / 2

    def _break_sleeper(self) -> None:
        """A driver and its workers stop, as on a machine that went to sleep; another takes over; they wake."""
        sleeping, life = self._tree(), self._life
        for process in sleeping:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        self._start()
        before = self._lines.batches
        until = time.monotonic() + 60.0
        while self._lines.batches < before + 3 and time.monotonic() < until and not self.violations:
            self._feed()
            time.sleep(0.01)
        for process in sleeping:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
        assert life is not None
        # It loses at the next thing that it tries to write, or there is nothing new for it to try: then it is ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            life.wait(5.0)
        for process in sleeping:
            with contextlib.suppress(psutil.Error):
                process.kill()
        life.wait()
        # Each may have stopped the other: the table took the batch of the one that came first.
        if self._life is not None and self._life.poll() is not None:
            self._start()

    def _break_full(self) -> None:
        """Take the room away until the driver has stopped, and give it back."""
        ballast = self.root / "ballast"
        disk = os.statvfs(self.root)
        size_bytes = disk.f_bavail * disk.f_frsize - _FULL_BYTES
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        until = time.monotonic() + 60.0
        while self._life is not None and self._life.poll() is None and time.monotonic() < until:
            self.feeder.step()
            time.sleep(0.05)
        self._kill()
        ballast.unlink()
        self._start()

    # ------------------------------------------------------------------ what is watched

    def _look(self) -> None:
        """Let the consumer work, and measure."""
        self._looks += 1
        self.consumer.read_on()
        if self._looks % 7 == 3:
            self.consumer.delete()
        elif self._looks % 11 == 5:
            self.consumer.optimize()
        for number, process in enumerate(self._tree()):
            self.samples.process(process, "driver" if number == 0 else "worker")
        self.samples.checkpoint(self.root)
        if self._looks % 5 == 0:
            self.samples.tables(self.root)
            with contextlib.suppress(Exception):
                files = len(DeltaTable(str(self.root / "matches")).file_uris())
                self.samples.note("live_files", files, "matches")

    def _end(self) -> None:
        """Let the driver read all that was written."""
        if self.violations:
            return
        if self.feeder.silent is not None:
            self._wait("the silent stream's partner is read", self._has_read_all)
            self.feeder.come_back()
            self._wait("all that a stream wrote that came back is read", self._has_read_all)
        self.feeder.step()
        if not self.violations:
            self._stop("drain")

    def _compare(self) -> None:
        """Every result of the oracle once, in the table and by the follower; every record accounted for."""
        if self.violations:
            return
        wanted = expected(self.feeder.recorded["e"], self.feeder.recorded["w"])
        deleted = (wanted[:, 0] % DELETED_STEP == DELETED_REST) & (wanted[:, 2] < self.consumer.deleted_before_us)
        table = triples(scanned(DeltaTable(str(self.root / "matches"))).to_table())
        self._differ("the table", wanted[~deleted], table)
        self.consumer.read_on()
        followed = np.concatenate([np.empty((0, 3), np.int64), *self.consumer.followed])
        if np.any(np.diff(followed[:, 2]) < 0):
            self.violations.append("the follower gave results out of order")
        passed = wanted[wanted[:, 2] < self.consumer.punctuation_us]
        self._differ("the follower", passed, followed)
        self._balance()

    def _differ(self, what: str, wanted: np.ndarray, found: np.ndarray) -> None:
        ordered = found[np.lexsort(found.T[::-1])]
        wanted = wanted[np.lexsort(wanted.T[::-1])]
        if ordered.shape == wanted.shape and np.array_equal(ordered, wanted):
            return
        have, want = Counter(map(tuple, ordered.tolist())), Counter(map(tuple, wanted.tolist()))
        lost, surplus = want - have, have - want
        self.violations.append(
            f"{what} has {len(found)} results of {len(wanted)}; lost {lost.total()} {sorted(lost)[:3]}, "
            f"surplus {surplus.total()} {sorted(surplus)[:3]}"
        )

    def _balance(self) -> None:
        ledger = scanned(DeltaTable(TableSet(str(self.root / "matches")).ledger)).to_table().to_pylist()
        for name in NAMES:
            recorded = self.feeder.recorded[name]
            for fate, count in {"read": len(recorded), **recorded.fates}.items():
                said = sum(row[fate] for row in ledger if row["stream"] == name)
                if said != count:
                    self.violations.append(f"the ledger says {said} {fate} of stream {name}, not {count}")


class _Lines:
    """The end of the file of batches, read on."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._rest = path, 0, b""
        self._read = dict.fromkeys(NAMES, 0)
        self.batches = 0
        self.grew_at = time.monotonic()

    def read(self) -> dict[str, int]:
        """Return how many records of each stream are committed."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
            self._at += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    facts = json.loads(line)
                    self._read = facts["read"]
                    self.batches += 1
                    self.grew_at = time.monotonic()
        return self._read
