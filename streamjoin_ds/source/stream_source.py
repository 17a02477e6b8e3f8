"""The columns of a stream and their types, inferred once, before a join is bound."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json

from streamjoin_ds.errors import ArgumentError, FileFormatError, FileMissingError
from streamjoin_ds.source.delta.tables import table_path, table_schema, with_table_format
from streamjoin_ds.source.event_time import event_times
from streamjoin_ds.source.files.csv_lines import NULL_TEXTS, csv_header
from streamjoin_ds.source.files.file_partitions import partition_streams
from streamjoin_ds.source.files.folder_columns import folder_types, folder_values
from streamjoin_ds.source.files.json_lines import check_nulls
from streamjoin_ds.source.files.lines import first_line
from streamjoin_ds.source.files.listing import FileEntry, Location, location_of
from streamjoin_ds.source.files.parquet_rows import parquet_schema
from streamjoin_ds.source.files.spool_records import SpoolRecords, payload_lines
from streamjoin_ds.source.files.text import open_text
from streamjoin_ds.source.files.text_blocks import TextFormat
from streamjoin_ds.source.generator import generator_schema
from streamjoin_ds.spec.event_time import fine_times
from streamjoin_ds.spec.member.source import Generator
from streamjoin_ds.spec.member.stream import Stream, check_time_column

__all__ = ["SAMPLE_BYTES", "infer_schema"]


SAMPLE_BYTES = 64 << 20  # bytes of a file's decompressed text from which types are inferred, at most


def infer_schema(stream: Stream) -> pa.Schema:
    """Return the columns of a stream: those declared, or those of its generator, its topic or its first file.

    The first file is the first one that is not empty. The types are what Arrow infers from up to `SAMPLE_BYTES` of
    text, but a column of times of day stays text, and timestamps are in microseconds unless one of them needs
    nanoseconds. Records that cannot be read are passed over, and so are those of JSON that contradict most others.

    Raises
    ------
    ArgumentError
        The stream has no source.
    FileMissingError, FileFormatError
        Nothing is declared, and there is no file yet or no record in the first one. Or the files belong to a table.
    ColumnError
        The time column is missing or cannot be an event time.
    """
    stream = with_table_format(stream)
    if isinstance(stream.source, Generator):
        return generator_schema(stream)
    if stream.is_topic:
        return _of_topic(stream)
    table = table_path(stream)
    if table is not None:
        schema = table_schema(stream, table)
        check_time_column(schema, stream)
        return schema
    location = None
    if stream.source is not None:
        location = location_of(stream)
        location.refuse_table()
    if stream.partition_by == "folder" and not isinstance(stream.schema, pa.Schema):
        return _of_first_folder(stream)
    if isinstance(stream.schema, pa.Schema):
        return stream.schema
    if location is None:
        msg = f"stream {stream.name} has neither a source nor a schema"
        raise ArgumentError(msg, name=stream.name, hint="give it a path or a generator, or declare its columns")
    found = (location.entry(name) for name in tuple(location.names()))
    entry = next((entry for entry in found if entry is not None and entry.size), None)
    if entry is None:
        msg = f"the columns of stream {stream.name} cannot be inferred: {location.path} has no file with content"
        hint = "put a file there, or declare the schema"
        if location.folders:
            hint += f"; sub-folders are not read: name one of them, for example {location.folders[0]}"
            hint += ", or set sub_folders=read"
        raise FileMissingError(msg, name=location.path, hint=hint)
    schema = _with_folders(_of_file(entry, location.format_of(entry), stream), entry, location, stream)
    check_time_column(schema, stream)
    return schema


def _with_folders(schema: pa.Schema, entry: FileEntry, location: Location, stream: Stream) -> pa.Schema:
    """Return the columns of a file, and those that its folders name. These come last, and win over the file's."""
    named = location.columns_of(entry.path, stream.time).values
    if not named:
        return schema
    paths = (location.path_of(name) for name in location.names_listed)
    types = folder_types(location.columns_of(path, stream.time).values for path in paths)
    fields = [column for column in schema if column.name not in named]
    return pa.schema([*fields, *(pa.field(name, types[name]) for name in named)])


