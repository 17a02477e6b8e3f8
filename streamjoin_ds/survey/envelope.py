"""How JSON is laid out: objects in lines, arrays, objects of many lines, arrays within records; and the paths in it.

What an option of the source (`records`) makes of a text is read from the source itself: here stands which values of the
option are worth a trial. A path is written as a column: ``params.ts``, ``values[0].v``, `` `switch:0`.apower ``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.spec.member.stream import STREAM_KEYS

__all__ = ["flattened", "json_columns", "json_values", "layouts"]

_RECORDS = 2000  # that are looked at
_DEPTH = 6  # of paths
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SENML = frozenset(("bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut"))
_TIME_KEY = re.compile(r"time|date|stamp|(^|_)ts($|_)|^t$|_at$", re.IGNORECASE)
_ARRAY_OF_OBJECTS = re.compile(r'"((?:[^"\\]|\\.)+)"\s*:\s*\[\s*\{')


def layouts(text: str, *, is_cut: bool = False) -> list[tuple[str | None, str]]:
    """Return the values of `records` by which a text of JSON may be read, the likeliest first, with what it is then.

    None is a record in each line.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    lines = lines[:-1] if is_cut and len(lines) > 1 else lines
    values = json_values(lines[:_RECORDS])
    if (
        values
        and len(values) * 2 >= min(len(lines), _RECORDS)
        and all(line.lstrip()[:1] in "{[" for line in lines[:20])
    ):
        if isinstance(values[0], list):
            return [_of_array(values[0], "in each line")]
        found = list(_unfolded(values[0]))
        plain = (None, "a record in each line")
        better = [each for is_better, *each in found if is_better or len(values) == 1]
        rest = [each for is_better, *each in found if not (is_better or len(values) == 1)]
        return [*map(tuple, better), plain, *map(tuple, rest)]  # type: ignore[list-item]
    first = _first_value(text)
    if isinstance(first, list):
        return [_of_array(first, "as the whole file")]
    if isinstance(first, dict):
        return [*((path, words) for _, path, words in _unfolded(first)), ("$", "objects of several lines")]
    arrays = dict.fromkeys(_ARRAY_OF_OBJECTS.findall(text[: 1 << 16]))
    inner = [(_written(name), f"the array '{name}'") for name in arrays]
    return [*inner, ("$", "values of several lines")]


def _of_array(elements: Sequence[Any], where: str) -> tuple[str, str]:
    records = [one for one in elements if isinstance(one, dict)]
    is_senml = bool(records) and all(one.keys() <= _SENML for one in records) and any("bn" in one for one in records)
    return ("senml", f"packs of SenML {where}") if is_senml else ("$", f"an array of records {where}")


def _first_value(text: str) -> Any:
    """Return the first value of a text; of an array that is cut, its whole elements; None of an object that is cut."""
    decoder, begin = json.JSONDecoder(), len(text) - len(text.lstrip())
    try:
        return decoder.raw_decode(text, begin)[0]
    except (ValueError, RecursionError):
        if text[begin : begin + 1] != "[":
            return None
    found: list[Any] = []
    place = begin + 1
    while len(found) < _RECORDS and (gap := re.compile(r"[\s,]*").match(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found


def json_values(lines: Sequence[str]) -> list[Any]:
    """Return the values of lines; those that are no JSON are passed over."""
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):  # noqa: PERF203 - each line is by itself
            continue
    return found


def _unfolded(record: Mapping[str, Any]) -> Iterator[tuple[bool, str, str]]:
    """Yield the ways to unfold a record: whether one is likelier than the record itself, its path, and what it is."""
    if "records" not in STREAM_KEYS:
        return
    names = [key for key, value in record.items() if isinstance(value, list) and value and _are_names(value)]
    rows = [key for key, value in record.items() if isinstance(value, list) and value and isinstance(value[0], list)]
    for name in names:
        for row in rows:
            yield True, f"{_written(name)}/{_written(row)}", f"rows in '{row}', under the names in '{name}'"
    for path, elements in _arrays(record, ""):
        is_better = len(record) == 1 or any(_TIME_KEY.search(path) for path, _ in flattened(elements[0]))
        words = "features of GeoJSON" if path == "features" else f"elements of the array {path}"
        yield is_better, path, words


def _are_names(value: Sequence[Any]) -> bool:
    return all(isinstance(one, str) for one in value)


def _arrays(record: Mapping[str, Any], before: str, depth: int = 3) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for key, value in record.items():
        path = f"{before}{_written(key)}"
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield path, value
        elif isinstance(value, dict) and depth:
            yield from _arrays(value, f"{path}.", depth - 1)


def flattened(record: Mapping[str, Any], before: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the plain values of a record with their paths; of an array its first element."""
    for key, value in record.items():
        path = f"{before}{_written(key)}"
        while isinstance(value, list) and value:
            path, value = f"{path}[0]", value[0]
        if isinstance(value, dict) and depth:
            yield from flattened(value, f"{path}.", depth - 1)
        elif not isinstance(value, (dict, list)):
            yield (key if path == _written(key) else path), value  # a column has its name as it is


def _written(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else f"`{key}`"


def json_columns(records: Sequence[Any]) -> dict[str, pa.Array]:
    """Return the values at each path of records as columns: numbers where all are, else texts."""
    rows = [dict(flattened(record)) for record in records[:_RECORDS] if isinstance(record, dict)]
    paths = list(dict.fromkeys(path for row in rows for path in row))
    return {path: _array([row.get(path) for row in rows]) for path in paths}


def _array(values: Sequence[Any]) -> pa.Array:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return pa.array(values, pa.bool_())
    if known and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known):
        is_whole = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in known)
        return pa.array(values, pa.int64()) if is_whole else pa.array([None if v is None else float(v) for v in values])
    return pa.array([None if value is None else str(value) for value in values], pa.string())
