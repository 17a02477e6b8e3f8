"""JSON lines: one object a line; a key that is absent is a null, keys that do not travel are passed over."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from streamjoin_ds.source.event_time import timestamps
from streamjoin_ds.source.files.lines import Lines

__all__ = ["JsonLines", "check_nulls"]


# How an event time may be written; numbers with a point exactly, so that one parses alike beside any others.
_TIME_TYPES = (pa.string(), pa.int64(), pa.decimal256(76, 38))
_WHOLE = r"^([+-]?[0-9]+)\.0+$"

_STRAY_NULL = re.compile(rb"^[^{\n]*null|\}[ \t\r]*null", re.MULTILINE)


class JsonLines:
    """Lines of one file of JSON objects.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns that travel, with their types inside the house.
    time : str
        The event time's column: a text, or a number.
    """

    def __init__(self, schema: pa.Schema, time: str) -> None:
        self._schema = schema
        self._time = time
        self._time_type = pa.string()

    def parse(self, data: bytes) -> pa.Table:
        """See `LineFormat.parse`."""
        if not data:
            return pa.table({f.name: pa.array([], self._read_type(f)) for f in self._schema})
        try:
            data.decode()  # Arrow would take bytes that are no text
        except UnicodeDecodeError as error:
            msg = "not UTF-8"
            raise pa.ArrowInvalid(msg) from error
        check_nulls(data)
        try:
            table = self._read(data)
        except pa.ArrowInvalid:
            # The time may be written in another way: try those before calling the lines broken.
            table = self._read_otherwise(data)
            if table is None:
                raise
        for number, column in enumerate(self._schema):
            if column.name != self._time and pa.types.is_timestamp(column.type):
                table = table.set_column(number, column.name, timestamps(table.column(number), column.type))
            elif column.name != self._time and pa.types.is_date32(column.type):
                table = table.set_column(number, column.name, table.column(number).cast(pa.date32()))
        return self._uniform(table)

    def reason(self, line: bytes) -> tuple[str, str]:
        """See `LineFormat.reason`."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return "", "not JSON"
        if not isinstance(value, dict):
            return "", "not a JSON object"
        for column in self._schema:
            alone = JsonLines(pa.schema([column]), self._time)
            try:
                alone.parse(line)
            except pa.ArrowInvalid:
                return column.name, f"the value is not of type {column.type}"
        return "", "the line cannot be read"

    def sift(self, lines: Lines) -> dict[int, tuple[str, str]]:
        """See `LineFormat.sift`: lines that are no JSON objects."""
        found = {}
        for place in range(lines.count):
            line = lines.text(place, place + 1)
            try:
                suspect = None if isinstance(json.loads(line), dict) else "not a JSON object"
            except (ValueError, RecursionError):
                suspect = "not JSON"
            # Python's parser only suspects: Arrow's decides, or what is broken would depend on a batch's neighbours.
            if suspect is not None and not self._parses(line):
                found[place] = ("", suspect)
        return found

    def _parses(self, line: bytes) -> bool:
        try:
            return bool(self.parse(line).num_rows == 1)
        except pa.ArrowInvalid:
            return False

    def _read_type(self, column: pa.Field) -> pa.DataType:
        if column.name == self._time:
            return self._time_type
        # JSON has no dates: they are texts, which Arrow's reader does not convert.
        return pa.string() if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type) else column.type

    def _read(self, data: bytes) -> pa.Table:
        schema = pa.schema([pa.field(f.name, self._read_type(f)) for f in self._schema])
        table = arrow_json.read_json(
            pa.BufferReader(data),
            arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore", newlines_in_values=False
            ),
        )
        return table.select(schema.names)

    def _read_otherwise(self, data: bytes) -> pa.Table | None:
        usual = self._time_type
        for kind in _TIME_TYPES:
            self._time_type = kind
            try:
                return self._read(data)
            except pa.ArrowInvalid:
                continue
        self._time_type = usual
        return None

    def _uniform(self, table: pa.Table) -> pa.Table:
        # Pieces of one chunk may have written the time either way: text is what both can be put in.
        place = self._schema.get_field_index(self._time)
        if place < 0 or pa.types.is_string(table.column(place).type):
            return table
        texts = pc.replace_substring_regex(table.column(place).cast(pa.string()), _WHOLE, r"\1")
        return table.set_column(place, self._time, texts)


def check_nulls(data: bytes) -> None:
    """Refuse a ``null`` outside of any object with ArrowInvalid.

    Arrow's reader writes it to where no column is, and the process dies (apache/arrow#47409). Such a null is the first
    thing of its line, or follows an object.
    """
    if b"null" not in data:
        return
    for match in _STRAY_NULL.finditer(data):
        begin, end = data.rfind(b"\n", 0, match.start() + 1) + 1, data.find(b"\n", match.end())
        try:
            is_object = isinstance(json.loads(data[begin : end if end >= 0 else len(data)]), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:  # else what was found is inside a text
            msg = "a null outside of an object"
            raise pa.ArrowInvalid(msg)
