"""A cell in a Spark worker: handed over to the host's window server, or run in the worker itself.

Spark calls `CellFunction` once for each cell and batch, as the function of ``applyInPandasWithState``. It yields a row
for each file that was written and one with the cell's report. A retried attempt does all of it again from the state
that it is given: only the state and the returned rows count.

The first worker that finds no server starts one, as a child of the executor's Python: so it lies in the executor's
container. Where none can be had, or one is frozen or breaks off, the worker does the batch itself in the same way: it
makes the windows from the journal, for this batch.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from streamjoin_ds import errors
from streamjoin_ds.blocks import freeze_imports, reuse_freed_memory
from streamjoin_ds.cell.cell import TaskFacts
from streamjoin_ds.cell.cell_report import REPORT_COLUMNS, CellReport
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.cell.window_server import Answer, Request, ask
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA
from streamjoin_ds.machine import is_private, process_began
from streamjoin_ds.plan import Plan
from streamjoin_ds.version import version

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

__all__ = ["CellFunction", "answered"]

_log = logging.getLogger(__name__)
_START_S = 20.0  # seconds that a server has to begin
_FOLDER_BYTES = 80  # the longest folder of sockets: a socket's whole path may have 107 bytes on Linux, fewer elsewhere


class CellFunction:
    """The function of ``applyInPandasWithState``: it has a `Cell` run on pandas frames of exchange rows."""

    def __init__(self, plan: Plan) -> None:
        self.plan_text, self.join_id = plan.to_json(), plan.join_id
        self.is_served = LiveWindows.of(plan) is not None

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Join one cell's exchange rows of one batch, and yield a frame of `REPORT_COLUMNS`."""
        import pandas as pd

        reuse_freed_memory()
        freeze_imports()
        blob = bytes(state.get[1]) if state.exists else None
        arrived = [pa.RecordBatch.from_pandas(frame, EXCHANGE_SCHEMA, preserve_index=False) for frame in frames]
        task = TaskFacts.current(state.getCurrentProcessingTimeMs(), self.join_id)
        request = Request(self.plan_text, int(key[0]), blob, task, arrived)
        reports, next_blob = answered(request) if self.is_served else request.run()
        state.update((1, next_blob))
        measured = [CellReport.from_json(facts).measured() if kind == "cell" else None for kind, _, facts in reports]
        rows = [(*report, numbers) for report, numbers in zip(reports, measured, strict=True)]
        yield pd.DataFrame(rows, columns=list(REPORT_COLUMNS))


def answered(request: Request, folder: Path | None = None) -> Answer:
    """Have the host's window server do a cell's work; do it here where there is none that does.

    Parameters
    ----------
    request : Request
    folder : Path, optional
        The folder of the servers' sockets.

    Raises
    ------
    StreamJoinError and others
        What the work itself raises, here or there.
    """
    try:
        with _connected(folder or _folder()) as connection:
            return ask(connection, request)
    except MemoryError:
        _log.warning("the window server has no memory left: this batch is joined in the worker")
    except (OSError, EOFError) as error:
        _log.warning("the window server cannot be reached (%s): this batch is joined in the worker", error)
    return request.run()


def _folder() -> Path:
    """Return the folder of the sockets, which is this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"streamjoin-{os.getuid()}"
    if len(os.fsencode(folder)) > _FOLDER_BYTES:
        folder = Path("/tmp") / folder.name
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_private(folder):
        msg = f"{folder} is not this user's alone"
        raise PermissionError(msg)
    return folder


def _connected(folder: Path) -> socket.socket:
    """Return a connection to this executor's server, which is started where there is none."""
    stem = _name_of(os.getppid())
    path = folder / f"{stem}.sock"
    with contextlib.suppress(OSError):
        return _connection(path)
    with (folder / f"{stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers the first one starts it
        with contextlib.suppress(OSError):
            return _connection(path)
        path.unlink(missing_ok=True)
        paths = os.pathsep.join(entry for entry in sys.path if entry)
        server = subprocess.Popen(
            [sys.executable, "-m", "streamjoin_ds.cell.window_server", str(path), str(os.getppid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s and server.poll() is None:
            with contextlib.suppress(OSError):
                return _connection(path)
            time.sleep(0.01)
    msg = "it does not start"
    raise OSError(msg)


def _name_of(parent: int) -> str:
    """Return the name of the server of an executor, of this version of the package."""
    text = f"{parent} {process_began(parent)} {Path(errors.__file__).resolve()} {version()}"
    return xxhash.xxh3_64_hexdigest(text.encode())


def _connection(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection
