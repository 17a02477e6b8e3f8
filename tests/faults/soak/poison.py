"""Bad files among the input: what is read of each, and the one record that stands for what is set aside.

::

    cut        gzip that ends in the middle: the lines that can be read are read, the rest is set aside
    long       a line over the limit: the lines before it are read, the rest is set aside
    damaged    no gzip, whatever its name says: all of it is set aside
    drift      a header with other columns: all of it is set aside
    late       a file that sorts before what was read: all of it is set aside
    changed    a file that was read to its end, and has grown since: what it holds now is set aside
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections import Counter
from pathlib import Path

from streamjoin_ds.source.files.text_blocks import MAX_LINE_BYTES
from tests.faults.soak.feeder import HEADER, Feeder

__all__ = ["RESTS", "Poison"]

RESTS = ("cut", "long", "damaged", "drift")
"""Kinds of files that are come to in the order of their names: whoever reads them, and when."""

LATER = ("late", "changed")
"""Kinds that are found where reading stands then: all that was written must be read before, and nothing be written."""

_ROWS = 40
_JUNK = "1,1\n"
_OTHER_HEADER = HEADER.replace("ts", "when", 1)  # every join asks for its event time


class Poison:
    """Puts bad files into the input.

    Parameters
    ----------
    feeder : Feeder
        The writer of the other files.
    dice : random.Random

    Attributes
    ----------
    dropped : Counter of (stream, file)
        What the rejects must name; the file is "" where it was read before.
    """

    def __init__(self, feeder: Feeder, dice: random.Random) -> None:
        self._feeder, self._dice = feeder, dice
        self.dropped: Counter[tuple[str, str]] = Counter()

    def drop(self, name: str, kind: str) -> None:
        """Put a bad file of this kind into the folder of a stream."""
        path: Path = getattr(self, f"_{kind}")(name)
        self._feeder.recorded[name].set_aside()
        self.dropped[name, "" if kind == "changed" else path.name] += 1

    def later(self, name: str) -> tuple[str, ...]:
        """Return the kinds of `LATER` that a stream's folder can have: only a file with one after it was read whole."""
        return LATER if self._read(name) else ("late",)

    def _cut(self, name: str) -> Path:
        recorded = self._feeder.recorded[name]
        before, path = len(recorded), self._next(name, ".csv.gz")
        largest_before_us = recorded.largest_us
        lines, largest_us = self._feeder.lines(name, _ROWS)
        whole = gzip.compress((HEADER + "".join(lines)).encode(), mtime=0)
        content = whole[: self._dice.randrange(12, len(whole) - 9)]
        readable = max(0, zlib.decompressobj(31).decompress(content).count(b"\n") - 1)
        recorded.back_to(before + readable, largest_us[readable - 1] if readable else largest_before_us)
        path.write_bytes(content)
        return path

    def _long(self, name: str) -> Path:
        path = self._next(name, ".csv.gz")
        lines, _ = self._feeder.lines(name, _ROWS // 4)
        with gzip.open(path.with_suffix(".part"), "wb", compresslevel=1) as file:
            file.write((HEADER + "".join(lines)).encode())
            file.write(b"x" * (MAX_LINE_BYTES + 1) + b"\n" + _JUNK.encode())
        return path.with_suffix(".part").rename(path)

    def _damaged(self, name: str) -> Path:
        path = self._next(name, ".csv.gz")
        path.write_bytes(b"this is no gzip\n" + self._dice.randbytes(200))
        return path

    def _drift(self, name: str) -> Path:
        path = self._next(name, ".csv")
        path.write_text(_OTHER_HEADER + _JUNK)
        return path

    def _late(self, name: str) -> Path:
        path = self._feeder.root / name / f"0-{sum(self.dropped.values()):06d}.csv"
        path.write_text(self._dice.choice((HEADER + _JUNK, _OTHER_HEADER, "", "no CSV\0")))
        return path

    def _changed(self, name: str) -> Path:
        path = self._dice.choice(self._read(name))
        with path.open("a") as file:
            file.write(_JUNK)
        return path

    def _read(self, name: str) -> list[Path]:
        return sorted((self._feeder.root / name).glob("[0-9]*.csv"))[:-1]

    def _next(self, name: str, ending: str) -> Path:
        """Return a path that sorts between the file written now and the next one; neither of the two grows any more."""
        self._feeder.next_file(name)
        path = self._feeder.next_file(name)
        return path.with_name(path.name.removesuffix(".csv") + ending)
