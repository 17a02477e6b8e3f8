"""What a driver logs about delays: once that `max_delay` is not kept, and once that it is kept again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.spec import duration_text
from streamjoin_ds.stream.lasting import TOLD_BATCHES, Lasting

__all__ = ["DelayLog"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class DelayLog:
    """Whether a driver has logged that the bound of delays is not kept."""

    _missed: Lasting = field(default_factory=Lasting)

    def tell(self, facts: DelayFacts | None) -> None:
        """Log what is new after a batch: the bound is no longer kept, or is kept again.

        Parameters
        ----------
        facts : DelayFacts or None
            What the batch's offset says; None where there is no bound.
        """
        if facts is None or facts.delay_us is None:
            return
        is_missed = facts.delay_us > facts.max_delay_us
        if not self._missed.turns(is_missed != self._missed.is_told):
            return
        bound = duration_text(facts.max_delay_us)
        if not is_missed:
            _log.warning("max_delay %s is kept again: in the last %d batches", bound, TOLD_BATCHES)
            return
        _log.warning(
            "max_delay %s is not kept: in the last %d batches tuples may have waited longer, in the newest up to %s, "
            "and %d records still wait. Batches grow as the load needs; more cores or a larger max_delay would help",
            bound,
            TOLD_BATCHES,
            duration_text(round(facts.delay_us, -3)),
            facts.waiting_rows,
        )
