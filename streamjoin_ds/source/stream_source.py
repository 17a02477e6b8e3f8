"""The source of a stream: its feed, and what is found out about the source before a join runs.

`open_feed` chooses the feed of files, a Delta table, a topic or a generator. The columns of a stream and their types
are inferred once, before a join is bound. The first records show what is odd in the columns; ranges of a band attribute
are chosen by the keys of the first records; and the layout is chosen by their rate where no rate is given.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import (
    ArgumentError,
    FileFormatError,
    FileMissingError,
    KafkaAccessError,
    KafkaTopicError,
    KafkaUnreachableError,
    StoreAccessError,
    StoreUnreachableError,
    StreamJoinError,
)
from streamjoin_ds.plan import KeyHint, Reach, SampledRows, sample_rows
from streamjoin_ds.source.delta.delta_feed import DeltaFeed, table_path, table_schema, with_table
from streamjoin_ds.source.delta.results_feed import ResultsFeed
from streamjoin_ds.source.device_feed import DeviceFeed
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.csv_lines import CsvHead
from streamjoin_ds.source.files.file_columns import (
    BEGIN_BYTES,
    FoundColumns,
    columns_of_files,
    json_of_lines,
    large_columns,
    later_pieces,
    merged,
)
from streamjoin_ds.source.files.file_feed import FileFeed, FilePartitions, partition_streams
from streamjoin_ds.source.files.file_names import ROW_FORMATS, folder_types, folder_values, refuse_foreign
from streamjoin_ds.source.files.lines import Lines
from streamjoin_ds.source.files.listing import FileEntry, Location, location_of
from streamjoin_ds.source.files.metric_lines import line_format
from streamjoin_ds.source.files.row_files import row_columns
from streamjoin_ds.source.files.text import is_plain, open_text
from streamjoin_ds.source.files.text_blocks import SPOOL_COLUMNS, payload_lines, segment_payloads
from streamjoin_ds.source.generator import GeneratorFeed, generator_schema
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.records import Chunk, clipped
from streamjoin_ds.spec import BoundJoin, Generator, Stream
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.event_time import fine_times
from streamjoin_ds.spec.join_parts import named_columns
from streamjoin_ds.spec.member.computed_columns import all_columns
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.member.time_column import check_time_column
from streamjoin_ds.spec.nested_path import inner_column, inner_path, inner_type, with_inner, with_paths
from streamjoin_ds.spec.nested_values import without_empty
from streamjoin_ds.spec.time_guess import check_readable
from streamjoin_ds.spec.time_text import event_times

__all__ = [
    "UNANSWERED",
    "SourceColumns",
    "first_records",
    "infer_schema",
    "open_feed",
    "sampled_keys",
    "sampled_rate",
]

# Columns of files, as they were found: a join is checked before its session starts, and starts with the same. They are
# hints, and change no result.
_looked_at: OrderedDict[tuple[object, ...], FoundColumns] = OrderedDict()
_LOOKED_AT = 64  # files, at most
_MOST_FOLDERS = 64  # partitions whose files are looked at for their columns
_TIME_OF_DAY = r"^\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(\s*[AaPp][Mm])?\s*$"
_HEAD_BYTES = 1 << 20  # in which the head of a CSV file is looked for first
_SHOWN_BYTES = 200  # of a line that an error shows
_TOLD_MESSAGES = 20  # by which it is told that they are lines of metrics
_LOOKED_AT = 100  # records whose texts are looked at for times of day
# Records that are read of each stream: as many as its rate is found by.
_SAMPLE_ROWS = 20_000
# Why a source says nothing at all: it cannot be reached, or refuses.
UNANSWERED = (KafkaUnreachableError, KafkaAccessError, KafkaTopicError, StoreUnreachableError, StoreAccessError)
# With fewer there is no rate: a file that has just begun would decide the layout for a year.
_LEAST_ROWS = 100


def open_feed(stream: Stream, schema: pa.Schema, *, ignore_missing: bool = False) -> Feed[Any]:
    """Return the feed of a stream that has a source.

    Its devices have clocks where their columns are read: else nobody asks what is late.

    Raises
    ------
    ArgumentError
        The stream has no source: its tuples are handed over.
    """
    stream = with_table(stream)
    inner = _open_input(stream, schema, ignore_missing)
    columns = stream.device_columns
    if not columns or not set(columns) <= set(schema.names):
        return inner
    read = pa.schema([field for field in schema if field.name in (stream.time, *columns)])
    return DeviceFeed(stream, inner, _open_input(stream, read, ignore_missing))


def _open_input(stream: Stream, schema: pa.Schema, ignore_missing: bool) -> Feed[Any]:
    if stream.source is None:
        msg = f"stream {stream.name} has no source: its tuples are handed over, not read"
        raise ArgumentError(msg, name=stream.name, hint="give it a path or a generator")
    if isinstance(stream.source, Generator):
        return GeneratorFeed(stream, schema)
    if stream.is_topic:
        # Imported here: its formats are many, and few joins read a topic.
        from streamjoin_ds.source.kafka.topic_partitions import TopicPartitions

        return PartitionedFeed(stream, TopicPartitions(stream, schema))
    table = table_path(stream)
    if table is not None:
        feed = ResultsFeed if stream.reads_results else DeltaFeed
        return feed(stream, table, schema)
    if stream.partition_kind is not None:
        return PartitionedFeed(stream, FilePartitions(stream, schema, ignore_missing=ignore_missing))
    return FileFeed(stream, schema, ignore_missing=ignore_missing)


def infer_schema(stream: Stream) -> pa.Schema:
    """Return the written columns of a stream: those declared, or those of its generator, its topic or its files.

    The files are those that have content; of many some are looked at (`files.file_columns`). The types are what Arrow
    infers from up to `SAMPLE_BYTES` of the first text and from pieces of the others, but a column of times of day stays
    text, and timestamps are in microseconds unless one of them needs nanoseconds. Records that cannot be read are
    passed over, and so are those of JSON that contradict most others.

    Raises
    ------
    ArgumentError
        The stream has no source.
    FileMissingError, FileFormatError
        Nothing is declared, and there is no file yet or no record in the first one. Or the files belong to a table.
    ColumnError
        The time column is missing or cannot be an event time.
    """
    stream = with_table(stream)
    if isinstance(stream.source, Generator):
        return generator_schema(stream)
    if stream.is_topic:
        return _of_topic(stream)
    table = table_path(stream)
    if table is not None:
        schema = table_schema(stream, table)
        _check_time(schema, stream)
        return schema
    location = None
    if stream.source is not None:
        location = location_of(stream)
        location.refuse_table()
    if stream.partition_kind == "folder" and not isinstance(stream.schema, pa.Schema):
        return _of_folders(stream)
    if isinstance(stream.schema, pa.Schema):
        return _with_declared_paths(stream.schema, stream)
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
    schema = columns_of_files(
        entry,
        location,
        stream.written_time,
        lambda *file: _remembered(file[0], location.format_of(file[0]), stream, file[1]),
    )
    schema = _with_folders(without_empty(schema), entry, location, stream)
    _check_time(schema, stream)
    return schema


def _with_declared_paths(declared: pa.Schema, stream: Stream) -> pa.Schema:
    """Return declared columns, where those are marked that are paths in the first file or the newest messages.

    Where nothing is there yet in JSON, all are: a key of such a name is found too when it is read.
    """
    names = [name for name in declared.names if inner_path(name) is not None]
    if not names or stream.source is None:
        return declared
    try:
        there = infer_schema(replace(stream, schema=None))
    except (FileMissingError, KafkaTopicError):
        is_json = stream.is_topic or (isinstance(stream.source, Files) and stream.source.format in ("json", "spool"))
        return with_inner(declared, declared, names) if is_json else declared
    except (StreamJoinError, OSError, pa.ArrowException):
        return declared
    free = [name for name in names if name == stream.time or name not in there.names]
    return with_inner(declared, declared, [name for name in free if inner_type(there, name) is not None])


def _check_time(written: pa.Schema, stream: Stream) -> None:
    """Refuse columns among which the event time is none, or of which it cannot be computed."""
    check_time_column(all_columns(stream, written), stream)


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
    from streamjoin_ds.source.kafka.topic import JSON_FORMATS
    from streamjoin_ds.source.kafka.topic_feed import stream_url
    from streamjoin_ds.source.kafka.topic_partitions import newest_values, registered, with_message_columns

    if isinstance(stream.schema, pa.Schema):
        url = stream_url(stream)  # a wrong one is refused before anything begins
        return _with_declared_paths(stream.schema, stream) if url.format in JSON_FORMATS else stream.schema
    values = newest_values(stream)
    told = registered(stream, values)
    if told is not None:
        schema = with_message_columns(_with_time(told, None, stream), stream)
        _check_time(schema, stream)
        return schema
    table = json_of_lines(payload_lines(values).data, stream)
    if table is None:
        msg = f"the columns of stream {stream.name} cannot be inferred: none of its newest messages is a JSON object"
        form = line_format(b"\n".join(values[:_TOLD_MESSAGES]).decode("utf-8", "replace"))
        hint = f"they are in format={form}" if form else _packs_hint(values) or "check format= in the URL"
        raise FileFormatError(msg, name=stream.name, hint=f"{hint}, or declare the schema")
    schema = with_message_columns(without_empty(_with_time(table.schema, table, stream)), stream)
    _check_time(schema, stream)
    return schema


def _of_folders(stream: Stream) -> pa.Schema:
    """Return the columns of the sub-folders that have a file with content; of many some are looked at."""
    last: StreamJoinError | None = None
    streams = partition_streams(stream)
    found: list[pa.Schema] = []
    for name in streams if len(streams) <= _MOST_FOLDERS else (*streams,)[:: len(streams) // _MOST_FOLDERS]:
        try:
            found.append(infer_schema(streams[name]))
        except FileMissingError as error:  # noqa: PERF203 - a few turns
            last = error
        except StreamJoinError:
            if not found:
                raise
    if found:
        return _with_folder_names(merged([FoundColumns(schema) for schema in found]), streams, stream)
    msg = f"the columns of stream {stream.name} cannot be inferred: no sub-folder of {stream.location} has a file"
    raise last or FileMissingError(msg, name=str(stream.location), hint="put a file there, or declare the schema")


def _with_folder_names(schema: pa.Schema, names: Iterable[str], stream: Stream) -> pa.Schema:
    """Return the columns of a partition, and those that the names of all partitions name, where these are read."""
    if not stream.files.reads_sub_folders:
        return schema
    types = folder_types(folder_values([name], stream.time) for name in names)
    fields = [column for column in schema if column.name not in types]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in types.items())])


def _remembered(entry: FileEntry, kind: str, stream: Stream, most: int) -> FoundColumns:
    """Return what `_of_file` does; of a file that has not changed since it was looked at, without reading it again."""
    key = (entry.path, *entry.stamp, kind, most, json.dumps(stream.to_facts(), sort_keys=True))
    found = _looked_at.pop(key, None)
    if found is None:
        found = _of_file(entry, kind, stream, most)
    _looked_at[key] = found
    while len(_looked_at) > _LOOKED_AT:
        _looked_at.popitem(last=False)
    return found


def _of_file(entry: FileEntry, kind: str, stream: Stream, most: int) -> FoundColumns:
    """Return the columns of a file; those of a text from its first bytes, at most `most`, and from later pieces."""
    if kind in ROW_FORMATS:
        try:
            schema, large = row_columns(entry.path, kind)
        except (pa.ArrowInvalid, OSError):
            raise _unreadable(entry) from None
        return FoundColumns(_with_time(schema, None, stream), large)
    if kind == "spool" and not entry.decodings:
        return FoundColumns(_of_segment(entry, stream, most), folded=False)
    pieces = []
    with open_text(entry) as text:
        has_pieces = is_local(entry.path) and is_plain(text)
        most = min(most, BEGIN_BYTES) if has_pieces else most
        data = text.read(0, most)
        fault = text.fault
        whole = len(data) < most and fault is None
        end = len(data) if whole else data.rfind(b"\n") + 1
        if fault is not None and not end:
            raise fault
        if not whole and has_pieces:
            pieces = list(later_pieces(text, entry.path, end))
    refuse_foreign(data, entry.path)
    is_csv, names, records = kind == "csv", [""] * 0, data[:end]
    if is_csv:
        head = _csv_head(records, entry, stream)
        names, records = head.names_for(_time_names(stream)), records[head.size_bytes :]
    found: list[FoundColumns] = []
    for piece in (records, *pieces):
        table = _csv_records(piece, names, stream) if is_csv else json_of_lines(piece, stream)
        if table is None:
            if found:
                continue
            raise _no_records(entry, data) if stream.files.records else _unreadable(entry, b"" if is_csv else data)
        if kind == "spool":  # columns of the frame are those that are declared
            table = table.select([name for name in table.column_names if name not in SPOOL_COLUMNS])
        columns = _with_time(table.schema, table, stream)
        columns = _with_frame(columns, stream) if kind == "spool" else columns
        found.append(FoundColumns(columns, large_columns(table), folded=is_csv))
    return FoundColumns(merged(found), [name for one in found for name in one.large], is_csv)


def _packs_hint(messages: Sequence[bytes]) -> str:
    """Return the option that reads messages which are arrays; empty where the first one is none."""
    is_array = bool(messages) and messages[0].lstrip()[:1] == b"["
    return "records=$ reads the elements of arrays, records=senml packs of SenML" if is_array else ""


def _of_segment(entry: FileEntry, stream: Stream, most: int) -> pa.Schema:
    payloads = segment_payloads(entry, stream, most)
    table = json_of_lines(payload_lines(payloads).data, stream)
    if table is None:
        form = line_format(b"\n".join(payloads[:_TOLD_MESSAGES]).decode("utf-8", "replace"))
        hint = f"its messages are lines: records={form}" if form else _packs_hint(payloads)
        raise _unreadable(entry, hint=hint)
    return _with_frame(_with_time(table.schema, table, stream), stream)


def _with_frame(schema: pa.Schema, stream: Stream) -> pa.Schema:
    """Return the columns of payloads, and those of their frames that the stream's own options name."""
    wanted = [name for name in SPOOL_COLUMNS if name in named_columns(stream) and name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, SPOOL_COLUMNS[name]) for name in wanted)])


