"""The files of ``sql/``, with the path of a join's table filled in.

The files are Spark SQL as a user runs it: ``${streamjoin.root}`` is replaced by Spark itself after
``SET streamjoin.root=/data/matches`` (or ``spark-sql --conf``). This module does the same for programs, with a check:
the path stands between back-ticks, so it may hold neither one nor anything that Spark would substitute again.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.tables import TableSet

__all__ = ["sql_names", "sql_statements", "sql_text"]

ROOT_PLACEHOLDER = "${streamjoin.root}"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_INSTALLED = "streamjoin_ds._sql"


def _folder() -> Path:
    found = find_spec(_INSTALLED)
    if found is not None and found.submodule_search_locations:  # a folder of data, without an __init__.py
        return Path(next(iter(found.submodule_search_locations)))
    return Path(__file__).resolve().parents[2] / "sql"


def sql_names() -> tuple[str, ...]:
    """Names of the files, without ``.sql``, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.sql")))


def sql_text(name: str, root: str) -> str:
    """Return the text of one file for one join's tables.

    Parameters
    ----------
    name : str
        File name without ``.sql``.
    root : str
        Path or URI of the matches table.

    Raises
    ------
    ArgumentError
        There is no such file, or the path holds a back-tick, a control character or ``${``.
    """
    if not _NAME.fullmatch(name) or name not in sql_names():
        message = "there is no SQL file of that name"
        raise ArgumentError(message, name="name", hint=f"one of {', '.join(sql_names())}")
    if "`" in root or "${" in root:
        message = "the table's path cannot stand in SQL: it holds a back-tick or ${"
        raise ArgumentError(message, name="root", hint="use a path without them")
    path = TableSet(root).root  # refuses control characters
    return (_folder() / f"{name}.sql").read_text(encoding="utf-8").replace(ROOT_PLACEHOLDER, path)


def sql_statements(name: str, root: str) -> list[str]:
    """Return the statements of one file, in order, each without comments and its closing semicolon."""
    lines = [line for line in sql_text(name, root).splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in re.split(r";[ \t]*(?:\n|$)", "\n".join(lines)) if part.strip()]
