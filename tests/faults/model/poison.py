"""Files of a folder, some of them bad: what can be read of each, and the one record that stands for the rest."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.faults.model.values import field_text
from tests.support.local_times import shown

__all__ = ["BROKEN", "HEADER", "LONGEST_LINE", "InputFile", "files_of", "line_at", "line_of", "text_of"]

BROKEN = "what is this,1"
HEADER = "ts,x,y\n"
LONGEST_LINE = 300
"""Bytes of a line, while a run lasts that has bad files; those of the model's rows have a tenth of it."""


@dataclass(frozen=True)
class InputFile:
    """A file as it will be when it is whole.

    Attributes
    ----------
    at_once : bool
        Whether it appears whole; otherwise it may grow at any byte.
    records : list of dict
        The records that are read from it. A rest that is set aside is one record without a time.
    lines : list of int
        The line where each of them begins, from 1.
    """

    name: str
    data: bytes
    at_once: bool
    records: list[dict[str, Any]]
    lines: list[int]


def line_of(row: dict[str, Any], sign: str = ",", null: str = "") -> str:
    """Return a record as CSV, without the newline: between its fields is the sign, and a field without a value null.

    One without a time, which stands first, cannot be read.
    """
    fields = [field_text(value) or null for value in row.values()]
    odd = {*sign, " "} if sign != "," else set[str]()
    fields = [f'"{text}"' if odd & {*text} and text[0] != '"' else text for text in fields]
    return BROKEN if next(iter(row.values())) is None else sign.join(fields)


def text_of(
    rows: Sequence[dict[str, Any]],
    skip_lines: int = 0,
    header: int = 1,
    comment: str | None = None,
    delimiter: str = ",",
    null_values: str | None = None,
    encoding: str = "utf-8",
    time_format: str | None = None,
    timezone: str | None = None,
) -> bytes:
    """Return records as CSV, below lines that are passed over and a header, with comments; there is at least one."""
    if time_format is not None:
        rows = [row | {"ts": _time_text(row["ts"], time_format, timezone or "UTC")} for row in rows]
    sign = {"tab": "\t", "blanks": " \t "}.get(delimiter, delimiter)
    lines = ["note, 1"] * skip_lines + [sign.join(rows[0]), sign.join(("a", "units")), sign.join(('""', "b"))][:header]
    for number, row in enumerate(rows):
        lines += [f'{comment} "a, note'] * (comment is not None and number % 3 == 0)
        lines.append(line_of(row, sign, null_values or ""))
    return "".join(f"{line}\n" for line in lines).encode(encoding)


def _time_text(time: int | datetime | None, time_format: str, timezone: str) -> str | None:
    """Return an event time, or what a clock shows, as a text of a form."""
    local = shown(timezone, time) if isinstance(time, int) else time
    return None if local is None else local.strftime(time_format)


def line_at(number: int, skip_lines: int = 0, header: int = 1, comment: str | None = None) -> int:
    """Return the line of a record in such a text, from 1."""
    return skip_lines + header + number + 1 + (comment is not None) * (number // 3 + 1)


def files_of(name: str, rows: Sequence[dict[str, Any]], seed: int) -> tuple[InputFile, ...]:
    """Return the rows as a few files, with bad files among them; no row is lost in a bad file."""
    dice = random.Random(f"files {name} {seed}")
    cuts = sorted(dice.sample(range(1, len(rows)), min(dice.choice((1, 2, 3)), len(rows) - 1)))
    files: list[InputFile] = []
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if dice.random() < 0.3:
            files.append(_unreadable(f"{len(files):02d}", dict.fromkeys(rows[0]), dice))
        files.append(_file(f"{len(files):02d}", rows[first:last], dice))
    return tuple(files)


def _unreadable(stem: str, nothing: dict[str, Any], dice: random.Random) -> InputFile:
    """Return a file of which nothing can be read: garbage in place of gzip, or a header without the event time."""
    if dice.random() < 0.5:
        return InputFile(f"{stem}.csv.gz", b"this is not gzip", True, [nothing], [1])
    return InputFile(f"{stem}.csv", b"at,z,y\n1,1,1\n", True, [nothing], [1])


def _file(stem: str, rows: Sequence[dict[str, Any]], dice: random.Random) -> InputFile:
    """Return rows that can be read, and after them nothing, a gzip's missing end, or a line that is too long."""
    text = text_of(rows)
    lines = list(range(2, len(rows) + 2))
    bad = dice.choice(("", "", "cut", "long"))
    if bad:
        rows, lines = [*rows, dict.fromkeys(rows[0])], [*lines, len(rows) + 2]
    if bad == "long":
        text += b"9" * (LONGEST_LINE + 100) + f"\n{line_of(rows[0])}\n".encode()
    packed = bad == "cut" or (not bad and dice.random() < 0.3)
    if packed:
        packer = zlib.compressobj(wbits=31)
        text = packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)
        rest = packer.compress(dice.randbytes(40).hex().encode() if bad else b"") + packer.flush()
        text += rest[:6] if bad else rest  # the part that is cut holds the end of no line
    return InputFile(f"{stem}.csv{'.gz' if packed else ''}", text, packed, list(rows), lines)
