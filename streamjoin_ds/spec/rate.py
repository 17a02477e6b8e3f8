"""A rate: tuples a second that a stream brings."""

from __future__ import annotations

import math

from streamjoin_ds.errors import ArgumentError

__all__ = ["checked_rate", "rate_from_text"]

_HINT = "tuples a second, for example 20000"


def checked_rate(rate: object, name: str) -> float | None:
    """Return a rate as a float, or None where none is given.

    Raises
    ------
    ArgumentError
        It is not a finite number greater than 0.
    """
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0 or not math.isfinite(rate):
        msg = f"the rate of {name} must be a number greater than 0"
        raise ArgumentError(msg, name="rate", hint=_HINT)
    return float(rate)


def rate_from_text(text: str, name: str) -> float | None:
    """Return the rate that the text of a flag gives.

    Raises
    ------
    ArgumentError
        As `checked_rate`.
    """
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    return checked_rate(rate, name)
