"""Paths into nested values: ``payload.after.temp``, ``params.`switch:0`.apower``, ``values[0].v``.

A part is a field of a struct, or a place in a list, from 0. A name with a dot, a bracket or a back-tick stands in
back-ticks; any other name may.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["EACH", "SENML", "Path", "RecordsForm", "path_of", "path_text", "records_form"]

Path: TypeAlias = tuple[str | int, ...]
_PART = re.compile(r"(?:^|\.)(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([^.`\"\[\]]+))|\[([0-9]{1,9})\]")
_QUOTED = re.compile(r"[.\[\]`\"]")


def path_of(text: str) -> Path | None:
    """Return the parts of a path; None where a text is none."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or (not at and text[0] in ".["):
            return None
        ticked, quoted, plain, place = found.groups()
        if ticked is not None:
            plain = ticked.replace("``", "`")
        elif quoted is not None:
            plain = quoted.replace('""', '"')
        parts.append(int(place) if place is not None else plain)
        at = found.end()
    return tuple(parts) or None


def path_text(parts: Sequence[str | int]) -> str:
    """Return the text of a path, as `path_of` reads it."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = "`" + part.replace("`", "``") + "`" if _QUOTED.search(part) else part
            text += f".{name}" if text else name
    return text


@dataclass(frozen=True, slots=True)
class RecordsForm:
    """Where a text of JSON values has its records: what ``records`` of `Files` says.

    Attributes
    ----------
    rows : tuple of str
        The path of the array of them; empty in the two named forms.
    names : tuple of str
        The path of an array with the names of columns; empty if records have their own.
    kind : str
        "array", or a named form: "$" (each value) or "senml".
    """

    rows: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    kind: str = "array"


EACH, SENML = RecordsForm(kind="$"), RecordsForm(kind="senml")
_STROKE = re.compile(r"/(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside of back-ticks


def records_form(text: str) -> RecordsForm | None:
    """Return the form of records that a text names; None where it names none."""
    text = text.strip()
    named = {"$": EACH, "$[*]": EACH, "senml": SENML}.get(text)
    if named is not None:
        return named
    paths = [_array_path(part) for part in _STROKE.split(text)]
    if len(paths) > 2 or not all(paths):
        return None
    *names, rows = [path for path in paths if path is not None]
    return RecordsForm(rows, names[0] if names else ())


def _array_path(text: str) -> tuple[str, ...] | None:
    """Return the path of an array, which JSONPath writes ``$.values[*]``."""
    path = path_of(text.strip().removeprefix("$.").replace("[*]", ""))
    names = tuple(part for part in path or () if isinstance(part, str))
    return names if path is not None and len(names) == len(path) else None
