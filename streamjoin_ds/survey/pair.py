"""What two sources have in common: how their times overlap, which columns may be compared, and a join to begin with.

Columns go together where their names say the same (``lat`` and ``latitude``, ``alt_ft`` and ``altitude_m``) and their
values lie in the same range, in units that the names tell; texts, and whole numbers whose name says that they are
identifiers, where they share values. A tolerance is a fiftieth of
what most values span, and the window five steps between times: both are for a user to set. The join is bound to the
columns' types before it is proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.duration import duration_text, duration_us
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.survey.clock import moment
from streamjoin_ds.survey.stanza import python_stanza, sql_stanza, toml_stanza
from streamjoin_ds.survey.survey import Survey, rounded_up

__all__ = ["Pair", "pairs_of"]

_HOUR_US = 3_600_000_000
_MOST_COMPARED = 6
_SAME_WORDS = {
    "lat": "latitude", "lon": "longitude", "lng": "longitude", "long": "longitude", "alt": "altitude",
    "height": "altitude", "temp": "temperature", "tmp": "temperature", "hum": "humidity", "rh": "humidity",
    "press": "pressure", "spd": "speed", "sog": "speed", "velocity": "speed", "hdg": "heading",
    "cog": "heading", "track": "heading", "course": "heading", "dir": "direction", "dev": "device", "sensor": "device",
    "station": "device", "wspd": "wind_speed", "wdir": "wind_direction",
}  # fmt: skip
# What a column of whole numbers is named after that tells things apart: its values are equal or not, and never near.
_IDENTIFIERS = frozenset((
    "code", "device", "icao", "id", "imei", "imo", "key", "machine", "mmsi", "mote", "moteid", "node", "serial",
    "unit", "vehicle",
))  # fmt: skip
# Units that a name may end in: what they measure, and how a value in them becomes one of the first unit of its kind.
_UNITS = {
    "m": ("length", 1.0, 0.0), "ft": ("length", 0.3048, 0.0), "feet": ("length", 0.3048, 0.0),
    "km": ("length", 1000.0, 0.0), "mi": ("length", 1609.344, 0.0), "nm": ("length", 1852.0, 0.0),
    "ms": ("speed", 1.0, 0.0), "mps": ("speed", 1.0, 0.0), "kn": ("speed", 0.514444, 0.0),
    "kt": ("speed", 0.514444, 0.0), "kts": ("speed", 0.514444, 0.0), "knots": ("speed", 0.514444, 0.0),
    "kmh": ("speed", 1 / 3.6, 0.0), "kph": ("speed", 1 / 3.6, 0.0), "mph": ("speed", 0.44704, 0.0),
    "c": ("temperature", 1.0, 0.0), "celsius": ("temperature", 1.0, 0.0), "f": ("temperature", 5 / 9, -160 / 9),
    "fahrenheit": ("temperature", 5 / 9, -160 / 9), "k": ("temperature", 1.0, -273.15),
    "pa": ("pressure", 0.01, 0.0), "hpa": ("pressure", 1.0, 0.0), "mbar": ("pressure", 1.0, 0.0),
    "kpa": ("pressure", 10.0, 0.0),
}  # fmt: skip


class _Values(Struct, frozen=True):
    """A column of a survey, for comparison: what its name says, and between which values most lie."""

    stream: str
    name: str
    words: frozenset[str]
    unit: str
    low: float
    high: float
    members: frozenset[Any] = frozenset()  # the values of texts and identifiers
    is_flat: bool = False  # whether most values are one

    @property
    def written(self) -> str:
        """The column as a condition has it."""
        plain = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*|\[\d+\])*", self.name, re.ASCII)
        return f"{self.stream}.{self.name}" if plain or "`" in self.name else f"{self.stream}.`{self.name}`"


class Pair(Struct, frozen=True):
    """What two sources have in common.

    Attributes
    ----------
    names : tuple of str
        The two streams.
    times : str
        How their times overlap.
    compared : tuple of (str, str)
        Conditions, and why; the best first.
    window : str
        A window for them.
    stanza : mapping of str to str
        A join of the two in TOML and SQL; empty where nothing is alike.
    """

    names: tuple[str, str]
    times: str
    compared: tuple[tuple[str, str], ...]
    window: str
    stanza: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """Yield this as text, one fact a line."""
        yield f"{self.names[0]} and {self.names[1]}"
        yield f"  times       {self.times}"
        for number, (condition, why) in enumerate(self.compared):
            yield f"  {'' if number else 'compare':<11} {condition}   {why}"
        if not self.compared:
            yield "  compare     no columns have like names and values: name them with on"
        for form, text in self.stanza.items():
            yield f"{form}, to begin with: tolerances and window are guesses"
            yield from (f"  {line}".rstrip() for line in text.splitlines())

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values."""
        compared = [{"condition": condition, "why": why} for condition, why in self.compared]
        return {
            "streams": list(self.names),
            "times": self.times,
            "compared": compared,
            "window": self.window,
            "stanza": dict(self.stanza),
        }


