"""The tables of one join: where they are, their columns, the driver's own rows, and how long their logs are kept.

All of them are siblings: ``<root>`` holds the matches, ``<root>_late`` the late tuples, and so on. Timestamps are
microseconds UTC. Only the metrics hold durations, and only ``committed_at`` holds the wall clock.

The driver itself writes the rows of the ledger, the metrics and the punctuations. They are brought to their schema, and
the ledger's sum is checked.

How long a table keeps log entries and replaced files is chosen when it is made, and read back from its properties. The
choice is for a commit in every trigger. At four commits a second a log of six hours is 86 400 entries, 90 MB. Beyond
the live files a checkpoint of the log then holds only those that compaction replaced within six hours. A property that
a user has set is left as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamjoin_ds.blocks.place import absolute_location, is_local
from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.errors import MALFORMED, ArgumentError, ColumnError, LedgerError, TableError

__all__ = [
    "BATCH_ID",
    "EVENT_TIME",
    "LATE_SCHEMA",
    "LEDGER_SCHEMA",
    "METRICS_SCHEMA",
    "PUNCTUATIONS_SCHEMA",
    "REJECTS_SCHEMA",
    "TIMESTAMP",
    "TableSet",
    "balance",
    "check_ledger",
    "check_match_schema",
    "conformed",
    "decisions",
    "deleted_file_retention_s",
    "log_retention_s",
    "missing_properties",
    "new_properties",
    "punctuation_row",
    "same_records",
]

TIMESTAMP = pa.timestamp("us", "UTC")
BATCH_ID = "batch_id"
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")  # Delta and Spark's Parquet refuse these in a name
_TYPES = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)
_PARTS = ("stored", "late", "rejected", "filtered", "duplicates")
LOG_RETENTION = "delta.logRetentionDuration"
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_CHOSEN = {
    CHECKPOINT_INTERVAL: "1000",
    LOG_RETENTION: "interval 6 hours",
    DELETED_FILE_RETENTION: "interval 6 hours",
}
# What earlier versions of this package set when they made a table. Such a value counts as set by nobody.
_FORMER = {CHECKPOINT_INTERVAL: "100", LOG_RETENTION: "interval 24 hours"}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = re.compile(r"(\d{1,9})\s+([a-z]+?)s?(?:\s+|$)")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


LATE_SCHEMA = pa.schema(
    [
        _required("stream", pa.string()),
        _required("seq", pa.int64()),
        _required("ts", TIMESTAMP),
        _required("largest_ts", TIMESTAMP),
        _required(BATCH_ID, pa.int64()),
        _required("row", pa.string()),
    ]
)
"""A tuple that came too late; ``row`` is the tuple as JSON.

``largest_ts`` is the largest event time before it in its stream. Where the tuple is late only by the watermark, which
went past it while its stream was idle, ``largest_ts`` is that watermark.
"""

REJECTS_SCHEMA = pa.schema(
    [
        _required("stream", pa.string()),
        pa.field("file", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("column", pa.string()),
        _required("reason", pa.string()),
        _required(BATCH_ID, pa.int64()),
        pa.field("text", pa.string()),
    ]
)
"""An input row that could not be read as a tuple, with its place and its text."""

LEDGER_SCHEMA = pa.schema(
    [
        _required(BATCH_ID, pa.int64()),
        _required("stream", pa.string()),
        _required("read", pa.int64()),
        _required("stored", pa.int64()),
        _required("late", pa.int64()),
        _required("rejected", pa.int64()),
        _required("filtered", pa.int64()),
        _required("null_keys", pa.int64()),
        pa.field("largest_ts", TIMESTAMP),
        pa.field("files_set_aside", pa.int64()),
        pa.field("held_back_bytes", pa.int64()),
        pa.field("decided", pa.string()),
        pa.field("duplicates", pa.int64()),
        pa.field("lost_offsets", pa.int64()),
    ]
)
"""One row per batch and stream; read = stored + late + rejected + filtered + duplicates.

``null_keys`` counts within ``stored``. ``duplicates`` counts tuples that repeat one before them (`Stream.unique`); it
is null in older rows, which had none.

``files_set_aside`` counts bad files, or rests of files, that the batch set aside; each is one of ``rejected``.
``held_back_bytes`` is how much of an unfinished last line waited when the batch was planned. ``decided`` is JSON: what
the source decided then and no count says; a batch that is cut anew repeats it. All three are null in older rows.

``lost_offsets`` counts a topic's offsets that retention removed before they were read (``on_data_loss=skip``). They
were never read, so they are no part of ``read``; each stretch of them is one of ``rejected``, and its row there names
the partition, the first offset and the last. It is null in older rows.
"""

METRICS_SCHEMA = pa.schema(
    [
        _required(BATCH_ID, pa.int64()),
        _required("cell", pa.int32()),
        _required("matches", pa.int64()),
        _required("candidates", pa.int64()),
        _required("stored_rows", pa.int64()),
        _required("state_bytes", pa.int64()),
        _required("state_rows", pa.int64()),
        _required("expired_rows", pa.int64()),
        _required("duration_ms", pa.int64()),
        pa.field("held_by", pa.string()),
        pa.field("held_us", pa.int64()),
        pa.field("files_set_aside", pa.int64()),
        pa.field("held_back_bytes", pa.int64()),
        pa.field("threads", pa.int32()),
        pa.field("max_delay_us", pa.int64()),
        pa.field("delay_us", pa.int64()),
        pa.field("waiting_rows", pa.int64()),
        pa.field("shipped_rows", pa.int64()),
        pa.field("layout", pa.string()),
        pa.field("backlog_rows", pa.int64()),
        pa.field("backlog_bytes", pa.int64()),
        pa.field("backlog_us", pa.int64()),
        pa.field("limited_by", pa.string()),
        pa.field("backlog", pa.string()),
        pa.field("undecided_rows", pa.int64()),
        pa.field("table_versions", pa.string()),
        pa.field("lost_offsets", pa.int64()),
        pa.field("restarts", pa.int64()),
        pa.field("devices", pa.int64()),
        pa.field("idle_devices", pa.int64()),
        pa.field("match_bytes", pa.int64()),
    ]
)
"""One row per batch and cell.

``held_by`` is the stream, with its partition or device, that sent nothing in the batch and holds back the watermark;
null where none does.
``held_us`` is how far that stream is behind the furthest one; null also where it has had no tuple yet.
``files_set_aside`` (so far) and ``held_back_bytes`` (now) are sums over the streams; the ledger has them by stream.
``threads`` is how many threads the cell had for the batch; null in older rows.
``max_delay_us`` is the bound that was asked for. Without a bound it is null, and so are the next two. ``delay_us`` is
the longest time that a tuple of the batch before may have waited, from when the source could see it to the end of that
batch; null for the first batch after a start. ``waiting_rows`` counts the records that the source saw and left for
later batches; there may be more.
``shipped_rows`` counts the tuples that the exchange sent to the cell to be joined, copies for older layouts among them;
its sum over the cells is what the layouts ship. ``layout`` is the layout by which the batch's tuples are stored: "4x4",
or what is said of ranges. Both are null in older rows.
``backlog_rows`` is how many records the source knew and left for later batches, all streams together, ``backlog_bytes``
the bytes of files that are not read, and ``backlog_us`` how far the newest of these records is ahead of what is read,
in event time. ``limited_by`` says why the batch holds no more: "max_rows_per_batch", "max_delay", "bytes" (a topic's of
a batch) or "pace"; null where it holds all that the source saw. ``backlog`` is JSON: the same of each stream and
partition that has any. All five are null in older rows, and where Spark plans the batches.
``undecided_rows`` counts the tuples in the cell's state that wait for their horizon (`how`); null in older rows.
``table_versions`` says in JSON which version of each table the batch joined, by the table's name; null without tables.
``lost_offsets`` counts the offsets of topics that were gone before the batch read them, all streams together; the
ledger has them by stream. It is null in older rows.
``restarts`` is how often the query had been started again (`restart`) since `StreamJoin.start`; null in older rows.
``devices`` counts the devices whose clocks hold their streams' (`partition_by` with columns), ``idle_devices`` those
that became idle with the batch; both are null where no stream has devices.
``match_bytes`` is how many bytes the files of the cell's matches have. Files of matches that the commit puts together
count for the first cell. It is null in older rows.
"""

PUNCTUATIONS_SCHEMA = pa.schema(
    [
        _required(BATCH_ID, pa.int64()),
        pa.field("punctuation", TIMESTAMP),
        pa.field("watermark", TIMESTAMP),
        _required("matches", pa.int64()),
        pa.field("largest_ts", TIMESTAMP),
        _required("committed_at", TIMESTAMP),
    ]
)
"""One row per batch: every result with ``event_time < punctuation`` is in the matches. Null: none is known yet."""


@dataclass(frozen=True, slots=True)
class TableSet:
    """The paths of one join's tables.

    Parameters
    ----------
    root : str
        The matches table: a local path or ``file:`` URI (made absolute, so that driver and workers mean the same),
        or another URI, kept as it is.

    Raises
    ------
    ArgumentError
        The path is empty, holds a control character, names another host, or cannot be read by delta-rs.
    """

    root: str
    matches: str = field(init=False)
    punctuations: str = field(init=False)
    late: str = field(init=False)
    rejects: str = field(init=False)
    ledger: str = field(init=False)
    metrics: str = field(init=False)

    def __post_init__(self) -> None:
        root = _normal_path(self.root)
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "matches", root)
        for name in ("punctuations", "late", "rejects", "ledger", "metrics"):
            object.__setattr__(self, name, f"{root}_{name}")

    def path_of(self, table: str) -> str:
        """Return the path of the table of that name (``matches``, ``late``, ...)."""
        if table not in self.names():
            message = f"a join has no table {table!r}"
            raise ArgumentError(message, name=table, hint=f"one of {', '.join(self.names())}")
        path: str = getattr(self, table)
        return path

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of the tables, in the order in which a batch is committed to them."""
        return ("late", "rejects", "ledger", "metrics", "matches", "punctuations")


