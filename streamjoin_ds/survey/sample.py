"""What a source begins with, before anything is known of it: its kind, how it is written, and values of its columns.

A source may be read in several ways; each is a `Sample`, the likeliest first. At most `SAMPLE_BYTES` of one file are
read for it, or the newest messages of a topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.errors import FileFormatError, FileMissingError, StreamJoinError
from streamjoin_ds.source.delta.delta_feed import holds_matches, table_path, table_schema, with_table
from streamjoin_ds.source.files.file_names import COMPRESSIONS, compression_of, format_of, refuse_foreign
from streamjoin_ds.source.files.inner_records import message_records
from streamjoin_ds.source.files.listing import FileEntry, Location, location_of
from streamjoin_ds.source.files.metric_lines import LINE_FORMATS, line_format
from streamjoin_ds.source.files.row_files import first_rows
from streamjoin_ds.source.files.text import open_text
from streamjoin_ds.source.files.text_blocks import payload_lines, segment_payloads
from streamjoin_ds.source.stream_source import first_records
from streamjoin_ds.spec import Call, Column, Generator, Literal, Stream
from streamjoin_ds.spec.columns import TIMESTAMP, TS, is_text
from streamjoin_ds.spec.member.source import DeltaRows, given_options
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.spec.member.time_column import is_event_time
from streamjoin_ds.spec.nested_path import METRIC_LINES, RecordsForm, records_form
from streamjoin_ds.spec.time_text import event_times
from streamjoin_ds.survey.dialect import BLANK_NAMES, decoded, dialect_of, text_kind
from streamjoin_ds.survey.envelope import json_columns, json_values, layouts

__all__ = ["SAMPLE_BYTES", "Sample", "given_options_of", "sample_of_table", "samples_of", "with_options"]

SAMPLE_BYTES = 1 << 20
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_ROWS = 2000  # of a table or a file of rows, whose values are looked at
_MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}
_TOLD_BYTES = 1 << 14  # of a text by which lines of metrics are told
_TOLD_MESSAGES = 20  # the same of messages
_WORDS = {
    "influx": "lines of InfluxDB",
    "prometheus": "Prometheus' text format",
    "csv": "lines of fields",
    "json": "JSON",
    "parquet": "Parquet",
    "orc": "ORC",
    "avro": "Avro",
    "arrow": "Arrow",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A way to read the beginning of a source.

    Attributes
    ----------
    options : mapping
        Options of its source, beside the location.
    columns : mapping of str to pyarrow.Array
        Values of the first records.
    words : mapping of str to str
        What it is, for people.
    guesses, remarks : tuple of str
        What is not sure, and what else is to be said.
    location : str, optional
        Where the source is, if not as it was given: with the format of a topic's messages.
    table : pyarrow.Table, optional
        Rows that were handed over, and have no source.
    """

    options: Mapping[str, Any]
    columns: Mapping[str, pa.Array]
    words: Mapping[str, str]
    guesses: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    location: str | None = None
    table: pa.Table | None = None


def samples_of(stream: Stream) -> list[Sample]:
    """Return the ways in which a source may be read, the likeliest first.

    Parameters
    ----------
    stream : Stream
        Its source, with the options that are already known.

    Raises
    ------
    StreamJoinError
        The source is not there, does not answer, or has no records yet.
    """
    if isinstance(stream.source, Generator):
        return [Sample({}, {}, {"what": f"the generator {stream.source.name}"})]
    if stream.is_topic:
        return _of_topic(stream)
    is_said = isinstance(stream.source, DeltaRows) and stream.source.format != "auto"
    if table_path(stream) is not None:  # the matches of a join are read by their own time, which nobody has to know
        found = with_table(replace(stream, time=EVENT_TIME))
        stream = found if found.reads_results else replace(found, time=stream.time)
    table = table_path(stream)
    if table is not None:
        assert isinstance(stream.source, DeltaRows)
        schema = table_schema(stream, table)
        what = "the results of a join, a Delta table" if stream.reads_results else "a Delta table"
        is_needed = stream.reads_results or (is_said and holds_matches(table))  # else a table is read so by itself
        options = {"format": stream.source.format} if is_needed else {}
        return [Sample(options, _values(stream, schema), {"what": what})]
    return _of_files(stream)


