"""The window server: one process a host that owns the windows of all cells there.

::

    Spark's workers      plan, cell, state row, exchange rows        window server
    (one a task)    ────────────────── Unix socket ─────────────►    LiveWindows: bucket grids of all cells, threads
    `CellFunction`  ◄──────────── reports, next state row ───────    Cell.run, files of matches, journal

What is true stays where it is: the state row, and immutable blocks under the checkpoint. At the state row that its
windows were saved as, the server goes on. The same request again (a retry, speculation, a worker that was thought dead)
gets the same answer again. At any other state row the windows are made anew from blocks. So a killed server, a second
driver and a restored checkpoint are one case.

While it works, the server sends a sign of life each second, so that no worker waits for a frozen one. It ends with the
executor that it belongs to, and after a time without a request. Windows of a query that has ended are let go before.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from streamjoin_ds import errors
from streamjoin_ds.blocks import BlockStore, freeze_imports, reuse_freed_memory
from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.delta.log_files import filesystem_of
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA, exchange_rows
from streamjoin_ds.machine import (
    FreedMemory,
    memory_limit_bytes,
    process_began,
    resident_bytes,
    share_heap,
    spare_pandas,
)
from streamjoin_ds.plan import Plan
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.writer import FileReport

__all__ = ["Answer", "Request", "WindowServer", "ask"]

_FRAME = struct.Struct("<cQ")  # what a message is, and its length
_REQUEST, _ANSWER, _ERROR, _ALIVE = b"Q", b"A", b"E", b"."
_PARTS = struct.Struct("<III")  # lengths of the three parts of a message: facts, a state row, Arrow's bytes
_LARGEST_BYTES = 1 << 32
_SIGN_S, _SILENCE_S = 1.0, 20.0  # seconds between two signs of life; silence after which a server counts as frozen
_IDLE_S = 600.0  # seconds without a request after which a server ends, and a cell's windows are let go
_MEMORY_SHARE = 0.5  # of the memory that the host allows; beyond it windows that nobody uses now are let go


class Answer(NamedTuple):
    """What a cell gives for a batch: the first three of `REPORT_COLUMNS` a row, and its next state row."""

    reports: list[tuple[str, int, str]]
    state: bytes


class Request(NamedTuple):
    """A cell's work of one batch.

    Attributes
    ----------
    plan : str
        As JSON.
    label : int
        Of the cell.
    state : bytes or None
        The cell's state row; None in its first batch.
    task : TaskFacts
    rows : sequence of pyarrow.RecordBatch
        Of `EXCHANGE_SCHEMA`.
    """

    plan: str
    label: int
    state: bytes | None
    task: TaskFacts
    rows: Sequence[pa.RecordBatch]

    def encode(self) -> bytes:
        """Return the request as bytes."""
        facts = {
            "plan": self.plan,
            "label": self.label,
            "task": [self.task.batch_id, self.task.query_id, self.task.time_ms],
            "is_first": self.state is None,
        }
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, EXCHANGE_SCHEMA) as writer:
            for batch in self.rows:
                writer.write_batch(batch)
        return _packed(facts, self.state or b"", sink.getvalue())

    @classmethod
    def decode(cls, data: bytes) -> Request:
        """Return what `encode` wrote."""
        facts, state, rows = _unpacked(data)
        task = TaskFacts(*facts["task"])
        batches = pa.ipc.open_stream(pa.py_buffer(rows)).read_all().to_batches()
        return cls(facts["plan"], facts["label"], None if facts["is_first"] else bytes(state), task, batches)

    def run(self, live: LiveWindows | None = None) -> Answer:
        """Do the work in this process; `live` has the windows that live on here."""
        plan, rows = _plan(self.plan), (row for batch in self.rows for row in exchange_rows(batch))
        cell = plan.cell_of(self.label)
        files, report, state = Cell(plan, cell, self.state, self.task, LiveWindows.of(plan, live)).run(rows)
        reports = [("file", cell, file.to_json()) for file in files]
        return Answer([*reports, ("cell", cell, report.to_json())], state)


@lru_cache(maxsize=16)
def _plan(text: str) -> Plan:
    return Plan.from_json(text)


def _packed(facts: Any, state: bytes, rows: pa.Buffer | bytes = b"") -> bytes:
    text = json.dumps(facts, separators=(",", ":")).encode()
    return b"".join((_PARTS.pack(len(text), len(state), len(memoryview(rows))), text, state, memoryview(rows)))


def _unpacked(data: bytes) -> tuple[Any, memoryview, memoryview]:
    view, sizes = memoryview(data), _PARTS.unpack_from(data)
    begin, parts = _PARTS.size, []
    for size in sizes:
        parts.append(view[begin : begin + size])
        begin += size
    return json.loads(bytes(parts[0])), parts[1], parts[2]


def ask(connection: socket.socket, request: Request) -> Answer:
    """Have a server do a cell's work.

    Raises
    ------
    OSError, EOFError
        The server is gone, or has given no sign of life for long.
    StreamJoinError, MemoryError, RuntimeError
        What the work itself raised.
    """
    connection.settimeout(_SILENCE_S)
    _send(connection, _REQUEST, request.encode())
    kind, data = _received(connection)
    while kind == _ALIVE:
        kind, data = _received(connection)
    if kind == _ERROR:
        raise _raised(json.loads(data))
    reports, state, _ = _unpacked(data)
    return Answer([(kind, cell, facts) for kind, cell, facts in reports], bytes(state))


def _raised(facts: dict[str, str]) -> BaseException:
    """Return the error that `_error_facts` described."""
    kind = getattr(errors, facts["kind"], None)
    if isinstance(kind, type) and issubclass(kind, errors.StreamJoinError):
        return kind(facts["message"], name=facts["name"], hint=facts["hint"])
    if facts["kind"] == "MemoryError":
        return MemoryError(facts["message"])
    return RuntimeError(f"in the window server: {facts['message']}")


def _error_facts(error: BaseException) -> dict[str, str]:
    if isinstance(error, errors.StreamJoinError):
        return {"kind": type(error).__name__, "message": error.message, "name": error.name, "hint": error.hint}
    text = str(error) if isinstance(error, MemoryError) else "".join(traceback.format_exception(error))
    return {"kind": type(error).__name__, "message": text}


def _send(connection: socket.socket, kind: bytes, data: bytes = b"") -> None:
    connection.sendall(_FRAME.pack(kind, len(data)))
    connection.sendall(data)


def _received(connection: socket.socket) -> tuple[bytes, bytes]:
    kind, size = _FRAME.unpack(_bytes(connection, _FRAME.size))
    if size > _LARGEST_BYTES:
        msg = "the other end does not speak this language"
        raise OSError(msg)
    return kind, _bytes(connection, size)


def _bytes(connection: socket.socket, size: int) -> bytes:
    data, view = bytearray(size), 0
    while view < size:
        got = connection.recv_into(memoryview(data)[view:])
        if not got:
            msg = "the connection has ended"
            raise EOFError(msg)
        view += got
    return bytes(data)


class _Place:
    """One cell of one query: who works at it, and the last answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked, self.answer, self.last_s = b"", b"", 0.0


