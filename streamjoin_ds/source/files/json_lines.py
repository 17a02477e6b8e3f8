"""JSON lines: one object in each line. An absent key is a null, and keys that do not travel are passed over."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from streamjoin_ds.source.event_time import timestamps
from streamjoin_ds.source.files.lines import Lines
from streamjoin_ds.spec.columns import not_of_type
from streamjoin_ds.spec.conforming import holds_times
from streamjoin_ds.spec.nested_values import with_leaves

__all__ = ["JsonLines", "check_nulls", "from_texts", "with_texts"]


# Types of the time column, in the order in which they are tried. A number with a point is read as an exact decimal, so
# that it parses alike beside any other records.
_TIME_TYPES = (pa.string(), pa.int64(), pa.decimal256(76, 38))
_WHOLE = r"^([+-]?[0-9]+)\.0+$"

_STRAY_NULL = re.compile(rb"^[^{\n]*null|\}[ \t\r]*null", re.MULTILINE)


_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


class JsonLines:
    """The format of one JSON file's lines, which are objects.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns that travel, with their inside types.
    time : str
        The time column: its values are texts or numbers.
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
            data.decode()  # Arrow would accept bytes that are not UTF-8
        except UnicodeDecodeError as error:
            msg = "not UTF-8"
            raise pa.ArrowInvalid(msg) from error
        check_nulls(data)
        _check_objects(data)
        try:
            table = self._read(data)
        except pa.ArrowInvalid:
            # The time may be written in another way: try those before calling the lines broken.
            table = self._read_otherwise(data)
            if table is None:
                raise
        for number, column in enumerate(self._schema):
            if column.name != self._time and holds_times(column.type):
                table = table.set_column(number, column.name, from_texts(table.column(number), column.type))
        return self._exact(table)

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
                return column.name, not_of_type(column.type)
        return "", "the line cannot be read"

    def sift(self, lines: Lines) -> dict[int, tuple[str, str]]:
        """See `LineFormat.sift`: finds lines that are no JSON objects."""
        found = {}
        for place in range(lines.count):
            line = lines.text(place, place + 1)
            try:
                suspect = None if isinstance(json.loads(line), dict) else "not a JSON object"
            except (ValueError, RecursionError):
                suspect = "not JSON"
            # Python's parser only suspects a line, and Arrow's decides. `sift` runs only where some line is broken. If
            # it decided by itself, a record's neighbours would decide whether the record is broken.
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
        return with_texts(column.type)

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

    def _exact(self, table: pa.Table) -> pa.Table:
        # A decimal is made a text, which is read as the number that was written. Whole numbers stay: as texts a million
        # of them would take 1.8 s more to become event times, which are the same.
        place = self._schema.get_field_index(self._time)
        if place < 0 or not pa.types.is_decimal(table.column(place).type):
            return table
        texts = pc.replace_substring_regex(table.column(place).cast(pa.string()), _WHOLE, r"\1")
        return table.set_column(place, self._time, texts)


def with_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts for timestamps and dates: JSON has none, and Arrow's reader converts few."""
    types = pa.types
    if types.is_list(kind):
        return pa.list_(with_texts(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, with_texts(field.type)) for field in kind])
    return pa.string() if types.is_timestamp(kind) or types.is_date32(kind) else kind


def from_texts(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values of a type of a column that was read as `with_texts` of it.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no timestamp, or no date.
    """
    return with_leaves(column.combine_chunks(), kind, _from_text)


def _from_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return timestamps(pa.chunked_array([values]), kind)
    return values.cast(kind)  # a date, or what is no text


def check_nulls(data: bytes) -> None:
    """Raise ArrowInvalid where a ``null`` is outside of any object.

    Arrow's reader writes such a null into a column that does not exist, and the process dies (apache/arrow#47409). The
    null is the first thing in its line, or follows an object.
    """
    if b"null" not in data:
        return
    for match in _STRAY_NULL.finditer(data):
        begin, end = data.rfind(b"\n", 0, match.start() + 1) + 1, data.find(b"\n", match.end())
        try:
            is_object = isinstance(json.loads(data[begin : end if end >= 0 else len(data)]), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:  # in an object, the null that was found is inside a text
            msg = "a null outside of an object"
            raise pa.ArrowInvalid(msg)


def _check_objects(data: bytes) -> None:
    """Raise `pyarrow.ArrowInvalid` where one of several lines does not begin with ``{`` and end with ``}``.

    To Arrow a line end is a blank. A broken line could go on in the next one, and two objects in another line would
    make up for the lost row. Of lines that begin and end so none can go on in the next: an object cannot follow another
    without a comma. A line alone has no neighbours, and Arrow decides.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    if not len(ends) or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    if len(ends) == 1:
        return
    starts = np.append(np.zeros(1, np.int64), ends[:-1] + 1)
    last = text[np.maximum(ends - 1, starts)]
    last = np.where(last == _RETURN, text[np.maximum(ends - 2, starts)], last)
    first = text[np.minimum(starts, len(data) - 1)]
    for place in np.flatnonzero((first != _OPEN) | (last != _CLOSE)).tolist():
        line = data[starts[place] : ends[place]].strip(b" \t\r")
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            msg = "a line is not an object"
            raise pa.ArrowInvalid(msg)
