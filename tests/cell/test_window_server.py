"""The window server: a real process and a real socket, whatever becomes of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamjoin_ds.cell import cell_function, window_server
from streamjoin_ds.cell.cell import TaskFacts
from streamjoin_ds.cell.cell_function import answered
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.cell.window_server import Request, WindowServer
from streamjoin_ds.errors import BlockMissingError
from streamjoin_ds.plan import Layout
from tests.cell.test_epochs import rows_of, sensors, still
from tests.support.microbatch import QUERY_ID, MicroBatches


class Served(MicroBatches):
    """Batches whose cells a window server runs."""

    sockets: Path
    before: Callable[[int], None] | None = None

    def exchanged(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        return [batch for partition in self.reader.partitions(start, end) for batch in self.reader.read(partition)]

    def requests(self, batches: list[pa.RecordBatch]) -> list[Request]:
        labels = sorted({label for batch in batches for label in batch["cell"].to_pylist()})
        task, text = TaskFacts(self.batch_id, QUERY_ID), self.plan.to_json()
        return [
            Request(
                text,
                label,
                self.states.get(self.plan.cell_of(label)),
                task,
                [batch.filter(pc.equal(batch["cell"], label)) for batch in batches],
            )
            for label in labels
        ]

    def cells(self, rows: list[Any]) -> list[Any]:
        from types import SimpleNamespace

        if self.before is not None:
            self.before(self.batch_id)
        reports = []
        for request in self.requests(rows):
            told, self.states[self.plan.cell_of(request.label)] = answered(request, self.sockets)
            reports += [SimpleNamespace(kind=kind, cell=cell, facts=facts) for kind, cell, facts in told]
        return reports


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    yield folder
    for pid in servers(folder):
        os.kill(pid, signal.SIGKILL)


def servers(folder: Path) -> list[int]:
    """Return the servers whose sockets are in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"streamjoin_ds.cell.window_server" in words and any(w.startswith(f"{folder}/".encode()) for w in words):
            found.append(int(path.parent.name))
    return found


def served(folder: Path, sockets: Path, before: Callable[[int], None] | None = None, window: str = "3s") -> Served:
    batches = Served(sensors(window), folder, Layout.parse("1x2", 2), max_rows_per_batch=60)
    batches.sockets, batches.before = sockets, before
    return batches


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    end_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end_s, "it does not come about"
        time.sleep(0.02)


def test_one_server_joins_all_cells(tmp_path: Path, sockets: Path) -> None:
    seen: set[int] = set()
    batches = served(tmp_path / "c", sockets, lambda batch: seen.update(servers(sockets)))
    assert rows_of(batches.run()) == still("3s")[0]
    assert len(seen) == 1
    assert (sockets / next(sockets.glob("*.sock")).name).stat().st_mode & 0o77 == 0


def test_a_killed_server_loses_and_repeats_nothing(tmp_path: Path, sockets: Path) -> None:
    def kill(batch: int) -> None:
        if batch % 3 == 1:
            for pid in servers(sockets):
                os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: gone(pid))  # type: ignore[misc]

    assert rows_of(served(tmp_path / "c", sockets, kill).run()) == still("3s")[0]


def test_no_batch_waits_for_a_frozen_server(
    tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(window_server, "_SILENCE_S", 0.5)

    def freeze(batch: int) -> None:
        for pid in servers(sockets):
            os.kill(pid, signal.SIGSTOP if batch == 2 else signal.SIGCONT)

    assert rows_of(served(tmp_path / "c", sockets, freeze).run()) == still("3s")[0]
    assert "this batch is joined in the worker" in caplog.text


def test_a_worker_that_is_slow_hears_signs_of_life(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_server, "_SIGN_S", 0.05)
    monkeypatch.setattr(window_server, "_SILENCE_S", 0.4)
    there, here = socket.socketpair()
    server = WindowServer(socket.socket(socket.AF_UNIX))
    may_end = threading.Event()

    def slow(data: bytes) -> bytes:
        assert may_end.wait(20)
        return window_server._packed([["cell", 0, "{}"]], b"next")

    monkeypatch.setattr(server, "answer_of", slow)
    thread = threading.Thread(target=server._answer, args=(there,))
    thread.start()
    timer = threading.Timer(1.2, may_end.set)
    timer.start()
    answer = window_server.ask(here, Request("{}", 0, None, TaskFacts(0, ""), []))
    thread.join()
    assert answer == ([("cell", 0, "{}")], b"next")


@pytest.mark.parametrize("there", ["nothing", "a file", "another language"])
def test_what_is_no_server_is_passed_by(there: str, tmp_path: Path, sockets: Path) -> None:
    path = sockets / f"{cell_function._name_of(os.getppid())}.sock"
    stranger = socket.socket(socket.AF_UNIX)
    if there == "a file":
        path.write_text("not a socket")
    if there == "another language":
        stranger.bind(str(path))
        stranger.listen(8)

        def babble() -> None:
            while True:
                try:
                    connection, _ = stranger.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=babble, daemon=True).start()
    try:
        assert rows_of(served(tmp_path / "c", sockets).run()) == still("3s")[0]
    finally:
        stranger.close()


