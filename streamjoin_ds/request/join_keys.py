"""The keys of a join, its streams and its tables: what each may hold, what it means, and an example.

A kind is a Python type, and msgspec tells whether a value is of that kind. What a text means is checked later, where it
is parsed, for flags, files and Python alike. No message shows a value: it may be a secret.
"""

from __future__ import annotations

from typing import Any

from streamjoin_ds.plan import EXCHANGES, KERNELS
from streamjoin_ds.request.key import LIST, LISTS, NUMBERS, TABLE, VERSIONS, Key
from streamjoin_ds.spec.folder_options import FILE_ORDER, SUB_FOLDERS
from streamjoin_ds.spec.how import HOWS
from streamjoin_ds.spec.nearest import DIRECTIONS, MAX_NEAREST
from streamjoin_ds.spec.stream import FORMATS, ON_BAD_FILE, PARTITION_BY, TIME_UNITS
from streamjoin_ds.spec.table import TABLE_FORMATS
from streamjoin_ds.spec.table_options import ON_CHANGE
from streamjoin_ds.stream.sensor_options import READER_OPTIONS

__all__ = ["JOIN_KEYS", "READING_KEYS", "STREAM_KEYS", "TABLE_KEYS"]


def _reading(name: str) -> Key:
    """Return the key of an option of the source, whose text in `READER_OPTIONS` is "what it is (default)"."""
    words = f"{READER_OPTIONS[name][0].upper()}{READER_OPTIONS[name][1:]}"
    told, _, default = words.rpartition(" (")
    kinds: dict[str, tuple[Any, ...]] = {"pace": (str, float), "missing_files": (str,)}
    limits = {"pace": {"exclusiveMinimum": 0}, "missing_files": None}
    examples = {"pace": 60, "missing_files": "ignore"}
    return Key(
        f"{told}.",
        kinds.get(name, (int, str)),
        f"[default: {default.rstrip(')')}]",
        example=examples.get(name, 2),
        limits=limits.get(name, {"minimum": 1}),
    )


# Options of the source that are keys only here; the others are arguments of `StreamJoin.start` too.
READING_KEYS = tuple(name for name in READER_OPTIONS if name not in ("max_rows_per_batch", "max_delay"))

