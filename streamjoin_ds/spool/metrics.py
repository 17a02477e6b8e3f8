"""What an intake counts: a line at an interval, and a small file that says how it stands."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["STATUS_FILE", "Counts", "line", "write_status"]

_log = logging.getLogger(__name__)

STATUS_FILE = "_status.json"  # readers of a folder pass over names that begin so


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
