"""Messages that are lines of a format of files: the lines are parsed together, and no message touches another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.files.csv_lines import CsvLines
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import LineFormat, Lines, parse_lines
from streamjoin_ds.source.kafka.formats.frames import FRAME_REASONS, FRAMED, framed
from streamjoin_ds.source.kafka.formats.message_format import NO_VALUE, is_null, message_text
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["CsvMessages", "JsonMessages"]


class JsonMessages:
    """Messages that are JSON objects, as `JsonLines` reads them. A message may be written over several lines.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns to read, with their inside types.
    time : str
        The time column.
    """

    def __init__(self, schema: pa.Schema, time: str) -> None:
        self._schema, self._time = schema, time
        # It remembers how the times were written last, which spares a try and changes no result.
        self._whole = JsonLines(schema, time)

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        data, found = framed(values)
        broken = {int(place): ("", FRAME_REASONS[int(found[place])]) for place in np.flatnonzero(found != FRAMED)}
        broken |= {int(place): ("", NO_VALUE) for place in np.flatnonzero(is_null(values))}
        if not broken:
            try:
                table = self._whole.parse(data)
                if table.num_rows == len(values):
                    return RawRecords(table, len(values))
            except pa.ArrowInvalid:  # one of them is broken: found by the way that tells which
                pass
        return _records(data, np.flatnonzero(found == FRAMED), broken, JsonLines(self._schema, self._time), values)


class CsvMessages:
    """Messages that are lines of CSV, as `CsvLines` reads them, without a header. A line end may follow.

    Parameters
    ----------
    header : sequence of str
        The columns of a message, in order.
    schema : pyarrow.Schema
        The columns to read, with their inside types.
    stream : Stream
        The stream: its time column and its delimiter.
    """

    def __init__(self, header: Sequence[str], schema: pa.Schema, stream: Stream) -> None:
        self._form = CsvLines(list(header), schema, stream.time, stream.name, "a message", stream.delimiter)

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        given = values.to_pylist()
        lines = [None if value is None else value.removesuffix(b"\n").removesuffix(b"\r") for value in given]
        broken = {}
        for place, line in enumerate(lines):
            if line is None:
                broken[place] = ("", NO_VALUE)
            elif not line:
                broken[place] = ("", "an empty message")
            elif b"\n" in line or b"\r" in line:
                broken[place] = ("", "a line end inside the message")
        kept = np.setdiff1d(np.arange(len(lines)), np.fromiter(broken, np.int64, len(broken)))
        data = b"".join(lines[place] + b"\n" for place in kept.tolist())
        return _records(data, kept, broken, self._form, values)


def _records(
    data: bytes, kept: np.ndarray, broken: dict[int, tuple[str, str]], form: LineFormat, values: pa.BinaryArray
) -> RawRecords:
    """Return the records of messages: `kept` of them are the lines of `data`, the others are broken already."""
    lines = Lines.of(data)
    assert lines.count == len(kept)
    raw = parse_lines(lines, form, file="", at_file_start=False)
    index = kept.astype(np.int64) if raw.index is None else kept[raw.index].astype(np.int64)
    for place, column, reason, _ in raw.broken:
        broken[int(kept[place])] = (column, reason)
    told = [
        (place, column, reason, message_text(values[place].as_py()))
        for place, (column, reason) in sorted(broken.items())
    ]
    return RawRecords(raw.table, len(values), index if told else None, told)