JOIN_KEYS: dict[str, Key] = {
    "on": Key(
        'A condition on results, for example "abs(e.x - w.x) <= 0.1 AND e.y > w.y". If there are '
        "several, all must hold.",
        (str, LIST),
        example=["abs(e.x - w.x) <= 0.1"],
    ),
    "where": Key(
        'A condition on the tuples of one stream: "e.altitude > 1000", or "e: altitude > 1000". Others are left out.',
        (str, LIST),
        example="e.altitude > 1000",
    ),
    "window": Key(
        "Which tuples may meet. 15s: those whose event times are at most so far apart, or e=6h,w=0s for each stream. "
        "'last 1000': a tuple meets the last 1000 of each other stream. 'every 10s for 60s': those that share a window "
        "of 60s, one of which ends every 10s; with 'lag 3' those in windows that are 3 apart.",
        (str, TABLE),
        "[required, but of one stream beside tables]",
        example="15s",
    ),
    "how": Key(
        "Which rows the join has: inner (pairs); left, right, full (also tuples of the first, second or either stream "
        "without a partner); semi, anti (tuples of the first stream with a partner in each other stream, or in none).",
        note="[default: inner]",
        one_of=HOWS,
    ),
    "nearest": Key(
        "Of the partners of a tuple of the first stream only so many make rows, the nearest.",
        (int,),
        "[default: all]",
        limits={"minimum": 1, "maximum": MAX_NEAREST},
    ),
    "nearest_by": Key(
        "The distance by which partners are the nearest, such as abs(e.x - w.x).",
        note="[default: the time between the two]",
        example="abs(e.x - w.x)",
    ),
    "nearest_direction": Key(
        "Which partners may be the nearest: both, backward (not after the tuple), forward (not before it).",
        note="[default: both]",
        one_of=DIRECTIONS,
    ),
    "reduce": Key(
        "In place of pairs, a row for each tuple of the first stream, with aggregates over its partners: count(*), "
        "avg(w.x), arg_min(w.id, abs(e.x - w.x)), ... With how=left also for tuples without a partner.",
        (TABLE, LIST),
        example={"n": "count(*)", "mean_x": "avg(w.x)"},
    ),
    "select": Key("Columns: e.icao24, w.*, e.x - w.x AS gap.", (str, LIST), "[default: all]", example=["e.id", "w.*"]),
    "time": Key("Column of the event time: ts, or e=ts,w=time.", (str, TABLE), "[default: ts]", example="ts"),
    "delay": Key("How late a tuple may be: 30s, or e=30s,w=0s.", (str, TABLE), "[default: 0s]", example="30s"),
    "delimiter": Key(
        "What separates the fields of CSV files: ';' or tab, or e=';' for one stream alone.",
        (str, LIST),
        "[default: ,]",
        example=";",
    ),
    "schema": Key(
        "Columns and their Arrow types: 'ts timestamp[us, tz=UTC], x double', or 'e=ts int64, x double' for one stream "
        "alone. A name that is no word stands in backticks.",
        (str, LIST),
        "[default: inferred from what is there]",
        example="e=ts timestamp[us, tz=UTC], x double",
    ),
    "format": Key(
        "Format of files: csv, or e=csv,w=json; of a topic it stands in its URL.",
        (str, TABLE),
        "[default: auto, by their names]",
        one_of=FORMATS,
        example="csv",
    ),
    "time_unit": Key(
        "Unit of an event time that is a number: ms, or e=ms,w=us.",
        (str, TABLE),
        "[default: us]",
        one_of=TIME_UNITS,
        example="ms",
    ),
    "to": Key("Table of matches; the join's other tables lie beside it.", note="[required]", example="./matches"),
    "checkpoint": Key(
        "Folder of the checkpoint (s3a://BUCKET/FOLDER too), from which a restart goes on.",
        note="[required]",
        example="./matches.ckpt",
    ),
    "available_now": Key("Read what is there, then stop.", (bool,)),
    "trigger": Key("Least time from the start of one batch to the next.", example="1s"),
    "max_rows_per_batch": Key(
        "Most records of a batch, all streams together.",
        (int,),
        "[default: 1000000]",
        example=50_000,
        limits={"minimum": 1},
    ),
    "max_delay": Key(
        "How long a tuple may wait for the commit of its batch, if machine and load allow it: 500ms.",
        note="[default: no bound]",
        example="500ms",
    ),
    "layout": Key(
        "How tuples are dealt to cells: auto, grid, ranges (of a compared column), or a grid to keep to: 1x2.",
        note="[default: auto]",
        example="1x2",
    ),
    "cells": Key(
        "Number of cells, which work side by side.", (int,), "[default: as many as cores]", limits={"minimum": 1}
    ),
    "exchange": Key(
        "How tuples get from the source to the cells.", note="[default: auto]", one_of=("auto", *EXCHANGES)
    ),
    "kernel": Key("Kernel implementation to use.", note="[default: auto]", one_of=KERNELS),
    "threads": Key(
        "Most kernels that work side by side in a cell; there are then as many times fewer cells.",
        (int,),
        "[default: 1]",
        limits={"minimum": 1},
    ),
    "pin": Key(
        "Whether the kernel threads of a cell that has several get cores of their own.", (bool,), "[default: pin]"
    ),
    "index": Key(
        "Columns by which windows are laid out: e.latitude,e.longitude,w.latitude; or scan.",
        (str, LIST, LISTS),
        "[default: auto, chosen for each run]",
        example={"e": ["latitude", "longitude"], "w": "scan"},
    ),
    "order": Key(
        "Order in which the streams join: e,w,x.",
        (str, LIST),
        "[default: auto, by selectivity]",
        example=["e", "w", "x"],
    ),
    "merge_runs": Key(
        "Merge ratio: how many runs of like size are merged into one.",
        (int,),
        "[default: each row is merged once, many runs at a time]",
        limits={"minimum": 2},
    ),
    "durable": Key(
        "Whether a batch is on the device before it counts, so that a power cut loses nothing.",
        (bool,),
        "[default: durable]",
    ),
    "take_over": Key(
        "Take the checkpoint from a driver that still holds it but no longer works (stopped, cut off).", (bool,)
    ),
    "restart": Key(
        "Start the query again, after a pause, when it ends by an error that may pass: a broker or a store that is "
        "away, a full disk.",
        (bool,),
    ),
    "idle_timeout": Key(
        "Time without a record after which a stream no longer holds up the others: 10m, or e=10m.",
        (str, TABLE),
        "[default: never]",
        example="10m",
    ),
    "max_ahead": Key(
        "A record that is further ahead of its stream than this is rejected: 1h, or e=1h.",
        (str, TABLE),
        "[default: no limit]",
        example="1h",
    ),
    "on_bad_file": Key(
        "What happens at a file that cannot be read: stop (the join stops) or quarantine (the file is set aside, as a "
        "row of the rejects); or e=quarantine for one stream.",
        (str, TABLE),
        "[default: stop]",
        one_of=ON_BAD_FILE,
        example="quarantine",
    ),
    "on_change": Key(
        "What happens at a version of a Delta table that deletes or rewrites rows: stop (the join stops) or ignore "
        "(only what it inserted is read, where the table has a change feed); or e=ignore for one stream.",
        (str, TABLE),
        "[default: stop]",
        one_of=ON_CHANGE,
        example="ignore",
    ),
    "starting_version": Key(
        "A Delta table is read from the changes of this version on, or after its newest (latest): 12, or e=12.",
        (int, str, VERSIONS),
        "[default: begin with the rows that the table has]",
        example=12,
    ),
    "starting_timestamp": Key(
        "A Delta table is read from the first version on that was committed then or later: 2026-01-31T12:00:00Z, or "
        "e=2026-01-31.",
        (str, TABLE),
        "[default: begin with the rows that the table has]",
        example="2026-01-31T12:00:00Z",
    ),
    "partition_by": Key(
        "A stream has many partitions, each with an order of its own: each file of its folder (file) or each "
        "sub-folder (folder); or e=folder for one stream.",
        (str, TABLE),
        "[default: one order]",
        one_of=PARTITION_BY,
        example="file",
    ),
    "sub_folders": Key(
        "Whether the files of sub-folders are read too, their names such as date=2024-01-01 as columns (read), or "
        "passed over (skip); or e=read for one stream.",
        (str, TABLE),
        "[default: skip]",
        one_of=SUB_FOLDERS,
        example="read",
    ),
    "file_order": Key(
        "The order of a folder's files: by their names (name), or by their times of change (modified); or e=modified.",
        (str, TABLE),
        "[default: name]",
        one_of=FILE_ORDER,
        example="modified",
    ),
    "finished_after": Key(
        "Time without a change after which a file is finished, and the next one may be begun: 30s, or e=30s; of a "
        "table's file zones=30s.",
        (str, TABLE),
        "[default: once a later file is there]",
        example="30s",
    ),
    "refresh": Key(
        "How often a new version of a table is looked for: 5m, or zones=5m; 0s: for each batch.",
        (str, TABLE),
        "[default: 1m]",
        example="5m",
    ),
    "rate": Key(
        "Tuples a second, by which the layout is chosen at first: 1000, or e=1000,w=20000.",
        (float, NUMBERS),
        "[default: the rate at which the input begins]",
        example={"e": 1000, "w": 20_000},
    ),
    "unique": Key(
        "Columns of a key, for sources that deliver at least once: a tuple that repeats the key of one before it, "
        "within the window and in its partition, is left out and counted. device,counter, or e=device,counter for one "
        "stream.",
        (str, LIST, LISTS),
        "[default: each tuple counts]",
        example={"e": ["device", "counter"]},
    ),
    "master": Key("Spark's master.", note="[default: local, on all cores]", example="local[2]"),
    "conf": Key(
        "A setting of the Spark session; there may be several.", (TABLE, LIST), example={"spark.ui.enabled": "true"}
    ),
    **{name: _reading(name) for name in READING_KEYS},
}