def _csv_head(data: bytes, entry: FileEntry, stream: Stream) -> CsvHead:
    """Return the head of a CSV file with records, of which `data` is the beginning."""
    made = [] if stream.time_step is None else [stream.time]
    find = partial(CsvHead.of, files=stream.files, declared=(), path=entry.path, made=made)
    begin = data[: data.rfind(b"\n", 0, _HEAD_BYTES) + 1]
    head = find(begin, complete=False) if len(data) > _HEAD_BYTES else None
    if head is None or not head.first:
        head = find(data, complete=True)
    body = b"" if head is None else _without_comments(data[head.size_bytes :], stream)
    if head is None or not body or body.isspace():
        msg = f"the types of the columns of {entry.path} cannot be inferred: it has a header and no records"
        raise FileFormatError(msg, name=entry.path, hint="declare the schema, or wait for the first record")
    names = head.names_for(_time_names(stream))
    head.check(body, stream.files, entry.path, None if _names_time(names, stream) else stream.time)
    return head


def _csv_records(data: bytes, names: Sequence[str], stream: Stream) -> pa.Table | None:
    """Return records of a CSV file with these columns; None where there is none."""
    body = _without_comments(data, stream)
    if not body or body.isspace():
        return None
    unique = [name or f"\0{number}" for number, name in enumerate(names)]
    try:
        types = {stream.time: pa.string()} if stream.time_format and not stream.time_step else {}
        table = CsvDialect.of(stream.files).infer(body, unique, types)
    except pa.ArrowInvalid:
        return None
    return table.select([name for name in unique if not name.startswith("\0")])


