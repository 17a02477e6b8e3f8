"""Where the tables of one join are, and the columns they have.

All of them are siblings: ``<root>`` holds the matches, ``<root>_late`` the late tuples, and so on. Timestamps are
microseconds UTC. Only the metrics hold durations, and only ``committed_at`` holds the wall clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyarrow as pa

from streamjoin_ds.blocks.place import absolute_location, is_local
from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.errors import ArgumentError, ColumnError

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
    "check_match_schema",
]

TIMESTAMP = pa.timestamp("us", "UTC")
BATCH_ID = "batch_id"


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
    ]
)
"""One row per batch and cell.

``held_by`` is the stream that sent nothing in the batch and holds back the watermark; null where no stream does.
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


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


def _normal_path(root: str) -> str:
    if not root or any(ord(character) < 32 or ord(character) == 127 for character in root):
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
