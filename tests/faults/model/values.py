"""Columns of other types than x and y: texts, decimals, times, booleans, with nulls; and NaN and infinities in y.

What joins ask about them is here too: bands and equalities, residuals, distances, aggregates, conditions on a stream
alone, and keys of unique rows. Each text has places for two streams' names. Beside a condition are the columns whose
null keeps a tuple out, a letter each; ``d|y``: other ones of the second stream.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

from tests.faults.model.schedule import ZONES_FROM

__all__ = [
    "BANDS",
    "DISTANCES",
    "KEYS",
    "NAMES",
    "REDUCE",
    "RESIDUALS",
    "WHERES",
    "ZONES",
    "field_text",
    "give_values",
    "types_of",
]

NAMES = ("n", "d", "t", "b")
"""A text, a decimal, a time, a boolean."""
BANDS = (
    ("{0}.n = {1}.n", "n"),
    ("{0}.n = {1}.n AND {0}.b = {1}.b", "bn"),
    ("abs({0}.d - {1}.d) <= 0.25", "d"),
    ("{0}.d = {1}.d", "d"),
    ("abs({0}.d - {1}.y) <= 1.0", "d|y"),
    ("abs({0}.y - {1}.d) <= 0.25", "y|d"),
    ("abs({0}.d - {1}.x) <= 1", "d|x"),
    ("abs({0}.t - {1}.t) <= INTERVAL 250 MILLISECONDS", "t"),
    ("{0}.t = {1}.t", "t"),
    ("abs({0}.y - {1}.y) <= 0.5", "y"),
    ("{0}.y = {1}.y", "y"),
)
RESIDUALS = (
    ("{0}.n <> {1}.n", "n"),
    ("{0}.n < {1}.n", "n"),
    ("({0}.b OR {1}.x > 1)", ""),
    ("{0}.d + {1}.d > 0.5", "d"),
    ("{0}.d <= {1}.y", "d|y"),
    ("CAST({0}.d AS DOUBLE) < {1}.y + 0.25", "d|y"),
    ("{0}.t >= {1}.t", "t"),
    ("{0}.n IS NOT DISTINCT FROM {1}.n", ""),
    ("{0}.d IS NOT DISTINCT FROM {1}.d", ""),
    ("{0}.y IS NOT DISTINCT FROM {1}.y", ""),
    ("({0}.y <> {1}.y OR {0}.b)", ""),
)
DISTANCES = ("abs({0}.d - {1}.d)", "abs({0}.t - {1}.t)", "abs({0}.d - {1}.y)", "{0}.y - {1}.y")
REDUCE = {
    "named": "count({1}.n)",
    "earliest": "min({1}.t)",
    "first_name": "min({1}.n)",
    "largest": "max({1}.y)",
    "amount": "sum({1}.d)",
    "flags": "count({1}.b)",
    "names": "collect({1}.n, 3)",
    "closest": "arg_min({1}.n, abs({0}.d - {1}.d))",
    "last_d": "last({1}.d)",
    "floats": "sum({1}.y)",
}
WHERES = ("n <> 'b'", "d <= 1.5 OR d IS NULL", "b", "t IS NOT NULL", "y < 1.5")
KEYS = ("n", "d,b", "t", "n,y", "n,d,ts")

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "+05:30")
_START = pd.Timestamp("2024-01-01", tz="UTC")
_TURN = pd.Timestamp("2024-10-27T00:59:59.750", tz="UTC")  # clocks in Berlin go back a quarter of a second later
# Some look like other things: a null, a number, two fields of CSV.
_TEXTS = ("a", "b", "A", "\u00e4", "NA", "7", "a,b", "it's")
# Of these no float64 is the exact value, and some are a band's bound apart, beside floats that look like them.
_UNEVEN = ("20.15", "21.15", "20.15", "21.15", "1.15")


def types_of(seed: int, source: str, *, is_generated: bool) -> dict[str, pa.DataType]:
    """Return the types of an input's further columns. Two inputs may have other ones; no generator has nanoseconds."""
    dice = random.Random(f"types {source} {seed}")
    digits = dice.choice(((6, 2), (6, 2), (9, 3), (18, 5)))
    has_zone = seed >= ZONES_FROM and not is_generated
    zone = random.Random(f"zone {source} {seed}").choice(ZONES) if has_zone else "UTC"
    unit = "us" if is_generated else dice.choice(("us", "us", "ns"))
    return {"n": pa.string(), "d": pa.decimal128(*digits), "t": pa.timestamp(unit, zone), "b": pa.bool_()}


def give_values(rows: Sequence[dict[str, Any]], types: dict[str, pa.DataType], dice: random.Random) -> None:
    """Give each record its values of the further columns, and some a NaN or an infinity in y."""
    places = Decimal(1).scaleb(-types["d"].scale)
    count = dice.choice((2, 4))
    start = _START if types["t"].tz == "UTC" else _TURN
    for row in rows:
        if row["ts"] is None:
            row |= dict.fromkeys(NAMES)
            continue
        uneven = dice.choice(_UNEVEN) if dice.random() < 0.3 else None
        amount = Decimal(uneven) if uneven and dice.random() < 0.5 else Decimal(dice.randrange(-1, 2 * count)) / 4
        past = dice.choice((0, 1, 999)) if types["t"].unit == "ns" else 0
        time = start + timedelta(milliseconds=250 * dice.randrange(count)) + pd.Timedelta(past, "ns")
        drawn = {
            "n": dice.choice(_TEXTS[: 2 * count]),
            "d": amount.quantize(places),
            "t": time.as_unit(types["t"].unit).tz_convert(types["t"].tz),
            "b": dice.random() < 0.5,
        }
        row |= {name: None if dice.random() < 0.1 else value for name, value in drawn.items()}
        if row["y"] is not None and uneven and dice.random() < 0.5:
            row["y"] = float(uneven)
        elif row["y"] is not None and dice.random() < 0.2:
            row["y"] = dice.choice((math.nan, math.inf, -math.inf, -0.0))


def field_text(value: Any) -> str:
    """Return a value as a field of CSV."""
    if value is None:
        return ""
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{text}"' if "," in text else text
