"""What goes wrong in a soak, by its kind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil

from tests.faults.soak.drivers import killed
from tests.faults.soak.poison import RESTS, Poison
from tests.faults.soak.power import Power
from tests.faults.soak.settings import other_retention

if TYPE_CHECKING:
    from tests.faults.soak.run import Soak

__all__ = ["FAULTS", "Faults"]

FAULTS = {
    "driver": "the driver and its workers are killed",
    "worker": "a worker is killed, its task is tried again",
    "sleeper": "the driver sleeps, another one takes its place, and it wakes",
    "restart": "the driver ends by itself, and starts under other settings; the tables have another retention",
    "power": "the power is cut, once or again while a driver recovers: what was not forced is lost, torn, or there",
    "full": "no room on the disk until the driver has stopped",
    "poison": "a file that cannot be read on, and one out of order or changed",
    "silence": "a stream falls silent, and comes back",
    "reader": "the consumer is restarted",
    "vacuum": "`streamjoin vacuum` beside the driver, or beside its restart",
    "repair": "`streamjoin repair --dry-run` after a stop or a kill finds nothing to mend",
}
_FULL_BYTES = 3 << 20  # bytes left on a full disk
_VACUUM_AFTER_S = 5  # many times the fifth of a second that a batch takes
_LEFT = "left-behind.arrow"


class Faults:
    """Does the faults after which its methods are named."""

    def __init__(self, soak: Soak, dice: random.Random) -> None:
        self._soak, self._dice, self._drivers = soak, dice, soak.drivers
        self.poisons = Poison(soak.feeder, dice)
        self.back_at = 0.0  # when a silent stream writes again
        self.lost = 0  # files that power cuts took or tore

    def driver(self) -> None:
        self._drivers.kill()
        self._drivers.start()

    def worker(self) -> None:
        workers = self._drivers.tree()[1:]
        if workers:
            killed([self._dice.choice(workers)])

    def restart(self) -> None:
        self._soak.stop("stop")
        other_retention(self._soak.root, self._dice)
        self._drivers.start()

    def reader(self) -> None:
        self._soak.consumer.begin_anew()

    def silence(self) -> None:
        if self._soak.feeder.silent is None:
            self._soak.feeder.fall_silent(self._dice.choice(self._soak.feeder.names))
            self.back_at = time.monotonic() + self._soak.fault_every_s / 2

    def poison(self) -> None:
        """Add a bad file in the order of names, and then one out of order, while the driver runs or before a start."""
        name = self._dice.choice([name for name in self._soak.feeder.names if name != self._soak.feeder.silent])
        self.poisons.drop(name, self._dice.choice(RESTS))
        self._soak.feeder.step()
        if self._dice.random() < 0.3:
            self.driver()
        self._soak.catch_up()
        for name in self._soak.feeder.names:
            self._soak.feeder.next_file(name)
        self._soak.feeder.step()  # the file after a changed one
        self._soak.catch_up()
        if self._soak.violations:
            return
        dies = self._dice.random() < 0.5
        if dies:
            self._drivers.kill()
        self.poisons.drop(name, self._dice.choice(self.poisons.later(name)))
        if dies:
            self._drivers.start()
        self._soak.catch_up()
        self._soak.feeder.step()
        self._soak.catch_up()

    def sleeper(self) -> None:
        """Stop a driver and its workers, as on a machine that went to sleep; let another one take over; wake them."""
        sleeping, life = self._drivers.tree(), self._drivers.life
        _signalled(sleeping, signal.SIGSTOP)
        self._drivers.start(take_over=True)
        self._soak.feed_until(self._soak.batches + 3, 60.0)
        _signalled(sleeping, signal.SIGCONT)
        assert life is not None
        # The sleeper loses at the next thing that it tries to write. If there is nothing new for it to write, it is
        # ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            life.wait(5.0)
        killed(sleeping)
        life.wait()
        # Each of the two may have stopped the other, since the table took the batch of the one that came first. If the
        # second does another one, it lives.
        self._drivers.lines.read()
        before = self._soak.batches
        self._feed_until(lambda: self._soak.batches > before)
        if self._drivers.ended is not None:
            self._drivers.start()

    def full(self) -> None:
        """Take the room on the disk away until the driver has stopped, and give it back."""
        ballast = self._soak.root / "ballast"
        disk = os.statvfs(self._soak.root)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - _FULL_BYTES)
        self._feed_until(lambda: False)
        self._drivers.kill()
        ballast.unlink()
        self._drivers.start()

    def power(self) -> None:
        """Cut the power, once or again while a driver recovers.

        The driver forces its files. It is cut off in a batch, or while it recovers from the cut before. The consumer
        stands still meanwhile, and nothing that it had read may be lost.
        """
        self._drivers.kill()
        self._soak.consumer.read_on()
        power = Power(self._soak.root)
        for turn in range(self._dice.choice((1, 1, 2, 3))):
            self._drivers.start(durable=True)
            if turn == 0 or self._dice.random() < 0.5:
                starts = self._drivers.lines.starts
                self._soak.feed_until(self._soak.batches + self._dice.randrange(2, 30), 20.0)
                if self._drivers.lines.starts == starts or self._soak.violations:
                    self._soak.wait("a driver begins", lambda starts=starts: self._drivers.lines.starts > starts)
                time.sleep(self._dice.random() / 20)
            else:
                time.sleep(self._dice.random() * 3)
            if self._drivers.ended is not None:
                self._soak.fail(f"a driver ended with {self._drivers.ended} after a power cut")
                break
            self._drivers.kill()
            self.lost += power.cut(self._dice)
        power.end()
        if not self._soak.violations:
            starts = self._drivers.lines.starts
            self._drivers.start()
            self._soak.wait("a driver recovers from a power cut", lambda: self._drivers.lines.starts > starts)

    def vacuum(self) -> None:
        """Run `vacuum` beside a driver at work, or beside one that starts when all blocks are old enough to go."""
        if not self._drivers.lines.starts:
            return  # the first driver has not yet made the checkpoint
        left = self._soak.root / "checkpoint" / "blocks" / _LEFT
        if left.parent.is_dir():
            left.write_bytes(b"of a task that died")
            os.utime(left, (1e9, 1e9))
        restarts = self._dice.random() < 0.6
        if restarts:
            self._drivers.kill()
            time.sleep(_VACUUM_AFTER_S + self._dice.random())
        command = self._command("vacuum", "--older-than", f"{_VACUUM_AFTER_S}s")
        if restarts:
            time.sleep(self._dice.random() * 3)
            self._drivers.start()
        while command.poll() is None and not self._soak.violations:
            self._soak.feed()
            time.sleep(0.01)
        text, _ = command.communicate()
        if command.returncode:
            self._soak.fail(f"vacuum ended with {command.returncode}: {text}")
        elif left.exists():
            self._soak.fail(f"vacuum left {left.name}: {text}")

    def repair(self) -> None:
        if not self._drivers.lines.starts:
            return
        if self._dice.random() < 0.5:
            self._soak.stop("stop")
        else:
            self._drivers.kill()
        command = self._command("repair", "--dry-run")
        text, _ = command.communicate()
        if command.returncode or text.strip() != "nothing is wrong":
            self._soak.fail(f"repair ended with {command.returncode}: {text}")
        self._drivers.start()

    def _feed_until(self, done: Callable[[], bool]) -> None:
        """Let the streams grow until the driver has ended or it is done, for a minute at most."""
        until = time.monotonic() + 60.0
        while self._drivers.ended is None and not done() and time.monotonic() < until:
            self._soak.feeder.step()
            self._soak.consumer.read_on()  # it is never away for as long as the tables keep what was deleted
            self._drivers.lines.read()
            time.sleep(0.05)

    def _command(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.faults.soak.tending", str(self._soak.root), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _signalled(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
