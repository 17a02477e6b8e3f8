"""Runs a join over topics through its kills, and says what came of it."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.faults.driver import POINTS
from tests.faults.topics.comparison import Outcome, compared
from tests.faults.topics.load import Load
from tests.faults.topics.sender import Sender
from tests.support.kafka import KafkaBroker

__all__ = ["Campaign", "Verdict"]

_POLL_S = 0.1
_WITHIN_S = 900.0  # long, since other work may have the machine
_HUNGRY_S = 3.0  # a life that waits for a batch is given more messages after this time
_KINDS = {"point": 6, "anywhere": 3, "workers": 1}  # of a life, with weights
_ROOM = 4  # batches of a kill's messages
_RESTART_SHARE = 0.15
_MOST_SHARES = 3  # of the messages, for a life in which many workers were killed
_STARVED = "Python worker failed to connect back"  # Spark gives a Python process ten seconds to start
_MOST_STARVED = 20
_TEXT = 3_000


@dataclass
class Verdict:
    """What was done, and what is wrong.

    Attributes
    ----------
    kills : Counter
        By what was killed: a driver at a point or anywhere, workers that waited or worked.
    outcome : Outcome
    """

    kills: Counter[str]
    done: Counter[str]
    outcome: Outcome
    batches: int
    lives: int
    starved: int
    seconds: float
    violations: list[str] = field(default_factory=list)


class Campaign:
    """One checkpoint, killed again and again while its topics grow; then it finishes, and is compared.

    Parameters
    ----------
    folder : Path
    rows : int
        Messages of both topics together, about.
    kills : int
        Of drivers and workers, at least.
    seed : int
    tell : callable
        Is given a line for each life.
    """

    def __init__(self, folder: Path, rows: int, kills: int, seed: int, tell: Callable[[str], None] = print) -> None:
        self.folder, self.rows, self.asked, self.tell = folder, rows, kills, tell
        self._dice = random.Random(f"campaign {seed}")
        partitions = self._dice.randint(2, 7), self._dice.randint(2, 8)  # one is added to the first topic
        self.load = Load(seed, partitions)
        self._share = max(rows // max(kills, 1), 1)
        self._offsets: dict[int, str] = {}
        self.kills: Counter[str] = Counter()
        self.lives = self.starved = 0
        self._life: subprocess.Popen[bytes] | None = None

    def run(self) -> Verdict:
        """Run it, with a broker of its own."""
        began = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        broker = KafkaBroker(self.folder / "broker")
        try:
            sender = Sender(broker, self.load, self.rows)
            sender.start()
            self._live(broker, sender)
            offsets = [json.loads(self._offsets[batch].splitlines()[2]) for batch in range(len(self._offsets))]
            outcome = compared(self.folder, broker.servers, sender.topics, offsets)
        finally:
            if self._life is not None:
                self._killed(self._life)
            broker.stop()
        took_s = time.monotonic() - began
        return Verdict(
            self.kills, sender.done, outcome, len(offsets), self.lives, self.starved, took_s, outcome.violations
        )

    def _live(self, broker: KafkaBroker, sender: Sender) -> None:
        facts = {
            "folder": str(self.folder),
            "servers": broker.servers,
            "topics": sender.topics,
            "max_rows": max(self._share // _ROOM, 100),
        }
        sender.allow(self._share)
        while self.kills.total() < self.asked:
            (kind,) = self._dice.choices(list(_KINDS), list(_KINDS.values()))
            if not self.lives or self._dice.random() < _RESTART_SHARE:
                sender.restart_broker()
            before = self.kills.total()
            if kind == "point":
                self._at_a_point(facts, sender)
            elif kind == "anywhere":
                self._anywhere(facts, sender)
            else:
                self._workers(facts, sender)
            self._check(sender)
            sender.allow(self._share * min(self.kills.total() - before, _MOST_SHARES))
            self.tell(f"life {self.lives}, {len(self._offsets)} batches, {sender.sent} sent: {dict(self.kills)}")
        sender.allow(self.rows)
        while not sender.all_sent:
            self._check(sender)
            time.sleep(_POLL_S)  # the broker and the sender are others
        sender.join()
        self._check(sender)
        status = None
        while status is None or self._is_starved(status):
            status = self._watched(self._begun({**facts, "drain": True}), sender, lambda: False)
        assert status == 0, self._words()

    def _check(self, sender: Sender) -> None:
        if sender.error is not None:
            raise sender.error

    # ------------------------------------------------------------------ lives

    def _at_a_point(self, facts: dict[str, Any], sender: Sender) -> None:
        point = self._dice.choice(POINTS)
        first = self._next_batch(at_least=2 if point == "planning" else 0)
        batch = first + self._dice.randrange(2)
        life = self._begun({**facts, "point": point, "batch": batch})
        status = self._watched(life, sender, lambda: False)
        if not self._is_starved(status):
            assert status == -signal.SIGKILL, (point, batch, status, self._words())
            self.kills[f"driver, {point}"] += 1

    def _anywhere(self, facts: dict[str, Any], sender: Sender) -> None:
        count = len(self._offsets) + self._dice.randrange(3)
        life = self._begun(facts)
        status = self._watched(life, sender, lambda: len(self._offsets) > count)
        if self._is_starved(status):
            return
        assert status is None, (status, self._words())
        time.sleep(self._dice.random() * 2)  # where in a batch that is, is drawn
        self._killed(life)
        self.kills["driver, anywhere"] += 1

    def _workers(self, facts: dict[str, Any], sender: Sender) -> None:
        batch = self._next_batch() + 1
        life = self._begun({**facts, "point": "workers", "batch": batch})
        last = batch + self._dice.randint(1, 3)
        status = self._watched(life, sender, lambda: last + 1 in self._offsets)
        if self._is_starved(status):
            return
        assert status is None, (status, self._words())
        self._killed(life)
        for waited, busy in re.findall(r"killed (\d+) that waited and (\d+) at work", self._output.read_text()):
            self.kills["waiting worker"] += int(waited)
            self.kills["working worker"] += int(busy)
        self.kills["driver, after its workers"] += 1

    def _next_batch(self, at_least: int = 0) -> int:
        """Return the first batch whose points a new life comes to: one that is done again comes to most of them."""
        self._archive()
        last = max(self._offsets, default=-1)
        is_done = (self.folder / "checkpoint" / "commits" / str(last)).exists()
        return max(last + is_done, last + at_least, at_least)

    # ------------------------------------------------------------------ processes

    @property
    def _output(self) -> Path:
        return self.folder / "life.out"

    def _begun(self, facts: dict[str, Any]) -> subprocess.Popen[bytes]:
        self.lives += 1
        command = [sys.executable, "-m", "tests.faults.topics.life", json.dumps(facts)]
        with self._output.open("wb") as out, (self.folder / "life.err").open("wb") as errors:
            process = subprocess.Popen(command, stdout=out, stderr=errors)
        self._facts, self._life = facts, process
        return process

    def _watched(self, life: subprocess.Popen[bytes], sender: Sender, until: Callable[[], bool]) -> int | None:
        """Return the status of a life that ends, or None when `until` says so; keep the offsets meanwhile."""
        began = grew = time.monotonic()
        batches = len(self._offsets)
        while life.poll() is None:
            self._check(sender)
            self._archive()
            if until():
                return None
            now = time.monotonic()
            if len(self._offsets) > batches or not sender.waits:
                batches, grew = len(self._offsets), now
            if now - grew > _HUNGRY_S:
                sender.allow(self._share // _ROOM)
                grew = now
            if now - began > _WITHIN_S:
                self._killed(life)
                msg = f"a life did not end: {self._facts}: {self._words()}"
                raise AssertionError(msg)
            time.sleep(_POLL_S)  # it is another process
        self._archive()
        return life.returncode

    def _killed(self, life: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(psutil.Error):
            driver = psutil.Process(life.pid)
            tree = [driver, *driver.children(recursive=True)]
            for process in tree:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        life.wait()
        self._archive()

    def _is_starved(self, status: int | None) -> bool:
        """Whether a life ended by itself, because the machine was too busy for Spark to start its Python processes."""
        if status and _STARVED in (self.folder / "life.err").read_text(errors="replace"):
            self.starved += 1
            return self.starved <= _MOST_STARVED
        return False

    def _words(self) -> str:
        return (self.folder / "life.err").read_text(errors="replace")[-_TEXT:]

    def _archive(self) -> None:
        """Keep the entries of Spark's log of offsets: it forgets those of long ago."""
        commits = self.folder / "checkpoint" / "commits"
        for path in (self.folder / "checkpoint" / "offsets").glob("[0-9]*"):
            batch = int(path.name)
            if batch not in self._offsets or not (commits / str(batch)).exists():
                with contextlib.suppress(OSError):
                    text = path.read_text()
                    if text.count("\n") >= 2:
                        self._offsets[batch] = text
