"""The options of a run: what each is for, which values it may have, and what takes it.

This is the one list of them. The TOML file and its schema, the flags of ``streamjoin run``, ``sql`` and ``explain``,
SQL's SET and WITH, the checks of `QueryOptions`, the options of ``format("sensors")`` and the page of the reference
come of it.
"""

from __future__ import annotations

from streamjoin_ds.plan import EXCHANGES, KERNELS, MAX_CELLS
from streamjoin_ds.spec.member.option_key import LIST, LISTS, TABLE, OptionKey
from streamjoin_ds.watch.address import METRICS_ADDRESS, PAGE_ADDRESS

__all__ = ["RUN_KEYS", "keys_of"]

# By scope: where the results go; an argument of `start` alone, or of `explain` too; a field of `Execution`; one of the
# source's options; of the session of Spark, if there is one.
_PLACE, _START, _PLAN, _ENGINE, _SOURCE, _SESSION = "place", "start", "plan", "engine", "source", "session"

RUN_KEYS: dict[str, OptionKey] = {
    "to": OptionKey(
        "Table of matches; the join's other tables lie beside it.",
        note="[required]",
        example="./matches",
        metavar="PATH",
        scope=_PLACE,
    ),
    "checkpoint": OptionKey(
        "Folder of the checkpoint (s3a://BUCKET/FOLDER too), from which a restart goes on.",
        note="[required]",
        example="./matches.ckpt",
        metavar="PATH",
        scope=_PLACE,
    ),
    "available_now": OptionKey("Read what is there, then stop.", (bool,), scope=_START),
    "trigger": OptionKey(
        "Least time from the start of one batch to the next.", example="1s", metavar="DURATION", scope=_START
    ),
    "max_rows_per_batch": OptionKey(
        "Most records of a batch, all streams together.",
        (int,),
        "[default: 1000000]",
        example=50_000,
        limits={"minimum": 1},
        metavar="N",
        scope=_START,
    ),
    "max_delay": OptionKey(
        "How long a tuple may wait for the commit of its batch, if machine and load allow it: 500ms.",
        note="[default: no bound]",
        example="500ms",
        metavar="DURATION",
        scope=_PLAN,
    ),
    "durable": OptionKey(
        "Whether a batch is on the device before it counts, so that a power cut loses nothing.",
        (bool,),
        "[default: durable]",
        scope=_PLAN,
    ),
    "take_over": OptionKey(
        "Take the checkpoint from a driver that still holds it but no longer works (stopped, cut off).",
        (bool,),
        scope=_START,
    ),
    "restart": OptionKey(
        "Start the query again, after a pause, when it ends by an error that may pass: a broker or a store that is "
        "away, a full disk.",
        (bool,),
        scope=_START,
    ),
    "page": OptionKey(
        "Show the query on a live page at an address: 8765, or 127.0.0.1:8765.",
        note="[default: no page]",
        example="127.0.0.1:8765",
        metavar="[[HOST:]PORT]",
        scope=_START,
        bare=PAGE_ADDRESS,
    ),
    "metrics": OptionKey(
        "Where Prometheus asks for metrics: 9464, or 127.0.0.1:9464.",
        note="[default: nowhere]",
        example="127.0.0.1:9464",
        metavar="[[HOST:]PORT]",
        scope=_START,
        bare=METRICS_ADDRESS,
    ),
    "otlp": OptionKey(
        "Send the query's metrics by OTLP, as OpenTelemetry's environment variables say.", (bool,), scope=_START
    ),
    "layout": OptionKey(
        "How tuples are dealt to cells: auto, grid, ranges (of a compared column), or a grid to keep to: 1x2.",
        note="[default: auto]",
        example="1x2",
        metavar="KIND|LxL",
        scope=_PLAN,
    ),
    "cells": OptionKey(
        "Number of cells, which work side by side.",
        (int,),
        "[default: 1 on one machine, else as many as cores]",
        limits={"minimum": 1, "maximum": MAX_CELLS},
        metavar="N",
        scope=_PLAN,
    ),
    "exchange": OptionKey(
        "How tuples get from the source to the cells.", note="[default: auto]", one_of=("auto", *EXCHANGES), scope=_PLAN
    ),
    "kernel": OptionKey("Kernel implementation to use.", note="[default: auto]", one_of=KERNELS, scope=_ENGINE),
    "threads": OptionKey(
        "Most kernels that work side by side in a cell; on a cluster there are then as many times fewer cells.",
        (int,),
        "[default: cores / cells on one machine, else 1]",
        limits={"minimum": 1},
        metavar="K",
        scope=_ENGINE,
    ),
    "pin": OptionKey(
        "Whether the kernel threads of a cell that has several get cores of their own.",
        (bool,),
        "[default: pin]",
        scope=_ENGINE,
    ),
    "index": OptionKey(
        "Columns by which windows are laid out: e.latitude,w.latitude; or scan.",
        (str, LIST, LISTS),
        "[default: auto, chosen for each run]",
        example={"e": ["latitude", "longitude"], "w": "scan"},
        metavar="COLUMNS",
        scope=_ENGINE,
    ),
    "order": OptionKey(
        "Order in which the streams join: e,w,x.",
        (str, LIST),
        "[default: auto, by selectivity]",
        example=["e", "w", "x"],
        metavar="STREAMS",
        scope=_ENGINE,
    ),
    "merge_runs": OptionKey(
        "Merge ratio: how many runs of like size are merged into one.",
        (int,),
        "[default: each row is merged once, many runs at a time]",
        limits={"minimum": 2},
        metavar="N",
        scope=_ENGINE,
    ),
    "window_server": OptionKey(
        "Whether the windows of a host's cells live in one process there.",
        (bool,),
        "[default: window-server]",
        scope=_ENGINE,
    ),
    "pace": OptionKey(
        "Max, or how many times as fast as real time event time goes: 1 is real time.",
        (str, float),
        "[default: max]",
        example=60,
        limits={"exclusiveMinimum": 0},
        metavar="NUMBER",
        scope=_SOURCE,
    ),
    "parts": OptionKey(
        "Number of tasks that read a batch's records of one stream, of a generator or of files.",
        (int, str),
        "[default: cores / streams]",
        example=2,
        limits={"minimum": 1},
        metavar="N",
        scope=_SOURCE,
    ),
    "missing_files": OptionKey(
        "Error or ignore: what to do about files that vanish after they were read and committed.",
        note="[default: error]",
        example="ignore",
        metavar="error|ignore",
        scope=_SOURCE,
    ),
    "max_block_rows": OptionKey(
        "Most tuples of one block of the exchange.",
        (int, str),
        "[default: 262144]",
        example=2,
        limits={"minimum": 1},
        metavar="N",
        scope=_SOURCE,
    ),
    "local": OptionKey(
        "Run in this process, without Spark; a restart may go on under Spark, and back.", (bool,), scope=_SESSION
    ),
    "master": OptionKey(
        "Spark's master.", note="[default: local, on all cores]", example="local[2]", metavar="URL", scope=_SESSION
    ),
    "conf": OptionKey(
        "A setting of the Spark session; there may be several.",
        (TABLE, LIST),
        example={"spark.ui.enabled": "true"},
        metavar="KEY=VALUE",
        scope=_SESSION,
    ),
}


def keys_of(*scopes: str) -> tuple[str, ...]:
    """Return the names of the options with one of these scopes, in the table's order."""
    return tuple(name for name, key in RUN_KEYS.items() if key.scope in scopes)