def pairs_of(surveys: Sequence[Survey]) -> list[Pair]:
    """Return what each two sources have in common that have a proposal."""
    return [_pair(one, other) for one, other in combinations(surveys, 2) if one.order and other.order]


def _pair(one: Survey, other: Survey) -> Pair:
    assert one.order is not None
    assert other.order is not None
    names = one.name, other.name
    compared = tuple(_compared(one, other))
    window = duration_text(max(rounded_up(5 * max(one.order.step_us, other.order.step_us)), 1_000_000))
    streams = [stream for stream in (one.stream, other.stream) if stream is not None]
    schemas = {found.name: found.schema for found in (one, other)}
    compared = tuple(each for each in compared if _binds(streams, schemas, each[0], window))
    stanza = _stanza(one, other, [condition for condition, _ in compared], window) if compared else {}
    return Pair(names, _overlap(one, other), compared, window, stanza)


def _overlap(one: Survey, other: Survey) -> str:
    assert one.order is not None
    assert other.order is not None
    first = max(one.order.first_us, other.order.first_us)
    last = min(one.order.last_us, other.order.last_us)
    of_first = " of the first records" if max(one.records, other.records) >= 1000 else ""
    if first <= last:
        return f"those{of_first} overlap for {duration_text(last - first)}: {moment(first)} .. {moment(last)}"
    apart = first - last
    text = f"those{of_first} do not overlap: they are {duration_text(apart)} apart"
    nearly = abs(one.order.first_us - other.order.first_us)
    rest = min(nearly % _HOUR_US, -nearly % _HOUR_US)
    if nearly <= 14 * _HOUR_US and rest < 60_000_000:
        text += ". They begin whole hours apart: are those of one local times, and not UTC?"
    return text


def _values(found: Survey) -> Iterator[_Values]:
    assert found.sample is not None
    for name in found.sample.column_names:
        values = found.sample.column(name).drop_null()
        if name in (TS, SEQ) or not len(values):
            continue
        words, unit = _words(name)
        kind = values.type
        if pa.types.is_string(kind) or (pa.types.is_integer(kind) and words & _IDENTIFIERS):
            members = frozenset(pc.unique(values).to_pylist()[:10_000])
            yield _Values(found.name, name, words, "", 0.0, 0.0, members)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            numbers = values.cast(pa.float64()).to_numpy()
            numbers = numbers[np.isfinite(numbers)]
            if len(numbers):
                low, quarter, three, high = map(float, np.quantile(numbers, [0.01, 0.25, 0.75, 0.99]))
                yield _Values(found.name, name, words, unit, low, high, is_flat=quarter == three)


def _words(name: str) -> tuple[frozenset[str], str]:
    """Return what a column's name says, in small letters and one word for each thing, and its unit."""
    last = re.split(r"\.", name)[-1]
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", last)
    words = [part.lower() for part in parts]
    unit = words[-1] if len(words) > 1 and words[-1] in _UNITS else ""
    words = words[:-1] if unit else words
    return frozenset(part for word in words for part in _SAME_WORDS.get(word, word).split("_")), unit


def _compared(one: Survey, other: Survey) -> Iterator[tuple[str, str]]:
    left, right = list(_values(one)), list(_values(other))
    found = sorted(
        ((score, condition, why) for a in left for b in right for score, condition, why in _alike(a, b)),
        key=lambda each: -each[0],
    )
    taken: set[str] = set()
    globe = _globe(left, right)
    if globe is not None:
        yield globe
        taken.update(each.written for each in (*left, *right) if each.words & {"latitude", "longitude"})
    for _, condition, why in found:
        columns = re.findall(rf"\b(?:{one.name}|{other.name})\.(?:`[^`]+`|[\w.\[\]]+)", condition)
        if len(taken) < 2 * _MOST_COMPARED and not taken & {*columns}:
            taken.update(columns)
            yield condition, why


