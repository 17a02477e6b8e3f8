"""The picture of a join's matches: a map where they have coordinates, else how far partners differ, and the band."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.spec import BoundJoin

__all__ = ["MatchPicture", "plain_rows"]

_LATITUDE = re.compile(r"(?:.*_)?lat(?:itude)?(?:_deg)?", re.IGNORECASE)
_LONGITUDE = re.compile(r"(?:.*_)?(?:lon|lng|long|longitude)(?:_deg)?", re.IGNORECASE)
_EXACT = 1 << 53  # whole numbers beyond are no numbers of JavaScript


class _Place(Struct, frozen=True):
    """The columns of a result that say where a stream's tuple was."""

    stream: str
    latitude: str
    longitude: str


class _Band(Struct, frozen=True):
    """``low <= left - right <= high``, of two columns of a result; an end that is None is open."""

    left: str
    right: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class MatchPicture:
    """What is drawn of each match."""

    places: tuple[_Place, ...] = ()
    bands: tuple[_Band, ...] = field(default=())

    @classmethod
    def of(cls, bound: BoundJoin) -> MatchPicture:
        """Return the picture that a join's results allow: its columns decide."""
        by_stream: dict[int, dict[str, str]] = {}
        for column in bound.result:
            by_stream.setdefault(column.stream, {})[column.column] = column.name
        places = []
        for stream, columns in by_stream.items():
            latitude = next((name for column, name in columns.items() if _LATITUDE.fullmatch(column)), None)
            longitude = next((name for column, name in columns.items() if _LONGITUDE.fullmatch(column)), None)
            if latitude is not None and longitude is not None:
                places.append(_Place(bound.member_names[stream], latitude, longitude))
        bands = []
        for condition in bound.conditions[bound.window_conditions :]:
            left_key = bound.keys[condition.left_stream][condition.left_key]
            right_key = bound.keys[condition.right_stream][condition.right_key]
            left = by_stream.get(condition.left_stream, {}).get(left_key.column)
            right = by_stream.get(condition.right_stream, {}).get(right_key.column)
            if condition.kind in ("float", "int") and left is not None and right is not None:
                bands.append(_Band(left, right, _end(condition.lo), _end(condition.hi)))
        return cls(tuple(places), tuple(bands[:2]))

    def facts(self, matches: pa.Table) -> dict[str, Any] | None:
        """Return what is drawn of some matches, as plain JSON values; None where there is nothing to draw.

        A map has for each match the latitude and longitude of each stream that has them. A plot has for each match the
        differences of its bands, or of the only band the left value and the difference.
        """
        there = set(matches.column_names)
        places = [place for place in self.places if {place.latitude, place.longitude} <= there]
        if places:
            columns = [_numbers(matches, name) for place in places for name in (place.latitude, place.longitude)]
            return {"kind": "map", "streams": [place.stream for place in places], "points": _whole(columns)}
        bands = [band for band in self.bands if {band.left, band.right} <= there]
        if not bands:
            return None
        pairs = [(_numbers(matches, band.left), _numbers(matches, band.right)) for band in bands]
        differences = [
            [None if a is None or b is None else a - b for a, b in zip(left, right, strict=True)]
            for left, right in pairs
        ]
        columns = differences if len(bands) > 1 else [pairs[0][0], differences[0]]
        axes = [{"name": f"{band.left} - {band.right}", "low": band.low, "high": band.high} for band in bands]
        if len(bands) == 1:
            axes.insert(0, {"name": bands[0].left, "low": None, "high": None})
        return {"kind": "band", "axes": axes, "points": _whole(columns)}


def plain_rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows of a table as JSON can say them: times are ISO texts, bytes base64, NaN is "nan"."""
    return [list(row) for row in zip(*map(_plain_values, table.columns), strict=True)]


def _plain_values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz == "UTC" and kind.unit == "us":
        # Arrow makes a datetime of each value by the rules of its zone: that was a fifth of what a page costs.
        texts = np.datetime_as_string(column.to_numpy().astype("datetime64[us]")).tolist()
        return [None if text == "NaT" else text.removesuffix(".000000") + "Z" for text in texts]
    values = column.to_pylist()
    return values if pa.types.is_string(kind) else [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else str(value)


def _end(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _numbers(table: pa.Table, name: str) -> list[float | None]:
    try:
        values = table.column(name).cast(pa.float64(), safe=False).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [None] * table.num_rows
    return [value if value is not None and math.isfinite(value) else None for value in values]


def _whole(columns: list[list[float | None]]) -> list[list[float]]:
    """Return the rows of some columns in which no value is missing."""
    return [list(row) for row in zip(*columns, strict=True) if None not in row]
