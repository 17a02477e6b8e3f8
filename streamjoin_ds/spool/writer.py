"""The writer of a spool's folder: its lock, its segments, and the small file that says how it stands.

One process writes into a folder. The lock goes with the process. The writer appends messages to segments, begins new
segments, and removes old ones if asked to. What an intake counts is a line of the log at an interval, and that file.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from streamjoin_ds.errors import SpoolError, SpoolInUseError
from streamjoin_ds.machine import open_files_hint, process_facts, process_told
from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES, MAX_TOPIC_BYTES, Segment, segment_paths

__all__ = ["LOCK_FILE", "STATUS_FILE", "Counts", "FolderLock", "SpoolLimits", "SpoolWriter", "line", "write_status"]

_log = logging.getLogger(__name__)

LOCK_FILE = ".intake.lock"
STATUS_FILE = "_status.json"  # readers of a folder pass over names that begin so


class FolderLock:
    """Holds the lock of a folder from when it is made.

    Raises
    ------
    SpoolInUseError
        Another process, or another writer of this one, holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 4096)
            self.release()
            msg = f"the spool {folder} is in use by {process_told(holder)}"
            raise SpoolInUseError(
                msg, name=str(folder), hint="end that process first, or give another folder"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(process_facts()).encode(), 0)

    def release(self) -> None:
        """Let go of the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@dataclass(slots=True)
class Counts:
    """What came since the intake began.

    Attributes
    ----------
    messages, payload_bytes : int
        What was written; all of it is on the device.
    syncs : int
        How often the device was waited for.
    repeated : int
        Messages that the broker calls sent again: at most so many are in the folder twice.
    unsafe : int
        Messages that were published at QoS 0: such ones are lost while no intake is connected.
    oversized : int
        Messages that are larger than a spool takes: they were acknowledged and left out, and the log names each.
    lost_offsets : int
        Offsets of a topic whose messages were gone before they were taken (``on_data_loss=skip``).
    refused : int
        Requests that were answered with an error.
    connects : int
        How often a broker was connected to.
    removed_segments : int
        Segments that were older, or more, than is kept.
    last_received_us : int
        When the last message came, microseconds since 1970; 0 for none.
    """

    messages: int = 0
    payload_bytes: int = 0
    syncs: int = 0
    repeated: int = 0
    unsafe: int = 0
    oversized: int = 0
    lost_offsets: int = 0
    refused: int = 0
    connects: int = 0
    removed_segments: int = 0
    last_received_us: int = 0


def line(counts: Counts, before: Counts, seconds: float, elapsed_s: float) -> str:
    """Return one line of counts, with the rate since `before`, which was so many seconds ago."""
    rate = (counts.messages - before.messages) / max(seconds, 1e-9)
    text = (
        f"{elapsed_s:6.1f} s  {counts.messages:,} messages ({rate:,.0f}/s), {counts.payload_bytes / 1e6:,.1f} MB, "
        f"{counts.syncs:,} syncs"
    )
    told = {
        "sent again": counts.repeated,
        "at QoS 0": counts.unsafe,
        "too large": counts.oversized,
        "offsets lost": counts.lost_offsets,
        "requests refused": counts.refused,
    }
    text += "".join(f", {value:,} {name}" for name, value in told.items() if value)
    return text + (f", {counts.removed_segments:,} segments removed" if counts.removed_segments else "")


def write_status(folder: Path, state: str, counts: Counts, **facts: object) -> None:
    """Put the status file in place as a whole. It is not forced to the device: it is for eyes and monitors.

    One that cannot be written is a warning: no message depends on it.
    """
    aside = folder / f".{STATUS_FILE}.new"
    text = json.dumps({"state": state, "pid": os.getpid(), **asdict(counts), **facts}, indent=1) + "\n"
    try:
        aside.write_text(text)
        aside.replace(folder / STATUS_FILE)
    except OSError as error:
        _log.warning("%s cannot be written: %s", STATUS_FILE, error.strerror)


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """When a segment ends, and how long it is kept.

    Parameters
    ----------
    segment_bytes : int
        A segment of this size or more takes no more messages.
    segment_s : float
        A segment whose first message came so many seconds ago takes no more.
    kept_s : float or None
        A segment that has not changed for so many seconds is removed; None keeps it. The newest one always stays.
    kept_bytes : int or None
        The oldest segments are removed while all together are larger; None keeps them.
    """

    segment_bytes: int = 128 << 20
    segment_s: float = 3600.0
    kept_s: float | None = None
    kept_bytes: int | None = None


class SpoolWriter:
    """Appends messages to the segments of one folder. It is a context manager; one process has a folder at a time.

    Parameters
    ----------
    folder : Path
        Made where it is not there.
    limits : SpoolLimits
        When a segment ends, and how long it is kept.
    clock : callable
        Returns seconds since 1970: the time at which messages are received.
    salts : callable
        Returns 64 random bits for each new segment.
    sync : callable
        Forces the bytes of an open file to the device.

    Raises
    ------
    SpoolInUseError
        Another process writes into the folder.
    SpoolError
        The folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        limits: SpoolLimits | None = None,
        *,
        clock: Callable[[], float] = time.time,
        salts: Callable[[], int] = lambda: secrets.randbits(64),
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self.folder = folder
        self._limits = SpoolLimits() if limits is None else limits
        self._clock, self._salts, self._sync = clock, salts, sync
        self._failed = False
        self._segment: Segment | None = None
        self._next = 0
        self._began_s: float | None = None  # when the segment's first message of this process came
        self.removed_segments = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder)
        except OSError as error:
            raise _unusable(folder, "used", error) from None
        try:
            segments = segment_paths(folder)
            if segments:
                self._segment = Segment.recover(segments[-1], self._salts(), sync)
                self._next = self._segment.following
        except OSError as error:
            self._lock.release()
            raise _unusable(folder, "used", error) from None
        except SpoolError:
            self._lock.release()
            raise

    @property
    def next_number(self) -> int:
        """The number of the next message; it counts from the folder's first."""
        return self._next

    @property
    def segment_name(self) -> str:
        """The name of the segment that is written; empty before the first message."""
        return "" if self._segment is None else self._segment.path.name

    def append(self, messages: Sequence[tuple[bytes, bytes]], flags: Sequence[int] = ()) -> int:
        """Write messages, topic and payload of each, and return the number of the first.

        `flags` are those of their frames (`segment`), if there are any. The messages are on the device when this
        returns: now they may be acknowledged.

        Raises
        ------
        SpoolError
            They could not be written. Nothing more can be; a new writer cuts off what is torn.
        """
        if self._failed:
            msg = "the spool could not be written before, so nothing more is"
            raise SpoolError(msg, name=str(self.folder), hint="start again")
        for topic, payload in messages:
            if len(payload) > MAX_PAYLOAD_BYTES or len(topic) > MAX_TOPIC_BYTES:
                msg = f"a message of {len(payload)} bytes is larger than a spool takes"
                raise SpoolError(msg, name="message", hint=f"{MAX_PAYLOAD_BYTES} bytes at most")
        first, now = self._next, self._clock()
        if not messages:
            return first
        try:
            segment = self._current(now)
            segment.append(list(messages), int(now * 1e6), flags)
        except OSError as error:
            self._failed = True
            raise _unusable(self.folder, "written", error) from None
        self._next = segment.following
        return first

    def remove_old(self) -> None:
        """Remove the segments that are older, or more, than is to be kept; never the newest."""
        kept_s, kept_bytes = self._limits.kept_s, self._limits.kept_bytes
        if kept_s is None and kept_bytes is None:
            return
        paths = segment_paths(self.folder)
        facts = [path.stat() for path in paths]
        total = sum(fact.st_size for fact in facts)
        for path, fact in list(zip(paths, facts, strict=True))[:-1]:
            is_old = kept_s is not None and self._clock() - fact.st_mtime > kept_s
            if not is_old and not (kept_bytes is not None and total > kept_bytes):
                break
            path.unlink()
            total -= fact.st_size
            self.removed_segments += 1
            _log.info("the segment %s is removed, as it is older than is kept", path.name)

    def close(self) -> None:
        """Close the segment and give the folder free."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self._lock.release()

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _current(self, now: float) -> Segment:
        limits, segment = self._limits, self._segment
        is_full = segment is not None and segment.size_bytes >= limits.segment_bytes
        is_old = self._began_s is not None and now - self._began_s >= limits.segment_s
        if segment is None or is_full or is_old:
            if segment is not None:
                # The last mark too: whoever sees the next segment reads this one to its end.
                self._sync(segment.descriptor)
                segment.close()
            self._segment = segment = Segment.begin(self.folder, self._next, self._salts(), self._sync)
            self._began_s = None
            self.remove_old()
        self._began_s = now if self._began_s is None else self._began_s
        return segment


def _unusable(folder: Path, what: str, error: OSError) -> SpoolError:
    msg = f"the spool's folder cannot be {what}: {folder}: {error.strerror}"
    hint = open_files_hint(error) or "make room, or check the folder and its rights; then start again"
    return SpoolError(msg, name=str(folder), hint=hint)