def _without_comments(data: bytes, stream: Stream) -> bytes:
    comment = stream.files.comment
    return data if comment is None else Lines.of(data, comment).data


def _time_names(stream: Stream) -> set[str]:
    """Return the columns of a file that the event time needs: itself, or those that it is computed of."""
    return {stream.time} if stream.written_time else set(stream.columns.needed if stream.columns else ())


def _names_time(names: Sequence[str], stream: Stream) -> bool:
    """Whether what the event time needs is among the names of a header, or is computed."""
    return _time_names(stream) <= {*names, *(stream.columns.names if stream.columns else ())}


def _with_time(schema: pa.Schema, table: pa.Table | None, stream: Stream) -> pa.Schema:
    schema, inner = with_paths(schema, [stream.written_time]), None
    if table is not None and len(schema) > len(table.column_names):
        inner = inner_column(table, stream.written_time)
        table = table.append_column(stream.written_time, inner)
    fields = []
    for column in schema:
        kind = pa.string() if pa.types.is_time(column.type) and table is not None else column.type
        is_text = pa.types.is_string(kind) or pa.types.is_null(kind)
        is_formed = stream.time_format and not pa.types.is_timestamp(kind)
        if column.name == stream.written_time and (is_text or is_formed):
            # One unreadable time makes Arrow call the column text. It is a time if more than half of it can be read.
            values = table.column(column.name) if table is not None else pa.array([], pa.string())
            texts = values.cast(pa.string()) if pa.types.is_null(values.type) else values
            valid = event_times(texts, stream.time_unit, forms=stream.time_forms)[1]
            if table is not None and np.count_nonzero(valid) * 2 <= len(valid):
                check_readable(texts, valid, stream)
            else:
                kind = TIMESTAMP
        if table is not None and pa.types.is_timestamp(kind) and kind.unit == "ns":
            ns, _ = fine_times(table.column(column.name).combine_chunks(), "ns")
            if not (ns % 1000).any():  # Arrow infers nanoseconds for every text with a fraction
                kind = pa.timestamp("us", tz=kind.tz)
        fields.append(column.with_type(kind))
    return pa.schema(fields)


