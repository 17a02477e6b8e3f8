"""Messages with a registry's frame that are drawn, and what each is when a library's other reader reads it."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import re
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

import fastavro
import fastavro._read_py as plain_avro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from streamjoin_ds.source.kafka.formats.registered_messages import RegisteredSchema
from streamjoin_ds.testing.values import instant_us
from tests.source.drawn_messages import Drawn

__all__ = ["AvroDrawn", "ProtobufDrawn"]


class _Registered(Drawn):
    """Messages with a registry's frame. Each block has some schemas of writers, which differ from the columns."""

    def frame(self) -> tuple[int, bytes]:
        """Return the number of one of the schemas, and the frame that names it."""
        number = self.draw.choice(sorted(self.registered))
        return number, b"\0" + number.to_bytes(4, "big")

    def reading(self, value: bytes) -> tuple[dict[str, Any] | None, bool]:
        if len(value) < 5 or value[0] or int.from_bytes(value[1:5], "big") not in self.registered:
            return None, False
        try:
            record = self.record(int.from_bytes(value[1:5], "big"), value[5:])
        except Exception:  # the library's, of any kind
            return None, False
        return None if record is None else self.rules.row(record), self.rules.is_odd

    @abstractmethod
    def record(self, number: int, data: bytes) -> dict[str, Any] | None:
        """Return the fields of what follows the frame; None where it is no record."""


