"""Restarts: the same join goes on exactly; another join, table or input is refused by name.

What Spark has no part in is tried without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.cell.cell_windows import RETAIN_KEY
from streamjoin_ds.checkpoint.inspection import inspected
from streamjoin_ds.cli.main import error_text
from streamjoin_ds.errors import (
    FingerprintMismatchError,
    ForeignCheckpointError,
    StreamJoinError,
    TableError,
)
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.session import configured
from streamjoin_ds.stream.query import LEAST_RETAINED
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.further import further

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HALF = 60


def lines(first: int, last: int, step: int) -> str:
    """Return JSON lines a second apart, with values in a small range."""
    rows = ({"ts": 1_704_067_200 + n, "x": n * step % 11, "y": n / 4} for n in range(first, last))
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, first: int, last: int) -> None:
    """Write one more file for each stream; names are in the order of time."""
    for name, step in (("l", 3), ("r", 7)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{first:06d}.json").write_text(lines(first, last, step))


def joined(folder: Path, **other: Any) -> StreamJoin:
    delays = {"l": "0s", "r": "0s", **other.get("delays", {})}
    streams = [Stream(name, folder / name, delay=delays[name], time_unit="s") for name in ("l", "r")]
    eps = other.get("eps", 1)
    return StreamJoin(
        streams,
        on=[band("l.x", "r.x", eps), band("l.y", "r.y", 2.5)],
        window=other.get("window", "10s"),
        select=other.get("select"),
    )


def run(spark: SparkSession | None, join: StreamJoin, to: Path, checkpoint: Path, **options: Any) -> None:
    options = {"max_rows_per_batch": 50, "available_now": True} | options
    query = join.run_local(to, checkpoint, **options) if spark is None else join.start(spark, to, checkpoint, **options)
    query.awaitTermination()


def rows(table: Path) -> list[tuple[int, int]]:
    matches = scanned(DeltaTable(str(table))).to_table()
    return sorted(zip(matches["l_seq"].to_pylist(), matches["r_seq"].to_pylist(), strict=True))


def expected(folder: Path) -> list[tuple[int, int]]:
    streams = {}
    for name in ("l", "r"):
        texts = [path.read_text() for path in sorted((folder / name).iterdir())]
        streams[name] = [json.loads(line) for text in texts for line in text.splitlines()]
    return [(row["l_seq"], row["r_seq"]) for row in oracle_join(joined(folder), streams)]


def versions(table: Path) -> dict[str, int]:
    """Return the version of each table of the join, by the table's name."""
    logs = sorted(table.parent.glob(f"{table.name}*/_delta_log"))
    return {log.parent.name: DeltaTable(str(log.parent)).version() for log in logs}


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a join that has taken in the first half of its input with the layout 1x2, and stopped."""
    folder = tmp_path_factory.mktemp("begun")
    write(folder / "in", 0, HALF)
    run(None, joined(folder / "in"), folder / "matches", folder / "checkpoint", layout="1x2", exchange="packed")
    assert rows(folder / "matches") == expected(folder / "in")
    return folder


@pytest.fixture
def copied(begun: Path, tmp_path: Path) -> Path:
    """A copy of checkpoint and tables, to be spoilt. The input keeps its path, since the checkpoint remembers it."""
    for path in begun.iterdir():
        if path.name != "in":
            shutil.copytree(path, tmp_path / path.name)
    return tmp_path


def test_a_restart_goes_on_exactly(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, lateness and numbers go on; the way of the exchange and the size of batches may change.

    Relative paths are the caller's, not the Java process's.
    """
    write(tmp_path / "in", 0, HALF)
    monkeypatch.chdir(tmp_path)
    join, to, checkpoint = joined(Path("in")), Path("matches"), Path("checkpoint")
    with configured(spark, {RETAIN_KEY: "1"}):  # a restart after a power cut may need two
        run(spark, join, to, checkpoint, layout="1x2", exchange="packed")
        assert spark.conf.get(RETAIN_KEY) == "1"
    offsets = sorted(path.name for path in (checkpoint / "offsets").glob("[0-9]*"))
    assert offsets == [str(batch) for batch in range(int(offsets[-1]) - LEAST_RETAINED, int(offsets[-1]) + 1)]
    first = rows(to)
    write(tmp_path / "in", HALF, 2 * HALF)
    run(spark, join, to, checkpoint, exchange="reference", max_rows_per_batch=1_000)
    both = rows(to)
    assert both == expected(tmp_path / "in")
    assert 100 < len(first) < len(both)
    before = versions(to)
    run(spark, join, to, checkpoint, exchange="packed")  # nothing is new, so nothing is written
    assert versions(to) == before


