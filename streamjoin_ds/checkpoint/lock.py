"""The lock of a checkpoint. The driver holds it while its query lives, and loses it with its process.

Two drivers of one checkpoint cannot spoil the tables: the second one to commit a batch loses, by name. But Spark
protects its own logs only by "look whether it is there, then rename". On a file system without locks there is no other
protection for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from streamjoin_ds.blocks.object_store import Conditional
from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.lease import BRIEF_WAIT_S, Lease, in_use, leased
from streamjoin_ds.errors import MALFORMED, CheckpointInUseError
from streamjoin_ds.machine import process_facts, process_told

__all__ = ["LOCK_FILE", "CheckpointLock", "check_not_taken_over", "driving", "held", "taken_over"]

LOCK_FILE = ".driver.lock"
_LOOK_S = 0.05  # between two looks at a lock that is held
_TOLD_AFTER_S = 1.0  # a wait that lasts longer than this is told
_log = logging.getLogger(__name__)
_held: dict[str, CheckpointLock] = {}  # locks that this process holds, by checkpoint
_taken_over: weakref.WeakSet[Query] = weakref.WeakSet()  # queries that were stopped as another driver has their lease
_guard = threading.Lock()


class Query(Protocol):
    """What a lock needs of the query that it is held for."""

    @property
    def isActive(self) -> bool:
        """Whether the query runs."""

    def awaitTermination(self) -> object:
        """Return when the query has ended."""

    def stop(self) -> object:
        """End the query."""


class CheckpointLock:
    """The lock of one checkpoint that this process holds.

    It does not exclude a second query of the same process: Spark itself stops the first one.
    """

    def __init__(self, checkpoint: Place, descriptor: int | None, lease: Lease | None = None) -> None:
        self.checkpoint = str(checkpoint)
        self._descriptor = descriptor
        self._lease = lease
        self._query: Query | None = None
        self.starting = 1  # callers that have the lock and have not started their query yet

    @property
    def is_held(self) -> bool:
        """Whether no other process can hold the lock. False where the file system has no locks."""
        return self._descriptor is not None or (self._lease is not None and not self._lease.is_lost)

    @property
    def is_driven(self) -> bool:
        """Whether a query of this process runs under this lock."""
        return self._query is not None and self._query.isActive

    def hold_while(self, query: Query) -> None:
        """Release the lock when this query ends, unless a later query of this process has the checkpoint by then."""
        with _guard:
            self._query = query
            self.starting -= 1
        if self._lease is not None:

            def lose() -> None:
                _taken_over.add(query)
                query.stop()

            self._lease.call_when_lost(lose)

        def wait() -> None:
            with contextlib.suppress(Exception):  # the caller of the query sees its error; and Java may be gone
                query.awaitTermination()
            with _guard:
                if self._query is query and not self.starting:
                    self._release()

        threading.Thread(target=wait, name="streamjoin-lock", daemon=True).start()

    def give_up(self) -> None:
        """Release the lock where no query was started, unless an earlier one still runs."""
        with _guard:
            self.starting -= 1
            if not self.starting and not self.is_driven:
                self._release()

    def _release(self) -> None:
        if _held.get(self.checkpoint) is self:
            del _held[self.checkpoint]
        if self._lease is not None:
            self._lease.release()
        self.forget()

    def forget(self) -> None:
        """Close the lock file in this process only. A forked child calls this, because it does not drive."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def driving(checkpoint: Place, *, take_over: bool = False, briefly: bool = False) -> CheckpointLock:
    """Take the lock of a checkpoint for this process and return it. Make the checkpoint's folder where there is none.

    Parameters
    ----------
    checkpoint : Path
        An absolute path.
    take_over : bool, keyword-only
        Replace a lock that another process holds, because that process is stopped or cut off. If it goes on, it loses
        at the tables to the driver that has committed its batch.
    briefly : bool, keyword-only
        Hold the lock for a clean-up or a repair, not to drive. Other processes then wait for it instead of failing.

    Raises
    ------
    CheckpointInUseError
        Another process holds the lock, and not briefly.
    """
    with _guard:
        there = _held.get(str(checkpoint))
        if there is not None:
            there.starting += 1
            return there
        checkpoint.mkdir(parents=True, exist_ok=True)
        if isinstance(checkpoint, Path):
            lock = CheckpointLock(checkpoint, _locked(checkpoint / LOCK_FILE, take_over, briefly))
        else:
            lease = leased(Conditional(str(checkpoint / LOCK_FILE)), take_over=take_over, briefly=briefly)
            lease.keep()
            lock = CheckpointLock(checkpoint, None, lease)
        _held[str(checkpoint)] = lock
        return lock


def check_not_taken_over(query: Query) -> None:
    """Raise CheckpointInUseError if a query was stopped because another driver has taken its checkpoint over."""
    if query in _taken_over:
        raise taken_over()


def taken_over() -> CheckpointInUseError:
    """Return the error of a driver that finds that another one goes on with its checkpoint."""
    msg = "another driver has taken the checkpoint over, and goes on with it"
    hint = "this one slept or was cut off for too long; nothing is lost, start no second driver"
    return CheckpointInUseError(msg, name="checkpoint", hint=hint)


@contextlib.contextmanager
def held(checkpoint: Place) -> Iterator[bool]:
    """Hold a checkpoint's lock briefly, while the context is open. Yield whether nothing else uses the checkpoint.

    Yields False where another process holds the lock, where a query of this process runs under it, and where the file
    system has no locks.
    """
    try:
        lock = driving(checkpoint, briefly=True)
    except (CheckpointInUseError, OSError):
        yield False
        return
    try:
        yield lock.is_held and not lock.is_driven
    finally:
        lock.give_up()


def _locked(path: Path, take_over: bool, briefly: bool, pause: Callable[[float], object] = time.sleep) -> int | None:
    """Return a descriptor that holds the lock of this file; None where the file system has no locks."""
    waited_s, before = 0.0, None
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 4096)
            os.close(descriptor)
            if take_over:
                _log.warning("the checkpoint is taken over from %s", process_told(holder))
                _replace(path)
                continue
            # Facts that change are of two holders: who has just taken the lock has not written its own yet.
            if holder == before and not (_is_brief(holder) and waited_s < BRIEF_WAIT_S):
                raise in_use(holder) from None
            if waited_s < _TOLD_AFTER_S <= waited_s + _LOOK_S:
                told = "the checkpoint is held by %s, which cleans it up or mends it: waiting for up to %d s"
                _log.warning(told, process_told(holder), BRIEF_WAIT_S)
            before, waited_s = holder, waited_s + _LOOK_S
            # Not a lock that waits: a driver that is quicker would be waited for as if it were brief.
            pause(_LOOK_S)
            continue
        except OSError as error:
            os.close(descriptor)
            _log.warning(
                "the checkpoint's file system has no locks (%s): make sure that only one driver uses it", error.strerror
            )
            return None
        if _is_there(path, descriptor):
            os.ftruncate(descriptor, 0)
            facts = {**process_facts(), "briefly": briefly}
            os.pwrite(descriptor, json.dumps(facts).encode(), 0)
            return descriptor
        os.close(descriptor)  # another process replaced the file between `open` and `flock`


def _replace(path: Path) -> None:
    """Put a new lock file in place of this one. A lock on the old file then excludes nobody."""
    aside = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex}")
    aside.touch(0o600)
    aside.replace(path)


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_brief(holder: bytes) -> bool:
    try:
        return json.loads(holder)["briefly"] is True
    except MALFORMED:
        return False


def _forget_all() -> None:
    global _guard
    _guard = threading.Lock()
    for lock in _held.values():
        lock.forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)
