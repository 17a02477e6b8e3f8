r"""Lines of metrics as JSON lines: InfluxDB's line protocol and annotated CSV, and Prometheus' text format.

===================================================  ========================================================
a line                                               the record that it becomes
===================================================  ========================================================
``weather,station=a temp=19.18,hum=40i 17096...``    ``{"measurement":"weather","station":"a","temp":19.18,
                                                      "hum":40,"time":17096...}``, in the file's unit: nanoseconds
``http_requests{code="200"} 10 1709629207120``       ``{"metric":"http_requests","code":"200","value":10.0,
                                                      "time":1709629207120}``, milliseconds
``,,0,2024-03-05T09:00:07Z,19.18`` below             a field for each column that has a name; an empty one is the
``#datatype,...`` and a line of names                column's default, or null
===================================================  ========================================================

A line is a function of itself, but for the tables of annotated CSV, whose lines have the head before them. A line that
cannot be read stays as it is, and is a reject; comments and heads are blank lines, so that numbers of lines are those
of the file. A number without ``i`` or ``u`` has a point, so that it is no whole number.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from copy import copy
from itertools import chain, repeat
from typing import NamedTuple

from msgspec import Struct

from streamjoin_ds.source.files.decoders import MAX_LINE_BYTES, Decoder, LineDecoder, too_long

__all__ = ["LINE_FORMATS", "Influx", "Prometheus", "line_format", "line_words", "metric_records"]

LINE_FORMATS = ("influx", "prometheus")
_WORDS = {"influx": "no line of InfluxDB's", "prometheus": "no line of Prometheus' text format"}
_LOOKED_LINES = 20  # by which a format is told
_ANNOTATIONS = ("#group", "#datatype", "#default")
_NAME = r"(?:[^,=\s\\]|\\.)+"
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|[^,\s"]+)'
_LINE = re.compile(
    rf"((?:[^,\s\\]|\\.)+)((?:,{_NAME}={_NAME})*)[ ]+"
    rf"({_NAME}={_VALUE}(?:,{_NAME}={_VALUE})*)(?:[ ]+(-?[0-9]+))?[ ]*"
)
_TAG = re.compile(rf",({_NAME})=({_NAME})")
_FIELD = re.compile(rf"({_NAME})=({_VALUE})(?:,|$)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = dict.fromkeys(("t", "T", "true", "True", "TRUE"), "true") | dict.fromkeys(
    ("f", "F", "false", "False", "FALSE"), "false"
)
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*\s*=\s*"(?:[^"\\]|\\.)*"'
_SAMPLE = re.compile(
    rf"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{{\s*((?:{_LABEL}\s*,?\s*)*)\}})?"
    r"\s*(\S+)(?:\s+(-?[0-9.]+))?\s*(?:#.*)?"
)
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
# Values that stand in JSON as they are written; a number without a point has one there.
_PLAIN_TAG, _PLAIN_TEXT = r'[^"\\\x00-\x1f,=\s]+', r'[^"\\\x00-\x1f]*'
_PLAIN_FLOAT = r"(-?(?:0|[1-9][0-9]{0,14}))(\.[0-9]+)?"
_ASCII_BLANKS = " \t\n\r\v\f"
_MOST_SHAPES = 64  # of lines, that are tried in a text
_BROKEN = re.compile("[\udc80-\udcff]")
_SPECIAL = {"nan": "NaN", "+inf": "Infinity", "inf": "Infinity", "-inf": "-Infinity"}


def line_words(kind: str) -> str | None:
    """Return why a line of a format is no record; None: it is no format of `LINE_FORMATS`."""
    return _WORDS.get(kind)


def line_format(text: str) -> str | None:
    """Return the format of `LINE_FORMATS` that a text is in, by its first lines; None: it is in none of them."""
    if text.removeprefix("\ufeff").startswith(_ANNOTATIONS):
        return "influx"
    lines = [line for line in text.splitlines()[:_LOOKED_LINES] if line.strip() and not line.startswith("#")]
    if lines and all(map(_influx, lines)):
        return "influx"
    is_told = text.startswith(("# HELP ", "# TYPE "))
    return "prometheus" if is_told and lines and all(map(_prometheus, lines)) else None


class Influx(Struct, frozen=True):
    """Line protocol of InfluxDB, or its annotated CSV, which begins with an annotation or an empty first name."""

    begin_bytes = 64

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        text = begin.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
        return _Tables(path) if text.startswith((*_ANNOTATIONS, ",")) else LineDecoder(_LikeLines(_influx).made, path)


class Prometheus(Struct, frozen=True):
    """Prometheus' text format, also as OpenMetrics has it."""

    begin_bytes = 0

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        del begin
        return LineDecoder(_LikeLines(_prometheus).made, path)