def test_the_same_request_gets_the_same_answer(tmp_path: Path) -> None:
    batches, server = served(tmp_path / "c", tmp_path), WindowServer(socket.socket(socket.AF_UNIX))
    end = batches.reader.latestOffset(batches.offset, window_server_limit())
    requests = batches.requests(batches.exchanged(batches.offset, end))
    first = [server.answer_of(request.encode()) for request in requests]
    assert [server.answer_of(request.encode()) for request in requests] == first
    assert server.repeated == len(requests)
    other = requests[0]._replace(task=TaskFacts(0, "another query"))
    assert server.answer_of(other.encode()) != first[0]


def test_an_answer_whose_files_are_gone_is_not_given_again(tmp_path: Path) -> None:
    batches, server = served(tmp_path / "c", tmp_path), WindowServer(socket.socket(socket.AF_UNIX))
    end = batches.reader.latestOffset(batches.offset, window_server_limit())
    request = batches.requests(batches.exchanged(batches.offset, end))[0].encode()
    server.answer_of(request)
    for pattern in ("matches/*.parquet", "blocks/*.arrow"):
        gone = [*(tmp_path / "c").glob(pattern)]
        assert gone
        for path in gone:
            path.unlink()
        reports, _, _ = window_server._unpacked(server.answer_of(request))
        files = [json.loads(text)["path"] for kind, _, text in reports if kind == "file"]
        assert files
        assert all((tmp_path / "c/matches" / name).exists() for name in files)
    assert server.repeated == 0


def window_server_limit() -> Any:
    from streamjoin_ds.spark.admission import ReadMaxRows

    return ReadMaxRows(60)


def test_an_error_of_the_join_comes_back_as_it_is(tmp_path: Path, sockets: Path) -> None:
    def lose(batch: int) -> None:
        if batch == 3:
            for path in (tmp_path / "c/exchange").glob("x*-tuples-*.arrow"):
                path.unlink()

    batches = served(tmp_path / "c", sockets, lose)
    with pytest.raises(BlockMissingError, match=r"block x0.* is not there") as raised:
        batches.run()
    assert raised.value.name.startswith("x0")
    assert "exchange" not in raised.value.hint or raised.value.hint


def test_a_server_ends_with_its_parent(sockets: Path) -> None:
    import subprocess
    import sys

    text = (
        "import sys; from pathlib import Path; from streamjoin_ds.cell.cell_function import _connected;"
        f"_connected(Path({str(sockets)!r})); sys.stdin.read()"
    )
    shell = subprocess.Popen(["/bin/sh", "-c", f'"{sys.executable}" -c "{text}"; true'], stdin=subprocess.PIPE)
    until(lambda: bool(servers(sockets)))
    (pid,) = servers(sockets)
    assert shell.stdin is not None
    shell.stdin.close()
    shell.wait(20)
    until(lambda: gone(pid))


def test_windows_that_nobody_asks_for_are_let_go() -> None:
    live = LiveWindows()
    live.keep("a", "1", [])
    live.keep("b", "2", [])
    live.forget(time.monotonic() - 60)
    assert live.count == 2
    live.forget_oldest()
    assert live.take("a", "1") is None
    assert live.take("b", "another row") is None
    assert live.take("b", "2") is None  # who asked with another row has taken them from everybody
    live.keep("c", "3", [])
    live.forget(time.monotonic() + 60)
    assert live.count == 0
