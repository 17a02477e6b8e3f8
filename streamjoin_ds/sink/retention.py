"""How long a table keeps what it no longer needs, chosen for a commit a trigger, and read back from its properties.

At four commits a second a log of six hours is 86 400 entries, 90 MB; what a checkpoint of the log holds beyond the live
files are those that compaction replaced within six hours. An option that a user has set is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["deleted_file_retention_s", "log_retention_s", "missing_properties", "new_properties"]

LOG_RETENTION = "delta.logRetentionDuration"
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_CHOSEN = {
    CHECKPOINT_INTERVAL: "1000",
    LOG_RETENTION: "interval 6 hours",
    DELETED_FILE_RETENTION: "interval 6 hours",
}
# What earlier versions of this package set when they made a table.
_FORMER = {CHECKPOINT_INTERVAL: "100", LOG_RETENTION: "interval 24 hours"}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = re.compile(r"(\d{1,9})\s+([a-z]+?)s?(?:\s+|$)")


def new_properties() -> dict[str, str]:
    """The properties that a new table gets."""
    return dict(_CHOSEN)


def missing_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """What a table that was made earlier lacks: properties that nobody has set."""
    return {key: value for key, value in _CHOSEN.items() if configuration.get(key) in (None, _FORMER.get(key))}


def log_retention_s(configuration: Mapping[str, str]) -> int | None:
    """Seconds that entries of the log are kept; None: for ever, or for a time that is not understood."""
    if configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    return _seconds(configuration.get(LOG_RETENTION, "interval 30 days"))


def deleted_file_retention_s(configuration: Mapping[str, str]) -> int | None:
    """Seconds that a file is kept after it was removed from the table; None: a time that is not understood."""
    return _seconds(configuration.get(DELETED_FILE_RETENTION, "interval 1 week"))


def _seconds(interval: str) -> int | None:
    parts = interval.strip().lower().removeprefix("interval").strip()
    total, rest = 0, parts
    while rest:
        match = _PART.match(rest)
        if match is None or match[2] not in _SECONDS:
            return None
        total += int(match[1]) * _SECONDS[match[2]]
        rest = rest[match.end() :]
    return total or None