def _unreadable(entry: FileEntry, json: bytes = b"", hint: str = "") -> FileFormatError:
    """Return the error of a file whose columns are not found; `json` is what a file of JSON begins with."""
    msg = f"the columns of {entry.path} cannot be inferred: it is in another format, or damaged"
    hint, begin = hint or "check the file, set its format, or declare the schema", json.lstrip()[:1]
    if begin in (b"[", b"{"):
        hint = "each line must be one object: records=$ reads an array, or objects of several lines"
    return FileFormatError(msg, name=entry.path, hint=hint)


def _no_records(entry: FileEntry, lines: bytes) -> FileFormatError:
    """Return the error of a file in which `records` finds nothing; `lines` is what it made of it."""
    first = clipped(lines[:_SHOWN_BYTES].partition(b"\n")[0].decode("utf-8", "replace"))
    msg = f"records names no records of {entry.path}" + (f": {first}" if first else "")
    hint = "$ is each value of the file; a path is that of an array in each value; or declare the schema"
    return FileFormatError(msg, name=entry.path, hint=hint)


def first_records(stream: Stream, schema: pa.Schema, rows: int) -> list[Chunk]:
    """Return at most `rows` records from the beginning of a stream; none where there is no record yet.

    Parameters
    ----------
    stream : Stream
    schema : pyarrow.Schema
        The columns that are read, one of `BoundJoin.read_schemas`.
    rows : int

    Raises
    ------
    StreamJoinError, OSError, pyarrow.ArrowException
        As the feed raises them: the input cannot be read, does not answer, or is not what the stream says.
    """
    feed = open_feed(stream, schema)
    start = feed.initial()
    there = feed.frontier(start, rows).rows
    return list(feed.read(start, feed.advance(start, there))) if there else []