def test_the_input_may_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the files lie is no part of the join."""
    write(tmp_path / "in", 0, HALF)
    monkeypatch.chdir(tmp_path)
    run(None, joined(Path("in")), Path("matches"), Path("checkpoint"), layout="1x1")
    (tmp_path / "in").rename(tmp_path / "moved")
    write(tmp_path / "moved", HALF, 2 * HALF)
    run(None, joined(tmp_path / "moved"), Path("matches"), Path("checkpoint"))
    assert rows(tmp_path / "matches") == expected(tmp_path / "moved")


@pytest.mark.long
def test_a_restart_may_give_another_layout(spark: SparkSession, tmp_path: Path) -> None:
    """No row moves: tuples of before stay where they are, and later ones meet them there."""
    join, to, checkpoint = joined(tmp_path / "in"), tmp_path / "matches", tmp_path / "checkpoint"
    for part, layout in enumerate(("1x4", "4x1", "2x2")):
        write(tmp_path / "in", part * HALF // 2, (part + 1) * HALF // 2)
        run(spark, join, to, checkpoint, layout=layout, exchange=("packed", "reference", "packed")[part])
    assert rows(to) == expected(tmp_path / "in")
    assert inspected(lambda: spark, str(checkpoint)).layout == "2x2"


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"window": "11s"}, FingerprintMismatchError, "window"),
        ({"window": {"l": "10s", "r": "0s"}}, FingerprintMismatchError, "window"),
        ({"eps": 2}, FingerprintMismatchError, "predicates"),
        ({"select": ["l.x"]}, FingerprintMismatchError, "select"),
        ({"delays": {"r": "3s"}}, FingerprintMismatchError, "delay of r"),
    ],
)
def test_a_changed_join_is_refused(
    change: dict[str, Any], error: type[StreamJoinError], name: str, begun: Path
) -> None:
    before = files(begun)
    with pytest.raises(error) as caught:
        run(None, joined(begun / "in", **change), begun / "matches", begun / "checkpoint")
    assert name in caught.value.name
    assert name in str(caught.value)
    assert "11s" not in str(caught.value)
    assert files(begun) == before


def test_another_checkpoints_table_is_refused(begun: Path, tmp_path: Path) -> None:
    before = files(begun / "matches")
    with pytest.raises(ForeignCheckpointError, match="matches"):
        run(None, joined(begun / "in"), begun / "matches", tmp_path / "checkpoint")
    assert files(begun / "matches") == before


def test_a_table_without_its_checkpoint_is_refused(copied: Path, begun: Path) -> None:
    shutil.rmtree(copied / "checkpoint")
    before = files(copied / "matches")
    with pytest.raises(ForeignCheckpointError, match="checkpoint was deleted"):
        run(None, joined(begun / "in"), copied / "matches", copied / "checkpoint")
    assert files(copied / "matches") == before


def test_a_checkpoint_without_its_table_is_refused(copied: Path, begun: Path) -> None:
    """The new table would lack the batches that the checkpoint says are done."""
    for path in copied.glob("matches*"):
        shutil.rmtree(path)
    error = _fails(lambda: _go_on(begun, copied, copied / "elsewhere"))
    assert "FOREIGN_CHECKPOINT" in error
    assert not (copied / "elsewhere").exists() or not rows(copied / "elsewhere")


def test_a_foreign_table_is_refused(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write(tmp_path / "in", 0, 4)
    write_deltalake(str(tmp_path / "theirs"), pa.table({"a": [1]}))
    with pytest.raises(TableError, match="theirs"):
        run(None, joined(tmp_path / "in"), tmp_path / "theirs", tmp_path / "checkpoint")
    assert versions(tmp_path / "theirs") == {"theirs": 0}


@pytest.mark.parametrize("how", ["changed", *further("shrunk", "gone")])
def test_an_input_file_that_changed_after_it_was_read_is_refused(how: str, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 20)
    join, to, checkpoint = joined(tmp_path / "in"), tmp_path / "matches", tmp_path / "checkpoint"
    run(None, join, to, checkpoint, layout="1x1")
    before = rows(to)
    path = tmp_path / "in" / "r" / "000000.json"
    text = path.read_text()
    if how == "gone":
        path.unlink()
    else:
        path.write_text(text.replace('"x": 7,', '"x": 8,', 1) if how == "changed" else text[: len(text) // 2])
    (tmp_path / "in" / "r" / "000020.json").write_text(lines(20, 30, 7))
    error = _fails(lambda: run(None, join, to, checkpoint))
    assert ("FILE_MISSING" if how == "gone" else "FILE_CHANGED") in error
    assert "000000.json" in error
    assert "\n" not in error
    assert rows(to) == before


def _go_on(begun: Path, folder: Path, to: Path) -> None:
    """Run the join over more input, from the copied checkpoint into a table of its own."""
    added = [begun / "in" / name / "000999.json" for name in ("l", "r")]
    try:
        for path, step in zip(added, (3, 7), strict=True):
            path.write_text(lines(HALF, HALF + 10, step))
        run(None, joined(begun / "in"), to, folder / "checkpoint")
    finally:
        for path in added:
            path.unlink()


def _fails(act: Callable[[], None]) -> str:
    """Return the one line that `streamjoin` prints about the error."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark wraps what its Python side raised
        act()
    text, expected_kind = error_text(caught.value)
    assert expected_kind, text
    return text


