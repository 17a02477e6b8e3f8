"""What a driver logs about rejects: the first of each kind, so that nobody has to look for why a ledger counts some."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RejectLog"]

_log = logging.getLogger(__name__)
_MOST_KINDS = 20  # that are told of one stream


@dataclass(slots=True)
class RejectLog:
    """Which kinds of rejects a driver has logged: a kind is a stream, a column and a reason."""

    _told: dict[str, set[tuple[str | None, str]]] = field(default_factory=dict)

    def tell(
        self,
        reasons: Mapping[str, tuple[str | None, str]],
        rejected: Mapping[str, int],
        read: Mapping[str, int],
        table: str,
    ) -> None:
        """Log what is new after a batch.

        Parameters
        ----------
        reasons : mapping of stream name to (str or None, str)
            The column and the reason of one reject of the batch; no column where the record itself cannot be read.
        rejected, read : mapping of stream name to int
            How many records were rejected, and read.
        table : str
            Where the rejects are.
        """
        for stream, kind in reasons.items():
            told = self._told.setdefault(stream, set())
            if kind in told or len(told) >= _MOST_KINDS:
                continue
            told.add(kind)
            column, reason = kind
            _log.warning(
                "stream %s: %d of the %d records of a batch are rejects, one for this: %s%s. All are in %s",
                stream,
                rejected.get(stream, 0),
                read.get(stream, 0),
                f"column {column}: " if column else "",
                reason,
                table,
            )
