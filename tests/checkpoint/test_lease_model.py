"""The lease under all schedules of a small world: two drivers and a later one, answers that are lost, and sleeps.

A driver's code runs until it asks the store or waits; then the world decides what happens, and it runs on from its
beginning with the answers that it had. A schedule is the list of these decisions, and all lists are tried that have
few faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from streamjoin_ds.checkpoint import lease
from streamjoin_ds.checkpoint.lease import leased
from streamjoin_ds.errors import CheckpointInUseError, StoreUnreachableError

SLEEP_S = 61.0  # longer than any lease
RENEWALS = 2


class Ask(NamedTuple):
    """What a driver asks of the world: a put on a condition, a look, or a wait; or what it tells of itself."""

    kind: str
    data: bytes = b""
    condition: str | None = None  # the tag that the object must have; None: there must be none
    seconds: float = 0.0


class Stopped(BaseException):
    """Ends a driver's code where the world has not decided yet."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.ask = ask


@dataclass
class Driver:
    """A process: it starts, renews its lease some times, and ends. Its own `Conditions`."""

    name: str
    due_s: float
    answers: list[object] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)
    is_over: bool = False
    place: int = 0

    def ask(self, ask: Ask) -> Any:
        if self.place == len(self.answers):
            raise Stopped(ask)
        answer = self.answers[self.place]
        self.place += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def put(self, data: bytes, *, if_none: bool = False, if_tag: str | None = None) -> str | None:
        return self.ask(Ask("put", data, None if if_none else if_tag))  # type: ignore[no-any-return]

    def get(self) -> tuple[bytes, str | None]:
        return self.ask(Ask("get"))  # type: ignore[no-any-return]

    def life(self) -> None:
        def pause(seconds: float) -> None:
            self.ask(Ask("pause", seconds=seconds))

        def tell(what: str) -> None:
            self.ask(Ask(what))

        try:
            held = leased(self, pause=pause)
        except (CheckpointInUseError, StoreUnreachableError) as error:
            tell("refused" if isinstance(error, CheckpointInUseError) else "failed")
            return
        tell("holds")
        for _ in range(RENEWALS):
            pause(lease._RENEW_S)
            try:
                held.renew()
            except StoreUnreachableError:
                continue
            if held.is_lost:
                break
        tell("lost" if held.is_lost else "ends")
        held.release()

    def next_ask(self) -> Ask | None:
        """Run to the first thing that is not decided; None where the driver has ended."""
        self.place = 0
        try:
            self.life()
        except Stopped as stopped:
            return stopped.ask
        return None


class World:
    """A store and the drivers; `choose(n)` decides among n things."""

    def __init__(
        self, drivers: list[Driver], choose: Callable[[int], int], faults: int, sleeps: int, turns: int
    ) -> None:
        self.drivers, self.choose, self.faults, self.sleeps = drivers, choose, faults, sleeps
        self.turns, self.last = turns, ""  # so often a driver that could go on has to wait for another one
        self.now_s, self.tags = 0.0, 0
        self.there: tuple[bytes, str | None] = (b"", None)
        self.events: list[tuple[str, str]] = []  # who put the object ("put"), or told what of itself
        self.was_out = False  # whether the store did not answer at all

    def run(self) -> None:
        while waiting := [driver for driver in self.drivers if not driver.is_over]:
            self.now_s = max(self.now_s, min(driver.due_s for driver in waiting))
            ready = [driver for driver in waiting if driver.due_s <= self.now_s]
            ready.sort(key=lambda driver: driver.name != self.last)
            driver = ready[self.choose(len(ready) if self.turns else 1)]
            self.turns -= self.last == ready[0].name != driver.name
            self.last = driver.name
            ask = driver.next_ask()
            if ask is None:
                driver.is_over = True
            elif self.sleeps and ask.kind != "pause" and self.choose(2):
                self.sleeps -= 1
                driver.due_s = self.now_s + SLEEP_S
            else:
                driver.answers.append(self._answer(driver, ask))

    def _answer(self, driver: Driver, ask: Ask) -> object:
        if ask.kind == "pause":
            driver.due_s = self.now_s + ask.seconds
        elif ask.kind == "get":
            if self._fault(2):
                self.was_out = True
                return StoreUnreachableError("no answer")
            return self.there
        elif ask.kind == "put":
            kind = self._fault(4)
            self.was_out |= kind in (1, 2)
            if kind == 1:  # it never came there
                return StoreUnreachableError("no answer")
            tag = self._put(driver, ask)
            if kind == 2:  # no try had an answer
                return StoreUnreachableError("no answer")
            return self._put(driver, ask) if kind == 3 else tag  # one answer was lost, and the client asked again
        else:
            driver.told.append((self.now_s, ask.kind))
            self.events.append((driver.name, ask.kind))
        return None

    def _fault(self, kinds: int) -> int:
        kind = self.choose(kinds) if self.faults else 0
        self.faults -= kind > 0
        return kind

    def _put(self, driver: Driver, ask: Ask) -> str | None:
        if self.there[1] != ask.condition:
            return None
        self.tags += 1
        self.there = (ask.data, f"tag {self.tags}")
        self.events.append((driver.name, "put"))
        return self.there[1]


