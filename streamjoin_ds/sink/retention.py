"""How long a table keeps log entries and replaced files: chosen when it is made, and read back from its properties.

The choice is for a commit in every trigger. At four commits a second a log of six hours is 86 400 entries, 90 MB.
Beyond the live files a checkpoint of the log then holds only those that compaction replaced within six hours. A
property that a user has set is left as it is.
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
# What earlier versions of this package set when they made a table. Such a value counts as set by nobody.
_FORMER = {CHECKPOINT_INTERVAL: "100", LOG_RETENTION: "interval 24 hours"}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = re.compile(r"(\d{1,9})\s+([a-z]+?)s?(?:\s+|$)")


def new_properties() -> dict[str, str]:
    """Return the properties that a new table gets."""
    return dict(_CHOSEN)


def missing_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a table made earlier lacks: those that no user has set."""
    return {key: value for key, value in _CHOSEN.items() if configuration.get(key) in (None, _FORMER.get(key))}


def log_retention_s(configuration: Mapping[str, str]) -> int | None:
    """Return for how many seconds entries of the log are kept; None: for ever, or for a time that is not understood."""
    if configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    return _seconds(configuration.get(LOG_RETENTION, "interval 30 days"))


def deleted_file_retention_s(configuration: Mapping[str, str]) -> int | None:
    """Return for how many seconds a file is kept after it left the table; None: for a time that is not understood."""
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