# Two lives of one join, the second under other settings: none of them may have a say in a row.
SETTINGS = (
    {"spark.sql.session.timeZone": "Asia/Kathmandu", "spark.sql.ansi.enabled": "true"},
    {"spark.sql.session.timeZone": "America/St_Johns", "spark.sql.ansi.enabled": "false"},
)
# Java's small letter of I is a dotless one in Turkish, whether the machine has that locale or not.
TURKISH = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Duser.language=tr -Duser.country=TR"
MACHINES = (
    {"TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "2", "JAVA_TOOL_OPTIONS": TURKISH},
)
# Days and hours are UTC's; a division by zero and a cast that fails are null; an upper letter is no locale's.
LOCAL = (
    "abs(l.x - r.x) <= 1",
    "date_trunc('DAY', l.at) = date_trunc('DAY', r.at)",
    "extract(HOUR FROM l.at) < 12 OR 10 / l.x > 2",
    "upper(l.name) = r.name",
)


def write_local(folder: Path, first: int, last: int) -> None:
    """Write one more file for each stream: readings around midnight, with times as text."""
    for side, step in (("l", 3), ("r", 7)):
        (folder / side).mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "ts": f"2024-03-{9 + n // 60:02d}T23:{30 + n % 30:02d}:{n % 60:02d}",
                "at": f"2024-03-{9 + (n * step) % 2:02d}T{n % 24:02d}:30:00Z",
                "x": n * step % 5,
                "name": "i" if side == "l" else "I",
            }
            for n in range(first, last)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / side / f"{first:06d}.json").write_text(text)


def local_join(folder: Path) -> StreamJoin:
    schema = {"ts": pa.timestamp("us", "UTC"), "at": pa.timestamp("us", "UTC"), "x": pa.int64(), "name": pa.string()}
    streams = [Stream(side, folder / side, delay="2d", schema=schema) for side in ("l", "r")]
    return StreamJoin(streams, on=[*LOCAL], window="3m")


def local_rows(folder: Path) -> list[tuple[int, int]]:
    """Return what the contract says of all files."""
    join, streams = local_join(folder), {}
    for side in ("l", "r"):
        texts = [path.read_text() for path in sorted((folder / side).iterdir())]
        streams[side] = [json.loads(line) for text in texts for line in text.splitlines()]
        for row in streams[side]:
            row["ts"], row["at"] = (datetime.fromisoformat(row[name].rstrip("Z") + "+00:00") for name in ("ts", "at"))
    return sorted((row["l_seq"], row["r_seq"]) for row in oracle_join(join, streams))


def test_a_restart_under_another_time_zone_and_ansi_mode_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    names = list(SETTINGS[0])
    before = {name: spark.conf.get(name) for name in names}
    try:
        for life, settings in enumerate(SETTINGS):
            write_local(tmp_path / "in", life * HALF, (life + 1) * HALF)
            for name, value in settings.items():
                spark.conf.set(name, value)
            run(spark, local_join(tmp_path / "in"), tmp_path / "m", tmp_path / "ckpt")
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    wanted = local_rows(tmp_path / "in")
    assert len(wanted) > 20
    assert rows(tmp_path / "m") == wanted


@pytest.mark.spark
@pytest.mark.long
def test_a_restart_on_a_machine_with_another_zone_locale_and_hash_seed_finds_the_same(tmp_path: Path) -> None:
    source = tmp_path / "in"
    schema = "ts timestamp[us, tz=UTC], at timestamp[us, tz=UTC], x int64, name string"
    command = [
        sys.executable,
        "-m",
        "streamjoin_ds.cli.main",
        "run",
        "--available-now",
        "--window",
        "3m",
        "--delay",
        "2d",
    ]
    command += ["--stream", f"l={source / 'l'}", "--stream", f"r={source / 'r'}", "--schema", schema]
    command += [part for condition in LOCAL for part in ("--on", condition)]
    command += ["--to", str(tmp_path / "m"), "--checkpoint", str(tmp_path / "ckpt")]
    for life, (settings, machine) in enumerate(zip(SETTINGS, MACHINES, strict=True)):
        write_local(source, life * HALF, (life + 1) * HALF)
        confs = [part for item in settings.items() for part in ("--conf", "=".join(item))]
        done = subprocess.run(
            [*command, *confs], env={**os.environ, **machine}, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
    assert rows(tmp_path / "m") == local_rows(source)
