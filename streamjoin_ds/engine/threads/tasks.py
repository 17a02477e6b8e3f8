"""Work that is written as a sequence of steps, each of which waits for kernel tasks.

A coroutine yields the tasks of its next step and receives their results. Whoever runs it decides where the tasks are
done. The functions here do them in the calling thread. `threads.scheduler` has several threads do them, beside the
steps of other coroutines.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from streamjoin_ds.engine.kernels.objects import Task, ThreadPool

__all__ = ["ChunkCoroutine", "TaskCoroutine", "chunks_alone", "run_alone"]

_Made = TypeVar("_Made")
_Chunk = TypeVar("_Chunk")

# The results that are sent have as many types as the tasks; each step knows those of its own.
TaskCoroutine: TypeAlias = "Generator[list[Task[Any]], list[Any], _Made]"

# It yields a list of tasks and receives their results, or it yields a chunk and receives None.
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


def chunks_alone(steps: ChunkCoroutine[_Chunk], pool: ThreadPool | None = None) -> Generator[_Chunk]:
    """Yield the chunks of one piece.

    This thread does a step that has one task. The pool, where there is one, does a step that has several.
    """
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
            elif pool is None:
                told = [task.do() for task in given]
            else:
                told = _done(pool, given)
    finally:
        steps.close()


def _done(pool: ThreadPool, tasks: Sequence[Task[Any]]) -> list[Any]:
    """Have a pool do tasks, and return their results."""
    try:
        for task in tasks:
            pool.add(task)
        return [pool.wait(task) for task in tasks]
    finally:
        pool.give_up(tasks)
