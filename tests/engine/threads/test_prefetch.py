"""Pieces of work on several threads: the order of one thread, nobody left at work, errors where they belong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.threads.prefetch import HELD_CHUNKS, in_order, side_by_side
from tests.support.examples import examples


@examples(80)
@given(sizes=st.lists(st.integers(0, 2 * HELD_CHUNKS + 1), max_size=9), threads=st.integers(1, 4))
def test_chunks_come_in_the_order_of_one_thread(sizes: list[int], threads: int) -> None:
    pieces = [iter([(piece, chunk) for chunk in range(size)]) for piece, size in enumerate(sizes)]
    with ThreadPoolExecutor(threads) as executor:
        found = list(in_order(pieces, executor, threads))
    assert found == [(piece, chunk) for piece, size in enumerate(sizes) for chunk in range(size)]


def test_no_more_chunks_are_held_than_a_few_a_thread() -> None:
    made = [0] * 20

    def piece(number: int) -> Iterator[int]:
        for _ in range(9):
            made[number] += 1
            yield number

    with ThreadPoolExecutor(2) as executor, closing(in_order(map(piece, range(20)), executor, 2)) as chunks:
        for given_chunks, _ in enumerate(chunks, 1):
            assert sum(made) < given_chunks + 3 * HELD_CHUNKS
    assert sum(made) == 180


def test_pieces_are_in_work_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def piece(number: int) -> Iterator[int]:
        meeting.wait()
        yield number

    with ThreadPoolExecutor(2) as executor:
        assert list(in_order([piece(0), piece(1)], executor, 2)) == [0, 1]
        assert side_by_side(lambda number: meeting.wait() * 0 + number, [5, 6], executor) == [5, 6]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_reaches_the_reader_in_its_place_and_nobody_is_left_at_work(failing: int) -> None:
    working = []

    def piece(number: int) -> Iterator[int]:
        working.append(number)
        try:
            if number == failing:
                raise ZeroDivisionError
            yield number
        finally:
            working.remove(number)

    with ThreadPoolExecutor(2) as executor:
        found, chunks = [], in_order([piece(number) for number in range(4)], executor, 2)
        with pytest.raises(ZeroDivisionError):
            found.extend(iter(lambda: next(chunks, None), None))
        assert list(chunks) == []
        assert executor.submit(sorted, working).result() == sorted(working)
    assert failing not in working


def test_a_reader_that_gives_up_waits_for_those_at_work() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), []

    def slow() -> Iterator[int]:
        begun.set()
        assert go_on.wait(60)
        ended.append(True)
        yield 1

    with ThreadPoolExecutor(2) as executor:
        chunks = in_order([iter([0, 0]), slow()], executor, 2)
        assert next(chunks) == 0
        assert begun.wait(60)
        go_on.set()
        chunks.close()
        assert ended


def test_side_by_side_waits_for_all_before_it_fails() -> None:
    go_on, ended = threading.Event(), []

    def work(number: int) -> None:
        if number == 1:
            go_on.set()
            raise ZeroDivisionError
        assert go_on.wait(60)
        ended.append(number)

    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(ZeroDivisionError):
            side_by_side(work, [0, 1], executor)
        assert ended == [0]
        assert side_by_side(work, [], executor) == []