def _of_topic(stream: Stream) -> pa.Schema:
    """Return the columns of a topic: those declared, or what its newest messages in JSON hold."""
    # Imported here: its formats are many, and few joins read a topic.
    from streamjoin_ds.source.kafka.stream_topic import newest_values, stream_url, with_message_time

    if isinstance(stream.schema, pa.Schema):
        stream_url(stream)  # a wrong one is refused before anything begins
        return stream.schema
    table = _json_of_lines(payload_lines(newest_values(stream)).data)
    if table is None:
        msg = f"the columns of stream {stream.name} cannot be inferred: none of its newest messages is a JSON object"
        raise FileFormatError(msg, name=stream.name, hint="check format= in the URL, or declare the schema")
    schema = with_message_time(_with_time(table.schema, table, stream), stream)
    check_time_column(schema, stream)
    return schema


def _json_of_lines(data: bytes) -> pa.Table | None:
    """Return records, a line each, as a table; None where none is an object.

    Broken ones are left out, and where records contradict each other those of the rarer types: they are rejects when
    they are read, and must not keep a join from its start.
    """
    try:
        found = _json(data)
        # Arrow reads objects of several lines too; a stream has a record in each line.
        return found if 2 * found.num_rows >= sum(1 for line in data.split(b"\n") if line.strip()) else None
    except pa.ArrowInvalid:
        kept = [(line, kinds) for line in data.split(b"\n") if (kinds := _kinds(line)) is not None]
    try:
        return _json(payload_lines([line for line, _ in kept]).data)
    except pa.ArrowInvalid:
        usual = _usual_kinds(kinds for _, kinds in kept)
    try:
        return _json(payload_lines([line for line, kinds in kept if kinds.items() <= usual.items()]).data)
    except pa.ArrowInvalid:  # none is left, or they contradict each other within a list or an object
        return None


def _kinds(line: bytes) -> dict[str, str] | None:
    """Return what the values of an object are, by key, nulls left out; None for what is no object."""
    try:
        found = json.loads(line.decode())  # bytes alone might be taken for UTF-16
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    kinds = ((key, "number" if type(one) in (int, float) else type(one).__name__) for key, one in found.items())
    return {key: kind for key, kind in kinds if kind != "NoneType"}


def _usual_kinds(records: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return for each key what most records have there; of two that as many have, what came first."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kinds in records:
        for key, kind in kinds.items():
            counts[key][kind] += 1
    return {key: count.most_common(1)[0][0] for key, count in counts.items()}


def _of_first_folder(stream: Stream) -> pa.Schema:
    """Return the columns of the first sub-folder that has a file with content."""
    last = None
    streams = partition_streams(stream)
    for folder in streams.values():
        try:
            schema = infer_schema(folder)
        except FileMissingError as error:  # noqa: PERF203 - a few turns
            last = error
        else:
            return _with_folder_names(schema, streams, stream)
    msg = f"the columns of stream {stream.name} cannot be inferred: no sub-folder of {stream.source} has a file"
    raise last or FileMissingError(msg, name=str(stream.source), hint="put a file there, or declare the schema")


def _with_folder_names(schema: pa.Schema, names: Iterable[str], stream: Stream) -> pa.Schema:
    """Return the columns of a partition, and those that the names of all partitions name, where these are read."""
    if stream.sub_folders != "read":
        return schema
    types = folder_types(folder_values([name], stream.time) for name in names)
    fields = [column for column in schema if column.name not in types]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in types.items())])


def _of_file(entry: FileEntry, kind: str, stream: Stream) -> pa.Schema:
    if kind == "parquet":
        try:
            return _with_time(parquet_schema(entry.path), None, stream)
        except (pa.ArrowInvalid, OSError):
            raise _unreadable(entry) from None
    if kind == "spool":
        return _of_segment(entry, stream)
    with open_text(entry.path) as text:
        data = text.read(0, SAMPLE_BYTES)
        whole = len(data) < SAMPLE_BYTES and text.fault is None
    end = len(data) if whole else data.rfind(b"\n") + 1
    if text.fault is not None and not end:
        raise text.fault
    table = _csv(data[:end], entry, stream.delimiter) if kind == "csv" else _json_of_lines(data[:end])
    if table is None:
        raise _unreadable(entry, data)
    return _with_time(table.schema, table, stream)


