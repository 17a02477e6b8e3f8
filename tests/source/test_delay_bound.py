"""The bound of delays, before a server whose batches cost ``fixed + row * rows``: steps, noise, idleness, restarts."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.delay_bound import (
    FIRST_ROWS,
    GROWTH,
    LEAST_ROWS,
    LOOK_AHEAD,
    DelayBound,
    DelayFacts,
    max_delay_us,
)
from tests.support.examples import examples

X1 = 40_000  # tuples a second of two streams
STEPS = (1, 2, 3, 4, 5, 4, 3, 2, 1, 5, 1, 5, 1)


@dataclass
class Server:
    """One stream of tuples, and what handles them in batches, as Spark does: it looks, and begins the next batch."""

    fixed_s: float
    row_s: float
    max_s: float = 0.5
    noise: float = 0.0
    interval_s: float = 0.0
    backlog: int = 0
    is_bounded: bool = True
    now_s: float = 0.0
    taken: int = 0
    batches: list[tuple[float, int, float]] = field(default_factory=list)  # when it began, rows, seconds
    delays: list[tuple[float, float]] = field(default_factory=list)  # of a sample of tuples: when they came, how long
    facts: list[DelayFacts] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(7)
        self.came: list[tuple[float, float]] = [(0.0, float(self.backlog))]  # by when how many
        self.restart()

    def restart(self) -> None:
        self.bound = DelayBound(int(self.max_s * 1e6), int(self.interval_s * 1e6), clock=lambda: self.now_s)

    def passes(self, seconds: float, rate: float) -> None:
        self.now_s += seconds
        self.came.append((self.now_s, self.came[-1][1] + seconds * rate))

    def runs(self, seconds: float, rate: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.step(rate)

    def step(self, rate: float) -> None:
        there = int(self.came[-1][1]) - self.taken
        most = self.bound.most_rows() if self.is_bounded else 10**12
        seen = min(there, LOOK_AHEAD * most)
        self.bound.looked([self.taken], [seen], saw_all=seen < LOOK_AHEAD * most)
        rows = min(there, most)
        if not rows:
            self.passes(0.01, rate)
            return
        self.facts.append(self.bound.begins([self.taken + rows], seen - rows))
        began_s, took_s = self.now_s, self.fixed_s + self.row_s * rows
        took_s *= min(self.dice.lognormvariate(0, self.noise), 3.0)
        self.passes(took_s, rate)
        for number in range(self.taken, self.taken + rows, max(rows // 40, 1)):
            came_s = self._came_s(number)
            self.delays.append((came_s, self.now_s - came_s))
        self.taken += rows
        self.batches.append((began_s, rows, took_s))
        if self.interval_s:
            self.passes(max((began_s // self.interval_s + 1) * self.interval_s - self.now_s, 0.0), rate)

    def _came_s(self, number: int) -> float:
        place = bisect_left(self.came, number + 1, key=lambda pair: pair[1])
        if not place:
            return 0.0
        (since_s, before), (until_s, after) = self.came[place - 1 : place + 1]
        return until_s if after == before else since_s + (until_s - since_s) * (number + 1 - before) / (after - before)

    def p99(self, since_s: float = 10.0) -> float:
        """Return the 99th percentile of the delays of tuples that came at `since_s` or later."""
        found = sorted(delay for came_s, delay in self.delays if came_s >= since_s)
        return found[int(0.99 * len(found))]

    def caught_up_s(self) -> float:
        """Return when the last tuple came that waited twice as long as it may."""
        return max((came_s + delay for came_s, delay in self.delays if delay > 2 * self.max_s), default=0.0)


@pytest.mark.parametrize(
    ("fixed_s", "row_s", "noise"), [(0.02, 1e-6, 0.0), (0.02, 1e-6, 0.3), (0.05, 2e-6, 0.2), (0.1, 2e-6, 0.1)]
)
def test_a_load_in_steps_keeps_the_bound(fixed_s: float, row_s: float, noise: float) -> None:
    server = Server(fixed_s, row_s, noise=noise)
    for times in STEPS:
        server.runs(15, times * X1)
    assert server.p99() <= server.max_s
    assert all(facts.max_delay_us == 500_000 for facts in server.facts)


@pytest.mark.parametrize(
    ("fixed_s", "row_s", "noise"), [(0.2, 1e-6, 0.1), (0.25, 1.5e-6, 0.1), (0.3, 1e-6, 0.05), (0.25, 3e-6, 0.1)]
)
def test_where_half_of_the_bound_is_not_enough_nothing_gets_worse(fixed_s: float, row_s: float, noise: float) -> None:
    # Spark's trigger alone costs so much here: whatever the load, batches of half of the bound have no room for rows.
    bounded, free = (Server(fixed_s, row_s, noise=noise, is_bounded=is_bounded) for is_bounded in (True, False))
    for times in STEPS:
        for server in (bounded, free):
            server.runs(15, times * X1)
    assert bounded.p99() <= 1.05 * free.p99()
    assert free.p99() > bounded.max_s, "else the case says nothing"


@pytest.mark.slow
@given(
    st.floats(0.005, 0.15),
    st.floats(2e-7, 2e-6),
    st.floats(0, 0.2),
    st.lists(st.integers(0, 5), min_size=3, max_size=6),
)
@examples(15)
def test_any_steps_that_can_be_kept_keep_the_bound(
    fixed_s: float, row_s: float, noise: float, steps: list[int]
) -> None:
    server = Server(fixed_s, row_s, noise=noise)
    server.runs(10, X1)
    for times in steps:
        server.runs(10, times * X1 + 1)
    # A tuple waits for two batches. In balance a batch takes this long, and noise is on top of it.
    balance_s = fixed_s / (1 - row_s * X1 * max(1, *steps))
    assert server.p99() <= max(2.5 * balance_s * (1 + 3 * noise), 0.1)


def test_cost_that_doubles_is_followed() -> None:
    server = Server(0.05, 2e-6, noise=0.1)
    server.runs(30, 3 * X1)
    server.fixed_s, server.row_s = 0.1, 4e-6
    server.runs(30, 3 * X1)
    assert server.p99(31) <= 2.5 * 0.1 / (1 - 4e-6 * 3 * X1), "the balance, twice, and some noise"
    assert server.caught_up_s() < 35


@pytest.mark.parametrize("fixed_s", [0.01, 0.025])
def test_after_hours_of_downtime_batches_stay_within_the_bound(fixed_s: float) -> None:
    server = Server(fixed_s, 1e-6, backlog=50_000_000)
    server.runs(120, 2 * X1)
    assert server.batches[0][1] == FIRST_ROWS
    assert all(took_s <= server.max_s for _, _, took_s in server.batches)
    assert server.caught_up_s() < 50_000_000 * 1e-6 / (1 - 2 * X1 * 1e-6) * 1.2, "it goes on nearly as fast as it can"
    assert server.facts[50].delay_us > 1_000_000
    assert server.facts[50].waiting_rows > 300_000
    assert server.facts[-1].delay_us <= 500_000
    assert server.facts[-1].waiting_rows == 0


def test_a_restart_forgets_and_begins_small() -> None:
    server = Server(0.02, 1e-6)
    server.runs(20, 5 * X1)
    server.passes(600, 5 * X1)
    server.restart()
    known = len(server.batches)
    server.runs(200, 5 * X1)
    assert server.batches[known][1] == FIRST_ROWS
    assert all(took_s <= server.max_s for _, _, took_s in server.batches[known:])
    assert server.facts[known].delay_us is None, "no batch was measured yet"
    assert server.p99(server.now_s - 20) <= server.max_s


@given(st.integers(0, 10_000), st.floats(0.001, 1), st.floats(1e-8, 1e-3), st.floats(0, 1))
@examples(25)
def test_no_batch_grows_beyond_what_was_seen_and_none_is_empty(
    seed: int, fixed_s: float, row_s: float, noise: float
) -> None:
    server = Server(fixed_s, row_s, noise=noise, backlog=10**12)
    server.dice = random.Random(seed)
    for _ in range(60):
        server.step(X1)
    assert all(rows >= LEAST_ROWS for _, rows, _ in server.batches)
    largest = FIRST_ROWS
    for _, rows, _ in server.batches:
        assert rows <= GROWTH * largest
        largest = max(largest, rows)


def test_an_idle_stream_has_small_batches_and_a_burst_is_answered() -> None:
    server = Server(0.05, 1e-6)
    server.runs(60, 40)
    assert max(rows for _, rows, _ in server.batches) < 10
    assert server.p99(0) <= 0.15, "what comes waits for nothing but its own batch and the one before"
    began_s = server.now_s
    server.runs(20, 5 * X1)
    assert server.p99(began_s) <= server.max_s


def test_an_interval_is_no_cost() -> None:
    server = Server(0.1, 2e-6, max_s=4.0, interval_s=1.0)
    server.runs(60, 5 * X1)
    assert all(rows <= 1.1 * 5 * X1 for _, rows, _ in server.batches[-20:]), "each takes what came in an interval"
    assert server.p99() <= 1.7
    behind = Server(0.1, 2e-6, max_s=4.0, interval_s=1.0, backlog=20_000_000)
    behind.runs(120, 5 * X1)
    assert behind.facts[-1].waiting_rows == 0
    assert max(took_s for _, _, took_s in behind.batches) <= 4.0


def test_a_load_beyond_the_machine_is_said_and_goes_on() -> None:
    server = Server(0.1, 4e-6)
    server.runs(60, 10 * X1)
    late = [facts for facts in server.facts if (facts.delay_us or 0) > facts.max_delay_us]
    assert len(late) > len(server.facts) / 2
    rows = server.taken / server.now_s
    assert rows > 0.85 / 4e-6, "it does not spend its time on what a batch costs whatever it holds"
    waits = [facts.delay_us or 0 for facts in server.facts[-5:]]
    assert all(before < after for before, after in pairwise(waits))


def test_the_delay_is_that_of_the_first_tuple_that_came() -> None:
    now_s = [0.0]
    bound = DelayBound(500_000, clock=lambda: now_s[0])

    def look(taken: tuple[int, int], waiting: tuple[int, int], at_s: float, *, saw_all: bool = True) -> None:
        now_s[0] = at_s
        bound.most_rows()
        bound.looked(taken, waiting, saw_all=saw_all)

    look((0, 0), (0, 0), 1.0)
    look((0, 0), (5, 3), 2.0)
    assert bound.begins((5, 3), 0) == DelayFacts(500_000, None, 0)
    look((5, 3), (7, 9), 3.0)
    assert bound.begins((12, 5), 7) == DelayFacts(500_000, 2_000_000, 7), "they may have come just after 1 s"
    look((12, 5), (4, 7), 4.0)
    assert bound.begins((16, 6), 6).delay_us == 2_000_000, "after the look at 2 s"
    look((16, 6), (0, 6), 5.0)
    assert bound.begins((16, 12), 0).delay_us == 3_000_000, "6 of stream 1 came before the look at 3 s, after 2 s"
    look((16, 12), (3, 0), 7.0, saw_all=False)
    assert bound.begins((19, 12), 0).delay_us == 5_000_000


@pytest.mark.parametrize("text", ["0s", "soon", "5", "-1s", ""])
def test_what_is_no_bound_is_refused_by_name(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        max_delay_us(text)
    assert caught.value.name == "max_delay"
    assert not text or text not in str(caught.value).split()
    assert max_delay_us("1.5s") == 1_500_000
