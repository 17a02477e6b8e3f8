"""Spark Connect, against a real server: what runs is exact, and what cannot is refused before anything is written.

Skipped where the client's packages (grpcio, grpcio-status, googleapis-common-protos, zstandard) are not installed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin, sql
from streamjoin_ds.errors import SessionError, TableError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.java import find_java, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

for name in ("grpc", "grpc_status", "google.rpc", "zstandard"):
    pytest.importorskip(name)
pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S = 300  # on a busy machine
_ROWS = 120
_DDL = "ts TIMESTAMP, x DOUBLE"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def serving(log_path: Path, python: Path, package: Path | None) -> Iterator[str]:
    """Run a Connect server whose workers have the package in this folder, or none; yield its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.pyspark.python": str(python),
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", _SERVER, "--master", "local[2,4]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    paths = [str(package)] * (package is not None) + [os.environ.get("PYTHONPATH", "")] * (package is not None)
    homes = {"JAVA_HOME": str(find_java().home), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": str(python)}
    given = {**os.environ, **homes, "PYTHONPATH": ":".join(path for path in paths if path)}
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"], env=given, stdout=log, stderr=log, start_new_session=True, cwd=log_path.parent
        )
    try:
        end = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert server.poll() is None, log_path.read_text()[-2000:]
            assert time.monotonic() < end, log_path.read_text()[-2000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def session(address: str) -> Any:
    from pyspark.sql.connect.session import SparkSession as Session

    return Session.builder.remote(address).create()


@pytest.fixture(scope="module", autouse=True)
def as_a_client() -> Iterator[None]:
    """Have pyspark know that this process is a client, as ``SparkSession.builder.remote`` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        yield


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with serving(tmp_path_factory.mktemp("server") / "server.log", Path(sys.executable), _ROOT) as address:
        yield session(address)


def write(folder: Path, part: int) -> None:
    """Write one more file of rows a second apart for each stream; row n of one matches row n of the other."""
    for name, offset in (("l", 0.0), ("r", 0.25)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = (f"{1_704_067_200 + n},{n + offset}" for n in range(part * _ROWS, (part + 1) * _ROWS))
        (folder / name / f"{part}.csv").write_text("ts,x\n" + "\n".join(lines) + "\n")


def joined(folder: Path | None) -> StreamJoin:
    given: dict[str, Any] = {} if folder is None else {"time_unit": "s"}
    streams = [Stream(name, folder and folder / name, time="ts", **given) for name in ("l", "r")]
    return StreamJoin(streams, on="abs(l.x - r.x) <= 0.5", window="10s")


def pairs(table: Path) -> list[tuple[int, int]]:
    found = scanned(DeltaTable(str(table))).to_table()
    return sorted(zip(found["l_seq"].to_pylist(), found["r_seq"].to_pylist(), strict=True))


def read_by_batch(table: Path) -> dict[int, int]:
    counts: dict[int, int] = {}
    for row in scanned(DeltaTable(f"{table}_ledger")).to_table().to_pylist():
        counts[row["batch_id"]] = counts.get(row["batch_id"], 0) + row["read"]
    return counts


def test_start_goes_on_exactly_after_a_restart(remote: SparkSession, tmp_path: Path) -> None:
    """Each batch has its number and its query, though Connect runs it outside the query's thread."""
    to = tmp_path / "matches"
    for part in range(2):
        write(tmp_path, part)
        options = {"available_now": True, "max_rows_per_batch": 100}
        joined(tmp_path).start(remote, to, tmp_path / "checkpoint", **options).awaitTermination()
        assert pairs(to) == [(n, n) for n in range((part + 1) * _ROWS)]
    assert read_by_batch(to) == {0: 100, 1: 100, 2: 40, 3: 100, 4: 100, 5: 40}
    metrics = scanned(DeltaTable(f"{to}_metrics")).to_table()
    assert set(metrics["batch_id"].to_pylist()) == set(range(6))


def test_dataframes_and_sql(remote: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, 0)
    read = remote.read.schema("ts BIGINT, x DOUBLE").option("header", True)
    frames = {name: read.csv(str(tmp_path / name)).selectExpr("timestamp_seconds(ts) ts", "x") for name in ("l", "r")}
    assert joined(None).dataframe(frames).count() == _ROWS
    options = "time = 'ts', time_unit = 's'"
    sources = [f"CREATE STREAM {name} WITH (source = '{tmp_path / name}', {options});\n" for name in ("l", "r")]
    insert = f"""
        INSERT INTO '{tmp_path / "matches"}' WITH (checkpoint = '{tmp_path / "checkpoint"}', available_now = true)
        SELECT * FROM l JOIN r ON abs(l.x - r.x) <= 0.5 AND abs(l.ts - r.ts) <= INTERVAL '10' SECOND"""
    for query in sql(remote, "".join(sources) + insert):
        query.awaitTermination()  # type: ignore[union-attr]
    assert pairs(tmp_path / "matches") == [(n, n) for n in range(_ROWS)]


def test_folders_that_the_servers_workers_do_not_see_are_refused(
    remote: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client elsewhere has folders of its own: nothing of the join is left in them."""
    from streamjoin_ds.spark import workers

    write(tmp_path, 0)
    monkeypatch.setattr(workers.Path, "write_text", lambda *_: 0)  # what the client writes is on its own disk
    with pytest.raises(TableError) as caught:
        joined(tmp_path).start(remote, tmp_path / "matches", tmp_path / "checkpoint", available_now=True)
    assert caught.value.name == "to"
    assert not (tmp_path / "matches").exists()
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.long
def test_workers_without_the_package_are_a_named_error(tmp_path: Path) -> None:
    """A server has another Python than the client: nothing is written, and no page of Java is shown."""
    write(tmp_path, 0)
    bare = tmp_path / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare.parents[1])], check=True)
    with serving(tmp_path / "server.log", bare, None) as address:
        remote = session(address)
        with pytest.raises(SessionError, match="workers cannot run this package") as caught:
            joined(tmp_path).start(remote, tmp_path / "matches", tmp_path / "checkpoint", available_now=True)
        assert "Connect server" in caught.value.hint
        assert len(str(caught.value)) < 400
        assert not (tmp_path / "matches").exists()
        assert not (tmp_path / "checkpoint").exists()