def metric_records(text: bytes, kind: str) -> list[bytes]:
    """Return the records of a whole text in a format of `LINE_FORMATS`, and lines that cannot be read as they are."""
    return [made for made in _OF_MESSAGES[kind].made(text).split(b"\n") if made]


class _Part(NamedTuple):
    """A field of a record: its value in JSON, and how it is written in lines that differ from this one in values alone.

    Attributes
    ----------
    name, value : str
    written : str
        A pattern of the field in such lines, with what stands before it.
    told : str
        The value that it has in JSON, with ``%s`` for each group of the pattern.
    """

    name: str
    value: str
    written: str
    told: str = "%s"


class _LikeLines:
    """Makes records of lines: those that are as one before them in a tenth of the time.

    Parameters
    ----------
    parts : callable
        Returns the fields of a line; None where it cannot be read.
    """

    def __init__(self, parts: Callable[[str], list[_Part] | None]) -> None:
        self._parts, self._left = parts, _MOST_SHAPES
        self._shapes: list[tuple[re.Pattern[str], str]] = []  # of lines, and of their records; the last met is first

    def made(self, data: bytes) -> bytes:
        """Return the records of whole lines, one a line. Bytes that are no UTF-8 stay as they are."""
        try:
            return "\n".join(map(self._record, data.decode().split("\n"))).encode()
        except UnicodeDecodeError:
            lines = [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")]
            made = [line if _BROKEN.search(line) and _says(line) else self._record(line) for line in lines]
            return "\n".join(made).encode("utf-8", "surrogateescape")

    def _record(self, line: str) -> str:
        shapes = self._shapes  # another thread may give the object another list
        for place, (values, told) in enumerate(shapes):
            if found := values.fullmatch(line):
                if place:
                    self._shapes = [shapes[place], *shapes[:place], *shapes[place + 1 :]]
                return told % found.groups(".0")
        text = line.rstrip("\r")
        if not _says(text):
            return ""
        parts = self._parts(text)
        made = None if parts is None else _object([(part.name, part.value) for part in parts])
        if parts is None or made is None:
            return line
        if self._left:  # each try compiles a pattern
            self._left -= 1
            values = re.compile("".join([part.written for part in parts]))
            record = _object([(part.name.replace("%", "%%"), part.told) for part in parts])
            if record is not None and (found := values.fullmatch(text)) and record % found.groups(".0") == made:
                self._shapes = [(values, record), *shapes]
        return made


def _says(line: str) -> bool:
    """Whether a line is neither blank nor a comment."""
    text = line.strip(_ASCII_BLANKS)
    return bool(text) and not text.startswith("#")


def _object(pairs: list[tuple[str, str]]) -> str | None:
    """Return pairs of a name and a value in JSON as an object; None where a name is there twice."""
    if len({name for name, _ in pairs}) < len(pairs):
        return None
    return "{" + ",".join([f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in pairs]) + "}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _float(text: str) -> str | None:
    """Return a number as JSON with a point; None where it is none."""
    if not _FLOAT.fullmatch(text):
        return None
    if re.fullmatch(r"-?(?:0|[1-9][0-9]*)\.[0-9]+", text):
        return text
    number = float(text)
    return repr(number) if math.isfinite(number) else None


def _named(key: str, name: str) -> _Part:
    """Return the part that says what a line measures."""
    return _Part(key, made := _text(_unescaped(name)), re.escape(name), made.replace("%", "%%"))


def _influx(line: str) -> list[_Part] | None:
    found = _LINE.fullmatch(line.strip(" "))
    if found is None:
        return None
    measurement, tags, fields, time = found.groups()
    parts = [_named("measurement", measurement)]
    for name, value in _TAG.findall(tags):
        written = f",{re.escape(name)}=({_PLAIN_TAG})"
        parts.append(_Part(_unescaped(name), _text(_unescaped(value)), written, '"%s"'))
    for before, (name, value) in zip(chain(" ", repeat(",")), _FIELD.findall(fields), strict=False):
        made = _field(value)
        if made is None:
            return None
        written, told = _written(value)
        parts.append(_Part(_unescaped(name), made, f"{before}{re.escape(name)}={written}", told))
    return parts if time is None else [*parts, _Part("time", time, " (-?[0-9]+)")]


def _written(value: str) -> tuple[str, str]:
    """Return a pattern of values that are written as this one, and how they stand in JSON."""
    if value.startswith('"'):
        return f'"({_PLAIN_TEXT})"', '"%s"'
    if value[-1] in ("i", "u"):
        return f"({'-?' if value[-1] == 'i' else ''}[1-9][0-9]{{0,17}}|0){value[-1]}", "%s"
    return ("(true|false)", "%s") if value in ("true", "false") else (_PLAIN_FLOAT, "%s%s")


def _unescaped(text: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", text) if "\\" in text else text


def _field(value: str) -> str | None:
    if value.startswith('"'):
        return _text(re.sub(r'\\(["\\])', r"\1", value[1:-1]))
    if value[-1:] in ("i", "u"):
        number = value[:-1]
        return str(int(number)) if re.fullmatch(r"-?[0-9]+" if value[-1] == "i" else r"[0-9]+", number) else None
    return _BOOLEANS.get(value) or _float(value)


def _prometheus(line: str) -> list[_Part] | None:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return None
    metric, labels, value, time = found.groups()
    number = _SPECIAL.get(value.lower()) or _float(value)
    if number is None:
        return None
    parts = [_named("metric", metric)]
    for before, (name, text) in zip(chain((r"\{",), repeat(",")), _PAIR.findall(labels or ""), strict=False):
        parts.append(_Part(name, _text(_label(text)), f'{before}{name}="({_PLAIN_TEXT})"', '"%s"'))
    end = r"\} " if len(parts) > 1 else " "
    parts.append(_Part("value", number, end + _PLAIN_FLOAT, "%s%s"))
    return parts if time is None else [*parts, _Part("time", time, " (-?[0-9]+)")]


def _label(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


class _Tables(Decoder):
    """Annotated CSV of InfluxDB: tables one after the other, each with annotations and a line of names."""

    def __init__(self, path: str) -> None:
        self._path, self._rest = path, b""
        self._kinds: list[str] = []
        self._defaults: list[str] = []
        self._names: list[str] | None = None

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        end = data.rfind(b"\n") + 1
        whole, self._rest = (self._rest + data[:end], data[end:]) if end else (b"", self._rest + data)
        if len(self._rest) > MAX_LINE_BYTES:
            self.fault = too_long(self._path)
        return b"".join([self._line(line) + b"\n" for line in whole.split(b"\n")[:-1]])

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        return self._line(self._rest) if self._rest else b""

    def copy(self) -> _Tables:
        """See `Decoder.copy`."""
        return copy(self)

    def _line(self, line: bytes) -> bytes:
        try:
            text = line.decode("utf-8-sig").rstrip("\r")
            fields = next(csv.reader([text], strict=True), [])
        except (UnicodeDecodeError, csv.Error):
            return line
        if not any(fields):
            if not text.strip():
                self._names = None  # a blank line ends a table
            return b""
        if fields[0] in _ANNOTATIONS:
            if self._names is not None:
                self._names, self._kinds, self._defaults = None, [], []
            if fields[0] == "#datatype":
                self._kinds = fields
            elif fields[0] == "#default":
                self._defaults = fields
            return b""
        if fields[0].startswith("#"):
            return b""
        if self._names is None:
            self._names = fields
            return b""
        made = self._record(fields)
        return line if made is None else made.encode()

    def _record(self, fields: list[str]) -> str | None:
        assert self._names is not None
        if len(fields) != len(self._names):
            return None
        pairs = []
        for place, (name, given) in enumerate(zip(self._names, fields, strict=True)):
            value = given or (self._defaults[place] if place < len(self._defaults) and place else "")
            if not name or not value:
                continue
            kind = self._kinds[place] if place < len(self._kinds) else ""
            made = _typed(value, kind)
            if made is None:
                return None
            pairs.append((name, made))
        return _object(pairs)


def _typed(value: str, kind: str) -> str | None:
    """Return a value as JSON by the type that its column is said to have; None where it is none."""
    if kind in ("long", "unsignedLong"):
        return str(int(value)) if re.fullmatch(r"-?[0-9]+", value) else None
    if kind == "boolean":
        return _BOOLEANS.get(value)
    if kind == "double" or (not kind and _FLOAT.fullmatch(value)):
        return _SPECIAL.get(value.lower()) or _float(value)
    return _text(value)


_OF_MESSAGES = {"influx": _LikeLines(_influx), "prometheus": _LikeLines(_prometheus)}