def sample_of_table(table: pa.Table) -> Sample:
    """Return the way in which rows that are handed over are read."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return Sample({}, columns, {"what": f"a table in memory, {table.num_rows:,} rows were looked at"}, table=table)


def _of_topic(stream: Stream) -> list[Sample]:
    """Return the ways in which a topic's messages may be read, by its newest ones."""
    # Imported here: its formats are many, and few look at a topic.
    from streamjoin_ds.source.kafka.topic import JSON_FORMATS, KafkaUrl
    from streamjoin_ds.source.kafka.topic_partitions import newest_messages

    text = str(stream.source)
    says_format = re.search(r"[?&]format=", text) is not None
    ending = "&" if "?" in text else "?"
    url = KafkaUrl.parse(text if says_format else f"{text}{ending}format=raw")
    values = newest_messages(url)
    words = {"what": "a topic of Kafka", "messages": f"the newest {len(values):,} were looked at"}
    if not values:
        msg = f"there is nothing to look at: topic {url.topic} has no message"
        raise FileMissingError(msg, name=url.topic, hint="send one")
    form, remarks = (url.format, ()) if says_format else _message_format(values)
    location = None if says_format else f"{text}{ending}format={form}"
    words["format"] = form
    if form in JSON_FORMATS:
        plain = [value[5:] if value[:1] == b"\0" else value for value in values]
        text = payload_lines(plain).data.decode("utf-8", "replace")
        return [
            Sample(own, columns, {**words, **({"records": what} if own else {})}, (), remarks, location)
            for own, columns, what in _records_within(plain, METRIC_LINES.get(form), text)
        ]
    if form != "csv":
        return [Sample({}, _registered_values(stream, location, values), words, (), remarks, location)]
    lines = "\n".join(value.decode("utf-8", "replace").rstrip("\r\n") for value in values)
    found = dialect_of(f"{lines}\n")
    columns = {name: pa.array([v or None for v in values], pa.string()) for name, values in found.columns.items()}
    types = {name: _message_type(values) for name, values in columns.items()}
    options = {**{name: found.options[name] for name in ("delimiter",) if name in found.options}, "schema": types}
    guesses = ("the messages name no columns: these names are made up",)
    return [Sample(options, columns, {**words, **found.words}, guesses, remarks, location)]


def _records_within(
    messages: Sequence[bytes], lines: RecordsForm | None, text: str
) -> Iterator[tuple[dict[str, Any], dict[str, pa.Array], str]]:
    """Yield the options by which messages may be read, the values of columns then, and what they are.

    Parameters
    ----------
    messages : sequence of bytes
    lines : RecordsForm or None
        The format whose lines they hold; None: JSON.
    text : str
        The messages, a line each.
    """
    for records, what in layouts(text) if lines is None else [(None, "lines")]:
        form = lines if records is None else records_form(records)
        held = text.splitlines()
        if form is not None:
            held = [one.decode("utf-8", "replace") for message in messages for one in message_records(message, form)]
        yield ({} if records is None else {"records": records}), json_columns(json_values(held)), what


def _registered_values(stream: Stream, location: str | None, values: Sequence[bytes]) -> dict[str, pa.Array]:
    """Return the values of columns that a schema registry tells; none where it does not."""
    from streamjoin_ds.source.kafka.topic_partitions import registered

    try:
        read = with_options(stream, {}, location)
        told = registered(read, values)
    except StreamJoinError:
        return {}
    return {} if told is None else _values(read, told)


def _message_type(values: pa.Array) -> str:
    """Return the type of a field of messages: a number, a time or a text."""
    try:
        values.cast(pa.float64())
    except pa.ArrowInvalid:
        known = values.drop_null()
        return "timestamp[us, tz=UTC]" if event_times(known, "us")[1].mean() > 0.5 else "string"
    return "double"


