"""Messages of JSON and of packed structs that are drawn, and what each is when it is read a second time."""

from __future__ import annotations

import json
import math
import random
import re
import string
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa

from streamjoin_ds.source.kafka.formats.registered_messages import RegisteredSchema
from streamjoin_ds.testing.values import instant_us
from tests.source.message_rules import END_NS, EPOCH, FIRST_NS, Number, Pairs, Rules, ns_of_number

__all__ = ["Drawn", "FixedDrawn", "JsonDrawn"]

TYPES = {
    "i8": pa.int8(),
    "u16": pa.uint16(),
    "i64": pa.int64(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "b": pa.bool_(),
    "s": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "dec": pa.decimal128(5, 2),
    "wide": pa.decimal128(38, 10),
    "at": pa.timestamp("us", tz="UTC"),
    "fine": pa.timestamp("ns", tz="UTC"),
    "berlin": pa.timestamp("us", tz="Europe/Berlin"),
    "l": pa.list_(pa.int32()),
    "st": pa.struct([("x", pa.int16()), ("y", pa.string())]),
    "ll": pa.list_(pa.struct([("t", pa.timestamp("us", tz="UTC")), ("d", pa.decimal128(6, 1))])),
}


class Drawn(ABC):
    """A schema that was drawn, and messages of it."""

    form: tuple[str, ...] = tuple(TYPES)
    times: tuple[pa.DataType, ...] = (pa.int64(), TYPES["at"], TYPES["fine"], TYPES["berlin"])

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.unit = draw.choice(["s", "ms", "us", "ns"])
        names = draw.sample(self.form, draw.randint(2, 6))
        kinds = [("ts", draw.choice(self.times)), *((name, self.type_of(name)) for name in names)]
        self.schema = pa.schema([pa.field(name, kind, draw.random() < 0.9) for name, kind in kinds])
        self.registered: dict[int, RegisteredSchema] = {}
        self.rules = Rules(self.schema, self.unit, has_texts=isinstance(self, JsonDrawn))

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of a column."""
        return TYPES[name]

    @abstractmethod
    def message(self) -> bytes:
        """Return a valid message."""

    @abstractmethod
    def reading(self, value: bytes) -> tuple[dict[str, Any] | None, bool]:
        """Return the row of a message, and whether it may be refused too."""

    def cuts(self, data: bytes) -> list[int]:
        """Return places in a message that matter more than others."""
        return list(range(min(len(data), 12)))

    def moment(self) -> datetime:
        """Return some time, seldom one at an end of what there is."""
        if self.draw.random() < 0.05:
            return self.draw.choice(
                [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(2262, 4, 12)]
            )
        return datetime(1970, 1, 1) + timedelta(microseconds=self.draw.randrange(1 << 51))

    def text(self) -> str:
        """Return some text."""
        return "".join(self.draw.choices(string.printable[:95] + "äß€𝛑", k=self.draw.choice([0, 1, 5, 30])))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number of a range: a small one, or often one at its ends."""
        if self.draw.random() < 0.7:
            return self.draw.randint(-100 if low else 0, 100)
        return self.draw.choice(
            [low, high, 0, 1, self.draw.randint(low, high), self.draw.randint(-100 if low else 0, 100)]
        )

    def float(self) -> float:
        """Return a float64."""
        bits = struct.unpack("<d", self.draw.randbytes(8))[0]
        return self.draw.choice(
            [0.0, -0.0, 1.5, math.inf, math.nan, self.draw.uniform(-1e6, 1e6), 16777217.0, 3.5e38, bits]
        )


class JsonDrawn(Drawn):
    _WITH_INF = re.compile(r"([:,\[ \t\r\n]-?)Inf(?=[ \t\r\n,}\]])")
    _TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.\w]+|[^\s\w]')

    def message(self) -> bytes:
        told = {
            "ts": self.time(),
            **{field.name: self.token(field.type) for field in self.schema if field.name != "ts"},
        }
        for name in list(told):
            if self.draw.random() < 0.08:
                del told[name]
        if self.draw.random() < 0.3:
            told["more"] = self.draw.choice(['{"a":[1,{"ts":5}]}', "[]", "null", "1e5", '"\\u00e4\\n"'])
        colon, comma = self.draw.choice([(":", ","), (": ", ", "), (" :\t", "\n,")])
        items = self.draw.sample(sorted(told.items()), len(told))
        return ("{" + comma.join(f'"{name}"{colon}{token}' for name, token in items) + "}").encode()

    def time(self) -> str:
        at = self.moment()
        if at.year in (1, 9999) or self.draw.random() < 0.6:
            return json.dumps(at.isoformat(self.draw.choice("T ")) + self.draw.choice(["Z", "+02:00", "-0330", ""]))
        since = int(instant_us(at)) // self.draw.choice([1, 10**3, 10**6])
        return self.draw.choice([str(since), f"{since}.5", f'"{since}"', f"{since}.0"])

    def token(self, kind: pa.DataType) -> str:
        draw, types = self.draw, pa.types
        if draw.random() < 0.06:
            return "null"
        if types.is_list(kind):
            return "[" + ",".join(self.token(kind.value_type) for _ in range(draw.randrange(4))) + "]"
        if types.is_struct(kind):
            return "{" + ",".join(f'"{one.name}":{self.token(one.type)}' for one in kind if draw.random() < 0.9) + "}"
        if types.is_boolean(kind):
            return draw.choice(["true", "false"])
        if types.is_integer(kind):
            bits = kind.bit_width - types.is_signed_integer(kind)
            return str(self.whole(-(1 << bits) if types.is_signed_integer(kind) else 0, (1 << bits) - 1))
        if types.is_floating(kind):
            found = self.float()
            return draw.choice([repr(found), "-0.1e-3", "5", "16777217"]) if math.isfinite(found) else "NaN"
        if types.is_decimal(kind):
            most = 10 ** min(kind.precision, 20) - 1
            return str(Decimal(draw.randint(-most, most)).scaleb(-kind.scale))
        if types.is_date(kind):
            return f'"{self.moment().date().isoformat()}"'
        if types.is_timestamp(kind):
            return json.dumps(self.moment().isoformat() + draw.choice(["Z", "+02:00", ".5Z"[2:], ""]))
        return json.dumps(self.text(), ensure_ascii=draw.random() < 0.5)

    def cuts(self, data: bytes) -> list[int]:
        return [found.start() for found in self._TOKENS.finditer(data)]

    def reading(self, value: bytes) -> tuple[dict[str, Any] | None, bool]:
        try:
            plain = value.strip(b" \t\r\n").decode()
            if not plain.startswith("{"):
                return None, False
            # Arrow knows ``Inf`` too, which Python does not.
            text = self._WITH_INF.sub(r"\1Infinity", plain) if "Inf" in plain else plain
            found = json.loads(
                text, parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=_pairs
            )
            is_odd = text is not plain or any(_is_beyond(one) for one in _scalars(found))
        except (ValueError, RecursionError):
            return None, False
        if found.twice & {*self.schema.names}:
            return None, False
        row = self.rules.row(found)
        return row, self.rules.is_odd or is_odd


