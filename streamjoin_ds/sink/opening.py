"""Opens a table with delta-rs, with room for the files that it opens: up to a thousand entries of a log at once.

Many systems allow a process 1 024 open files and let it ask for more; Java asks by itself. A process that does not ask
can neither read a table whose log has grown by a thousand entries since its last checkpoint, nor write the next one.
"""

from __future__ import annotations

import contextlib

from deltalake import DeltaTable

from streamjoin_ds.errors import TableError

__all__ = ["open_table"]

_OPEN_FILES = 4_096  # open files that suffice: delta-rs' thousand, and what the process has open besides
# Open files that are asked for, as Java does. Spark keeps one of each query that ran, until its session ends.
_MOST_OPEN_FILES = 65_536


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """Return the table at a version; None: the newest version.

    Raises
    ------
    TableError
        The system does not allow this process enough open files.
    deltalake.exceptions.DeltaError
        There is no such table or version.
    """
    _allow_open_files()
    try:
        return DeltaTable(path, version=version)
    except OSError as error:
        if "Too many open files" not in str(error):
            raise
        msg = f"the log of {path} has more entries since its last checkpoint than this process may have open files"
        raise TableError(
            msg, name=path, hint=f"raise the limit before the process starts: ulimit -n {_OPEN_FILES}"
        ) from error


def _allow_open_files() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such module, and no such limit
        return
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if most == resource.RLIM_INFINITY else min(_MOST_OPEN_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