STREAM_KEYS: dict[str, Key] = {
    "source": Key(
        "A file, a folder that grows (s3://BUCKET/FOLDER too), a Delta table, kafka://BROKER/TOPIC?format=json, or "
        "gen:NAME?KEY=VALUE&...",
        note="[required]",
        example="flights.csv.gz",
    ),
    "time": Key("Column of the event time.", note="[default: ts]", example="ts"),
    "delay": Key("How late a tuple may be.", note="[default: 0s]", example="30s"),
    "schema": Key(
        "Columns and their Arrow types.",
        (TABLE,),
        "[default: inferred from the first file]",
        example={"ts": "timestamp[us, tz=UTC]", "x": "double"},
    ),
    "format": Key("Format of the files.", note="[default: auto, by the name]", one_of=FORMATS),
    "time_unit": Key("Unit of an event time that is a number.", note="[default: us]", one_of=TIME_UNITS),
    "delimiter": Key(
        "What separates the fields of CSV files: one character, or tab.", note="[default: ,]", example=";"
    ),
    "where": Key(
        "A condition on the tuples; others are left out.", (str, LIST), "[default: all]", example="altitude > 1000"
    ),
    "idle_timeout": Key(
        "Time without a record after which the stream no longer holds up the others.",
        note="[default: never]",
        example="10m",
    ),
    "max_ahead": Key(
        "A record that is further ahead of the stream than this is rejected.", note="[default: no limit]", example="1h"
    ),
    "on_bad_file": Key(
        "What happens at a file that cannot be read: stop (the join stops) or quarantine (the file is set aside, as a "
        "row of the rejects).",
        note="[default: stop]",
        one_of=ON_BAD_FILE,
    ),
    "on_change": Key(
        "What happens at a version of a Delta table that deletes or rewrites rows: stop (the join stops) or ignore "
        "(only what it inserted is read, where the table has a change feed).",
        note="[default: stop]",
        one_of=ON_CHANGE,
    ),
    "starting_version": Key(
        "A Delta table is read from the changes of this version on, or after its newest (latest).",
        (int, str),
        "[default: begin with the rows that the table has]",
        example=12,
    ),
    "starting_timestamp": Key(
        "A Delta table is read from the first version on that was committed then or later.",
        note="[default: begin with the rows that the table has]",
        example="2026-01-31T12:00:00Z",
    ),
    "partition_by": Key(
        "The stream has many partitions, each with an order of its own: each file of the folder (file) or each "
        "sub-folder (folder).",
        note="[default: one order]",
        one_of=PARTITION_BY,
    ),
    "sub_folders": Key(
        "Whether the files of sub-folders are read too, their names such as date=2024-01-01 as columns (read), or "
        "passed over (skip).",
        note="[default: skip]",
        one_of=SUB_FOLDERS,
    ),
    "file_order": Key(
        "The order of the folder's files: by their names (name), or by their times of change (modified).",
        note="[default: name]",
        one_of=FILE_ORDER,
    ),
    "finished_after": Key(
        "Time without a change after which a file is finished, and the next one may be begun.",
        note="[default: once a later file is there]",
        example="30s",
    ),
    "rate": Key(
        "Tuples a second, by which the layout is chosen at first.",
        (float,),
        "[default: the rate at which the input begins]",
        example=20_000,
    ),
    "unique": Key(
        "Columns of a key, for a source that delivers at least once: a tuple that repeats the key of one before it, "
        "within the window and in its partition, is left out and counted.",
        (str, LIST),
        "[default: each tuple counts]",
        example=["device", "counter"],
    ),
}


TABLE_KEYS: dict[str, Key] = {
    "source": Key(
        "A Delta table, or a file of Parquet, CSV or JSON lines.", note="[required]", example="zones.parquet"
    ),
    "refresh": Key("How often a new version is looked for; 0s: for each batch.", note="[default: 1m]", example="5m"),
    "schema": Key(
        "Columns and their Arrow types.",
        (TABLE,),
        "[default: the table's, or inferred from the file]",
        example={"id": "int64", "most": "double"},
    ),
    "where": Key("A condition on the rows; others are left out.", (str, LIST), "[default: all]", example="is_active"),
    "format": Key("Format of the file.", note="[default: auto, by the name]", one_of=TABLE_FORMATS),
    "finished_after": Key(
        "Time without a change after which the file is a new version; 0s: at once.", note="[default: 2s]", example="30s"
    ),
}
