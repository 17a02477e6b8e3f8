"""What a zone's clock shows, by zoneinfo, and the rule which of two meanings it has, a record at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit

__all__ = ["EPOCH", "LocalOrder", "meanings", "shown"]

EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)
_SILENCE_US, _SLACK_US = 30 * 60_000_000, 60_000_000


def shown(zone: str, moment_us: int) -> datetime:
    """Return what the clock of a zone shows at a moment."""
    utc = (EPOCH + moment_us * _US).replace(tzinfo=ZoneInfo("UTC"))
    return utc.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def meanings(zone: str, local: datetime) -> tuple[int, int]:
    """Return the earlier meaning of a local time, and how much later the other one is; below 0: the clock skips it."""
    first, second = (local.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None
    assert second is not None
    return (local - first - EPOCH) // _US, (first - second) // _US


class LocalOrder:
    """The rule of docs/joins/event-time.md, "Local times".

    Parameters
    ----------
    largest : int
        The largest event time before the first record; `NO_TIME` where there is none.
    limit : AheadLimit, optional
        How far a record may be ahead.
    """

    def __init__(self, largest: int = NO_TIME, limit: AheadLimit | None = None) -> None:
        self.largest, self.limit = largest, limit
        self.begin = 0 if largest == NO_TIME else largest
        self.step = self.pace = self.rows = self.rows_before = 0

    def next(self, ts: int, gap: int) -> tuple[int, bool]:
        """Return the time of the next record, and whether it is too far ahead."""
        if gap and self.largest != NO_TIME:
            is_near = abs(ts + gap - self.largest) <= abs(ts - self.largest)
            is_due = self.pace > 0 and self.rows == self.rows_before > 0
            if is_near or (is_due and abs(self.begin + self.pace - ts - gap) <= _SLACK_US):
                ts += gap
        is_far = self.limit is not None and self.largest != NO_TIME and ts > self.largest + self.limit.max_us
        if not is_far:
            self._count(ts)
        return ts, is_far

    def _count(self, ts: int) -> None:
        if self.largest == NO_TIME or ts - self.largest >= _SILENCE_US:
            step = 0 if self.largest == NO_TIME else ts - self.begin
            if step and (not self.pace or abs(step - self.step) <= _SLACK_US):
                self.pace = step
            self.begin, self.step = ts, step
            self.rows, self.rows_before = 1, self.rows
        elif ts > self.begin - _SILENCE_US:
            self.rows += 1
        self.largest = max(self.largest, ts)