def _message_format(values: Sequence[bytes]) -> tuple[str, tuple[str, ...]]:
    """Return the format of messages, and what is to be said of it."""
    framed = sum(1 for value in values if len(value) > 5 and value[0] == 0)
    if framed * 2 > len(values):
        number = int.from_bytes(values[-1][1:5], "big")
        if all(value[5:6] in (b"{", b"[") for value in values if value[:1] == b"\0"):
            return "json", (
                f"each message begins with the id of a schema ({number}): give registry=URL, and format=json",
            )
        told = f"each message begins with the id of a schema ({number}): give registry=URL, and format=avro or protobuf"
        return "avro", (told,)
    metrics = line_format(b"\n".join(values[:_TOLD_MESSAGES]).decode("utf-8", "replace"))
    if metrics is not None:
        return metrics, ()
    begins = [value.lstrip()[:1] for value in values]
    if sum(begin in (b"{", b"[") for begin in begins) * 2 > len(values):
        return "json", ()
    try:
        texts = [value.decode() for value in values[:1000]]
    except UnicodeDecodeError:
        return "raw", (
            "the messages are bytes of no known form: format=fixed or raw, with schema, says what they hold",
        )
    is_csv = any(re.search(r"[,;\t|]", text) for text in texts)
    return ("csv", ()) if is_csv else ("raw", ("the messages are texts of one field: format=raw",))


def _of_files(stream: Stream) -> list[Sample]:
    location = location_of(stream)
    location.refuse_table()
    options: dict[str, Any] = {}
    entries = _entries(location)
    if not entries and location.folders and "sub_folders" not in given_options(stream.source):
        options["sub_folders"] = "read"
        location = location_of(replace(stream, source=replace(stream.files, sub_folders="read")))
        entries = _entries(location)
    if not entries:
        msg = f"there is nothing to look at: {location.path} has no file with content"
        raise FileMissingError(msg, name=location.path, hint="give a file or a folder that has one")
    entry = entries[0]
    words = _place_words(location, entries)
    found = _of_file(entry, stream)
    return [replace(one, options={**options, **one.options}, words={**words, **one.words}) for one in found]


def _entries(location: Location) -> list[FileEntry]:
    found = (location.entry(name) for name in tuple(location.names()))
    return [entry for entry in found if entry is not None and entry.size]


def _place_words(location: Location, entries: Sequence[FileEntry]) -> dict[str, str]:
    size = sum(entry.size for entry in entries)
    if len(entries) == 1 and location.path == entries[0].path:
        return {"size": f"{size:,} bytes"}
    shown = ", ".join(entry.name for entry in entries[:2]) + (f" ... {entries[-1].name}" if len(entries) > 2 else "")
    return {"files": f"{len(entries):,} ({shown}), {size:,} bytes; the first was looked at"}


def _of_file(entry: FileEntry, stream: Stream) -> list[Sample]:
    said = stream.files.format
    kind = format_of(entry.name, said)
    raw = _begin(entry)
    magic = next((name for begin, name in _MAGIC.items() if raw.startswith(begin)), None)
    if kind == "spool":
        return _of_segment(entry, stream)
    if magic is not None:
        return _of_rows(entry, magic, kind, stream)
    packed = next((name for begin, name in _PACKED.items() if raw.startswith(begin)), None)
    if packed is not None:
        ending = next(ending for ending, name in COMPRESSIONS.items() if name == packed)
        msg = f"the file {entry.path} is {packed}, which its name does not say"
        raise FileFormatError(msg, name=entry.path, hint=f"rename it: {entry.name}{ending}")
    refuse_foreign(raw, entry.path)
    metrics = line_format(decoded(raw[:_TOLD_BYTES])[0].rpartition("\n")[0])
    if metrics is not None or kind in LINE_FORMATS:
        options = {} if kind in LINE_FORMATS else {"format": metrics}
        return [Sample(options, _canonical_columns(entry, stream, options), {"what": _WORDS[metrics or str(kind)]})]
    return list(_of_text(raw, entry, kind, stream))


