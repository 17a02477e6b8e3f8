"""What a driver logs about backlogs: once that a join falls behind its input, and once that it has caught up."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from streamjoin_ds.source.backlog import BacklogFacts
from streamjoin_ds.spec import duration_text

__all__ = ["TOLD_BATCHES", "BacklogLog"]

_log = logging.getLogger(__name__)

# So many batches in a row must leave more than the one before, or less than they read, before that is logged. A join
# that works off what was there at its start leaves less with each batch.
TOLD_BATCHES = 20


@dataclass(slots=True)
class BacklogLog:
    """Whether a driver has logged that its join falls behind."""

    _is_told: bool = False
    _batches: int = 0  # batches in a row that contradict what was logged last
    _before: int = 0  # rows that the batch before left

    def tell(self, facts: BacklogFacts, read: int) -> None:
        """Log what is new after a batch.

        Parameters
        ----------
        facts : BacklogFacts
            What the batch's offset says.
        read : int
            How many records the batch had.
        """
        total = facts.total
        is_behind = total.rows <= read if self._is_told else total.rows > max(self._before, read)
        self._before = total.rows
        self._batches = self._batches + 1 if is_behind else 0
        if self._batches < TOLD_BATCHES:
            return
        self._is_told, self._batches = not self._is_told, 0
        if not self._is_told:
            _log.warning("the join has caught up with its input")
            return
        stream = max(facts.streams, key=lambda name: facts.streams[name].rows)
        ahead = "" if total.ahead_us is None else f", {duration_text(round(total.ahead_us, -3))} of event time"
        _log.warning(
            "the join falls behind its input: each of the last %d batches left more than the one before, the newest "
            "%d records%s, most of them of stream %s. Batches are limited by %s",
            TOLD_BATCHES,
            total.rows,
            ahead,
            stream,
            facts.limited_by or "what is there",
        )