def _globe(left: Sequence[_Values], right: Sequence[_Values]) -> tuple[str, str] | None:
    """Return a distance where both have places on the globe."""
    places = []
    for side in (left, right):
        found = {
            word: each
            for word, most in (("latitude", 90), ("longitude", 360))
            for each in reversed(side)
            if word in each.words and not each.members and -most <= each.low and each.high <= most
        }
        if len(found) < 2:
            return None
        places += [found["latitude"].written, found["longitude"].written]
    return f"distance_m({', '.join(places)}) <= 1000", "places on the globe, within a kilometre"


def _alike(one: _Values, other: _Values) -> Iterator[tuple[float, str, str]]:
    """Yield the condition by which two columns may be compared, with a score."""
    both = one.words & other.words
    names = len(both) / max(len(one.words | other.words), 1)
    if one.members or other.members:
        fewest = min(len(one.members), len(other.members))
        shared = len(one.members & other.members) / max(fewest, 1)
        if shared and names and fewest > 1:
            score = names + shared
            yield score, f"{one.written} = {other.written}", f"like names, {shared:.0%} of the values are in both"
        return
    factor, shift, units = _conversion(one.unit, other.unit)
    if not names or units is None:
        return
    low, high = (end * factor + shift for end in (one.low, one.high))
    inner, outer = min(high, other.high) - max(low, other.low), max(high, other.high) - min(low, other.low)
    if inner <= 0 or not outer:
        return
    left = one.written
    if units:
        left = f"({left} * {factor:.6g}{f' {shift:+.6g}' if shift else ''})"
    eps = _tolerance(min(high - low, other.high - other.low))
    why = f"like names, values of {_number(max(low, other.low))} .. {_number(min(high, other.high))} in both"
    score = names + inner / outer - 0.5 * (one.is_flat or other.is_flat)
    yield score, f"abs({left} - {other.written}) <= {eps}", f"{why}{units}"


def _conversion(one: str, other: str) -> tuple[float, float, str | None]:
    """Return what makes a value of one unit one of another, and words for it; None where they measure other things."""
    if one == other or not one or not other:
        return 1.0, 0.0, ""
    (kind, factor, shift), (other_kind, other_factor, other_shift) = _UNITS[one], _UNITS[other]
    if kind != other_kind:
        return 1.0, 0.0, None
    return factor / other_factor, (shift - other_shift) / other_factor, f", {one} in {other}"


def _tolerance(span: float) -> str:
    """Return a fiftieth of a span in one digit: 1, 2 or 5."""
    wanted = span / 50
    if wanted <= 0:
        return "1"
    power = 10.0 ** np.floor(np.log10(wanted))
    return _number(float(next(step * power for step in (5, 2, 1) if step * power <= wanted * 1.0000001)))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _binds(streams: Sequence[Stream], schemas: Mapping[str, pa.Schema], condition: str, window: str) -> bool:
    """Whether streams can be joined by a condition."""
    try:
        bind(Join(streams, [condition], window), schemas)
    except StreamJoinError:
        return False
    return True


def _stanza(one: Survey, other: Survey, conditions: Sequence[str], window: str) -> dict[str, str]:
    """Return a join by the two best conditions: in TOML and SQL, of rows that are handed over in Python."""
    kept = conditions[:2]
    written = ", ".join(f'"{condition}"' for condition in kept)
    if not (one.location and other.location):
        streams = f"{python_stanza(one)}, {python_stanza(other)}"
        made = f'join = StreamJoin(\n    [{streams}],\n    [{written}],\n    window="{window}",\n)'
        return {"Python": f"{made}\npairs = join.match({one.name}, {other.name})"}
    ends = 'to = "pairs"\ncheckpoint = "pairs.ckpt"'
    toml = f'on = [{written}]\nwindow = "{window}"\n{ends}\n\n{toml_stanza(one)}\n\n{toml_stanza(other)}'
    found = {"TOML": toml}
    assert one.stream is not None
    assert other.stream is not None
    times = [stream.time for stream in (one.stream, other.stream)]
    if all(re.fullmatch(r"[A-Za-z_]\w*", time, re.ASCII) for time in times):
        on = "\n AND ".join(kept)
        left, right = f"{one.name}.{times[0]}", f"{other.name}.{times[1]}"
        unit = f"INTERVAL {_number(duration_us(window, 'window') / 1e6)} SECONDS"
        bounds = f" AND {left} BETWEEN {right} - {unit} AND {right} + {unit}"
        query = f"SELECT * FROM {one.name} JOIN {other.name}\n  ON {on}\n{bounds};"
        insert = f"INSERT INTO pairs WITH (checkpoint = 'pairs.ckpt')\n{query}"
        found["SQL"] = f"{sql_stanza(one)}\n{sql_stanza(other)}\n{insert}"
    return found
