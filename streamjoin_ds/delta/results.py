"""What a table of matches says of the join that writes it, and the order in which its rows are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["EVENT_TIME", "JOIN_ID_KEY", "order_columns", "punctuation_app", "punctuation_us"]

EVENT_TIME = "event_time"
JOIN_ID_KEY = "streamjoin.joinId"
_WINDOW_ID = "window_id"


def punctuation_app(join_id: str) -> str:
    """Return the application id whose version is a join's last punctuation, in microseconds UTC."""
    return f"streamjoin/{join_id}#punctuation"


def punctuation_us(configuration: Mapping[str, str], transactions: Mapping[str, int]) -> int | None:
    """Return the newest punctuation: all results with an older ``event_time`` are in the table. None: none is known.

    Parameters
    ----------
    configuration : mapping
        The table's properties.
    transactions : mapping
        The last version of each application id.
    """
    return transactions.get(punctuation_app(str(configuration.get(JOIN_ID_KEY))))


def order_columns(names: Sequence[str]) -> list[str]:
    """Return the columns by which results are read in order: ``event_time``, each ``*_seq``, then ``window_id``."""
    numbers = [name for name in names if name.endswith("_seq")]
    return [EVENT_TIME, *numbers, *(name for name in names if name == _WINDOW_ID)]
