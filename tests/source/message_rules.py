"""The rules by which a message's values become a row, in plain Python: without Arrow's readers and this package's."""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.testing.values import event_time_ns, instant_us

__all__ = ["END_NS", "EPOCH", "FIRST_NS", "Number", "Pairs", "Rules", "canonical", "ns_of_number"]

_WIDENED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
FIRST_NS, END_NS = -62_135_596_800_000_000_000, 253_402_300_800_000_000_000  # the years 1 to 9999
_ISO = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?)(?::(\d\d)(?::?(\d\d)(?:\.(\d+))?)?)?(Z|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(E[+-]?\d{1,4})?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
EPOCH = date(1970, 1, 1)


class _NoValueError(Exception):
    """A value is none of its column's type."""


class Number(str):
    """A number of JSON as it is written."""


class ValueText:
    """The text of a value of JSON that is none: any text that says the value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and json.loads(other, parse_float=Number, parse_int=Number) == self._value

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"the text of {self._value!r}"


class Pairs(dict[str, Any]):
    """An object of JSON."""

    twice: frozenset[str] = frozenset()


def canonical(values: pa.Array) -> list[Any]:
    """Return a column's values in a form that compares exactly: times as numbers, floats as texts."""
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    return [_plain(value) for value in values.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()  # -0.0 is not 0.0
    if isinstance(value, datetime):
        return int(instant_us(value))
    if isinstance(value, date):
        return (value - EPOCH).days
    if isinstance(value, Decimal):
        return Fraction(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


class Rules:
    """The rules by which a record's values become a row.

    Attributes
    ----------
    is_odd : bool
        Whether a value was written in a form that may be refused too.
    """

    def __init__(self, schema: pa.Schema, unit: str, *, has_texts: bool) -> None:
        self.schema, self.unit = schema, unit
        self._has_texts = has_texts  # whether numbers and times may be texts, as in JSON
        self.is_odd = False

    def row(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row of a record, None where it has none."""
        self.is_odd = False
        row: dict[str, Any] = {}
        try:
            for column in self.schema:
                is_fine = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
                value = record.get(column.name)
                if column.name == "ts":
                    row["_ts"], found = self._event_time(value, column.type)
                else:
                    found = self.fit(value, _WIDENED.get(column.type, column.type))
                    if found is None and not column.nullable:
                        raise _NoValueError
                    row[column.name] = found // 1000 if is_fine and found is not None else found
                if is_fine:
                    row[f"_ns_{column.name}"] = found
        except _NoValueError:
            return None
        return row

    def _event_time(self, value: Any, kind: pa.DataType) -> tuple[int, int]:
        found = self._time_ns(value, self.unit, _has_zone(kind))
        if found is None:
            raise _NoValueError
        fine = found // 1000 * 1000 if isinstance(value, float) else found
        if pa.types.is_timestamp(kind) and kind.unit == "ns" and not -(1 << 63) <= fine < 1 << 63:
            raise _NoValueError
        return found // 1000, fine

    def _time_ns(self, value: Any, unit: str, is_zoned: bool) -> int | None:
        """Return a time in nanoseconds, cut to the unit that it has."""
        if isinstance(value, Number):
            self.is_odd |= "e" in value.lower() or len(value) > 38
            number = Fraction(value) if re.fullmatch(r"[^eN]*([eE][+-]?\d{1,3})?", value) and "I" not in value else None
            if number is None or number.denominator > 1:
                return ns_of_number(float(value), unit)
            self.is_odd |= abs(number) >= 1 << 63
            return ns_of_number(int(number) if abs(number) < 10**19 else float(value), unit)
        if isinstance(value, Decimal):
            value = str(value)
        if isinstance(value, str):
            return self._ns_of_text(value, unit, is_zoned)
        if isinstance(value, datetime):
            return None if is_zoned and value.tzinfo is None else int(instant_us(value)) * 1000
        if isinstance(value, date):
            return None if is_zoned else ns_of_number((value - EPOCH).days * 86_400, "s")
        return ns_of_number(value, unit) if type(value) in (int, float) else None

    def _ns_of_text(self, text: str, unit: str, is_zoned: bool) -> int | None:
        text = text.strip().upper()
        if _WHOLE.fullmatch(text):
            return ns_of_number(int(text), unit) if -(1 << 63) <= int(text) < 1 << 63 else None
        if _NUMBER.fullmatch(text):
            return ns_of_number(float(text), unit)
        found = _ISO.fullmatch(text)
        if not found or (is_zoned and not found[8]):
            return None
        year, month, day, hour, minute, second = (int(found[at] or 0) for at in range(1, 7))
        try:
            at = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        except ValueError:
            return None
        hours, minutes = int(found[10] or 0), int(found[11] or 0)
        if hours > 23 or minutes > 59:
            return None
        ns = int(instant_us(at)) * 1000 + int((found[7] or "0")[:9].ljust(9, "0"))
        ns -= (hours * 3600 + minutes * 60) * 10**9 * (-1 if found[9] == "-" else 1)
        return ns if FIRST_NS <= ns < END_NS else None

    def fit(self, value: Any, kind: pa.DataType) -> Any:
        """Return a value as `canonical` gives it.

        Raises
        ------
        _NoValueError
        """
        types = pa.types
        if value is None:
            return None
        if types.is_list(kind):
            if not isinstance(value, list):
                raise _NoValueError
            return [self.fit(item, kind.value_type) for item in value]
        if types.is_struct(kind):
            if not isinstance(value, dict) or getattr(value, "twice", frozenset()) & {each.name for each in kind}:
                raise _NoValueError
            return {each.name: self.fit(value.get(each.name), each.type) for each in kind}
        if types.is_boolean(kind):
            return self._only(value, bool)
        if types.is_integer(kind):
            return self._whole(value, kind)
        if types.is_floating(kind):
            return self._float(value, kind)
        if types.is_string(kind) or types.is_binary(kind):
            return self._text(value, types.is_binary(kind))
        if types.is_decimal(kind):
            return self._decimal(value, kind)
        if types.is_date(kind):
            return self._day(value)
        return self._instant(value, kind)

    @staticmethod
    def _only(value: Any, *kinds: type) -> Any:
        if type(value) not in kinds:
            raise _NoValueError
        return value

    def _whole(self, value: Any, kind: pa.DataType) -> int:
        if isinstance(value, Number):
            if not re.fullmatch(r"-?\d+", value):
                raise _NoValueError
            self.is_odd |= value == "-0"
            value = int(value) if len(value) < 100 else 1 << 99
        bits = kind.bit_width - pa.types.is_signed_integer(kind)
        low = -(1 << bits) if pa.types.is_signed_integer(kind) else 0
        if not low <= self._only(value, int) < 1 << bits:
            raise _NoValueError
        return int(value)

    def _float(self, value: Any, kind: pa.DataType) -> str:
        # A number beyond the largest float is an infinity, as in Spark. Arrow refuses some that are written in JSON.
        if isinstance(value, Number):
            is_finite = "N" not in value and "I" not in value
            number = float(value)
        else:
            is_finite = type(value) is int or math.isfinite(self._only(value, int, float))
            number = float(value)
            if type(value) is int and abs(value) > 1 << (24 if pa.types.is_float32(kind) else 53):
                raise _NoValueError
        self.is_odd |= is_finite and math.isinf(number)
        if pa.types.is_float32(kind):
            number = _single(number, value if isinstance(value, Number) and is_finite else None)
        return number.hex()

    def _text(self, value: Any, is_binary: bool) -> str | bytes | ValueText:
        if self._has_texts and not is_binary and not (type(value) is str or isinstance(value, bytes)):
            self.is_odd |= isinstance(value, dict | list)  # one too deep for a reader is refused
            return str(value) if isinstance(value, Number) else ValueText(value)
        if isinstance(value, Number) or not isinstance(value, str | bytes):
            raise _NoValueError
        try:
            if is_binary:
                return value if isinstance(value, bytes) else value.encode()
            return value if isinstance(value, str) else value.decode()
        except UnicodeError:
            raise _NoValueError from None

    def _decimal(self, value: Any, kind: pa.DataType) -> Fraction:
        if isinstance(value, str) and self._has_texts:
            self.is_odd |= not isinstance(value, Number) or "e" in value.lower()
            if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", value, re.ASCII):
                raise _NoValueError
            number = Fraction(value)
            self.is_odd |= sum(map(str.isdigit, value)) > kind.precision  # such as 1.50 for one digit after the point
        else:
            self._only(value, int, Decimal)
            if isinstance(value, Decimal) and not value.is_finite():
                raise _NoValueError
            number = Fraction(value)
        scaled = number * 10**kind.scale
        if scaled.denominator > 1 or abs(scaled) >= 10**kind.precision:
            raise _NoValueError
        return number

    def _day(self, value: Any) -> int:
        if isinstance(value, str) and not isinstance(value, Number) and self._has_texts:
            self.is_odd |= value != value.strip()
            if not _DAY.fullmatch(value.strip()):
                raise _NoValueError
            try:
                value = date.fromisoformat(value.strip())
            except ValueError:
                raise _NoValueError from None
        return int((self._only(value, date) - EPOCH).days)

    def _instant(self, value: Any, kind: pa.DataType) -> int:
        is_text = isinstance(value, str) and not isinstance(value, Number) and self._has_texts
        found = self._time_ns(value, "us", _has_zone(kind)) if is_text or isinstance(value, datetime) else None
        if found is None or (kind.unit == "ns" and not -(1 << 63) <= found < 1 << 63):
            raise _NoValueError
        return found if kind.unit == "ns" else found // 1000


def _has_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz not in (None, "UTC"))


def ns_of_number(value: float, unit: str) -> int | None:
    found = event_time_ns(value, unit)
    return None if found is None else int(found)


def _single(number: float, text: str | None) -> float:
    """Return the float32 nearest to a number, or to the one that a text says: rounded once."""
    with np.errstate(over="ignore"):
        near = np.float32(number)
    if text is None or not number or not np.isfinite(near):
        return float(near)
    exact = Fraction(text)
    around = [near, np.nextafter(near, np.float32("inf")), np.nextafter(near, np.float32("-inf"))]
    best = min(around, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1))
    return float(best)