def _begin(entry: FileEntry) -> bytes:
    """Return the decompressed bytes that a file begins with."""
    with open_text(replace(entry, decodings=())) as text:
        data = text.read(0, SAMPLE_BYTES)
        if not data and text.fault is not None:
            raise text.fault
    return data


def _of_text(raw: bytes, entry: FileEntry, kind: str | None, stream: Stream) -> Iterator[Sample]:
    text, encoding, why = decoded(raw)
    is_cut = len(raw) >= SAMPLE_BYTES
    found = text_kind(text)
    words = {"encoding": encoding.upper() if encoding.startswith("utf") else encoding}
    compression = compression_of(entry.name)
    words |= {"compression": compression} if compression else {}
    options: dict[str, Any] = {} if kind == found else {"format": found}
    guesses: tuple[str, ...] = ()
    if encoding != "utf-8" and "encoding" in STREAM_KEYS and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        options["encoding"] = encoding
        guesses = (f"the encoding is {encoding}: {why}",)
    if found != "csv":
        ways = layouts(text, is_cut=is_cut) if found == "json" else [(None, found)]
        for records, what in ways:
            own = {**options, **({} if records is None else {"records": records})}
            columns = _canonical_columns(entry, stream, own)
            told = {"what": f"JSON, {what}" if found == "json" else what, **words}
            yield Sample(own, columns, told, guesses)
        return
    rated = _of_a_rate(text.splitlines()[:100])
    if rated is not None:
        told = {"what": "values at a rate, without times", **words}
        yield Sample({**options, **rated[0]}, {}, told, (*guesses, rated[1]))
    dialect = dialect_of(text, is_cut=is_cut)
    columns = {name: pa.array([v or None for v in values], pa.string()) for name, values in dialect.columns.items()}
    told = {"what": "lines of fields (CSV)", **words, **dialect.words}
    yield Sample({**options, **dialect.options}, columns, told, (*guesses, *dialect.guesses))


def _of_a_rate(lines: Sequence[str]) -> tuple[dict[str, Any], str] | None:
    """Return the options of a file whose first lines are a start and a rate, and why they are a guess."""
    firsts = [line.split(",")[0].strip() for line in lines if line.strip()]
    if "time_step" not in STREAM_KEYS or len(firsts) < 3 or not all(map(_NUMBER.fullmatch, firsts)):
        return None
    start, step, *values = map(float, firsts)
    unit = next((unit for unit, factor in (("s", 1), ("ms", 1000)) if 6e8 < start / factor < 3e9), None)
    if unit is None or not 0 < step <= 1e5 or max(map(abs, values)) > start / 10:
        return None
    options = {"skip_lines": 2, "header": 0, "time_start": "line 1", "time_step": "line 2", "time_unit": unit}
    return (
        options,
        f"the first line, {firsts[0]}, is when the file begins, and the second, {firsts[1]}, values a second",
    )


def _of_segment(entry: FileEntry, stream: Stream) -> list[Sample]:
    payloads = segment_payloads(replace(entry, decodings=()), stream, SAMPLE_BYTES)
    text = "".join(f"{payload.decode('utf-8', 'replace').strip()}\n" for payload in payloads)
    found = []
    metrics = line_format(text[:_TOLD_BYTES].rpartition("\n")[0])
    for records, what in layouts(text) if metrics is None else [(metrics, _WORDS[metrics])]:
        own = {} if records is None else {"records": records}
        columns = _canonical_columns(entry, stream, own) if own else json_columns(json_values(text.splitlines()))
        of = "a spool of JSON," if metrics is None else "a spool of"
        words = {"what": f"{of} {what}", "messages": f"the first {len(payloads):,} were looked at"}
        found.append(Sample(own, columns, words))
    return found


