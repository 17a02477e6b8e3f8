"""A soak of one kind of join, from its first file to its verdict."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from tests.faults.soak.bounds import Samples
from tests.faults.soak.comparison import differences
from tests.faults.soak.consumer import Consumer
from tests.faults.soak.drivers import Drivers
from tests.faults.soak.faults import FAULTS, Faults
from tests.faults.soak.feeder import Feeder
from tests.faults.soak.rows import STEP_ROWS, give_kind
from tests.support.kinds import KINDS

__all__ = ["Soak", "Verdict"]

_BACKLOG_STEPS = 6  # steps of records that may be written and not read yet
_STALLED_S = 300.0  # seconds without a batch, though there is input, after which the join counts as hanging
_MOST_S = 300.0  # seconds for a driver to end, or to read what was written; other work may have the machine


@dataclass
class Verdict:
    """What came of a soak."""

    seconds: float
    batches: int
    results: int
    faults: Counter[str]
    samples: Samples
    violations: list[str] = field(default_factory=list)
    lost: int = 0  # files that power cuts took or tore
    poisoned: int = 0
    records: int = 0  # of all streams
    compared_s: float = 0.0


class Soak:
    """One soak.

    Parameters
    ----------
    root, input_root : Path
        The folder of checkpoint and tables, and that of the input. If the disk is to fill up, the first is on a small
        file system of its own.
    seconds, fault_every_s : float
        How long the soak runs, and how often something goes wrong.
    least_faults, least_batches : int
        It runs on until there were so many: a busy machine takes longer.
    local : bool
        Whether each driver is a query without Spark.
    seed : int
    kind : str
        The kind of the join, of `tests.support.kinds.KINDS`.
    breaks : sequence of str
        Some of `FAULTS`; those that the kind's input cannot have are left out.
    processes : int
        How many processes compare at the end.
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
        kind: str,
        breaks: tuple[str, ...] = tuple(FAULTS),
        processes: int = 1,
        least_faults: int = 0,
        least_batches: int = 0,
        local: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.root, self.seconds, self.fault_every_s = root, seconds, fault_every_s
        self._tell, self._processes = tell, processes
        self._least_faults, self._least_batches = least_faults, least_batches
        self._began = time.monotonic()
        self._dice = random.Random(seed)
        self.feeder = Feeder(input_root, seed, KINDS[kind])
        give_kind(input_root, kind)
        # Files are spoiled as those of CSV are, in one folder.
        self._breakable = tuple(one for one in breaks if one != "poison" or KINDS[kind].form == "csv")
        (root / "input").symlink_to(input_root)
        if local:
            (root / "local").touch()
        self.consumer = Consumer(root / "matches")
        self.samples = Samples()
        self.drivers = Drivers(root, self._dice, KINDS[kind])
        self._breaks = Faults(self, self._dice)
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self._looks = 0

    def run(self) -> Verdict:
        """Feed, break and watch the join, and compare at the end."""
        self._began = began = time.monotonic()
        self.drivers.start()
        next_fault = began + self.fault_every_s
        next_look = began
        order: list[str] = []
        try:
            while ((now := time.monotonic()) < began + self.seconds or not self._is_enough()) and not self.violations:
                self.feed()
                if now >= next_fault and not self.violations:
                    if not order:  # each kind comes once, then each again in another order
                        order = self._dice.sample(self._breakable, len(self._breakable))
                    self._break(order.pop())
                    next_fault = time.monotonic() + self.fault_every_s
                if now >= next_look:
                    self._look()
                    next_look = now + 2.0
                time.sleep(0.005)
            self._end()
        finally:
            self.drivers.kill()
        seconds = time.monotonic() - began
        self.samples.tables(self.root)
        self.samples.commits(self.root)
        self.samples.memory()
        dropped = self._breaks.poisons.dropped
        began = time.monotonic()
        if not self.violations:
            self.consumer.read_on()
            self.violations += differences(self.root, self.feeder, dropped, self.consumer, self._processes)
        self.violations += [text for text in self.samples.broken() if text not in self.violations]
        results = sum(rows.num_rows for rows in self.consumer.followed)
        verdict = Verdict(seconds, self.batches, results, self.faults, self.samples, self.violations)
        verdict.lost, verdict.poisoned = self._breaks.lost, dropped.total()
        verdict.records = sum(map(len, self.feeder.recorded.values()))
        verdict.compared_s = time.monotonic() - began
        return verdict

    @property
    def batches(self) -> int:
        """Return how many batches were committed; a batch that was done again counts again."""
        return self.drivers.lines.batches

    def _is_enough(self) -> bool:
        return self.faults.total() >= self._least_faults and self.batches >= self._least_batches

    # ------------------------------------------------------------------ the input

    def feed(self) -> None:
        """Write more while the driver keeps up, and see that the driver lives."""
        if self.feeder.silent is not None and time.monotonic() >= self._breaks.back_at and self._has_read_all():
            self.feeder.come_back()
            self.wait("all that a stream wrote that came back is read", self._has_read_all)
        read = self.drivers.lines.read()
        if all(len(self.feeder.recorded[name]) - read[name] < _BACKLOG_STEPS * STEP_ROWS for name in self.feeder.names):
            self.feeder.step()
        if self.drivers.ended is not None:
            self.fail(f"a driver ended with {self.drivers.ended}")
        elif time.monotonic() - self.drivers.lines.grew_at > _STALLED_S:
            self.fail(f"no batch for {_STALLED_S:g} s")

    def feed_until(self, batches: int, most_s: float) -> None:
        """Feed until there were so many batches in all, or until `most_s` seconds have passed."""
        until = time.monotonic() + most_s
        while self.batches < batches and time.monotonic() < until and not self.violations:
            self.feed()
            time.sleep(0.01)

    def catch_up(self) -> None:
        """Wait until all that was written is read."""
        self.wait("all that was written is read", self._has_read_all)

    def _has_read_all(self) -> bool:
        read = self.drivers.lines.read()
        return all(read[name] >= len(self.feeder.recorded[name]) for name in self.feeder.names)

    # ------------------------------------------------------------------ the driver

    def stop(self, marker: str) -> None:
        """See `Drivers.stop`."""
        if wrong := self.drivers.stop(marker, _MOST_S):
            self.fail(wrong)

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for something that a driver does."""
        until = time.monotonic() + _MOST_S
        while not done() and not self.violations:
            self.drivers.lines.read()
            if self.drivers.ended is not None:
                self.fail(f"a driver ended while {what}")
            elif time.monotonic() > until:
                read = self.drivers.lines.read()
                written = {name: len(self.feeder.recorded[name]) for name in self.feeder.names}
                self.fail(f"not within {_MOST_S:g} s: {what}; {read} of {written}")
            time.sleep(0.01)

    def fail(self, text: str) -> None:
        """Note a violation, with the last words of the driver."""
        self.violations.append(f"{text}; batch {self.batches}; its last words:\n{self.drivers.last_words()}")

    def _break(self, kind: str) -> None:
        self.faults[kind] += 1
        began = time.monotonic()
        getattr(self._breaks, kind)()
        took_s = time.monotonic() - began
        self._tell(f"{began - self._began:8.1f} s, batch {self.batches}: {kind}, which took {took_s:.1f} s")

    # ------------------------------------------------------------------ what is watched

    def _look(self) -> None:
        """Let the consumer work, and take samples."""
        self._looks += 1
        self.consumer.read_on()
        if self._looks % 7 == 3:
            self.consumer.delete()
        elif self._looks % 11 == 5:
            self.consumer.optimize()
        self.samples.processes(self.drivers.tree())
        self.samples.checkpoint(self.root)
        self.samples.disk(self.root)
        self.violations += self.samples.broken()  # at once, since nothing more can be told once the disk is full
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
            self.wait("the silent stream's partner is read", self._has_read_all)
            self.feeder.come_back()
            self.wait("all that a stream wrote that came back is read", self._has_read_all)
        self.consumer.read_on()  # the rest may take longer than the tables keep what was compacted
        self.feeder.step()
        if not self.violations:
            self.stop("drain")
