"""Work that is written as a sequence of steps, so that several can go on side by side.

::

    stream 0    Python ─ add a ........ wait a ─ Python ─ add c ........ wait c
    stream 1                   Python ─ add b ......... wait b ─ Python ─ add d ......
    others                     a        b                        c        d

A step yields kernels' tasks and is sent what came of them. A crew begins with them at once, while the caller is at the
next work's Python, and who waits works too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

__all__ = ["Steps", "alone", "in_step"]

_Made = TypeVar("_Made")

Steps: TypeAlias = "Generator[Sequence[Any], list[Any], _Made]"


def alone(steps: Steps[_Made]) -> _Made:
    """Take all steps, one after the other; what they make."""
    try:
        tasks = next(steps)
        while True:
            tasks = steps.send([task.do() for task in tasks])
    except StopIteration as end:
        made: _Made = end.value
        return made


def in_step(crew: Any, works: Sequence[Steps[_Made]]) -> Generator[_Made]:
    """Take the steps of several works, now of one, now of another; what each makes, in their order.

    Parameters
    ----------
    crew : Crew
    works : sequence of generators
        No two may change the same thing. Each has taken its first step when any takes its second.
    """
    made: dict[int, _Made] = {}
    waiting: deque[tuple[int, Sequence[Any]]] = deque((number, ()) for number in range(len(works)))
    has_begun = [False] * len(works)
    given = 0
    tasks: Sequence[Any] = ()
    try:
        while waiting:
            number, tasks = waiting.popleft()
            told = [crew.wait(task) for task in tasks]
            try:
                tasks = works[number].send(told) if has_begun[number] else next(works[number])
            except StopIteration as end:
                made[number] = end.value
            else:
                for task in tasks:
                    crew.add(task)
                waiting.append((number, tasks))
            has_begun[number] = True
            while given in made:
                yield made.pop(given)
                given += 1
    finally:  # others' tasks go on: a push may be begun while another is being read
        for left in (tasks, *(left for _, left in waiting)):
            crew.give_up(left)
