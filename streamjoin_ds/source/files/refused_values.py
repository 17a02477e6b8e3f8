"""Which values Arrow's readers of JSON and CSV surely refuse, told without asking them, and which they ought to.

Arrow reads a whole text or fails, so a broken record is found by reading parts of the text; each reading costs as much
as a hundred good records. A rule tells most broken values at once. It has three answers: a value is `FINE` as far as
the rule knows, `REFUSED` for sure, or `DOUBTFUL`. Arrow reads what is fine together, and decides what is doubtful by
itself. So a rule that says `FINE` of a broken value costs time; one that says `REFUSED` of a good value would change
what a record is. `tests/source/test_refused_values.py` compares each rule with Arrow.

Of decimals Arrow's readers take some that they ought to refuse. A whole number is scaled after its digits were counted,
so that 894536 becomes a decimal(6, 1) of seven digits, and another number in a file of Parquet: `check_digits` looks at
what was read. A number with more than 38 digits after its point is scaled by what lies behind a table in memory
(apache/arrow#50964): no reader gets it (`is_too_fine`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamjoin_ds.spec.nested_values import is_list

__all__ = [
    "DOUBTFUL",
    "FINE",
    "REFUSED",
    "Rule",
    "check_digits",
    "csv_refuses",
    "has_small_exponent",
    "holds_decimals",
    "is_too_fine",
    "json_rule",
]

FINE, DOUBTFUL, REFUSED = range(3)

# Of a value as Python's `json` gives it, numbers with a point or an exponent as `Decimal`.
Rule: TypeAlias = Callable[[Any], int]

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LARGEST_EXPONENT = 308  # of a float64, in decimal digits
_LONG_TEXT = 64  # bytes of a number's text; a longer one is doubtful
_WHOLE = re.compile(rb"-?[0-9]+")
_WHOLE_OR_HEX = re.compile(rb"[+-]?(0[xX][0-9a-fA-F]*|[0-9]*)")
_FLOAT = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?([iI][nN][fF]|[nN][aA][nN]).*")
_DECIMAL = re.compile(rb"[+-]?0*([0-9]*)\.?([0-9]*?)0*")
_DECIMAL_BYTES = re.compile(rb"[0-9+\-.eE]*")
_BOOLEANS = (b"0", b"1", b"true", b"false")
_MINUS, _EXPONENT, _TO_LOWER = b"-e "
_MOST_FRACTION = 38  # digits after the point of a decimal, at most


def holds_decimals(kind: pa.DataType) -> bool:
    """Whether values of a type are, or hold, decimals."""
    if is_list(kind):
        return holds_decimals(kind.value_type)
    if pa.types.is_struct(kind):
        return any(holds_decimals(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind))


def check_digits(table: pa.Table) -> pa.Table:
    """Return a table that one of Arrow's readers gave.

    Raises
    ------
    pyarrow.ArrowInvalid
        A decimal has more digits than its type.
    """
    for column in table.columns:
        if holds_decimals(column.type):
            column.validate(full=True)
    return table


def has_small_exponent(data: bytes) -> bool:
    """Whether a text may hold a number with a negative exponent: without one, Arrow counts the digits of a fraction."""
    text = np.frombuffer(data, np.uint8)
    before = text[np.flatnonzero(text == _MINUS) - 1]  # a search for two bytes takes five times as long
    return bool(((before | _TO_LOWER) == _EXPONENT).any())


def is_too_fine(text: str) -> bool:
    """Whether a number, as it is written, has more digits after its point than any decimal."""
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:  # no number, or an exponent that is none of Python's
        return "e-" in text.lower()
    return isinstance(exponent, int) and exponent < -_MOST_FRACTION


def json_rule(kind: pa.DataType) -> Rule:
    """Return the rule for a column's values in JSON. `event_times` tells texts of timestamps that it calls fine."""
    types = pa.types
    if types.is_integer(kind):
        return _whole_rule(kind)
    if types.is_float32(kind) or types.is_float64(kind):
        return _float_rule
    if types.is_boolean(kind):
        return lambda value: FINE if value is None or type(value) is bool else REFUSED
    if types.is_string(kind) or types.is_binary(kind):
        return lambda value: FINE if value is None or type(value) is str else REFUSED
    if types.is_timestamp(kind):
        return _timestamp_rule
    if types.is_date32(kind):
        return _date_rule
    if types.is_decimal(kind):
        return _decimal_rule(kind)
    if types.is_list(kind):
        return _list_rule(json_rule(kind.value_type))
    if types.is_struct(kind):
        return _struct_rule({field.name: json_rule(field.type) for field in kind})
    return lambda value: FINE if value is None else DOUBTFUL


