"""How JSON is laid out: objects in lines, one array, objects of many lines, arrays within records; and the paths in it.

Records are put into the form that an option of the source makes of them (`records`), so that what is looked at is what
the join would see. A path is written as a column: ``params.ts``, ``values[0].v``, `` `switch:0`.apower ``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin_ds.spec.member.stream import STREAM_KEYS

__all__ = ["Envelope", "envelopes", "flattened", "json_columns"]

_RECORDS = 2000  # that are looked at
_DEPTH = 6  # of paths
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SENML = {"bn", "bt", "n", "v", "vs", "vb", "t", "u", "bu", "bv", "vd", "s"}
_TIME_KEY = re.compile(r"time|date|stamp|(^|_)ts($|_)|^t$|_at$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A way to take records out of a text of JSON.

    Attributes
    ----------
    options : mapping
        The options of the source that say it.
    columns : mapping of str to pyarrow.Array
        The values at each path of the first records.
    words : str
        What it is, for people.
    guesses, remarks : tuple of str
        What is not sure, and what else is to be said.
    """

    options: Mapping[str, Any]
    columns: Mapping[str, pa.Array]
    words: str
    guesses: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def envelopes(text: str, *, is_cut: bool = False) -> list[Envelope]:
    """Return the ways to take records out of a text of JSON, the likeliest first; none where it is no JSON."""
    lines = [line for line in text.splitlines() if line.strip()]
    lines = lines[:-1] if is_cut and len(lines) > 1 else lines
    values = [value for line in lines[:_RECORDS] if (value := _parsed(line)) is not None]
    if values and len(values) * 2 >= min(len(lines), _RECORDS) and not _is_piece(lines):
        return _of_values(values, "a record in each line")
    whole = list(_values_in(text))
    if not whole:
        return []
    if len(whole) == 1 and isinstance(whole[0], list):
        return _of_array(whole[0])
    if len(whole) == 1 and isinstance(whole[0], dict):
        return _of_values(whole, "one object")
    return _of_values(whole, "objects one after the other", {"records": "$"})


def _is_piece(lines: Sequence[str]) -> bool:
    """Whether lines are pieces of one array or object: some are numbers or brackets alone."""
    return not all(line.lstrip()[:1] in ("{", "[") for line in lines[:20])


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _values_in(text: str) -> Iterator[Any]:
    """Yield the values that stand one after the other in a text; of an array that is cut, its whole elements."""
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        place += len(text[place:]) - len(text[place:].lstrip())
        if place >= len(text):
            return
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            if text[place] == "[":
                yield _elements(text, place + 1, decoder)
            return
        yield value


def _elements(text: str, place: int, decoder: json.JSONDecoder) -> list[Any]:
    found: list[Any] = []
    while len(found) < _RECORDS and (start := re.compile(r"[\s,]*").match(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found


def _of_array(elements: Sequence[Any]) -> list[Envelope]:
    records = [one for one in elements if isinstance(one, dict)]
    if _is_senml(records):
        return [_senml([elements], "one array of SenML")]
    return [Envelope({"records": "$"}, json_columns(records), "one array of records")] if records else []


def _is_senml(records: Sequence[Mapping[str, Any]]) -> bool:
    has_values = any({"n", "v"} <= one.keys() or {"bn", "v"} <= one.keys() for one in records)
    return has_values and all(one.keys() <= _SENML for one in records)


def _senml(packs: Iterable[Sequence[Any]], words: str) -> Envelope:
    records = []
    for pack in packs:
        base: dict[str, Any] = {}
        for one in (each for each in pack if isinstance(each, dict)):
            base |= {key: one[key] for key in ("bn", "bt", "bu") if key in one}
            time = base.get("bt", 0) + one.get("t", 0)
            plain = {key: value for key, value in one.items() if key not in ("bn", "bt", "bu")}
            records.append({**plain, "n": base.get("bn", "") + one.get("n", ""), "t": time})
    return Envelope({"records": "senml"}, json_columns(records), words)


def _of_values(values: Sequence[Any], words: str, options: Mapping[str, Any] | None = None) -> list[Envelope]:
    arrays = [value for value in values if isinstance(value, list)]
    if arrays and len(arrays) * 2 > len(values):
        records = [one for array in arrays for one in array if isinstance(one, dict)]
        if _is_senml(records):
            return [_senml(arrays, "an array of SenML in each line")]
        return (
            [Envelope({"records": "$"}, json_columns(records), "an array of records in each line")] if records else []
        )
    records = [value for value in values if isinstance(value, dict)]
    if not records:
        return []
    flat = Envelope(options or {}, json_columns(records), words)
    unfolded = list(_unfolded(records))
    if len(records) == 1 or (unfolded and unfolded[0][0]):
        return [*(one for _, one in unfolded), flat]
    return [flat, *(one for _, one in unfolded)]


def _unfolded(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[bool, Envelope]]:
    """Yield the ways to unfold arrays within records, and whether each is likelier than the records themselves."""
    if "records" not in STREAM_KEYS:
        return
    first = records[0]
    if isinstance(first.get("features"), list):
        found = [one for record in records for one in record.get("features") or [] if isinstance(one, dict)]
        yield True, Envelope({"records": "features"}, json_columns(found), "features of GeoJSON")
        return
    if isinstance(first.get("fields"), list) and isinstance(first.get("data"), list):
        found = []
        for record in records:
            names = [one.get("name", "") if isinstance(one, dict) else str(one) for one in record.get("fields", [])]
            found += [dict(zip(names, row, strict=False)) for row in record.get("data", []) if isinstance(row, list)]
        yield True, Envelope({"records": "fields/data"}, json_columns(found), "a table of fields and data")
        return
    for path, elements in _arrays(first, ""):
        outer = [_at(record, path) for record in records]
        found = [
            {**_without(record, path), path: one}
            for record, array in zip(records, outer, strict=True)
            for one in (array if isinstance(array, list) else [])
        ]
        is_better = any(_TIME_KEY.search(key) for one in elements for key in one) or len(first) == 1
        words = f"an array of records in each record: {path}"
        yield is_better, Envelope({"records": path}, json_columns(found), words)


def _arrays(record: Mapping[str, Any], before: str, depth: int = 3) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for key, value in record.items():
        path = f"{before}{_written(key)}"
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield path, value
        elif isinstance(value, dict) and depth:
            yield from _arrays(value, f"{path}.", depth - 1)


def _at(record: Any, path: str) -> Any:
    for key in path.split("."):
        record = record.get(key.strip("`")) if isinstance(record, dict) else None
    return record


def _without(record: Mapping[str, Any], path: str) -> dict[str, Any]:
    key, _, rest = path.partition(".")
    inner = record.get(key.strip("`"))
    left = {name: value for name, value in record.items() if name != key.strip("`")}
    return {**left, key: _without(inner, rest)} if rest and isinstance(inner, dict) else left


def flattened(record: Mapping[str, Any], before: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the plain values of a record with their paths; of an array its first element."""
    for key, value in record.items():
        path = f"{before}{_written(key)}"
        while isinstance(value, list) and value:
            path, value = f"{path}[0]", value[0]
        if isinstance(value, dict) and depth:
            yield from flattened(value, f"{path}.", depth - 1)
        elif not isinstance(value, (dict, list)):
            yield path, value


def _written(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else f"`{key}`"


def json_columns(records: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return the values at each path of records as columns: numbers where all are, else texts."""
    rows = [dict(flattened(record)) for record in records[:_RECORDS]]
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
