"""What the streams bring: how many tuples a second, and how many of them a window holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.spec import BoundJoin

__all__ = ["Load"]


@dataclass(frozen=True, slots=True)
class Load:
    """Rates and window sizes of a join's streams, in their order. A layout is chosen by them.

    Parameters
    ----------
    rates : tuple of float
        Tuples a second, finite and >= 0. Where only their proportions are known, any unit will do.
    held_rows : tuple of float
        Rows of each stream's full window (DP-Join, section IV-B: ``rate * window``), finite and >= 0.

    Raises
    ------
    LayoutError
        There is no stream, the two tuples differ in length, or a value is negative or not finite.
    """

    rates: tuple[float, ...]
    held_rows: tuple[float, ...]

    def __post_init__(self) -> None:
        hint = "give tuples a second, one number for each stream"
        if not self.rates or len(self.held_rows) != len(self.rates):
            msg = "a load needs a rate and a window for each stream"
            raise LayoutError(msg, name="rates", hint=hint)
        if any(not math.isfinite(value) or value < 0 for value in (*self.rates, *self.held_rows)):
            msg = "rates and windows must be finite and not negative"
            raise LayoutError(msg, name="rates", hint=hint)

    @classmethod
    def of_windows(cls, rates: Sequence[float], windows: Sequence[float] | None = None) -> Load:
        """Return the load of streams whose windows are times: a window holds ``rate * window`` rows.

        Parameters
        ----------
        rates : sequence of float
            Tuples a second, one for each stream.
        windows : sequence of float, optional
            Each stream's window in seconds; all equal where not given.
        """
        windows = [1.0] * len(rates) if windows is None else windows
        if len(windows) != len(rates):
            return cls(tuple(rates), tuple(windows))  # refused there
        return cls(tuple(rates), tuple(rate * window for rate, window in zip(rates, windows, strict=True)))

    @classmethod
    def of_join(cls, bound: BoundJoin, rates: Sequence[float]) -> Load:
        """Return the load of a join at these rates, with the join's windows."""
        window = bound.join.window
        extents = [float(window.extent(stream)) for stream in range(len(bound.names))]
        if window.kind == "count":
            return cls(tuple(rates), tuple(extents))
        return cls.of_windows(rates, [extent_us / 1e6 for extent_us in extents])

    @property
    def pairs_per_s(self) -> float:
        """Combinations inside the windows that a second brings: what a nested loop tests (DP-Join, equations 2 and 3).

        Each new tuple meets the full windows of all other streams. Multiplied by the share that matches, it is the
        largest rate of results that these streams can give.
        """
        total = 0.0
        for stream, rate in enumerate(self.rates):
            others = (rows for number, rows in enumerate(self.held_rows) if number != stream)
            total += rate * math.prod(others)
        return total
