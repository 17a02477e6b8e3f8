"""The lease of a checkpoint in an object store, which has no locks: one object, put on conditions.

::

    no object           put "if there is none"            whoever is first drives
    while it drives     put again every 5 s "if it is     another one took it: the query is stopped
                        as I put it"
    it ends             put as ended "if it is as I       the next one begins at once
                        put it"
    object is there     look at it for 20 s: it changes   in use, refused by name
                        it stands still                   put "if it is as I saw it": taken over
                        it is ended                       the same, at once

No clock of another machine counts: who waits measures by its own. A driver that sleeps for longer than the lease and
wakes up again finds it taken, and loses at the tables as ever. It never removes the object, so it cannot end the lease
of the driver that took its place.

A condition that does not hold is no proof that another driver was there: where the answer to a put is lost, the client
asks again, and meets its own put. So the object has the *mark* of its lease, and is read before that is believed.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from streamjoin_ds.blocks.object_store import heeds_no_conditions
from streamjoin_ds.errors import MALFORMED, CheckpointInUseError, StreamJoinError
from streamjoin_ds.machine import process_facts, process_told

__all__ = ["BRIEF_WAIT_S", "Lease", "in_use", "leased"]

BRIEF_WAIT_S = 120.0  # how long a start waits for a clean-up or a repair that goes on
_RENEW_S = 5.0  # seconds between two renewals
_STILL_S = 20.0  # a lease that stands still for so long is nobody's
_LOOK_S = 1.0  # seconds between two looks at it
_ROUNDS = 20  # so often others may be quicker before a start gives up
_NO_TAG = '"d41d8cd98f00b204e9800998ecf8427e"'  # of an object without bytes, which a lease never is
_log = logging.getLogger(__name__)


class Conditions(Protocol):
    """What a lease needs of its object; see `Conditional`."""

    def put(self, data: bytes, *, if_none: bool = False, if_tag: str | None = None) -> str | None:
        """Put the object on a condition and return its entity tag; None where the condition does not hold."""

    def get(self) -> tuple[bytes, str | None]:
        """Return what the object holds, and its entity tag; None where it is not there."""


class _Seen(NamedTuple):
    """The object as it is at one moment; `tag` is None where there is none."""

    data: bytes
    tag: str | None

    @property
    def facts(self) -> dict[str, Any]:
        """What the object says; nothing where it is not one that this package puts."""
        try:
            found = json.loads(self.data)
        except MALFORMED:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def is_free(self) -> bool:
        """Whether its holder has ended."""
        return self.tag is None or self.facts.get("ended") is True


class Lease:
    """A lease that this process takes, holds and renews.

    Parameters
    ----------
    objects : Conditions
        The object.
    briefly : bool
        See `lock.driving`.
    """

    def __init__(self, objects: Conditions, briefly: bool) -> None:
        self._objects = objects
        self._mark = uuid.uuid4().hex
        self._facts = {**process_facts(), "briefly": briefly, "mark": self._mark}
        self._counts = itertools.count()  # no two texts of a lease are alike, so neither are the entity tags
        self._tag: str | None = None
        self._ended = threading.Event()
        self.is_lost = False
        self._when_lost: Callable[[], object] | None = None

    def take(self, seen: _Seen) -> _Seen | None:
        """Put the object in place of what was seen. Return None where it is this lease's now, else what is there."""
        now = self._put(if_none=True) if seen.tag is None else self._put(if_tag=seen.tag)
        return None if self._holds(now) else now

    def check_store(self) -> None:
        """Refuse a store that puts the object whatever the condition. The lease must be taken."""
        for name, condition in (("If-None-Match", {"if_none": True}), ("If-Match", {"if_tag": _NO_TAG})):
            if self._objects.put(self._text(), **condition) is not None:
                raise heeds_no_conditions(name)

    def keep(self) -> None:
        """Renew the lease in a thread, until it is released or lost."""
        threading.Thread(target=self._keep, name="streamjoin-lease", daemon=True).start()

    def _keep(self) -> None:
        while not self._ended.wait(_RENEW_S) and not self.is_lost:
            self._try()

    def _try(self) -> None:
        try:
            self.renew()
        except Exception as error:  # the checkpoint cannot be written either, and the query ends by itself
            _log.warning("the lease of the checkpoint cannot be renewed: %s", getattr(error, "message", error))

    def renew(self) -> None:
        """Put the object once more. If it is another lease's by now, this one is lost."""
        now = self._put(if_tag=self._tag)
        if now.tag is None:  # somebody removed it; a driver that has begun since would have put its own
            now = self._put(if_none=True)
        if not self._holds(now) and not self._ended.is_set():
            self._lose()

    def call_when_lost(self, call: Callable[[], object]) -> None:
        """Call this once another process has taken the lease, or now if it has."""
        self._when_lost = call
        if self.is_lost:
            call()

    def _lose(self) -> None:
        self.is_lost = True
        _log.error("another driver has taken the checkpoint over: the query of this process is stopped")
        if self._when_lost is not None:
            self._when_lost()

    def release(self) -> None:
        """Let another driver begin at once."""
        self._ended.set()
        tag = self._tag
        try:
            for _ in range(_ROUNDS if not self.is_lost else 0):  # a renewal of the other thread may be under way
                now = self._put(is_ended=True, if_tag=tag)
                if now.is_free or now.facts.get("mark") != self._mark:
                    return
                tag = now.tag
        except StreamJoinError as error:
            _log.debug("the lease is not ended: %s", error.message)

    def _put(self, *, is_ended: bool = False, if_none: bool = False, if_tag: str | None = None) -> _Seen:
        """Put the object on a condition and return what is there then: what was put, or what was there."""
        data = self._text(is_ended)
        tag = self._objects.put(data, if_none=True) if if_none else self._objects.put(data, if_tag=if_tag)
        return _Seen(data, tag) if tag is not None else _Seen(*self._objects.get())

    def _holds(self, now: _Seen) -> bool:
        if now.facts.get("mark") != self._mark:
            return False
        self._tag = now.tag
        return True

    def _text(self, is_ended: bool = False) -> bytes:
        return json.dumps({**self._facts, "count": next(self._counts), "ended": is_ended}).encode()