class SourceColumns:
    """See `InputColumns`: what can be told of the columns of a stream's source."""

    def has_number_times(self, stream: Stream) -> bool:
        """See `InputColumns.has_number_times`; True where there is no source, as of a DataFrame."""
        if stream.source is None:
            return True
        try:
            kind = all_columns(stream, infer_schema(stream)).field(stream.time).type
        except (StreamJoinError, KeyError, OSError, pa.ArrowException):
            return False
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

    def times_of_day(self, stream: Stream) -> Sequence[str]:
        """See `InputColumns.times_of_day`; none where that cannot be told."""
        if not stream.written_time:  # whoever computes the time knows of the others
            return ()
        stream = replace(stream, columns=None)
        try:
            there = _columns(stream)
            texts = [field for field in there if pa.types.is_string(field.type) and field.name != stream.time]
            read = pa.schema([there.field(stream.time).with_type(TIMESTAMP), *texts])
            chunks = first_records(replace(stream, schema=read), read, _LOOKED_AT) if texts else []
        except (StreamJoinError, KeyError, OSError, pa.ArrowException):
            return ()
        records = pa.Table.from_batches([chunk.tuples for chunk in chunks]) if chunks else None
        found = [field.name for field in texts if records is not None and _are_times_of_day(records[field.name])]
        return [field.name for field in there if pa.types.is_time(field.type) or field.name in found]


