"""A run: drivers one after the other, or two at a time, until all is joined, and the faults that they meet."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from streamjoin_ds.blocks import Cache
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.checkpoint.recovery import recovered
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.plan import Plan
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.tables import TableSet
from tests.faults.model import disk
from tests.faults.model.beside import TableFile
from tests.faults.model.case import allow_listed, case_of
from tests.faults.model.checkpoint import Checkpoint, ConcurrentWriteError, NoRoomError
from tests.faults.model.driver import QUERY_ID, Driver, StateMissingError, TaskFailedError
from tests.faults.model.input_files import Folders, GrowingFiles
from tests.faults.model.local_driver import LocalDriver
from tests.faults.model.patches import go_to_a_zone, installed
from tests.faults.model.power import Device
from tests.faults.model.process import CACHE_BYTES, Fiber, Killed, Process
from tests.faults.model.readable import readable
from tests.faults.model.schedule import ZONES_FROM, Fault, Schedule
from tests.faults.model.settings import Settings, make_identity, plan_of, refuse, settings_of
from tests.faults.model.stored import SharedCheckpoint, StoredCheckpoint
from tests.faults.model.upkeep import NoUpkeep, upkeep_of

__all__ = ["World"]

_MAX_DRIVERS = 40


_first = itemgetter(0)


class World:
    """The state of one run.

    Parameters
    ----------
    schedule : Schedule
    folder : Path
        An empty folder for this run alone.
    delta : {"log", "delta-rs"}
        Who writes the entries of the tables' logs: see `delta_log`.

    Attributes
    ----------
    violations : list of str
        What must not have happened; empty at the end of a good run.
    fired : list of Fault
    """

    def __init__(self, schedule: Schedule, folder: Path, delta: str = "log") -> None:
        allow_listed()
        self.schedule, self.folder, self.root, self.delta = schedule, folder, str(folder), delta
        self.case = case_of(replace(schedule, faults=()))
        self.plan = plan_of(schedule, self.case, folder)
        is_stored = schedule.power or "local" in schedule.asks
        self.checkpoint = self._stored(folder) if is_stored else Checkpoint(self.plan.retain_batches)
        self.dice = random.Random(f"world {schedule.seed}")
        self.current: Process | None = None
        self.ticks = 0
        self.parked: list[tuple[int, Process]] = []
        self.unfired = list(schedule.faults)
        self._awaited = {fault.point for fault in schedule.faults}  # at other points no fault is looked for
        self.fired: list[Fault] = []
        self.passed: dict[tuple[str, int, str, str], int] = {}
        self.full: Process | None = None
        self.drivers: list[Process] = []
        self.kinds: set[type[Driver] | type[LocalDriver]] = set()
        self.committed: set[int] = set()
        self.workers = [Cache[Any](CACHE_BYTES) for _ in range(schedule.workers)]
        self.committers: dict[Process, tuple[Committer, Any]] = {}
        self.violations: list[str] = []
        self.late_blocks: set[str] = set()  # written by a process that had stopped: nobody removes them
        self.now_s = 0.0
        self.clock = random.Random(f"clock {schedule.seed}")
        self.planned: dict[int, dict[str, Any]] = {}  # the offsets of each batch
        self.there: dict[
            str, dict[str, dict[str, int]]
        ] = {}  # how many records could be read when this end was planned
        self.versions: dict[int, set[str | None]] = {}  # those of the table that the logged offsets of a batch name
        self.source_done: dict[str, Any] = {}  # the offsets that the source was last told are committed
        self.server, self._servers = LiveWindows(), random.Random(f"server {schedule.seed}")
        self.tasks = 0
        self._attempts: list[Process] = []  # attempts that may outlive their driver, but not the power
        self.recoveries = 0
        self.moves = 0
        self.is_settling = False
        self.lives: dict[Process, Settings] = {}
        is_read = schedule.source == "csv"
        self.input = Folders(self.case, folder) if self.case.files else GrowingFiles(self.case, folder, is_read=is_read)
        self.table = TableFile(schedule.seed, folder) if "tables" in schedule.asks else None
        self.feed(everything=not schedule.grows)
        if "settings" in schedule.asks:
            make_identity(self.plan, folder)
        self.device: Device | None = None
        self._cuts = {fault.nth: fault for fault in schedule.faults if fault.kind == "cut"}
        if schedule.power:
            attic = folder.with_name(f"{folder.name}.attic")
            shutil.rmtree(attic, ignore_errors=True)
            self.device = Device(folder, attic)

    def has_server(self, driver: Process) -> bool:
        """Whether the windows of a driver's cells live on; it may differ where restarts are under other settings."""
        dice = random.Random(f"served {driver.name} {self.schedule.seed}")
        return "served" in self.schedule.asks and ("settings" not in self.schedule.asks or dice.random() < 0.7)

    def server_of_a_task(self) -> LiveWindows:
        """Return the window server that a task goes to, or one for the task alone, where it finds a frozen one.

        A server outlives tasks and drivers. It may be killed before any task, and is then another one without windows.
        """
        fate = self._servers.random()
        if fate < 0.1:
            self.server = LiveWindows()
        return LiveWindows() if fate > 0.9 else self.server

    def _stored(self, folder: Path) -> StoredCheckpoint:
        (folder / "checkpoint").mkdir()
        facts: dict[str, Any] = {"folder": folder / "checkpoint", "query_id": QUERY_ID}
        if "local" in self.schedule.asks:
            return SharedCheckpoint(self.plan.retain_batches, **facts, plan=self.plan)
        return StoredCheckpoint(self.plan.retain_batches, **facts)

    # ------------------------------------------------------------------ the run

    def run(self) -> None:
        """Run drivers until one has found nothing new; then settle."""
        with installed(self):
            for _ in range(_MAX_DRIVERS):
                if self.drive() and self.fed:
                    break
            else:
                self.violations.append(f"{_MAX_DRIVERS} drivers did not finish")
            self.settle()

    def settle(self) -> None:
        """Let everything go on that had stopped; after that a driver without faults must find all done."""
        self.is_settling = True
        self.unfired = []
        while self.parked:
            self._go_on(self.parked.pop(0)[1])
        fired = len(self.fired)
        while not self.drive():
            if len(self.fired) == fired:
                self.violations.append("a driver without faults did not finish")
                return
            # A power cut, which comes at a step of the run, came while the last driver was at work.
            fired = len(self.fired)

    def drive(self) -> bool:
        """Run one driver until it ends or stops; return whether it found nothing new."""
        process = Process(f"driver {len(self.drivers)}", "driver", 0, Cache(1))
        if self.schedule.seed >= ZONES_FROM:
            go_to_a_zone(f"{len(self.drivers)} {self.schedule.seed}")
        self.input.disturb(self)
        if self.table is not None:
            self.table.change(sometimes=True)  # also where the new driver's first batch is one that is done again
        settings = self.lives[process] = settings_of(self, len(self.drivers))
        self.drivers.append(process)
        back = any(fault.kind == "back" for fault in self.schedule.faults)
        rows = self.schedule.batch_rows + (0 if back else self.dice.choice((0, 0, 2)))

        own = random.Random(f"local {len(self.drivers)} {self.schedule.seed}")
        kind = LocalDriver if "local" in self.schedule.asks and own.random() < 0.7 else Driver
        self.kinds.add(kind)

        def body() -> None:
            refuse(settings, self.folder)
            kind(self, process, rows, settings).run()

        process.fiber = Fiber(lambda: self._within(process, body))
        self._resume(process)
        return process.fiber.done and self._judged(process, process.fiber.error) is None

    def _within(self, process: Process, body: Callable[[], Any]) -> Any:
        before, self.current = self.current, process
        try:
            return body()
        finally:
            self.current = before

    def _resume(self, process: Process) -> None:
        assert process.fiber is not None
        before = self.current
        process.fiber.resume()
        self.current = before

    def _judged(self, process: Process, error: BaseException | None) -> BaseException | None:
        """Note an error that nothing explains, and make room again if a query has stopped for want of it."""
        full, self.full = self.full, None if process is self.full else self.full
        if error is None or isinstance(error, (Killed, TaskFailedError)):
            return error
        settings = self.lives[process.root]
        if isinstance(error, settings.must_refuse or settings.may_refuse):
            return error
        rivals = process.stopped or process.root.stopped
        fitting = isinstance(error, StreamJoinError) and (rivals or full is not None)
        fitting = fitting or (isinstance(error, NoRoomError) and full is not None)
        if not fitting and not (rivals and isinstance(error, (ConcurrentWriteError, StateMissingError))):
            self.violations.append(f"{process.name} failed: {type(error).__name__}: {error}")
        return error

    # ------------------------------------------------------------------ points

    def point(self, name: str, *, writes: bool = False) -> None:
        """Come to a step of the running process: here it may die, stop, or find no room, and others may go on."""
        process = self.current
        if process is None:
            return
        if process.gone:
            raise Killed
        self.ticks += 1
        if self.ticks in self._cuts:
            self._cut_off(self._cuts.pop(self.ticks))
        if self.parked:
            while self.parked and (due := min(self.parked, key=_first))[0] <= self.ticks:
                self.parked.remove(due)
                self._go_on(due[1])
            if process.gone:
                raise Killed
        root = process.root
        actor = process.doing or process.actor
        key = (root.name, root.batch, actor, name)
        nth = self.passed.get(key, 0)
        self.passed[key] = nth + 1
        if name in self._awaited:
            for fault in self.unfired:
                if fault.point == name and fault.kind != "twice":
                    place = (fault.batch, fault.actor, fault.nth)
                    if place == (root.batch, actor, nth):
                        self._fire(fault, process)
                        break
        if writes and self.full is not None:
            raise disk.no_room()

    @property
    def seen(self) -> Counter[tuple[str, str]]:
        """Return how often a process of each kind came to each point."""
        seen: Counter[tuple[str, str]] = Counter()
        for (_, _, actor, name), count in self.passed.items():
            seen[actor, name] += count
        return seen

    def alive(self) -> bool:
        """Whether the running process is alive."""
        return self.current is not None and not self.current.gone

    def _cut_off(self, fault: Fault) -> None:
        """Cut the power: nothing runs any more, and the disk is what the dice leave of it."""
        assert self.device is not None
        self.fired.append(fault)
        for process in (*self.drivers, *self._attempts):
            process.dead = True
        self._attempts.clear()
        self.parked.clear()
        self.workers[:] = [Cache(CACHE_BYTES) for _ in self.workers]
        before, self.current = self.current, None  # no process is to blame for what happens to the disk now
        self.device.cut(random.Random(f"cut {fault.delay} {self.schedule.seed}"))
        self.violations += readable(self)
        self.current = before
        raise Killed

    def forced(self, path: str) -> None:
        """See `disk.Watcher`."""
        if self.device is not None:
            self.device.force(path)

    def moved(self, plan: Plan) -> Checkpoint:
        """Return the query's checkpoint, with the plan's number of cells."""
        log = self.checkpoint
        if not log.partitions:
            log.cells, log.partitions, log.layout = plan.cells, plan.partitions, plan.layout
        asked = plan.cells, plan.partitions, plan.layout if plan.bound.decided else log.layout
        if "cores" in self.schedule.asks and (log.cells, log.partitions, log.layout) != asked:
            self.point("move")
            self.checkpoint = log.moved(plan.bound, plan.cells, plan.partitions, plan.layout)
            self.moves += 1
            self.point("moved")
        return self.checkpoint

    def recovered(self) -> list[Any]:
        """Do what a start does before its query; return how the source is to cut the next batches."""
        if not isinstance(self.checkpoint, StoredCheckpoint):
            return []
        cuts = recovered(self.checkpoint.folder, TableSet(self.plan.table_root), self.plan.partitions)
        self.checkpoint.reload()
        # A batch whose offsets a power cut took is planned anew, and perhaps in another way.
        newest = max(self.checkpoint.offsets, default=-1)
        self.planned = {batch: offsets for batch, offsets in self.planned.items() if batch <= newest}
        self.recoveries += len(cuts) > 1
        return cuts

    def block_written(self, name: str) -> None:
        """Note a block written by a process that had stopped, or that has a rival: nobody may remove it."""
        assert self.current is not None
        if self.current.stopped or self.current.root.stopped:
            self.late_blocks.add(name)

    def _fire(self, fault: Fault, process: Process) -> None:
        self.unfired.remove(fault)
        self.fired.append(fault)
        root = process.root
        if fault.kind == "full":
            self.full = root
        elif fault.kind == "kill":
            process.dead = True
            raise Killed
        elif fault.kind in ("crash", "back"):
            root.dead = True
            if fault.kind == "back":
                self._taken_back(fault.delay)
            raise Killed
        elif fault.kind == "freeze" or (fault.kind == "stall" and process is root):
            assert root.fiber is not None
            if process.fiber is not None and process is not root:
                process.frozen = fault.delay
                process.fiber.stop()
            else:
                self._stop(root, root, fault.delay)
            self.current = process
            if process.gone:
                raise Killed
        elif process.fiber is not None and process.actor != "driver":
            self._stop(process, process, fault.delay)
            self.current = process

    def _stop(self, process: Process, running: Process, delay: int) -> None:
        assert running.fiber is not None
        if process is self.full:
            self.full = None  # somebody makes room for the driver that takes its place
        self.parked.append((self.ticks + delay, process))
        running.fiber.stop()

    def _go_on(self, process: Process) -> None:
        """Let a process go on that had stopped, while others have long done its work."""
        assert process.fiber is not None
        process.stopped = True
        if process.actor == "driver":
            for driver in self.drivers:
                if driver.fiber is not None and not driver.fiber.done:
                    driver.stopped = True
        self._resume(process)
        if process.fiber.done:
            self._judged(process, process.fiber.error)

    def _taken_back(self, batches: int) -> None:
        """Stop all drivers and take the checkpoint back; not while files grow, since batches would differ then."""
        for driver in self.drivers:
            driver.dead = True
        if not self.schedule.grows and not {"idle", "tables"} & {*self.schedule.asks}:
            self.checkpoint.taken_back(batches)

    # ------------------------------------------------------------------ what drivers ask for

    def task_process(self, actor: str, driver: Process, dice: random.Random) -> Process:
        """Return the process of a new attempt, on any of the workers."""
        self.tasks += 1
        cache = dice.choice(self.workers)
        process = Process(f"{actor} task {self.tasks} of {driver.name}", actor, driver.batch, cache, driver)
        if any((f.kind, f.batch, f.actor) == ("stall", driver.batch, actor) for f in self.unfired):
            process.fiber = Fiber(lambda: None)
            self._attempts.append(process)
        return process

    def attempt(self, process: Process, body: Callable[[], Any]) -> Any:
        """Return what an attempt gave, or None if it has stopped; raise `Killed` if it died."""
        try:
            if process.fiber is None:
                return self._within(process, body)
            process.fiber = Fiber(lambda: self._within(process, body))
            self._resume(process)
            while not process.fiber.done and process.frozen:
                # The driver stops, and its task with it: on its own thread the task waits for the driver.
                delay, process.frozen = process.frozen, 0
                driver = process.root
                self._stop(driver, driver, delay)
                self.current = driver
                if driver.dead:
                    process.dead = True
                self._resume(process)
            return process.fiber.result() if process.fiber.done else None
        except Killed:
            if not process.root.dead:
                # If the worker died before, with another task, its cache is not there any more.
                self.workers[:] = [Cache(CACHE_BYTES) if mine is process.cache else mine for mine in self.workers]
            raise

    def second_attempts(self, process: Process) -> Iterator[int]:
        """Yield, for each second attempt of a task, which of the two counts."""
        for fault in list(self.unfired):
            is_ours = (fault.kind, fault.batch, fault.actor) == ("twice", process.root.batch, process.actor)
            if is_ours and fault in self.unfired:  # meanwhile this fault may have gone to a rival's task
                self.unfired.remove(fault)
                self.fired.append(fault)
                yield fault.delay

    def feed(self, *, everything: bool = False) -> None:
        """Let more input come, and tables change."""
        self.input.feed(self, everything=everything)
        if self.table is not None:
            self.table.change(sometimes=True)

    @property
    def fed(self) -> bool:
        """Whether all of the input is there."""
        return self.input.whole

    def seen_until(self, batch: int, offset: Mapping[str, Any]) -> None:
        """Note what was there when the end of a batch was chosen."""
        if "devices" in self.schedule.asks:
            self.there.setdefault(self.end_of(batch, offset), self.input.there())

    @staticmethod
    def end_of(batch: int, offset: Mapping[str, Any]) -> str:
        """Return the end of a batch, and the devices that it says come soon, as a text.

        A batch whose offset was lost is planned again to the end that it had, when more may be there.
        """
        ends = {name: [at["seq"], at.get("devices", {}).get("coming")] for name, at in offset["streams"].items()}
        return json.dumps([batch, ends])

    def block_names(self) -> set[str]:
        """Return the files of blocks, finished or not."""
        folder = self.folder / "blocks"
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def committer_for(self, plan: Plan) -> tuple[Committer, Any]:
        """Return the driver's committer, in place of `streamjoin_ds.stream.commit.committer_for`.

        Each driver has one, since a driver is a process.
        """
        assert self.current is not None
        driver = self.current.root
        if driver not in self.committers:
            committer = Committer(
                TableSet(plan.table_root),
                plan.bound.result_schema,
                join_id=plan.join_id,
                fingerprint=plan.bound.fingerprint,
                description="model",
                clock=lambda: 0,
                durability=Durability(str(self.folder / "checkpoint"), durable=self.schedule.power),
            )
            committer.open()
            upkeep = upkeep_of(self, committer.tables) if "upkeep" in self.schedule.asks else NoUpkeep()
            self.committers[driver] = committer, upkeep
        return self.committers[driver]