def _pairs(pairs: list[tuple[str, Any]]) -> Pairs:
    found = Pairs(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        found.twice = frozenset(name for name in names if names.count(name) > 1)
    return found


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _scalars(one)
    elif isinstance(value, list):
        for one in value:
            yield from _scalars(one)
    elif isinstance(value, str):
        yield value


def _is_beyond(value: str) -> bool:
    """Whether a number is none of float64's; a text must be one of UTF-8, or an error is raised."""
    value.encode()
    return isinstance(value, Number) and value[-1] not in "Ny" and math.isinf(float(value))


class FixedDrawn(Drawn):
    FORMS: ClassVar[dict[str, Any]] = {
        "i8": ("b", pa.int8()), "u8": ("B", pa.uint8()), "i16": ("h", pa.int16()), "u16": ("H", pa.uint16()),
        "i32": ("i", pa.int32()), "u32": ("I", pa.uint32()), "i64": ("q", pa.int64()), "u64": ("Q", pa.uint64()),
        "f16": ("e", pa.float16()), "f32": ("f", pa.float32()), "f64": ("d", pa.float64()), "b": ("B", pa.bool_()),
        "id": ("5s", pa.binary(5)), "day": ("i", pa.date32()), "day64": ("q", pa.date64()),
        **{f"at_{unit}": ("q", pa.timestamp(unit, tz="UTC")) for unit in ("s", "ms", "us", "ns")},
        "naive": ("q", pa.timestamp("ms")),
    }  # fmt: skip
    form = tuple(FORMS)
    times = (pa.int64(), pa.float64(), *(kind for name, (_, kind) in FORMS.items() if name[:2] in ("at", "da", "na")))
    _UNITS: ClassVar[dict[str, Any]] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self._codes = [next(code for code, kind in self.FORMS.values() if kind == one.type) for one in self.schema]
        self._codes = [
            code if one.type != pa.bool_() else "B" for code, one in zip(self._codes, self.schema, strict=True)
        ]
        self._form = struct.Struct("<" + "".join(self._codes))

    def type_of(self, name: str) -> pa.DataType:
        return self.FORMS[name][1]

    def message(self) -> bytes:
        return self._form.pack(
            *(self._value(code, one.type) for code, one in zip(self._codes, self.schema, strict=True))
        )

    def _value(self, code: str, kind: pa.DataType) -> Any:
        types = pa.types
        if types.is_boolean(kind):
            return self.draw.randrange(2)
        if types.is_timestamp(kind):
            return int(instant_us(self.moment())) * 1000 // self._UNITS[kind.unit] % (1 << 63)
        if types.is_date(kind):
            days = (self.moment().date() - EPOCH).days
            return days if types.is_date32(kind) else days * 86_400_000 + self.draw.choice([0, 0, 5])
        if types.is_floating(kind):
            return (
                self.draw.choice([0.0, -0.0, 1.5, math.nan, -math.inf, 2.0**-20])
                if code == "e"
                else (struct.unpack("<f", self.draw.randbytes(4))[0] if code == "f" else self.float())
            )
        if types.is_fixed_size_binary(kind):
            return self.draw.randbytes(5)
        bits = kind.bit_width - types.is_signed_integer(kind)
        return self.whole(-(1 << bits) if types.is_signed_integer(kind) else 0, (1 << bits) - 1)

    def reading(self, value: bytes) -> tuple[dict[str, Any] | None, bool]:
        if len(value) != self._form.size:
            return None, False
        row: dict[str, Any] = {}
        for number, one in zip(self._form.unpack(value), self.schema, strict=True):
            kind = one.type
            if one.name == "ts" and not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                found: Any = ns_of_number(number, self.unit)
            else:
                found = self._told(number, kind)
            if found is None:
                return None, False
            if one.name == "ts" and pa.types.is_date(kind):
                found = found * 86_400 * 10**9
            if pa.types.is_timestamp(kind) and kind.unit == "ns":
                row[f"_ns_{one.name}"] = found
            is_time = one.name == "ts" or pa.types.is_timestamp(kind)
            row["_ts" if one.name == "ts" else one.name] = found // 1000 if is_time else found
        return row, False

    def _told(self, number: Any, kind: pa.DataType) -> Any:
        types = pa.types
        if types.is_boolean(kind):
            return bool(number) if number < 2 else None
        if types.is_floating(kind):
            return number.hex()
        if not (types.is_timestamp(kind) or types.is_date(kind)):
            return number
        unit = (
            self._UNITS[kind.unit] if types.is_timestamp(kind) else 86_400 * 10**9 if types.is_date32(kind) else 10**6
        )
        if types.is_date64(kind):
            number = number // 86_400_000 * 86_400_000
        found = number * unit
        if not FIRST_NS <= found < END_NS:
            return None
        return found if types.is_timestamp(kind) else found // (86_400 * 10**9)
