"""The options of a stream: what each is for, which values it may have, and where else than in Python it is given.

This is the one list of them. The TOML file and its schema, the flags and their help, SQL's WITH, ``format("sensors")``
and the page of the reference come of it. An option is a field of `Stream`, a key here, and what reads it. A scope names
the kind of source that alone has the option.
"""

from __future__ import annotations

from streamjoin_ds.spec.folder_options import FILE_ORDER, SUB_FOLDERS
from streamjoin_ds.spec.key import LIST, TABLE, Key
from streamjoin_ds.spec.member.source import ON_CHANGE
from streamjoin_ds.spec.member.stream import FORMATS, ON_BAD_FILE, PARTITION_BY, TIME_UNITS

__all__ = ["FORMAT_KEYS", "PER_STREAM", "STREAM_KEYS"]


STREAM_KEYS: dict[str, Key] = {
    "source": Key(
        "A file, a folder that grows (s3://BUCKET/FOLDER too), a Delta table, kafka://BROKER/TOPIC?format=json, or "
        "gen:NAME?KEY=VALUE&...",
        note="[required]",
        example="flights.csv.gz",
    ),
    "time": Key("Column of the event time.", note="[default: ts]", example="ts", metavar="COLUMN"),
    "time_unit": Key("Unit of an event time that is a number.", note="[default: us]", one_of=TIME_UNITS, example="ms"),
    "delay": Key("How late a tuple may be.", note="[default: 0s]", example="30s", metavar="DURATION"),
    "schema": Key(
        "Columns and their Arrow types.",
        (TABLE,),
        "[default: inferred from the first file]",
        example={"ts": "timestamp[us, tz=UTC]", "x": "double"},
    ),
    "format": Key(
        "Format of the files.", note="[default: auto, by their names]", one_of=FORMATS, example="csv", scope="files"
    ),
    "delimiter": Key(
        "What separates the fields of CSV files: one character, or tab.",
        note="[default: ,]",
        example=";",
        scope="files",
    ),
    "where": Key(
        "A condition on the tuples; others are left out.", (str, LIST), "[default: all]", example="altitude > 1000"
    ),
    "idle_timeout": Key(
        "Time without a record after which a stream no longer holds up the others.",
        note="[default: never]",
        example="10m",
        metavar="DURATION",
    ),
    "max_ahead": Key(
        "A record that is further ahead of its stream than this is rejected.",
        note="[default: no limit]",
        example="1h",
        metavar="DURATION",
    ),
    "on_bad_file": Key(
        "What happens at a file that cannot be read: stop (the join stops) or quarantine (the file is set aside, as a "
        "row of the rejects).",
        note="[default: stop]",
        one_of=ON_BAD_FILE,
        example="quarantine",
        scope="files",
    ),
    "partition_by": Key(
        "A stream has many partitions, each with an order of its own: each file of its folder (file) or each "
        "sub-folder (folder).",
        note="[default: one order]",
        one_of=PARTITION_BY,
        example="folder",
        scope="files",
    ),
    "sub_folders": Key(
        "Whether the files of sub-folders are read too, their names such as date=2024-01-01 as columns (read), or "
        "passed over (skip).",
        note="[default: skip]",
        one_of=SUB_FOLDERS,
        example="read",
        scope="files",
    ),
    "file_order": Key(
        "The order of a folder's files: by their names (name), or by their times of change (modified).",
        note="[default: name]",
        one_of=FILE_ORDER,
        example="modified",
        scope="files",
    ),
    "finished_after": Key(
        "Time without a change after which a file is finished, and the next one may be begun.",
        note="[default: once a later file is there]",
        example="30s",
        metavar="DURATION",
        scope="files",
    ),
    "on_change": Key(
        "What happens at a version of a Delta table that deletes or rewrites rows: stop (the join stops) or ignore "
        "(only what it inserted is read, where the table has a change feed).",
        note="[default: stop]",
        one_of=ON_CHANGE,
        example="ignore",
        scope="delta",
    ),
    "starting_version": Key(
        "A Delta table is read from the changes of this version on, or after its newest (latest).",
        (int, str),
        "[default: begin with the rows that the table has]",
        example=12,
        metavar="VERSION",
        scope="delta",
    ),
    "starting_timestamp": Key(
        "A Delta table is read from the first version on that was committed then or later.",
        note="[default: begin with the rows that the table has]",
        example="2026-01-31T12:00:00Z",
        metavar="TIME",
        scope="delta",
    ),
    "rate": Key(
        "Tuples a second, by which the layout is chosen at first.",
        (float,),
        "[default: the rate at which the input begins]",
        example=20_000,
        metavar="NUMBER",
    ),
    "unique": Key(
        "Columns of a key, for sources that deliver at least once: a tuple that repeats the key of one before it, "
        "within the window and in its partition, is left out and counted.",
        (str, LIST),
        "[default: each tuple counts]",
        example=["device", "counter"],
    ),
}

# Those that a flag, or a key of the whole file, gives to all streams or to some in one form: 30s, or e=30s.
PER_STREAM = tuple(name for name in STREAM_KEYS if name not in ("source", "schema", "delimiter", "where", "unique"))

# Those of ``format("sensors")``, which reads one stream without a join.
_OF_JOINS = ("delay", "idle_timeout", "max_ahead", "rate")
FORMAT_KEYS = ("delimiter", *(name for name in PER_STREAM if name not in _OF_JOINS))
