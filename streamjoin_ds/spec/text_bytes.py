"""Texts read byte by byte, all of a column at once: they lie side by side, and each step takes its bytes of all.

Where all texts are alike so far, a step is a slice; else each text has its own place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.spec.columns import Int64, Mask

__all__ = ["BLANKS", "MOST_BYTES", "Numbers", "TextBytes", "text_bytes"]

BLANKS = b" \t\r\n\v\f"
MOST_BYTES = 64  # of a text that can be read
PIECE_ROWS = 1 << 16  # texts that lie side by side, at most

Numbers: TypeAlias = npt.NDArray[Any]


class TextBytes:
    """Texts side by side, as rows of bytes, and the place in each up to which it was read.

    Attributes
    ----------
    at : int or ndarray of int
        The place; one number while all texts that can still be read are alike.
    ok : ndarray, shape (n,), bool
        Which texts were as they should so far.
    """

    def __init__(self, starts: Int64, lengths: Int64, data: npt.NDArray[np.uint8]) -> None:
        self.count = len(starts)
        self.lengths = lengths
        self.ok: Mask = (lengths > 0) & (lengths <= MOST_BYTES)
        self.at: int | Int64 = 0
        width = int(lengths[self.ok].max(initial=0))
        self._rows = np.arange(self.count)
        self._bytes = np.zeros((width + 1, self.count), np.uint8)  # a row of zeros follows the last byte
        for place in range(width):
            inside = self.ok & (place < lengths)
            if inside.all():
                self._bytes[place] = data[starts + place]
            else:
                self._bytes[place, inside] = data[starts[inside] + place]

    def byte(self, ahead: int = 0) -> npt.NDArray[np.uint8]:
        """Return the byte of each text that is so far ahead; 0 behind its end."""
        last = len(self._bytes) - 1
        if isinstance(self.at, int):
            row: npt.NDArray[np.uint8] = self._bytes[min(self.at + ahead, last)]
            return row
        own: npt.NDArray[np.uint8] = self._bytes[np.minimum(self.at + ahead, last), self._rows]
        return own

    def go_on(self, width: Numbers | int) -> None:
        """Move on by so many bytes, each text by its own number of them."""
        if not isinstance(width, int):
            kept = width[self.ok]
            same = not len(kept) or bool((kept == kept[0]).all())
            width = (int(kept[0]) if len(kept) else 0) if same else width.astype(np.int64)
        self.at = self.at + width

    def ended(self) -> Mask:
        """Return which texts were read to their end."""
        done: Mask = self.ok & (self.lengths == self.at)
        return done

    def is_letter(self, ahead: int) -> Mask:
        """Return where an ASCII letter stands."""
        lower = self.byte(ahead) | 32
        return (lower >= ord("a")) & (lower <= ord("z"))

    def run(self, most: int, wanted: Callable[[int], Mask]) -> Numbers:
        """Return how many of the next bytes are wanted ones, at most so many."""
        width, running = np.zeros(self.count, np.uint8), np.ones(self.count, np.bool_)
        for ahead in range(most):
            running &= wanted(ahead)
            width += running
            if not running.any():
                break
        return width

    def digits(self, most: int) -> Numbers:
        """Return how many digits stand next, at most so many."""
        return self.run(most, lambda ahead: self.byte(ahead) - np.uint8(48) <= 9)

    def number(self, least: int, most: int, width: Numbers | None = None) -> Int64:
        """Read a number of so many digits, or of the width that each text has; return it."""
        if least == most and width is None:
            value = np.zeros(self.count, np.int64 if most > 9 else np.int32 if most > 2 else np.uint8)
            for ahead in range(most):
                digit = self.byte(ahead) - np.uint8(48)
                self.ok &= digit <= 9
                value = value * 10 + digit
            self.go_on(most)
            return value.astype(np.int64)
        width = self.digits(most) if width is None else width
        self.ok &= (width >= least) & (width <= most)
        found = np.zeros(self.count, np.int64)
        for ahead in range(int(width[self.ok].max(initial=0))):
            digit = self.byte(ahead) - np.uint8(48)
            inside = ahead < width
            self.ok &= (digit <= 9) | ~inside
            found = np.where(inside, found * 10 + digit, found)
        self.go_on(width)
        return found

    def decimals(self, places: int, there: Mask | None = None) -> Int64:
        """Read the digits of a fraction; return the number that they are with so many digits. More are cut off.

        By default a point or a comma stands before them; else they are there where `there` says so.
        """
        has_point = self.optional(b".,") if there is None else there
        width = np.where(has_point, self.digits(MOST_BYTES), 0)
        self.ok &= ~has_point | (width > 0)
        found = np.zeros(self.count, np.int64)
        for ahead in range(places):
            found = found * 10 + np.where(ahead < width, self.byte(ahead) - np.uint8(48), 0)
        self.go_on(width)
        return found

    def optional(self, bytes_: bytes, may_be: Mask | None = None) -> Mask:
        """Pass over one of these bytes where it stands, and may; return where it did."""
        there = np.isin(self.byte(), np.frombuffer(bytes_, np.uint8)) & self.ok
        there = there if may_be is None else there & may_be
        self.go_on(there.astype(np.uint8))
        return there

    def between(self, bytes_: bytes) -> Numbers:
        """Pass over any of these bytes; return how many there were."""
        wanted = np.frombuffer(bytes_, np.uint8)
        width = self.run(MOST_BYTES, lambda ahead: np.isin(self.byte(ahead), wanted))
        self.go_on(width)
        return width

    def literal(self, text: bytes) -> None:
        """Pass over a text; a letter is the same in both cases."""
        for ahead, code in enumerate(text):
            same = self.byte(ahead) == code
            if chr(code).isalpha() and code < 128:
                same |= self.byte(ahead) == code ^ 32
            self.ok &= same
        self.go_on(len(text))

    def name(self, names: Sequence[str]) -> Int64:
        """Read one of some English names, whole or its first three letters, also with a point; return its number."""
        width = self.run(10, self.is_letter)
        found = np.full(self.count, -1, np.int64)
        letters = [self.byte(ahead) | 32 for ahead in range(max(map(len, names)))]
        for number, name in enumerate(names):
            shorts = {3, len(name)} | ({4} if name == "september" else set())
            for size in shorts:
                same = width == size
                for ahead in range(size):
                    same &= letters[ahead] == ord(name[ahead])
                found[same] = number
        self.ok &= found >= 0
        self.go_on(width)
        self.optional(b".")
        return found

    def sign(self) -> tuple[Mask, Mask]:
        """Return where a plus or a minus stands, and where it is a minus."""
        byte = self.byte()
        return (byte == ord("+")) | (byte == ord("-")), byte == ord("-")

    def words(self, width: Numbers) -> Any:
        """Return the next bytes of each text, so many, as texts."""
        size = int(width[self.ok].max(initial=1))
        rows = [np.where(ahead < width, self.byte(ahead), 0) for ahead in range(size)]
        return np.ascontiguousarray(np.stack(rows, axis=1)).view(f"S{size}").ravel()


def text_bytes(texts: pa.Array) -> list[TextBytes]:
    """Return texts in pieces; blanks around a text do not count, and a null is an empty one."""
    texts = texts.cast(pa.string())
    _, offsets, data = texts.buffers()
    if not len(texts):
        return []
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    starts, stops = ends[:-1].copy(), ends[1:].copy()
    if texts.null_count:
        missing = np.asarray(texts.is_null().to_numpy(zero_copy_only=False))
        stops[missing] = starts[missing]
    blanks = np.isin(np.arange(256), np.frombuffer(BLANKS, np.uint8))
    for side, step, place in ((starts, 1, 0), (stops, -1, -1)):
        while True:
            moved = (stops > starts) & blanks[whole[np.minimum(side + place, len(whole) - 1)]]
            if not moved.any():
                break
            side[moved] += step
    return [
        TextBytes(starts[k : k + PIECE_ROWS], (stops - starts)[k : k + PIECE_ROWS], whole)
        for k in range(0, len(texts), PIECE_ROWS)
    ]
