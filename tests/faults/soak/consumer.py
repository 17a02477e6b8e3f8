"""A consumer beside the join: it follows the matches in order, compacts them, and deletes some that it has read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.reader import Follower
from tests.support.kinds import told

__all__ = ["DELETED_COLUMN", "DELETED_REST", "DELETED_STEP", "Consumer"]

# Of what it has read it deletes the results with these ids of the first stream.
DELETED_COLUMN, DELETED_STEP, DELETED_REST = "l_id", 97, 3


class Consumer:
    """A consumer that follows one table.

    Attributes
    ----------
    followed : list of pyarrow.Table
        What the follower gave, in its order: event times, and the facts of results.
    deleted_before_us : int
        Results older than this, with the ids to delete, are gone from the table.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._follower: Follower | None = None
        self.followed: list[pa.Table] = []
        self.deleted_before_us = self.punctuation_us = 0

    def read_on(self) -> int:
        """Read what is new; return how many results it was."""
        if self._follower is None:
            if not DeltaTable.is_deltatable(self._path):
                return 0
            self._follower = Follower(self._path)
        count = 0
        for punctuation_us, rows in self._follower.poll():
            self.punctuation_us = max(self.punctuation_us, punctuation_us or 0)
            if rows.num_rows:
                self.followed.append(rows.select([EVENT_TIME, *told(rows.column_names)]))
                count += rows.num_rows
        return count

    def begin_anew(self) -> None:
        """Go on with a new follower from where the last one was, as a consumer that was restarted."""
        if self._follower is not None:
            self._follower = Follower(self._path, from_version=self._follower.next_version)

    def optimize(self) -> None:
        """Compact the table beside the join."""
        if self._follower is not None:
            compact(self._path)

    def delete(self) -> int:
        """Delete results that were followed; return how many rows went."""
        if self._follower is None or not self.punctuation_us:
            return 0
        before_us = self.punctuation_us
        condition = (
            f"{DELETED_COLUMN} % {DELETED_STEP} = {DELETED_REST} "
            f"AND event_time < arrow_cast({before_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        )
        try:
            metrics = DeltaTable(self._path).delete(condition)
        except CommitFailedError:  # a batch was committed meanwhile, so nothing was deleted; the next look tries again
            return 0
        self.deleted_before_us = before_us
        return int(metrics["num_deleted_rows"])
