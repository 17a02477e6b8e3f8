"""Thread pools: a task gives what its kernel gives, whoever does it, and in whatever order tasks are waited for."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.kernels.loading import kernel_names, load_kernels
from streamjoin_ds.errors import KernelError
from tests.support.examples import examples

MODULES = list({load_kernels(name).module.__name__: load_kernels(name).module for name in kernel_names()}.values())
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
only_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def sorts(module, count: int, seed: int = 0):
    """Return columns, and a task to sort each."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 1000, 1 + int(rng.integers(0, 3000))) for _ in range(count)]
    return columns, [module.grid_ordering(None, column) for column in columns]


@each_module
@pytest.mark.parametrize("helpers", [0, 1, 5])
@examples(15)
@given(
    waited=st.permutations(range(12)),
    rounds=st.lists(st.integers(0, 12), max_size=4),
    seed=st.integers(0, 1000),
)
def test_tasks_are_done_once_each_in_any_order_of_waiting(module, helpers, waited, rounds, seed) -> None:
    pool = module.ThreadPool(helpers)
    assert pool.helpers == (helpers if module.implementations() != ("reference",) else 0)
    for count in (12, *rounds):
        columns, tasks = sorts(module, count, seed)
        for task in tasks:
            pool.add(task)
        for number in (number for number in waited if number < count):
            assert (pool.wait(tasks[number]) == module.grid_order(None, columns[number])).all()


@each_module
def test_every_kind_of_task_does_what_its_kernel_does(module) -> None:
    pool = module.ThreadPool(2)

    def done(task):
        pool.add(task)
        return pool.wait(task)

    rng = np.random.default_rng(3)
    keys, buckets = rng.random(5000), rng.integers(0, 9, 5000)
    order = done(module.grid_ordering(buckets, keys))
    assert (order == module.grid_order(buckets, keys)).all()

    columns, outs = module.RunColumns([[keys, buckets], [keys[:7], buckets[:7]]]), (np.empty(5000), np.empty(5000, int))
    places = (order < 7).astype(np.int32)
    assert done(columns.gathering(places, order, outs)) is None
    assert (outs[0] == keys[order]).all()
    assert (outs[1] == buckets[order]).all()

    def grid():
        room = [np.zeros(16 * 2000, np.int64), np.zeros(16 * 2000)]
        return module.BucketGrid(room, position=0, buckets=500, keys=[(True, 0.01)])

    mine, theirs = grid(), grid()
    given = [np.arange(5000), keys]
    assert done(mine.inserting(given, [keys], 0, 0)) == theirs.insert(given, [keys], 0, 0) == 5000
    assert done(mine.sweeping(500, 2500)) == theirs.sweep(500, 2500) > 0
    assert (mine.row_numbers() == theirs.row_numbers()).all()

    index = module.BucketIndex(mine, [mine.columns[1]], [-0.01], [0.01], keys=[0])
    found = np.zeros((2, 3, 300_000), np.int32)
    one, other = (module.RunsProbe([keys[:1000]], [index]) for _ in range(2))
    count = done(one.filling(*found[0]))
    assert count == other.fill(*found[1]) > 1000
    assert (found[0] == found[1]).all()

    form = module.RowsForm([[8], [8]], [0, 1])
    rows, runs = module.ArrowRows(form, 100), module.RunColumns([[keys]])
    tasks = [rows.gathering([(runs, 0, order[n : n + 50]), (runs, 0, order[n + 1 : n + 51])], n) for n in (0, 50)]
    for task in tasks:
        pool.add(task)
    for task in tasks:
        pool.wait(task)
    rows.exported()


@each_module
def test_what_goes_wrong_is_told_to_who_waits_for_it(module) -> None:
    pool = module.ThreadPool(1)
    columns, out = module.RunColumns([[np.arange(5)]]), [np.empty(1, int)]
    wrong = columns.gathering(0, np.array([7], np.int32), out)
    ordered, (right,) = sorts(module, 1)
    pool.add(wrong)
    pool.add(right)
    assert (pool.wait(right) == module.grid_order(None, ordered[0])).all()
    with pytest.raises(KernelError, match="outside the runs"):
        pool.wait(wrong)
    for call in (lambda: pool.add(right), lambda: pool.wait(right), lambda: right.do(), lambda: pool.wait(wrong)):
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.name == "task"
    again = columns.gathering(0, np.array([7], np.int32), out)
    pool.add(again)
    pool.give_up([right, again])
    with pytest.raises(KernelError):
        pool.wait(again)
    _, (other,) = sorts(module, 1)
    assert other.do() is not None
    for call in (lambda: module.ThreadPool(-1), lambda: module.ThreadPool(2000), lambda: module.ThreadPool(1, [-1])):
        with pytest.raises(KernelError):
            call()


@each_module
def test_a_probing_or_a_grid_at_work_is_not_to_be_used(module) -> None:
    if module.implementations() == ("reference",):
        pytest.skip("the twin works when it is waited for")
    grid = module.BucketGrid([np.zeros(1600, np.int64)], position=0, buckets=10, keys=[(False, 10)])
    values = np.arange(50)
    task = grid.inserting([values], [values], 0, 0)
    for call in (lambda: grid.insert([values], [values], 0, 0), lambda: grid.sweep(1, 0), grid.row_numbers):
        with pytest.raises(KernelError, match="another thread"):
            call()
    assert task.do() == 50
    index = module.BucketIndex(grid, [grid.columns[0]], [-1], [1], keys=[0])
    probing, out = module.RunsProbe([values], [index]), np.zeros((3, 500), np.int32)
    task = probing.filling(*out)
    with pytest.raises(KernelError, match="another thread"):
        probing.fill(*out)
    assert task.do() == 148


@only_linux
@each_module
def test_helpers_end_with_their_pool_whatever_is_left_to_do(module) -> None:
    gc.collect()  # ends the pools of earlier tests
    before = threads()
    pool = module.ThreadPool(3, [0, 1 << 14])  # the second core has gone away
    assert threads() == before + pool.helpers
    _, tasks = sorts(module, 40)
    for task in tasks:
        pool.add(task)
    del pool, tasks, task
    gc.collect()
    assert threads() == before


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@each_module
@pytest.mark.parametrize("attempt", range(10))
def test_in_a_forked_process_the_caller_works_alone(module, attempt) -> None:
    pool, idle = module.ThreadPool(2), module.ThreadPool(1)
    columns, tasks = sorts(module, 12, attempt)
    grid = module.BucketGrid([np.zeros(16 * 40_000, np.int64)], position=0, buckets=10_000, keys=[(False, 1)])
    values = np.random.default_rng(attempt).integers(0, 10_000, 100_000)
    inserting = grid.inserting([values], [values], 0, 0)
    for task in (*tasks[:5], inserting, *tasks[5:8]):
        pool.add(task)
    pool.wait(tasks[1])

    def is_right() -> bool:
        for task in tasks[8:]:
            pool.add(task)
        found = [pool.wait(task) for task in (tasks[0], *tasks[2:])]
        expected = [module.grid_order(None, column) for column in (columns[0], *columns[2:])]
        is_same = all((one == other).all() for one, other in zip(found, expected, strict=True))
        # A task is done once, whether a helper had begun it before the fork or not.
        return is_same and pool.wait(inserting) == grid.rows == 100_000

    process = os.fork()
    if not process:
        status = 1
        try:
            status = 0 if is_right() and not pool.helpers and not idle.helpers else 2
            del pool, idle
        finally:
            sys.stdout.flush()
            os._exit(status)
    assert is_right()
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