def _whole_rule(kind: pa.DataType) -> Rule:
    is_signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width - is_signed
    low, high = -(1 << bits) if is_signed else 0, (1 << bits) - 1

    def rule(value: Any) -> int:
        if type(value) is int:
            return FINE if low <= value <= high else REFUSED
        return FINE if value is None else REFUSED

    return rule


def _float_rule(value: Any) -> int:
    if type(value) is Decimal:
        return FINE if value.adjusted() < _LARGEST_EXPONENT else DOUBTFUL
    if type(value) is float:  # NaN or Infinity
        return FINE
    if type(value) is int:
        return FINE if -(1 << _LARGEST_EXPONENT) < value < 1 << _LARGEST_EXPONENT else DOUBTFUL
    return FINE if value is None else REFUSED


def _timestamp_rule(value: Any) -> int:
    if type(value) is str:  # every form of `event_times` begins with a digit or a sign
        return REFUSED if value[:1].isascii() and value[:1].isalpha() else FINE
    return FINE if value is None else REFUSED


def _date_rule(value: Any) -> int:
    if type(value) is str:
        return _date_verdict(value)
    return FINE if value is None else REFUSED


def _date_verdict(text: str) -> int:
    if not _DATE.fullmatch(text):
        return DOUBTFUL if text.strip() != text else REFUSED
    if text < "0001":
        return DOUBTFUL
    try:
        date.fromisoformat(text)
    except ValueError:
        return REFUSED
    return FINE


def _decimal_rule(kind: pa.DataType) -> Rule:
    precision, scale = kind.precision, kind.scale

    def rule(value: Any) -> int:
        if type(value) is int:
            return REFUSED if abs(value) >= 10 ** (precision - scale) else FINE
        if type(value) is Decimal:
            digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
            if exponent < -_MOST_FRACTION:
                return REFUSED
            if exponent > 0:
                return DOUBTFUL
            if any(digits) and len(digits) + exponent > precision - scale:
                return REFUSED
            needed = -exponent  # digits after the point, less its last zeros
            for digit in reversed(digits):
                if digit:
                    break
                needed -= 1
            return REFUSED if len(digits) > precision or (needed > scale and any(digits)) else FINE
        if value is None:
            return FINE
        if type(value) is str and is_too_fine(value):
            return REFUSED
        return DOUBTFUL if type(value) in (float, str) else REFUSED

    return rule


def _list_rule(item: Rule) -> Rule:
    def rule(value: Any) -> int:
        if type(value) is list:
            return max(map(item, value), default=FINE)
        return FINE if value is None else REFUSED

    return rule


def _struct_rule(fields: dict[str, Rule]) -> Rule:
    def rule(value: Any) -> int:
        if type(value) is dict:
            return max((fields[name](one) for name, one in value.items() if name in fields), default=FINE)
        return FINE if value is None else REFUSED

    return rule


def csv_refuses(kind: pa.DataType) -> Callable[[bytes], bool]:
    """Return what tells that a column of a CSV text surely refuses a field, which is no null."""
    types = pa.types
    if types.is_integer(kind):
        return _whole_field(kind)
    if types.is_float32(kind) or types.is_float64(kind):
        return lambda field: _FLOAT.fullmatch(field.strip(b" \t")) is None
    if types.is_boolean(kind):
        return lambda field: field.strip(b" \t").lower() not in _BOOLEANS
    if types.is_string(kind):
        return _is_no_utf8
    if types.is_date32(kind):
        return lambda field: _date_verdict(field.decode("latin-1")) == REFUSED
    if types.is_decimal(kind):
        return _decimal_field(kind)
    return lambda field: False


def _whole_field(kind: pa.DataType) -> Callable[[bytes], bool]:
    rule = _whole_rule(kind)

    def refuses(field: bytes) -> bool:
        text = field.strip(b" \t")
        if _WHOLE.fullmatch(text):
            return len(text) < _LONG_TEXT and rule(int(text)) == REFUSED
        return _WHOLE_OR_HEX.fullmatch(text) is None

    return refuses


def _decimal_field(kind: pa.DataType) -> Callable[[bytes], bool]:
    precision, scale = kind.precision, kind.scale

    def refuses(field: bytes) -> bool:
        text = field.strip(b" \t")
        if not _DECIMAL_BYTES.fullmatch(text) or (b"-" in text[1:] and is_too_fine(text.decode())):
            return True
        found = _DECIMAL.fullmatch(text)
        return found is not None and (len(found[2]) > scale or len(found[1]) > precision - scale)

    return refuses


def _is_no_utf8(field: bytes) -> bool:
    try:
        field.decode()
    except UnicodeDecodeError:
        return True
    return False