def _normal_path(root: str) -> str:
    if not root or _CONTROL.search(root):
        message = "a table's path is empty or holds a control character"
        raise ArgumentError(message, name="root", hint="an absolute path or a URI such as s3://bucket/folder/name")
    if root.startswith("file:") and not is_local(root):
        message = "a table's path names another host"
        raise ArgumentError(
            message, name="root", hint="mount its folder and give the local path, such as /data/matches"
        )
    root = absolute_location(root).rstrip("/")
    if is_local(root) and _ESCAPE.search(root):
        message = "a table's path holds a percent sign that delta-rs takes for an escape"
        raise ArgumentError(message, name="root", hint="write the path plainly, with its spaces, or rename the folder")
    if not root or root.endswith(":"):
        message = "a table cannot be the root folder"
        raise ArgumentError(message, name="root", hint="give a folder, such as /data/matches")
    return root


def _storable(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us" and kind.tz in ("UTC", None))
    if pa.types.is_list(kind):
        return _storable(kind.value_type)
    if pa.types.is_struct(kind):
        names = [field.name.lower() for field in kind]
        are_named = len(set(names)) == len(names) and all(name and not _FORBIDDEN.search(name) for name in names)
        return bool(names) and are_named and all(_storable(field.type) for field in kind)
    return any(test(kind) for test in _TYPES)


def check_match_schema(schema: pa.Schema) -> None:
    """Refuse columns that a Delta table of matches cannot hold.

    Raises
    ------
    ColumnError
        ``event_time`` (timestamp[us, UTC], required) or ``batch_id`` (int64, required) is missing or has another type;
        two names are equal but for case; or Delta does not allow a name or a type.
    """
    for name, kind in ((EVENT_TIME, TIMESTAMP), (BATCH_ID, pa.int64())):
        if schema.get_field_index(name) < 0 or schema.field(name).type != kind or schema.field(name).nullable:
            message = f"the result has no required column {name} of type {kind}"
            raise ColumnError(message, name=name, hint="add it to the schema of the matches, not nullable")
    seen: set[str] = set()
    for column in schema:
        if column.name.lower() in seen:
            message = f"two result columns are named {column.name} (case does not count)"
            raise ColumnError(message, name=column.name, hint="rename one of them")
        seen.add(column.name.lower())
        if not column.name or _FORBIDDEN.search(column.name):
            message = f"the result column {column.name!r} has a name that Delta refuses"
            raise ColumnError(message, name=column.name, hint="use no spaces and none of , ; { } ( ) =")
        if not _storable(column.type):
            message = f"the result column {column.name} has type {column.type}, which Delta cannot store"
            raise ColumnError(
                message,
                name=column.name,
                hint="boolean, int8 to int64, float, double, string, binary, date32, timestamp[us, UTC] or decimal128, "
                "or lists and structs of these, whose fields have names that Delta takes",
            )


def balance(row: Mapping[str, Any]) -> str:
    """Return what a ledger row counts, as a text, where ``read`` is not the sum of the others; empty where it is.

    A row of an older version has no duplicates.
    """
    counts = {name: row.get(name) or 0 for name in _PARTS}
    if row["read"] == sum(counts.values()):
        return ""
    return f"read {row['read']}, {', '.join(f'{name} {count}' for name, count in counts.items())}"


def conformed(table: pa.Table, schema: pa.Schema, *, name: str, batch_id: int) -> pa.Table:
    """Return a table brought to a schema: columns are found by name, and casts lose nothing.

    Parameters
    ----------
    table : pyarrow.Table
        Exactly the columns of ``schema``, in any order.
    schema : pyarrow.Schema
        One of the fixed schemas.
    name : str, keyword-only
        What the table is called in error messages.
    batch_id : int, keyword-only
        Every row's ``batch_id`` must be this.

    Raises
    ------
    ColumnError
        A column is missing, surplus, null where a value is required, or not castable; or a row is of another batch.
    """
    if set(table.column_names) != set(schema.names) or len(table.column_names) != len(schema.names):
        wrong = sorted(set(table.column_names) ^ set(schema.names)) or [table.column_names[0]]
        message = f"the {name}'s columns are not those of its table: {wrong[0]} is missing, surplus or doubled"
        raise ColumnError(message, name=wrong[0], hint=f"exactly {', '.join(schema.names)}")
    columns = []
    for wanted in schema:
        column = table.column(wanted.name)
        if not wanted.nullable and column.null_count:
            message = f"the {name}'s column {wanted.name} holds a null"
            raise ColumnError(message, name=wanted.name, hint="give a value in every row")
        try:
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            message = f"the {name}'s column {wanted.name} is {column.type} and cannot be cast to {wanted.type}"
            raise ColumnError(message, name=wanted.name, hint=f"give {wanted.type}") from error
    conformed_table = pa.Table.from_arrays(columns, schema=schema)
    if any(value != batch_id for value in conformed_table.column(BATCH_ID).to_pylist()):
        message = f"the {name} has rows of another batch than the one being committed"
        raise ColumnError(message, name=BATCH_ID, hint="commit the rows of one batch at a time")
    return conformed_table


def check_ledger(ledger: pa.Table) -> None:
    """Refuse a ledger that lost a row: for each stream ``read = stored + late + rejected + filtered + duplicates``.

    Raises
    ------
    LedgerError
        For a stream the sum is wrong; the error names the stream.
    """
    for row in ledger.to_pylist():
        if counts := balance(row):
            message = f"the ledger of stream {row['stream']} does not balance in batch {row['batch_id']}: {counts}"
            raise LedgerError(message, name=row["stream"], hint="nothing was committed; please report this as a defect")


def same_records(there: Sequence[Mapping[str, Any]], here: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two lists of ledger rows, each of one batch, speak of the same records.

    The counts must be equal, and so must the decisions that both name: an older row may name none.
    """

    def counted(rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
        return {(row["stream"], row["read"], *(row.get(name) or 0 for name in _PARTS)) for row in rows}

    if counted(there) != counted(here):
        return False
    decided = {row["stream"]: decisions(row) for row in there}
    for row in here:
        other, own = decided[row["stream"]], decisions(row)
        if any(other[name] != own[name] for name in other.keys() & own.keys()):
            return False
    return True


def decisions(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row of the ledger says was decided when its batch was planned; empty where it says nothing.

    Raises
    ------
    TableError
        It cannot be read.
    """
    try:
        decided = json.loads(row.get("decided") or "{}")
    except MALFORMED:
        decided = None
    if not isinstance(decided, dict):
        message = f"what the ledger's row of stream {row.get('stream')} says was decided cannot be read"
        raise TableError(message, name="decided", hint="restore the ledger from a copy, together with the checkpoint")
    return decided


def punctuation_row(
    *,
    batch_id: int,
    punctuation_us: int | None,
    watermark_us: int | None,
    matches: int,
    largest_ts_us: int | None,
    committed_at_us: int,
) -> pa.Table:
    """Return one row of the punctuations table; times are microseconds since 1970 UTC, None means "not known yet"."""
    values = [batch_id, punctuation_us, watermark_us, matches, largest_ts_us, committed_at_us]
    columns = [pa.array([value], field.type) for value, field in zip(values, PUNCTUATIONS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(columns, schema=PUNCTUATIONS_SCHEMA)


def new_properties() -> dict[str, str]:
    """Return the properties that a new table gets."""
    return dict(_CHOSEN)


def missing_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a table made earlier lacks: those that no user has set."""
    return {key: value for key, value in _CHOSEN.items() if configuration.get(key) in (None, _FORMER.get(key))}


def log_retention_s(configuration: Mapping[str, str]) -> int | None:
    """Return for how many seconds entries of the log are kept; None: for ever, or for a time that is not understood."""
    if configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    return _seconds(configuration.get(LOG_RETENTION, "interval 30 days"))


def deleted_file_retention_s(configuration: Mapping[str, str]) -> int | None:
    """Return for how many seconds a file is kept after it left the table; None: for a time that is not understood."""
    return _seconds(configuration.get(DELETED_FILE_RETENTION, "interval 1 week"))


def _seconds(interval: str) -> int | None:
    parts = interval.strip().lower().removeprefix("interval").strip()
    total, rest = 0, parts
    while rest:
        match = _PART.match(rest)
        if match is None or match[2] not in _SECONDS:
            return None
        total += int(match[1]) * _SECONDS[match[2]]
        rest = rest[match.end() :]
    return total or None