def _columns(stream: Stream) -> pa.Schema:
    """Return all columns of an input: also those that are not declared, where they can be inferred."""
    try:
        return infer_schema(replace(stream, schema=None))
    except StreamJoinError:
        return infer_schema(stream)


def _are_times_of_day(texts: pa.ChunkedArray) -> bool:
    known = texts.drop_null()
    return bool(len(known)) and bool(pc.all(pc.match_substring_regex(known, _TIME_OF_DAY)).as_py())


def sampled_keys(bound: BoundJoin, attributes: Sequence[Reach], cells: int) -> KeyHint | None:
    """Return a sample of the keys that the streams' inputs begin with.

    Parameters
    ----------
    bound : BoundJoin
    attributes : sequence of Reach
        Whose keys are sampled.
    cells : int
        The cells for which a layout will be chosen.

    Returns
    -------
    KeyHint or None
        None where an input is empty or cannot be read. The join's own reader reports why.
    """
    streams = []
    for number in range(len(bound.names)):
        tuples = _first_tuples(bound, number)
        if tuples is None or not tuples.num_rows:
            return None
        streams.append(SampledRows.of(bound, attributes, number, tuples, sample_rows(cells)))
    return KeyHint(tuple(streams))


def _first_tuples(bound: BoundJoin, stream: int) -> pa.Table | None:
    """Return the tuples among the first records of a stream that its filters let through."""
    schema = bound.read_schemas[stream]
    if bound.join.streams[stream].source is None:
        return None
    try:
        found = []
        for chunk in first_records(bound.join.streams[stream], schema, _SAMPLE_ROWS):
            kept = bound.let_through(stream, chunk.tuples)
            found.append(chunk.tuples if kept is None else chunk.tuples.take(pa.array(np.flatnonzero(kept))))
    except (StreamJoinError, OSError, pa.ArrowException):
        return None
    return pa.Table.from_batches(found) if found else None


def sampled_rate(stream: Stream, schema: pa.Schema) -> float | None:
    """Return the tuples a second of event time that a stream's input begins with.

    Parameters
    ----------
    stream : Stream
        Its source is a file, a folder or a generator.
    schema : pyarrow.Schema
        The columns that are read, as the bound join has them.

    Returns
    -------
    float or None
        None where the input has fewer than 100 records, or no time passes between them, or they cannot be read. The
        join's own reader reports why an input cannot be read.

    Raises
    ------
    KafkaUnreachableError, KafkaAccessError, KafkaTopicError, StoreUnreachableError, StoreAccessError
        The source does not answer, or refuses to.
    """
    try:
        feed = open_feed(stream, schema)
        frontier = feed.frontier(feed.initial(), _SAMPLE_ROWS)
    except UNANSWERED:
        raise
    except (StreamJoinError, OSError, pa.ArrowException):
        return None
    first_us, last_us = frontier.first_time(), frontier.last_time()
    if frontier.rows < _LEAST_ROWS or first_us is None or last_us is None or last_us <= first_us:
        return None
    return (frontier.rows - 1) * 1e6 / (last_us - first_us)
