"""Every number of the engine that was chosen, not given: thresholds, sizes, ratios. One frozen object has all of them.

::

    WindowJoin(tuning=...) ──► WindowForm ──► choice of layouts, policies, windows, grids    bound once, by constructors

No row of a result depends on one. They are no options: a user does not set them, and any version may change them. A
test passes a small one, so that a handful of rows does what a million do. Limits of types, formats and kernels are not
here; they stay beside what they limit. Each field says its unit, what it bounds, and how it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT", "TailTuning", "Tuning"]


@dataclass(frozen=True, slots=True)
class TailTuning:
    """The newest tuples of a window, in order of arrival (`storage/tail.py`)."""

    rows: int = 4096
    """Rows that a tail holds at most. Every probe scans them: so many are in the second-level cache, and take a probe
    about a microsecond (measured). A saved state may have a tail of so many rows: fewer here refuse it."""

    most_arrived_rows: int = 1024
    """Rows of one stream and push that still go to the tail; more become a run at once. Not measured: a quarter of the
    tail, so that it is not sealed for every push."""

    most_pieces: int = 32
    """Arrow arrays of a column without a fixed width that may wait to be put together, besides one for each doubling of
    the tail's rows. Not measured; it bounds how often a row is copied."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What the engine is tuned with, a group for each noun of its rooms."""

    tail: TailTuning = TailTuning()
    # Those of the rooms `probe` and `threads` are still constants of their modules; their groups belong here too.


DEFAULT = Tuning()