def _of_segment(entry: FileEntry, stream: Stream) -> pa.Schema:
    form = TextFormat("spool", pa.schema([]), stream, entry.path)
    found: list[bytes] = []
    with open_text(entry.path) as text:
        if form.open(text, None, complete=False):
            blocks = form.blocks(text, form.header_bytes, SAMPLE_BYTES)
            while data := blocks.next(complete=False):
                records = blocks.records(data)
                assert isinstance(records, SpoolRecords)
                found += [
                    payload
                    for place, payload in enumerate(records.frames.payloads)
                    if place not in records.frames.damaged
                ]
    table = _json_of_lines(payload_lines(found).data)
    if table is None:
        raise _unreadable(entry)
    return _with_time(table.schema, table, stream)


def _csv(data: bytes, entry: FileEntry, delimiter: str) -> pa.Table:
    head = first_line(data) or data
    names = csv_header(head, entry.path, delimiter)
    body = data[len(head) :]
    if not body.strip():
        msg = f"the types of the columns of {entry.path} cannot be inferred: it has a header and no records"
        raise FileFormatError(msg, name=entry.path, hint="declare the schema, or wait for the first record")
    unique = [name if names.count(name) == 1 else f"\0{number}" for number, name in enumerate(names)]
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(body),
            arrow_csv.ReadOptions(column_names=unique, use_threads=False, block_size=len(body) + 1),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=False, invalid_row_handler=lambda _: "skip"),
            arrow_csv.ConvertOptions(null_values=NULL_TEXTS, strings_can_be_null=False),
        )
    except pa.ArrowInvalid:
        raise _unreadable(entry) from None
    return table.select([name for name in unique if not name.startswith("\0")])


def _json(data: bytes) -> pa.Table:
    if not data.strip():
        msg = "no records"
        raise pa.ArrowInvalid(msg)
    check_nulls(data)
    return arrow_json.read_json(
        pa.BufferReader(data),
        arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_json.ParseOptions(newlines_in_values=False),
    )


def _with_time(schema: pa.Schema, table: pa.Table | None, stream: Stream) -> pa.Schema:
    fields = []
    for column in schema:
        kind = pa.string() if pa.types.is_time(column.type) and table is not None else column.type
        if column.name == stream.time and (pa.types.is_string(kind) or pa.types.is_null(kind)):
            # One unreadable time makes Arrow call the column text. It is a time if more than half of it can be read.
            values = table.column(column.name) if table is not None else pa.array([], pa.string())
            valid = event_times(values.cast(pa.string()), stream.time_unit)[1]
            if table is None or np.count_nonzero(valid) * 2 > len(valid):
                kind = pa.timestamp("us", tz="UTC")
        if table is not None and pa.types.is_timestamp(kind) and kind.unit == "ns":
            ns, _ = fine_times(table.column(column.name).combine_chunks(), "ns")
            if not (ns % 1000).any():  # Arrow infers nanoseconds for every text with a fraction
                kind = pa.timestamp("us", tz=kind.tz)
        fields.append(pa.field(column.name, kind, column.nullable))
    return pa.schema(fields)


def _unreadable(entry: FileEntry, json: bytes = b"") -> FileFormatError:
    """Return the error of a file whose columns are not found; `json` is what a file of JSON begins with."""
    msg = f"the columns of {entry.path} cannot be inferred: it is in another format, or damaged"
    hint, begin = "check the file, set its format, or declare the schema", json.lstrip()[:1]
    if begin in (b"[", b"{"):
        hint = f"each line must be one object: jq -c {'.[]' if begin == b'[' else '.'} writes such lines"
    return FileFormatError(msg, name=entry.path, hint=hint)