class WindowServer:
    """The windows of a host's cells, and who asks for them.

    Parameters
    ----------
    listener : socket
    parent : int
        The process with which the server ends; 0: none.
    """

    def __init__(self, listener: socket.socket, parent: int = 0) -> None:
        self._listener, self._parent, self._parent_began = listener, parent, process_began(parent)
        self.live = LiveWindows()
        self._places: dict[tuple[str, int], _Place] = {}
        self._gate = threading.Lock()
        self._busy, self._last_s = 0, time.monotonic()
        self.repeated = 0

    def serve(self) -> None:
        """Answer until the parent is gone, or nobody has asked for long."""
        freed = FreedMemory()
        while self._is_wanted():
            ready, _, _ = select.select([self._listener], [], [], 1.0)
            if not ready and not self._busy:
                freed.give_back()
            if ready:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _is_wanted(self) -> bool:
        if self._parent and process_began(self._parent) != self._parent_began:
            return False
        if self._busy:
            return True
        idle_since_s = time.monotonic() - _IDLE_S
        self.live.forget(idle_since_s)
        with self._gate:
            self._places = {key: place for key, place in self._places.items() if place.last_s >= idle_since_s}
        return self._last_s >= idle_since_s

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):  # a worker that is gone asks again, or another does
            _, data = _received(connection)
            with self._working(), _signs_of_life(connection) as speaking:
                try:
                    kind, answer = _ANSWER, self.answer_of(data)
                except BaseException as error:
                    kind, answer = _ERROR, json.dumps(_error_facts(error)).encode()
                with speaking:
                    _send(connection, kind, answer)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with self._gate:
            self._busy += 1
        try:
            yield
        finally:
            with self._gate:
                self._busy, self._last_s = self._busy - 1, time.monotonic()

    def answer_of(self, data: bytes) -> bytes:
        """Return the answer to a request, both as bytes; one that was given before is given again."""
        request, asked = Request.decode(data), xxhash.xxh3_128_digest(data)
        with self._gate:
            place = self._places.setdefault((_plan(request.plan).join_id, request.label), _Place())
        with place.lock:
            place.last_s = time.monotonic()
            if place.asked == asked and _is_whole(_plan(request.plan), place.answer):
                self.repeated += 1
                return place.answer
            reports, state = request.run(self.live)
            place.asked, place.answer = asked, _packed(reports, state)
        while self.live.count > 1 and resident_bytes() > _MEMORY_SHARE * memory_limit_bytes():
            self.live.forget_oldest()
        return place.answer


def _is_whole(plan: Plan, answer: bytes) -> bool:
    """Whether the files and blocks that an answer names are there: a clean-up may have removed them meanwhile."""
    tables = TableSet(plan.table_root)
    for kind, _, text in _unpacked(answer)[0]:
        if kind == "file":
            file = FileReport.from_json(text)
            system, folder = filesystem_of(tables.path_of(file.table))
            if system.get_file_info(f"{folder}/{file.path}").size != file.size_bytes:
                return False
        elif BlockStore(plan.state_root).gone(json.loads(text)["blocks"]):
            return False
    return True


@contextlib.contextmanager
def _signs_of_life(connection: socket.socket) -> Iterator[threading.Lock]:
    """Send a sign of life now and then, while the context is open; the lock is held by who sends anything else."""
    speaking, is_over = threading.Lock(), threading.Event()

    def speak() -> None:
        while not is_over.wait(_SIGN_S):
            with speaking, contextlib.suppress(OSError):
                if not is_over.is_set():
                    _send(connection, _ALIVE)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield speaking
    finally:
        is_over.set()


def main(path: str, parent: str) -> None:
    """Serve at a path until the parent ends."""
    spare_pandas()
    share_heap()
    reuse_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the driver, which ends its executors
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(64)
    freeze_imports()
    try:
        WindowServer(listener, int(parent)).serve()
    finally:
        Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
