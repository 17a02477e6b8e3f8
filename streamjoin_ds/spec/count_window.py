"""Count windows: the last k tuples of each stream (PIM-Tree, section 2.1: tuple-based sliding windows).

A tuple *j* is in the window that a tuple *i* of another stream meets iff *j* is among the last ``k`` of its stream that
precede *i* in the source's order (see `order`). The later of two tuples meets the window of the other's stream. Let
``n`` be a tuple's number, and ``b`` how many tuples of the other's stream precede it. Then a pair is eligible iff

::

    b(l) - n(r) <= k_r      and      b(r) - n(l) <= k_l

Both are tested for every pair, and one of them always holds. If *r* precedes *l*, at most the first ``n(l)`` tuples of
l's stream precede *r*, so ``b(r) - n(l) <= 0``; the other test says that *r* is one of the last ``k_r`` before *l*.

The tuples that count are the stream's records, by their numbers. A record that is late, broken, or has no value to
compare takes its place among the last ``k`` and matches nothing. So the window is a function of the source's order
alone: it does not depend on delays, on how the input is cut into batches, or on which columns the join reads.

Punctuations stay true. A result is found in the batch that brings the last of its tuples. That tuple is not late, so it
is not older than the largest time before it in its stream minus the delay. Hence it is not older than the watermark of
the batch before. A result's ``event_time`` is the largest of its tuples' times. So a result of a later batch has
``event_time >= p`` for the ``p`` of every batch before, in whatever order the tuples came. The kind of window does not
matter for this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamjoin_ds.errors import WindowError
from streamjoin_ds.spec.columns import SEQ
from streamjoin_ds.spec.window import WindowRule, each_stream

__all__ = ["MAX_COUNT", "CountWindow", "before_column"]

# The largest k: a window that is longer than any memory is a mistake.
MAX_COUNT = 1 << 40
# Numbers of tuples are below this, so that a difference of two fits int64. As a bound it refuses no pair.
_FAR = 1 << 62

_HINT = "for example 'last 1000', or 'r=last 1000,s=last 500'"
_TEXT = re.compile(r"\s*last\s+([0-9][0-9_]{0,20})(?:\s+(?:tuples?|rows?))?\s*", re.IGNORECASE)


def before_column(stream: str) -> str:
    """Return the name of the inside column that says how many tuples of `stream` precede a tuple."""
    return f"_before_{stream}"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The last ``k`` tuples of each stream that precede a tuple in the source's order.

    Parameters
    ----------
    counts : tuple of int
        ``k`` for each stream, in the order of the join's streams; 0 to 2^40. With 0 the stream's tuples meet only
        tuples that came before them.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        for count in self.counts:
            if type(count) is not int or not 0 <= count <= MAX_COUNT:
                msg = f"a count window must be a whole number of tuples, from 0 to {MAX_COUNT}"
                raise WindowError(msg, name="window", hint=_HINT)

    @property
    def kind(self) -> str:
        """``"count"``."""
        return "count"

    @property
    def streams(self) -> int:
        """How many streams the window is for."""
        return len(self.counts)

    def extent(self, stream: int) -> int:
        """Return ``k`` of the stream with this number."""
        return self.counts[stream]

    def rules(self, streams: Sequence[str]) -> list[WindowRule]:
        """Return two rules for each pair of streams: ``b(l) - n(r) <= k_r`` and ``b(r) - n(l) <= k_l``."""
        rules = []
        for left in range(len(streams)):
            for right in range(left + 1, len(streams)):
                before_left, before_right = before_column(streams[left]), before_column(streams[right])
                rules.append(WindowRule(left, right, -_FAR, self.extent(right), before_right, SEQ))
                rules.append(WindowRule(left, right, -self.extent(left), _FAR, SEQ, before_left))
        return rules

    def stamps(self, stream: int, streams: Sequence[str]) -> tuple[str, ...]:
        """Return a column for each other stream: how many of its tuples precede a tuple."""
        return tuple(before_column(name) for number, name in enumerate(streams) if number != stream)

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """Return ``next_seq - k``: the tuples to come, on any stream, come after those numbered below ``next_seq``."""
        del watermark_us
        return None if next_seq is None else next_seq - self.extent(stream)

    def to_facts(self) -> dict[str, object]:
        """Return the window as plain JSON values."""
        return {"kind": self.kind, "counts": list(self.counts)}

    @classmethod
    def is_text(cls, text: object) -> bool:
        """Whether a text is meant as a count window: it begins with "last"."""
        return isinstance(text, str) and text.strip().lower().startswith("last")

    @classmethod
    def of(cls, window: str | Mapping[str, str], streams: Sequence[str]) -> CountWindow:
        """Return the window that was written.

        ``"last 1000"`` is for all streams, ``{"r": "last 1000", "s": "last 500"}`` or ``r=last 1000,s=last 500`` gives
        one for each.

        Raises
        ------
        WindowError
            The window has another form, or there is not one for each stream.
        """
        windows = each_stream(window, streams)
        if windows is None:
            return cls((_count(window, "window"),) * len(streams))
        return cls(tuple(_count(windows[name], f"window of {name}") for name in streams))

    def describe(self, streams: Sequence[str]) -> str:
        """Return the window as a user writes it: ``last 1000`` or ``r=last 1000, s=last 500``."""
        if len(set(self.counts)) == 1:
            return f"last {self.counts[0]}"
        return ", ".join(f"{name}=last {count}" for name, count in zip(streams, self.counts, strict=True))


def _count(text: object, what: str) -> int:
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"the {what} is not of the form 'last k', with a whole number of tuples"
        raise WindowError(msg, name=what, hint=_HINT)
    return int(match[1].replace("_", ""))