def _canonical_columns(entry: FileEntry, stream: Stream, options: Mapping[str, Any]) -> dict[str, pa.Array]:
    """Return the values of a file's first records as the source itself makes lines of JSON or fields of it."""
    try:
        read = with_options(stream, options)
        own = next(each for each in _entries(location_of(read)) if each.path == entry.path)
        with open_text(own) as text:
            told = text.read(0, SAMPLE_BYTES).decode("utf-8", "replace")
            lines = [line for line in told.splitlines() if line.strip()]
    except (StreamJoinError, OSError, StopIteration):
        return {}
    if lines and lines[0][:1] not in ("{", "["):
        return {name: pa.array(values) for name, values in dialect_of("\n".join(lines)).columns.items()}
    return json_columns(json_values(lines))


def given_options_of(stream: Stream) -> dict[str, Any]:
    """Return the options of a stream and its source that are not at their defaults, as they are written."""
    own = {
        each.name: _written(getattr(stream, each.name))
        for each in fields(stream)
        if each.name in STREAM_KEYS and each.name != "source" and getattr(stream, each.name) != each.default
    }
    if stream.columns is not None:
        made = dict(stream.columns.expressions)
        if stream.columns.time_text:
            own["time"] = stream.columns.time_text
            del made[stream.time]
        own["columns"] = {name: str(expression) for name, expression in made.items()}
    found = {**own, **{name: _written(value) for name, value in given_options(stream.source).items()}}
    return {name: found[name] for name in STREAM_KEYS if found.get(name, {}) != {}}


def _written(value: Any) -> Any:
    """Return a value as it is written: what a list holds alone, a schema as a table of texts, a blank by its name."""
    if isinstance(value, str) and value in BLANK_NAMES:
        return BLANK_NAMES[value]
    if isinstance(value, pa.Schema):
        return {column.name: str(column.type) for column in value}
    if isinstance(value, (Call, Column, Literal)):
        return str(value)
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def with_options(stream: Stream, options: Mapping[str, Any], location: str | None = None) -> Stream:
    """Return a stream with other options, of its own and of its source."""
    given = {**given_options_of(stream), **options}
    if isinstance(stream.source, Generator) or stream.source is None:
        return Stream(stream.name, stream.source, **given)
    return Stream(stream.name, location or str(stream.source), **given)


def _of_rows(entry: FileEntry, found: str, kind: str | None, stream: Stream) -> list[Sample]:
    options = {} if kind == found else {"format": found}
    words = {"what": _WORDS[found]}
    try:
        table = first_rows(entry.path, found, _ROWS)
    except (pa.ArrowInvalid, OSError):
        return [Sample(options, {}, words)]
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return [Sample(options, columns, words)]


def _values(stream: Stream, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return values of the first records by a column that can be an event time as it is."""
    usable = [column.name for column in schema if is_event_time(column.type)]
    for name in usable:
        kind = schema.field(name).type
        read = pa.schema([column for column in schema if column.name == name or _is_plain(column.type)])
        try:
            chunks = first_records(replace(stream, time=name, time_unit="us", schema=schema), read, _ROWS)
        except (StreamJoinError, OSError, pa.ArrowException):
            continue
        tuples = pa.Table.from_batches([chunk.tuples for chunk in chunks]) if chunks else None
        if tuples is None or not tuples.num_rows:
            continue
        times = tuples.column(TS).combine_chunks()  # numbers of microseconds: what the column holds, in its own type
        own = times.cast(pa.timestamp("us", tz=kind.tz)) if pa.types.is_timestamp(kind) else times
        own = times.cast(TIMESTAMP).cast(kind) if pa.types.is_date(kind) else own
        rest = {column.name: tuples.column(column.name).combine_chunks() for column in read if column.name != name}
        return {column.name: own if column.name == name else rest[column.name] for column in read}
    return {}


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(is_event_time(kind) or is_text(kind) or types.is_decimal(kind) or types.is_boolean(kind))