def schedules(run: Callable[[Callable[[int], int]], None]) -> Iterator[list[int]]:
    """Run all schedules, each a list of choices; yield each one."""
    chosen: list[int] = []
    while True:
        sizes: list[int] = []

        def choose(size: int) -> int:
            if len(sizes) == len(chosen):  # noqa: B023
                chosen.append(0)
            sizes.append(size)  # noqa: B023
            return chosen[len(sizes) - 1]  # noqa: B023

        run(choose)
        yield chosen
        while chosen and chosen[-1] == sizes[len(chosen) - 1] - 1:
            chosen.pop()
        if not chosen:
            return
        chosen[-1] += 1


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_LOOK_S", lease._RENEW_S)  # fewer looks, and the same protocol
    monkeypatch.setattr(lease._log, "disabled", True)  # it would tell the same some ten thousand times


def lives(
    monkeypatch: pytest.MonkeyPatch, starts: dict[str, float], *, faults: int = 0, sleeps: int = 0, turns: int = 0
) -> Iterator[tuple[World, list[int]]]:
    """Run all schedules of drivers that start at these times; check what must hold in each, and yield it."""
    worlds: list[World] = []

    def run(choose: Callable[[int], int]) -> None:
        worlds.append(World([Driver(name, start_s) for name, start_s in starts.items()], choose, faults, sleeps, turns))
        # The same mark whenever a driver's code runs from its beginning.
        monkeypatch.setattr(lease, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=worlds[0].last)))
        worlds[0].run()

    for schedule in schedules(run):
        world = worlds.pop()
        check(world, schedule)
        yield world, schedule


def check(world: World, schedule: list[int]) -> None:
    for driver in world.drivers:
        mine = driver.name
        if (mine, "holds") not in world.events:
            continue
        before = world.events[: world.events.index((mine, "holds"))]
        since = world.events[len(before) - before[::-1].index((mine, "put")) :]
        puts = [name for name, what in since if what == "put"]
        others = next((place for place, name in enumerate(puts) if name != mine), len(puts))
        assert mine not in puts[others:], f"{mine} put the object after another driver had: {since} {schedule}"
        assert (mine, "lost") not in since or others < len(puts), f"{mine} lost it to nobody: {since} {schedule}"


def held(driver: Driver) -> tuple[float, float] | None:
    told = {what: at_s for at_s, what in driver.told}
    return (told["holds"], told.get("ends", told.get("lost", 1e9))) if "holds" in told else None


def test_an_only_driver_is_never_stopped_whatever_answers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    for world, schedule in lives(monkeypatch, {"a": 0.0}, faults=2, sleeps=1):
        count += 1
        told = [what for _, what in world.drivers[0].told]
        assert told in (["holds", "ends"], ["failed"]), schedule
        assert told == ["holds", "ends"] or world.was_out, schedule
        assert held(world.drivers[0]) is None or world.drivers[0].told[0][0] <= SLEEP_S, "it waits for itself"
    assert count > 500


@pytest.mark.parametrize(
    "asked",
    [
        [
            (0.0, {"faults": 1, "turns": 1}),
            (0.0, {"sleeps": 1, "turns": 1}),
            (4.0, {"faults": 1, "sleeps": 1}),
            (11.0, {"sleeps": 1}),  # the first one sleeps when it is about to end
        ],
        pytest.param(
            [(0.0, {"faults": 1, "sleeps": 1, "turns": 1}), (12.0, {"faults": 2, "sleeps": 1})], marks=pytest.mark.long
        ),
    ],
    ids=["few", "many"],
)
def test_of_two_drivers_one_holds_it_and_whoever_slept_is_told(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[float, dict[str, int]]]
) -> None:
    """In `check`: who holds it and then finds it put by another one never puts it again."""
    seen = Counter[str]()
    for second_s, bounds in asked:
        for world, schedule in lives(monkeypatch, {"a": 0.0, "b": second_s}, **bounds):
            first, second = (held(driver) for driver in world.drivers)
            overlap = first is not None and second is not None and first[0] < second[1] and second[0] < first[1]
            assert not overlap or (bounds.get("sleeps") and not world.sleeps) or world.was_out, schedule
            seen.update(what for driver in world.drivers for _, what in driver.told)
            seen.update(["overlap"] if overlap else [])
    assert set(seen) == {"holds", "ends", "refused", "lost", "failed", "overlap"}


def test_once_all_have_ended_the_next_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for world, schedule in lives(monkeypatch, {"a": 0.0, "b": 7.0, "c": 300.0}, faults=0, sleeps=1):
        third = held(world.drivers[2])
        assert third is not None, schedule
        assert third[0] in (300.0, 300.0 + SLEEP_S), schedule
