"""Work that is written as a sequence of steps, each of which waits for kernel tasks.

A coroutine yields the tasks of its next step and receives their results. Who runs it decides where the tasks are done:
here in the calling thread, in `threads.scheduler` by several threads and beside the steps of others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from streamjoin_ds.engine.reference.kernel_objects import Crew, Task

__all__ = ["ChunkCoroutine", "TaskCoroutine", "chunks_alone", "run_alone"]

_Made = TypeVar("_Made")
_Chunk = TypeVar("_Chunk")

# What is sent is of as many types as the tasks: each step knows its own.
TaskCoroutine: TypeAlias = "Generator[list[Task[Any]], list[Any], _Made]"

# It yields a list of tasks, and receives their results, or a chunk, and receives nothing of use.
ChunkCoroutine: TypeAlias = "Generator[list[Task[Any]] | _Chunk, Any, None]"


def run_alone(steps: TaskCoroutine[_Made]) -> _Made:
    """Run all steps in this thread and return their result."""
    try:
        tasks = next(steps)
        while True:
            tasks = steps.send([task.do() for task in tasks])
    except StopIteration as end:
        made: _Made = end.value
        return made


def chunks_alone(steps: ChunkCoroutine[_Chunk], crew: Crew | None = None) -> Generator[_Chunk]:
    """The chunks of one piece; steps of one task are done in this thread, others by the crew, where there is one."""
    told: list[Any] | None = None
    try:
        while True:
            try:
                given = steps.send(told)
            except StopIteration:
                return
            if not isinstance(given, list):
                told = None
                yield given
            elif len(given) == 1:
                told = [given[0].do()]
            elif crew is None:
                told = [task.do() for task in given]
            else:
                told = _done(crew, given)
    finally:
        steps.close()


def _done(crew: Crew, tasks: Sequence[Task[Any]]) -> list[Any]:
    """What comes of tasks that a crew does."""
    try:
        for task in tasks:
            crew.add(task)
        return [crew.wait(task) for task in tasks]
    finally:
        crew.give_up(tasks)
