"""Count windows: the last k tuples of each stream (PIM-Tree, section 2.1: tuple-based sliding windows).

A tuple *j* is in the window that a tuple *i* of another stream meets iff *j* is among the last ``k`` of its stream that
precede *i* in the source's order (see `order`). Whichever of two tuples comes later meets the window of the other's
stream, so with ``n`` a tuple's number and ``b`` how many tuples of the other's stream precede it, a pair is eligible
iff

::

    b(l) - n(r) <= k_r      and      b(r) - n(l) <= k_l

Both are asked of every pair and one of them always holds: if *r* precedes *l*, no more than the first ``n(l)`` tuples
of l's stream precede *r*, so ``b(r) - n(l) <= 0``, and the first says that *r* is one of the last ``k_r`` before *l*.

The tuples that count are the stream's records, by their numbers: a record that is late, broken, or has no value to
compare takes its place among the last ``k`` and matches nothing. So the window is a function of the source's order
alone: it does not depend on delays, on how the input is cut into batches, or on which columns the join reads.

Punctuations stay true. A result is found in the batch that brings the last of its tuples. That tuple is not late, so it
is not older than the largest time before it in its stream minus the delay, hence not than the low watermark of the
batch before; and a result's ``event_time`` is the largest of its tuples' times. So what a later batch finds has
``event_time >= p`` of every batch before it, in whatever order the tuples came: the kind of window has no part in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamjoin_ds.errors import WindowError
from streamjoin_ds.spec.columns import SEQ
from streamjoin_ds.spec.window import WindowRule, each_stream

__all__ = ["MAX_COUNT", "CountWindow", "before_column"]

# Numbers are below 2^62, so that differences of them are int64; a window longer than any memory is a mistake.
MAX_COUNT = 1 << 40
_FAR = 1 << 62

_HINT = "for example 'last 1000', or 'r=last 1000,s=last 500'"
_TEXT = re.compile(r"\s*last\s+([0-9][0-9_]{0,20})(?:\s+(?:tuples?|rows?))?\s*", re.IGNORECASE)


def before_column(stream: str) -> str:
    """Name of the inside column that says how many tuples of `stream` precede a tuple."""
    return f"_before_{stream}"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The last ``k`` tuples of each stream that precede a tuple in the source's order.

    Parameters
    ----------
    counts : tuple of int
        ``k``, one a stream, in the order of the join's streams; 0 to 2^40. 0: its tuples meet only what came before.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        for count in self.counts:
            if type(count) is not int or not 0 <= count <= MAX_COUNT:
                msg = f"a count window is not a number of tuples between 0 and {MAX_COUNT}"
                raise WindowError(msg, name="window", hint=_HINT)

    @property
    def kind(self) -> str:
        """``"count"``."""
        return "count"

    @property
    def streams(self) -> int:
        """How many streams it is for."""
        return len(self.counts)

    def extent(self, stream: int) -> int:
        """``k`` of the stream with this number."""
        return self.counts[stream]

    def rules(self, streams: Sequence[str]) -> list[WindowRule]:
        """Two for each pair of streams: the right tuple in the left one's window of its stream, and the reverse."""
        rules = []
        for left in range(len(streams)):
            for right in range(left + 1, len(streams)):
                before_left, before_right = before_column(streams[left]), before_column(streams[right])
                rules.append(WindowRule(left, right, -_FAR, self.extent(right), before_right, SEQ))
                rules.append(WindowRule(left, right, -self.extent(left), _FAR, SEQ, before_left))
        return rules

    def stamps(self, stream: int, streams: Sequence[str]) -> tuple[str, ...]:
        """How many tuples of each other stream precede a tuple."""
        return tuple(before_column(name) for number, name in enumerate(streams) if number != stream)

    def lowest_kept(self, stream: int, watermark_us: int | None, next_seq: int | None) -> int | None:
        """``next_seq - k``: whatever comes next, on any stream, comes after the tuples numbered below ``next_seq``."""
        del watermark_us
        return None if next_seq is None else next_seq - self.extent(stream)

    def to_facts(self) -> dict[str, object]:
        """The window as plain JSON values."""
        return {"kind": self.kind, "counts": list(self.counts)}

    @classmethod
    def is_text(cls, text: object) -> bool:
        """Whether a text is meant as a count window: it begins with "last"."""
        return isinstance(text, str) and text.strip().lower().startswith("last")

    @classmethod
    def of(cls, window: str | Mapping[str, str], streams: Sequence[str]) -> CountWindow:
        """``"last 1000"`` for all streams, ``{"r": "last 1000", "s": "last 500"}``, or the text ``r=last 1000,...``.

        Raises
        ------
        WindowError
            Another form, or not one for each stream.
        """
        windows = each_stream(window, streams)
        if windows is None:
            return cls((_count(window, "window"),) * len(streams))
        return cls(tuple(_count(windows[name], f"window of {name}") for name in streams))

    def describe(self, streams: Sequence[str]) -> str:
        """``last 1000`` or ``r=last 1000, s=last 500``."""
        if len(set(self.counts)) == 1:
            return f"last {self.counts[0]}"
        return ", ".join(f"{name}=last {count}" for name, count in zip(streams, self.counts, strict=True))


def _count(text: object, what: str) -> int:
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"{what} is not a number of tuples"
        raise WindowError(msg, name=what, hint=_HINT)
    return int(match[1].replace("_", ""))
