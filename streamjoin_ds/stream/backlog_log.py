"""What a driver logs about backlogs: once that a join falls behind its input, and once that it has caught up."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from streamjoin_ds.source.feed import BacklogFacts
from streamjoin_ds.spec import duration_text
from streamjoin_ds.stream.lasting import TOLD_BATCHES, Lasting

__all__ = ["BacklogLog"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BacklogLog:
    """Whether a driver has logged that its join falls behind.

    It does when batch after batch leaves more than the one before: a join that works off what was there at its start
    leaves less with each. It has caught up when they leave no more than they read.
    """

    _behind: Lasting = field(default_factory=Lasting)
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
        turns = self._behind.turns(total.rows <= read if self._behind.is_told else total.rows > max(self._before, read))
        self._before = total.rows
        if not turns:
            return
        if not self._behind.is_told:
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
