"""The lease of a checkpoint in an object store, which has no locks: one object, put on conditions.

::

    no object           put "if there is none"            whoever is first drives
    while it drives     put again every 5 s "if it is     another one took it: the query is stopped
                        as I put it"
    object is there     look at it for 20 s: it changes   in use, refused by name
                        it stands still                   put "if it is as I saw it": taken over

No clock of another machine counts: who waits measures by its own. A driver that sleeps for longer than the lease and
wakes up again finds it taken, and loses at the tables as ever.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from time import sleep

from streamjoin_ds.blocks.conditional import Conditional
from streamjoin_ds.errors import ArgumentError, CheckpointInUseError, StreamJoinError
from streamjoin_ds.machine import process_facts, process_told

__all__ = ["Lease", "leased"]

_RENEW_S = 5.0  # seconds between two renewals
_STILL_S = 20.0  # a lease that stands still for so long is nobody's
_LOOK_S = 1.0  # seconds between two looks at it
_log = logging.getLogger(__name__)


class Lease:
    """A lease that this process holds and renews.

    Parameters
    ----------
    objects : Conditional
        The object.
    tag : str
        Its entity tag, as this process put it.
    """

    def __init__(self, objects: Conditional, tag: str, briefly: bool) -> None:
        self._objects, self._tag, self._briefly = objects, tag, briefly
        self._ended = threading.Event()
        self.is_lost = False
        self.when_lost: Callable[[], object] | None = None  # called once another process has taken it
        threading.Thread(target=self._renew, name="streamjoin-lease", daemon=True).start()

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_S):
            try:
                tag = self._objects.put(_facts(self._briefly), if_tag=self._tag)
            except StreamJoinError as error:  # the checkpoint cannot be written either, and the query ends by itself
                _log.warning("the lease of the checkpoint cannot be renewed: %s", error.message)
                continue
            if tag is None and not self._ended.is_set():
                self._lose()
                return
            self._tag = tag or self._tag

    def _lose(self) -> None:
        self.is_lost = True
        _log.error("another driver has taken the checkpoint over: the query of this process is stopped")
        if self.when_lost is not None:
            self.when_lost()

    def release(self) -> None:
        """Let another driver begin at once."""
        self._ended.set()
        if not self.is_lost:
            try:
                self._objects.remove()
            except StreamJoinError as error:
                _log.debug("the lease is not removed: %s", error.message)


def leased(location: str, *, take_over: bool = False, briefly: bool = False) -> Lease:
    """Take the lease of an object and return it.

    Parameters
    ----------
    location : str
        The object.
    take_over : bool, keyword-only
        Take it at once, although it may be held.
    briefly : bool, keyword-only
        See `lock.driving`.

    Raises
    ------
    CheckpointInUseError
        Another process renews it.
    ArgumentError
        The store does not heed conditions.
    DependencyMissingError
        botocore is not installed.
    StoreUnreachableError, StoreAccessError
        The store does not answer, or refuses.
    """
    objects = Conditional(location)
    facts = _facts(briefly)
    tag = objects.put(facts, if_none=True)
    if tag is not None:
        if objects.put(facts, if_none=True) is not None:
            objects.remove()
            msg = "the object store of the checkpoint does not heed conditions (If-None-Match), so it cannot be locked"
            hint = (
                "use a store that does, as Amazon S3 and newer versions of MinIO do, or a checkpoint on a shared disk"
            )
            raise ArgumentError(msg, name="checkpoint", hint=hint)
        return Lease(objects, tag, briefly)
    holder, seen = objects.get()
    if not take_over:
        _log.warning("the checkpoint was held by %s: looking whether it still is", process_told(holder))
        for _ in range(round(_STILL_S / _LOOK_S)):
            sleep(_LOOK_S)
            now, found = objects.get()
            if found is None:  # it was released
                return leased(location, take_over=take_over, briefly=briefly)
            if found != seen:
                msg = f"the checkpoint is in use by {process_told(now)}"
                hint = (
                    "end that process first; if it hangs or is cut off and cannot be ended, use --take-over "
                    "(take_over=True)"
                )
                raise CheckpointInUseError(msg, name="checkpoint", hint=hint)
    tag = objects.put(facts, if_tag=seen) if seen else None
    if tag is None:  # somebody was quicker
        return leased(location, take_over=take_over, briefly=briefly)
    return Lease(objects, tag, briefly)


def _facts(briefly: bool) -> bytes:
    """Return who holds the lease; no two texts are alike, so neither are the entity tags."""
    return json.dumps({**process_facts(), "briefly": briefly, "mark": uuid.uuid4().hex}).encode()
