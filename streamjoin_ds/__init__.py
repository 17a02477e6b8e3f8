"""Windowed band joins over fast sensor streams on Spark, exact, end to end, into Delta tables.

::

    spec ──► plan ──► source ──► exchange ──► cell (engine + windows) ──► sink ──► table
    what     how      tuples     blocks by    new tuples meet windows,    files    matches, punctuations,
    is       it is    with ts,   group, and   matches become Parquet      become   late, ledger, metrics
    asked    laid out seq, low   references   where they are found        a commit
                      watermarks to cells

Spark plans, schedules and commits; tuples, windows and matches move beside it in Arrow blocks. Importing this package
imports no Spark: `JoinEngine` works without it.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from streamjoin_ds.version import version

if TYPE_CHECKING:
    from streamjoin_ds.engine.join_engine import JoinEngine
    from streamjoin_ds.errors import StreamJoinError
    from streamjoin_ds.plan.execution import Execution
    from streamjoin_ds.script.script import sql
    from streamjoin_ds.spark.session import spark_session
    from streamjoin_ds.spec import (
        CountWindow,
        DeltaRows,
        Files,
        Generator,
        Join,
        Nearest,
        PeriodicWindow,
        Spool,
        Stream,
        Table,
        TimeWindow,
        Topic,
        band,
        equal,
        not_equal,
    )
    from streamjoin_ds.stream.join import StreamJoin
    from streamjoin_ds.survey.look import look

    __version__: str

# Imported at first use: a Python worker that needs one kernel, or `streamjoin --help`, pays for nothing else.
_HOMES = {
    "CountWindow": "spec",
    "DeltaRows": "spec",
    "Execution": "plan.execution",
    "Files": "spec",
    "Generator": "spec",
    "Join": "spec",
    "JoinEngine": "engine.join_engine",
    "Nearest": "spec",
    "PeriodicWindow": "spec",
    "Spool": "spec",
    "Stream": "spec",
    "StreamJoin": "stream.join",
    "StreamJoinError": "errors",
    "Table": "spec",
    "TimeWindow": "spec",
    "Topic": "spec",
    "band": "spec",
    "equal": "spec",
    "look": "survey.look",
    "not_equal": "spec",
    "spark_session": "spark.session",
    "sql": "script.script",
}

__all__ = [
    "CountWindow",
    "DeltaRows",
    "Execution",
    "Files",
    "Generator",
    "Join",
    "JoinEngine",
    "Nearest",
    "PeriodicWindow",
    "Spool",
    "Stream",
    "StreamJoin",
    "StreamJoinError",
    "Table",
    "TimeWindow",
    "Topic",
    "__version__",
    "band",
    "equal",
    "look",
    "not_equal",
    "spark_session",
    "sql",
]


if os.environ.get("STREAMJOIN_DS_LOG_LEVEL"):  # Spark's Python workers inherit the variable
    import_module("streamjoin_ds.logs").log_as_asked()


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version()
    if name not in _HOMES:
        msg = f"module 'streamjoin_ds' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(import_module(f"streamjoin_ds.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
