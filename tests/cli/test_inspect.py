"""``streamjoin inspect`` and ``vacuum``, on a checkpoint of a real query."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from streamjoin_ds.checkpoint import inspection
from streamjoin_ds.checkpoint.inspection import inspected
from streamjoin_ds.cli.main import group
from streamjoin_ds.source.feed import Backlog, BacklogFacts
from streamjoin_ds.spec import Generator, Stream
from streamjoin_ds.stream.join import StreamJoin

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    streams = [
        Stream(name, Generator("band2d", {"rows": 6000, "rate": 1000, "side": side}), time="ts")
        for name, side in (("r", "r"), ("s", "s"))
    ]
    join = StreamJoin(streams, "abs(r.x - s.a) <= 10", "2s")
    query = join.start(
        spark, folder / "matches", folder / "ckpt", available_now=True, max_rows_per_batch=4000, layout="1x2"
    )
    query.awaitTermination()
    return folder / "ckpt"


@pytest.fixture
def typed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr("streamjoin_ds.spark.session.spark_session", lambda *_, **__: spark)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(group, arguments, prog_name="streamjoin")

    return run


def test_what_a_checkpoint_holds(checkpoint: Path, typed) -> None:  # type: ignore[no-untyped-def]
    done = typed("inspect", str(checkpoint), "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["batch_id"] == 2
    assert facts["streams"] == ["r", "s"]
    assert [cell["cell"] for cell in facts["cells"]] == [0, 1]
    assert sorted(cell["partition"] for cell in facts["cells"]) == [0, 1]
    runs = [run for cell in facts["cells"] for window in cell["windows"] for run in window["runs"]]
    blocks = {run["block"]: run["size_bytes"] for run in runs if run["block"]}
    assert blocks
    assert all((checkpoint / "blocks" / name).stat().st_size == size for name, size in blocks.items())
    # The window of r is 2 s of 1 000 tuples a second, and both cells hold it. Only whole runs expire, so a cell holds
    # more.
    for cell in facts["cells"]:
        assert 2000 <= sum(run["rows"] for run in cell["windows"][0]["runs"]) <= 6000
    text = typed("inspect", str(checkpoint), "--blocks").output
    assert "cell 0" in text
    assert "window of r" in text
    assert all(name in text for name in blocks)
    assert text.splitlines()[1].startswith("  on ")  # what the join was, where a changed one is refused
    assert f"{len(blocks)} blocks" in text


def test_what_was_left_for_later_is_shown(checkpoint: Path, typed, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    waits = Backlog(12_300, None, 3_200_000, {"0": Backlog(12_000, None, 3_200_000), "1": Backlog(300)})
    left = BacklogFacts({"r": waits}, "max_rows_per_batch")
    monkeypatch.setattr(inspection, "inspected", lambda *asked: replace(inspected(*asked), backlog=left))
    lines = typed("inspect", str(checkpoint)).output.splitlines()
    begin = lines.index(
        "stream r: 12,300 records, 3s 200ms waited when the batch was planned; the batch was limited by "
        "max_rows_per_batch"
    )
    assert lines[begin + 1 : begin + 3] == ["  partition 0: 12,000 records, 3s 200ms", "  partition 1: 300 records"]
    assert json.loads(typed("inspect", str(checkpoint), "--json").stdout)["backlog"] == left.to_facts()


ENDS = [
    ("inspect", "join "),
    ("vacuum", "0 files"),
    ("repair", "nothing is wrong"),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("command", "printed"), ENDS)
def test_a_command_ends_well_fifty_times(checkpoint: Path, command: str, printed: str) -> None:
    """A process that had Arrow's threads with Python's objects aborted now and then at its end (apache/arrow#34314)."""
    asked = [sys.executable, "-m", "streamjoin_ds.cli.main", command, str(checkpoint)]
    for _ in range(50):
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert printed in done.stdout


def test_a_missing_block_is_shown(checkpoint: Path, typed) -> None:  # type: ignore[no-untyped-def]
    listed = typed("inspect", str(checkpoint), "--blocks").output
    block = next(path for path in (checkpoint / "blocks").iterdir() if path.name in listed)
    aside = block.rename(checkpoint / "aside")
    try:
        assert "1 MISSING" in typed("inspect", str(checkpoint)).output
    finally:
        aside.rename(block)


def test_what_a_crash_left_goes_and_nothing_else(checkpoint: Path, typed) -> None:  # type: ignore[no-untyped-def]
    before = {path for name in ("blocks", "exchange") for path in (checkpoint / name).iterdir()}
    orphans = [
        checkpoint / "blocks" / f"00-0000-0000000007-{'0' * 32}.arrow",
        checkpoint / "blocks" / f".00-0000-0000000007-{'0' * 32}.arrow.12-ab",
        checkpoint / "exchange" / f"x00-{0:019d}-{500:019d}-0000-tuples-{'0' * 32}.arrow",
    ]
    running = checkpoint / "exchange" / f"x00-{6000:019d}-{9000:019d}-0000-tuples-{'0' * 32}.arrow"
    for path in [*orphans, running]:
        path.write_bytes(b"left")
    assert "0 files" in typed("vacuum", str(checkpoint)).output  # they are too young to be removed
    for path in [*orphans, running]:
        os.utime(path, (1, 1))
    shown = typed("vacuum", str(checkpoint), "--dry-run").output
    assert all(str(path) in shown for path in orphans)
    assert "3 files" in shown
    assert all(path.exists() for path in orphans)
    assert "3 files" in typed("vacuum", str(checkpoint)).output
    left = {path for name in ("blocks", "exchange") for path in (checkpoint / name).iterdir()}
    assert left == before | {running}
    running.unlink()


def test_no_checkpoint(tmp_path: Path, typed) -> None:  # type: ignore[no-untyped-def]
    done = typed("inspect", str(tmp_path))
    assert done.exit_code == 2
    assert "FOREIGN_CHECKPOINT" in done.output
    assert typed("vacuum", str(tmp_path / "none")).exit_code == 2
