"""Work on several threads: results in the order of one thread, errors where they belong, nothing left at work."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.engine.scheduler import Scheduler, run_in_order
from streamjoin_ds.errors import KernelError
from tests.support.examples import examples

MODULES = [native, twins]
HELD_CHUNKS = 4
ITEMS = np.arange(100)[::-1].copy()


def sort(module: Any) -> Any:
    """Return a kernel's task."""
    return module.grid_ordering(None, ITEMS)


class Piece:
    """A piece of work that makes chunks, each after a step of some tasks."""

    def __init__(self, module: Any, number: int, size: int, tasks: int = 1, fails: int | None = None) -> None:
        self.module, self.number, self.size, self.tasks, self.fails = module, number, size, tasks, fails
        self.made, self.is_closed = 0, False

    def steps(self) -> Generator[Any, Any, None]:
        try:
            for chunk in range(self.size):
                orders = yield [sort(self.module) for _ in range(self.tasks)]
                assert [order.tolist() for order in orders] == [ITEMS.tolist()] * self.tasks
                if chunk == self.fails:
                    raise ZeroDivisionError
                self.made += 1
                assert (yield self.number, chunk) is None
        finally:
            self.is_closed = True


@examples(60)
@given(
    sizes=st.lists(st.integers(0, 2 * HELD_CHUNKS + 1), max_size=9),
    module=st.sampled_from(MODULES),
    helpers=st.integers(0, 3),
    tasks=st.integers(0, 3),
)
def test_chunks_come_in_the_order_of_one_thread(sizes: list[int], module: Any, helpers: int, tasks: int) -> None:
    expected = [(piece, chunk) for piece, size in enumerate(sizes) for chunk in range(size)]
    pool = module.ThreadPool(helpers)
    for scheduler in (Scheduler(pool), Scheduler()):
        for run in (scheduler.in_order, scheduler.one_by_one):
            assert list(run(Piece(module, *told, tasks).steps() for told in enumerate(sizes))) == expected
    for most in (1, 2, 5):
        pieces = [Piece(module, *told, tasks) for told in enumerate(sizes)]
        assert list(run_in_order(pool, (piece.steps() for piece in pieces), most, HELD_CHUNKS)) == expected
        assert all(piece.is_closed for piece in pieces)


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_chunks_are_held_than_a_few_a_piece(most: int) -> None:
    pieces = [Piece(native, number, 9) for number in range(20)]
    with closing(run_in_order(native.ThreadPool(1), (piece.steps() for piece in pieces), most, HELD_CHUNKS)) as chunks:
        for given_chunks, _ in enumerate(chunks, 1):
            assert sum(piece.made for piece in pieces) <= given_chunks + most * HELD_CHUNKS
    assert sum(piece.made for piece in pieces) == 180


def test_several_pieces_are_in_work_at_a_time() -> None:
    pieces = [Piece(native, number, 3 * HELD_CHUNKS) for number in range(4)]
    with closing(run_in_order(native.ThreadPool(1), (piece.steps() for piece in pieces), 2, HELD_CHUNKS)) as chunks:
        for _ in range(HELD_CHUNKS):
            next(chunks)
        assert pieces[1].made > 0
        assert not pieces[2].made


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("module", MODULES)
def test_an_error_reaches_the_reader_and_nothing_is_left_at_work(module: Any, failing: int) -> None:
    pool = module.ThreadPool(1)
    pieces = [Piece(module, number, 3, fails=1 if number == failing else None) for number in range(4)]
    begun = [piece.steps() for piece in pieces]
    chunks, found = run_in_order(pool, begun, 2, HELD_CHUNKS), []
    with pytest.raises(ZeroDivisionError):
        found.extend(iter(lambda: next(chunks, None), None))
    assert found == [(number, chunk) for number in range(4) for chunk in range(3)][: len(found)]
    assert len(found) <= 3 * failing + 1
    assert list(chunks) == []
    assert all(steps.gi_frame is None for steps in begun[: failing + 1])
    assert Scheduler(pool).begun([])() == []


@pytest.mark.parametrize("module", MODULES)
def test_a_kernels_error_reaches_the_reader(module: Any) -> None:
    columns, out = module.RunColumns([[np.arange(5)]]), [np.empty(1, int)]

    def wrong() -> Generator[Any, Any, None]:
        yield [columns.gathering(0, np.array([7], np.int32), out), sort(module)]

    for scheduler in (Scheduler(module.ThreadPool(1)), Scheduler(module.ThreadPool(0)), Scheduler()):
        for run in (scheduler.in_order, scheduler.one_by_one):
            pieces = [Piece(module, 0, 1), Piece(module, 1, 1)]
            chunks = run([pieces[0].steps(), wrong(), pieces[1].steps()])
            with pytest.raises(KernelError, match="outside"):
                list(chunks)
            scheduler.settle()


def test_a_reader_that_gives_up_leaves_nothing_at_work() -> None:
    pieces = [Piece(native, number, 9) for number in range(5)]
    begun = [piece.steps() for piece in pieces]
    chunks = run_in_order(native.ThreadPool(2), begun, 3, HELD_CHUNKS)
    assert next(chunks) == (0, 0)
    chunks.close()
    assert all(piece.is_closed for piece in pieces[:3])
    assert all(steps.gi_frame is None for steps in begun[:3])


@pytest.mark.parametrize("scheduler", [Scheduler(native.ThreadPool(2)), Scheduler(twins.ThreadPool(0)), Scheduler()])
def test_works_are_ended_once_in_their_order(scheduler: Scheduler) -> None:
    module = native if scheduler.helpers else twins

    def work(number: int) -> Generator[Any, Any, int]:
        for _ in range(number % 3):
            yield [sort(module)]
        return number

    assert list(scheduler.interleaved([work(number) for number in range(7)])) == [*range(7)]
    ended = scheduler.begun([work(number) for number in range(7)])
    scheduler.finish()
    assert ended() == [*range(7)]
    scheduler.settle()