class AvroDrawn(_Registered):
    _LOGICAL: ClassVar[dict[str, Any]] = {
        "day": ("int", "date"), "at": ("long", "timestamp-micros"), "ms": ("long", "timestamp-millis"),
        "local": ("long", "local-timestamp-micros"), "time": ("long", "time-micros"),
    }  # fmt: skip
    _NAMED: ClassVar[dict[str, Any]] = {
        **{name: {"type": plain, "logicalType": kind} for name, (plain, kind) in _LOGICAL.items()},
        "dec": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        "wide": {"type": "fixed", "size": 8, "name": "w", "logicalType": "decimal", "precision": 18, "scale": 4},
        "enum": {"type": "enum", "name": "c", "symbols": ["a", "b", "c5"]},
        "fixed": {"type": "fixed", "size": 3, "name": "f"},
        "l": {"type": "array", "items": "int"},
        "map": {"type": "map", "values": "int"},
        "st": {"type": "record", "name": "s", "fields": [{"name": "x", "type": "int"}, {"name": "y",
        "type": "string"}]},
        "ll": {"type": "array", "items": {"type": "record", "name": "i", "fields": [
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 1}}]}},
        "empty": {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
    }  # fmt: skip
    # What a writer has for a column: the first is the usual one.
    _WRITTEN: ClassVar[dict[str, Any]] = {
        "ts": ("long", "at", "ms", "string", "double", "local", "day", "boolean"), "i8": ("int", "long", "double"),
        "u16": ("int", "long"), "i64": ("long", "int", "double", "dec", "boolean"), "u64": ("long", "string"),
        "f32": ("float", "double", "int", "boolean"), "f64": ("double", "float", "long", "dec", "boolean"),
        "b": ("boolean", "int"), "s": ("string", "enum", "bytes", "int"), "raw": ("bytes", "fixed", "string", "l"),
        "day": ("day", "int", "at", "double"), "dec": ("dec", "wide", "int", "double"), "wide": ("wide", "dec", "long"),
        "at": ("at", "ms", "local", "long", "day"), "fine": ("at", "ms", "long"), "berlin": ("at", "local", "long"),
        "l": ("l", "bytes", "empty", "string"), "st": ("st", "map", "l"), "ll": ("ll", "empty", "l"),
    }  # fmt: skip

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self._parsed: dict[int, Any] = {}
        self._kinds: dict[int, dict[str, str]] = {}
        for number in draw.sample([1, 2, 127, 128, 65_536, (1 << 31) - 1], 3):
            names = [name for name in self.schema.names if name == "ts" or draw.random() < 0.95]
            if draw.random() < 0.3:
                names.insert(draw.randrange(len(names) + 1), "more")
            kinds = {name: self._written(name) for name in names}
            fields = [{"name": name, "type": self._named(kind, name)} for name, kind in kinds.items()]
            for one in fields:
                one["type"] = ["null", one["type"]] if draw.random() < 0.2 else one["type"]
            text = json.dumps({"type": "record", "name": "r", "fields": fields})
            self._kinds[number] = kinds
            self._parsed[number] = fastavro.parse_schema(json.loads(text))
            self.registered[number] = RegisteredSchema("AVRO", text)

    def _written(self, name: str) -> str:
        if name == "more":
            return self.draw.choice([*self._NAMED, "null", "long", "string"])
        usual, *others = self._WRITTEN[name]
        return usual if self.draw.random() < 0.94 else self.draw.choice(others)

    def _named(self, kind: str, name: str) -> Any:
        text = json.dumps(self._NAMED.get(kind, kind))
        return json.loads(
            re.sub(r'"name": "([a-z])"', rf'"name": "\1_{name}"', text)
            if kind not in ("st", "ll")
            else text.replace('"name": "s"', f'"name": "s_{name}"').replace('"name": "i"', f'"name": "i_{name}"')
        )

    def message(self) -> bytes:
        number, frame = self.frame()
        data = io.BytesIO()
        schema = self._parsed[number]
        record = {
            one["name"]: None if isinstance(one["type"], list) and self.draw.random() < 0.3
            else self._value(self._kinds[number][one["name"]])
            for one in schema["fields"]
        }  # fmt: skip
        fastavro.schemaless_writer(data, schema, record)
        return frame + data.getvalue()

    def _value(self, kind: str) -> Any:
        draw = self.draw
        at = self.moment()
        if kind in ("at", "ms"):
            return at.replace(tzinfo=timezone.utc)
        made: dict[str, Callable[[], Any]] = {
            "null": lambda: None, "boolean": lambda: draw.random() < 0.5,
            "int": lambda: self.whole(-(1 << 31), (1 << 31) - 1),
            "long": lambda: draw.choice([self.whole(-(1 << 63), (1 << 63) - 1), int(instant_us(at)) // 10**6]),
            "float": lambda: draw.choice([1.5, -0.0, math.nan, math.inf, 2.0**-100]), "double": self.float,
            "string": lambda: draw.choice([self.text(), at.isoformat() + "Z", str(int(instant_us(at)))]),
            "bytes": lambda: draw.choice([draw.randbytes(5), b"plain"]), "fixed": lambda: draw.randbytes(3),
            "enum": lambda: draw.choice(["a", "b", "c5"]), "day": at.date, "local": lambda: at, "time": at.time,
            "dec": lambda: Decimal(draw.randint(-99_999, 99_999)).scaleb(-2),
            "wide": lambda: Decimal(draw.randint(-(10**18) + 1, 10**18 - 1)).scaleb(-4),
            "l": lambda: [self.whole(-5, 5) for _ in range(draw.randrange(4))], "map": lambda: {"x": 5, "z": 6},
            "st": lambda: {"x": self.whole(-(1 << 15), 1 << 15), "y": self.text()},
            "ll": lambda: [{"t": self.moment().replace(tzinfo=timezone.utc),
            "d": Decimal(draw.randint(-99, 99)).scaleb(-1)}
                           for _ in range(draw.randrange(3))],
            "empty": lambda: [{}] * draw.randrange(3),
        }  # fmt: skip
        return made[kind]()

    def record(self, number: int, data: bytes) -> dict[str, Any] | None:
        if "empty" in self._kinds[number].values():  # lists of nothing may be of any length
            return None
        rest = io.BytesIO(data)
        found = plain_avro.schemaless_reader(rest, self._parsed[number], None)
        longs = [one for one in found.values() if type(one) is int]
        is_whole = rest.tell() == len(data) and all(-(1 << 63) <= one < 1 << 63 for one in longs)
        return found if is_whole else None


class ProtobufDrawn(_Registered):
    form = ("i8", "u16", "i64", "u64", "f32", "f64", "b", "s", "raw", "wide", "at", "fine", "berlin", "l", "dec", "day")
    _SCALARS: ClassVar[dict[str, Any]] = {
        "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "bool": 8, "string": 9, "bytes": 12,
        "uint32": 13, "sfixed32": 15, "sint32": 17, "sint64": 18,
    }  # fmt: skip
    _OTHERS: ClassVar[dict[str, Any]] = {
        "enum": (14, ".t.Kind"), "at": (11, ".google.protobuf.Timestamp"),
        "maybe": (11, ".google.protobuf.DoubleValue"),
        "name": (11, ".google.protobuf.StringValue"), "inner": (11, ".t.Inner"),
    }  # fmt: skip
    _WRITTEN: ClassVar[dict[str, Any]] = {
        "ts": ("int64", "at", "string", "sint64", "double"), "i8": ("int32", "sint32"), "u16": ("uint32", "int32"),
        "i64": ("int64", "sint64", "uint64", "double"), "u64": ("uint64", "fixed64"),
        "f32": ("float", "double", "maybe"),
        "f64": ("double", "maybe", "float", "int32", "bool"), "b": ("bool", "int32"), "raw": ("bytes", "string"),
        "s": ("string", "name", "enum", "bytes"), "day": ("maybe", "string", "int32", "at"),
        "dec": ("sint32", "string", "double"),
        "wide": ("int64", "double"), "at": ("at", "int64"), "fine": ("at",), "berlin": ("at", "int64"),
        "l": ("int32", "bytes"),
        }  # fmt: skip

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self._classes: dict[int, Any] = {}
        self._kinds: dict[int, dict[str, str]] = {}
        for number in draw.sample([1, 2, 127, 65_536], 2):
            file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="t", syntax="proto3")
            file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
            kind = file.enum_type.add(name="Kind")
            for value, name in ((0, "NONE"), (3, "WIND")):
                kind.value.add(name=name, number=value)
            file.message_type.add(name="Inner").field.add(name="x", number=1, type=5, label=1)
            message = file.message_type.add(name="Reading")
            kinds = self._kinds[number] = {}
            for name in self.schema.names:
                usual, *others = self._WRITTEN[name]
                kinds[name] = usual if not others or draw.random() < 0.92 else draw.choice(others)
                code, type_name = self._OTHERS.get(kinds[name]) or (self._SCALARS[kinds[name]], None)
                label = 3 if name == "l" or draw.random() < 0.03 else 1
                one = message.field.add(
                    name=name, number=draw.choice([1, 15, 16, 2047, 3]) * 100 + len(kinds), type=code, label=label,
                    type_name=type_name,
                )  # fmt: skip
                if label == 1 and type_name is None and draw.random() < 0.3:
                    one.oneof_index, one.proto3_optional = len(message.oneof_decl), True
                    message.oneof_decl.add(name=f"_{name}")
            pool = descriptor_pool.DescriptorPool()
            for known in (timestamp_pb2, wrappers_pb2):
                pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
            pool.AddSerializedFile(file.SerializeToString())
            self._classes[number] = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Reading"))
            self.registered[number] = RegisteredSchema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())

    def message(self) -> bytes:
        number, frame = self.frame()
        message = self._classes[number]()
        for one in message.DESCRIPTOR.fields:
            if self.draw.random() < 0.05:
                continue
            kind, name = self._kinds[number][one.name], one.name
            if _is_repeated(one):
                for _ in range(self.draw.randrange(3)):
                    held = getattr(message, name)
                    self._fill(held.add(), kind) if one.message_type else held.append(self._value(kind))
            elif one.message_type:
                self._fill(getattr(message, name), kind)
            else:
                setattr(message, name, self._value(kind))
        return frame + b"\x02\x02" + message.SerializeToString()

    def _fill(self, message: Any, kind: str) -> None:
        if kind == "at":
            message.FromMicroseconds(int(instant_us(self.moment())))
        elif kind == "inner":
            message.x = 5
        else:
            message.value = self.text() if kind == "name" else self.float()

    def _value(self, kind: str) -> Any:
        if kind in ("double", "float"):
            return self.draw.choice([1.5, -0.0, math.nan, 3.25]) if kind == "float" else self.float()
        if kind in ("bool", "enum"):
            return self.draw.choice([0, 3]) if kind == "enum" else self.draw.random() < 0.5
        if kind == "string":
            return self.draw.choice([self.text(), self.moment().isoformat()])
        if kind == "bytes":
            return self.draw.randbytes(4)
        bits = 64 if kind.endswith("64") else 32
        low = 0 if kind[0] in "uf" else -(1 << bits - 1)
        return self.draw.choice(
            [self.whole(low, low + (1 << bits) - 1), int(instant_us(self.moment())) >> 22 & 0x7FFFFFFF]
        )

    def record(self, number: int, data: bytes) -> dict[str, Any] | None:
        count, at = _zigzag(data, 0)
        place = [0]
        if count:
            if not 0 < count <= 64:
                return None
            place = []
            for _ in range(count):
                one, at = _zigzag(data, at)
                place.append(one)
        if len(place) > 1 or place[0] not in (0, 1):
            return None
        kind = self._classes[number]
        if place == [0]:
            kind = message_factory.GetMessageClass(kind.DESCRIPTOR.file.message_types_by_name["Inner"])
        message = kind.FromString(data[at:])
        fields = message.DESCRIPTOR.fields_by_name
        return {one.name: self._told(message, fields[one.name], one.type) for one in self.schema if one.name in fields}

    def _told(self, message: Any, field: Any, kind: pa.DataType) -> Any:
        value = getattr(message, field.name)
        if _is_repeated(field):
            return [self._plain(one, field, kind) for one in value]
        if field.has_presence and not message.HasField(field.name):
            return None
        return self._plain(value, field, kind)

    @staticmethod
    def _plain(value: Any, field: Any, kind: pa.DataType) -> Any:
        if field.enum_type is not None and pa.types.is_string(kind):
            return {0: "NONE", 3: "WIND"}.get(value, value)
        if field.message_type is None or field.message_type.name == "Inner":
            return value
        if field.message_type.name != "Timestamp":
            return value.value
        if not 0 <= value.nanos < 10**9:
            raise ValueError
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(
            seconds=value.seconds, microseconds=value.nanos // 1000
        )


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(10):
        found |= (data[at + place] & 127) << 7 * place
        if data[at + place] < 128:
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise ValueError
