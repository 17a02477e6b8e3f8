"""Work that is written as a sequence of steps, so that several can go on side by side.

::

    stream 0    Python ─ add a ........ wait a ─ Python ─ add c ........ wait c
    stream 1                   Python ─ add b ......... wait b ─ Python ─ add d ......
    others                     a        b                        c        d

Each step yields kernel tasks and receives their results. The native pool starts the tasks at once, while the caller
next work's Python, and who waits works too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from streamjoin_ds.engine.reference.kernel_objects import Crew, Task

__all__ = ["TaskCoroutine", "run_alone", "run_interleaved"]

_Made = TypeVar("_Made")

# What is sent is of as many types as the tasks: each step knows its own.
TaskCoroutine: TypeAlias = "Generator[Sequence[Task[object]], list[Any], _Made]"


def run_alone(steps: TaskCoroutine[_Made]) -> _Made:
    """Run all steps in this thread and return their result."""
    try:
        tasks = next(steps)
        while True:
            tasks = steps.send([task.do() for task in tasks])
    except StopIteration as end:
        made: _Made = end.value
        return made


def run_interleaved(crew: Crew, works: Sequence[TaskCoroutine[_Made]]) -> Generator[_Made]:
    """Take the steps of several works, now of one, now of another; what each makes, in their order.

    Parameters
    ----------
    crew : Crew
    works : sequence of generators
        No two may change the same thing. Each has taken its first step when this returns, and the crew is at work on
        what they gave it, whether or not the answer is asked for anything. Closed, it waits for what was begun.
    """
    going = _going(crew, works)
    next(going)
    return cast("Generator[_Made]", going)


def _going(crew: Crew, works: Sequence[TaskCoroutine[_Made]]) -> Generator[_Made | None]:
    """None when all have taken their first step, then what each makes."""
    made: dict[int, _Made] = {}
    waiting: deque[tuple[int, Sequence[Task[object]]]] = deque()
    tasks: Sequence[Task[object]] = ()

    def step(number: int, told: list[object] | None) -> None:
        try:
            tasks = next(works[number]) if told is None else works[number].send(told)
        except StopIteration as end:
            made[number] = end.value
        else:
            waiting.append((number, tasks))
            for task in tasks:
                crew.add(task)

    try:
        for number in range(len(works)):
            step(number, None)
        yield None
        for given in range(len(works)):
            while given not in made:
                number, tasks = waiting.popleft()
                step(number, [crew.wait(task) for task in tasks])
            yield made.pop(given)
    finally:  # others' tasks go on: a push may be begun while another is being read
        for left in (tasks, *(left for _, left in waiting)):
            crew.give_up(left)