def leased(
    objects: Conditions,
    *,
    take_over: bool = False,
    briefly: bool = False,
    pause: Callable[[float], object] = time.sleep,
) -> Lease:
    """Take the lease of an object and return it. The caller has it renewed (`keep`).

    Parameters
    ----------
    objects : Conditions
        The object.
    take_over : bool, keyword-only
        Take it at once, although it may be held.
    briefly : bool, keyword-only
        See `lock.driving`.
    pause : callable, keyword-only
        Waits for so many seconds.

    Raises
    ------
    CheckpointInUseError
        Another process renews it.
    ArgumentError
        The store does not heed conditions.
    StoreUnreachableError, StoreAccessError
        The store does not answer, or refuses.
    """
    lease = Lease(objects, briefly)
    seen = lease.take(_Seen(b"", None))
    rounds = 0
    while seen is not None:
        rounds += 1
        if rounds > _ROUNDS:
            raise in_use(seen.data)
        seen = lease.take(seen if take_over else _free(objects, seen, pause))
    try:
        lease.check_store()
    except StreamJoinError:
        lease.release()
        raise
    return lease


def in_use(holder: bytes) -> CheckpointInUseError:
    """Return the error that names who holds a checkpoint, from the facts that it has left."""
    msg = f"the checkpoint is in use by {process_told(holder)}"
    hint = "end that process first; if it hangs or is cut off and cannot be ended, use --take-over (take_over=True)"
    return CheckpointInUseError(msg, name="checkpoint", hint=hint)


def _free(objects: Conditions, seen: _Seen, pause: Callable[[float], object]) -> _Seen:
    """Look at the object until its holder has ended, or has not renewed it for long; return it as it is then."""
    if not seen.is_free:
        _log.warning("the checkpoint was held by %s: looking whether it still is", process_told(seen.data))
    still_s = waited_s = 0.0
    while not seen.is_free and still_s < _STILL_S:
        pause(_LOOK_S)
        waited_s += _LOOK_S
        now = _Seen(*objects.get())
        still_s = still_s + _LOOK_S if now.tag == seen.tag else 0.0
        is_brief = now.facts.get("briefly") is True and waited_s < BRIEF_WAIT_S
        if now.tag != seen.tag and not now.is_free and not is_brief:
            raise in_use(now.data)
        seen = now
    return seen
