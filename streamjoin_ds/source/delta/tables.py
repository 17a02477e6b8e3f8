"""Whether a stream is over a Delta table, how its rows are read, and which columns it has."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pyarrow as pa

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.location import local_path
from streamjoin_ds.delta.results import EVENT_TIME, JOIN_ID_KEY
from streamjoin_ds.delta.table_state import TableState
from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.spec.member.source import folder_facts, refused_option
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["table_path", "table_schema", "with_table_format"]

_FORMATS = ("delta", "results")


def table_path(stream: Stream) -> str | None:
    """Return the folder of the table that a stream is over; None where it is over none.

    Raises
    ------
    FileFormatError
        The stream's format is that of a table, and there is none.
    """
    if not isinstance(stream.source, str) or stream.is_topic or stream.format not in ("auto", *_FORMATS):
        return None
    local = local_path(stream.source)
    path = stream.source.rstrip("/") if local is None else os.path.normpath(str(local))
    if _has_log(stream, path):
        return path
    if stream.format in _FORMATS:
        msg = f"the input of stream {stream.name} is no Delta table: {path}"
        raise FileFormatError(msg, name=path, hint="give the folder that holds _delta_log")
    return None


def _has_log(stream: Stream, path: str) -> bool:
    if "*" in path.rpartition("/")[2]:
        return False
    try:
        return stat.S_ISDIR(files_at(path).stat(f"{path}/_delta_log").st_mode)
    except ArgumentError:  # what reads it refuses it by name
        return False
    except OSError:
        return False


def with_table_format(stream: Stream) -> Stream:
    """Return the stream with the format of its table, where it is over a table and has the format "auto".

    A process that is told the format need not read the table's log to know it.

    Raises
    ------
    ArgumentError
        The stream has options that a table's rows cannot have, or the table holds the matches of a join, and the stream
        has options that do not fit them.
    """
    path = table_path(stream)
    if path is not None and stream.on_bad_file == "quarantine":
        msg = f"stream {stream.name} is over a Delta table, whose files cannot be set aside"
        raise ArgumentError(
            msg, name="on_bad_file", hint="set on_bad_file=stop for it: a damaged table is to be restored"
        )
    if path is not None and stream.partition_by is not None:
        msg = f"stream {stream.name} is over a Delta table, which has one order, so it cannot have partition_by"
        raise ArgumentError(msg, name="partition_by", hint="leave it out; partition columns of the table are columns")
    if path is not None:
        for name in folder_facts(stream):
            raise refused_option(stream.name, name, "is over a Delta table, whose log says what is read")
    if path is None or stream.format != "auto":
        return stream
    state = TableState(path)
    if JOIN_ID_KEY not in state.configuration or EVENT_TIME not in state.columns().schema.names:
        return replace(stream, format="delta")
    options = ("on_change", "starting_version", "starting_timestamp")
    given = [name for name in options if getattr(stream, name) not in (None, "stop")]
    if stream.time != EVENT_TIME:
        given.append("time")
    if given:
        msg = f"the input of stream {stream.name} holds the matches of a join, which are read by {EVENT_TIME}"
        hint = (
            f"leave {given[0]} out and set time={EVENT_TIME}; or set format=delta, to read rows as versions added them"
        )
        raise ArgumentError(msg, name=given[0], hint=hint)
    return replace(stream, format="results")


def table_schema(stream: Stream, path: str) -> pa.Schema:
    """Return the columns of a table: those declared, or all that it has.

    Raises
    ------
    TableError
        There is no table, or it needs another reader.
    FileFormatError
        The stream reads results, and the table holds none.
    """
    state = TableState(path)
    columns = state.columns().schema
    if stream.format == "results" and (JOIN_ID_KEY not in state.configuration or EVENT_TIME not in columns.names):
        msg = f"the input of stream {stream.name} does not hold the matches of a join: {path}"
        raise FileFormatError(msg, name=path, hint="set format=delta, or give the table that the join writes")
    return stream.schema if isinstance(stream.schema, pa.Schema) else columns
