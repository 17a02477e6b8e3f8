"""A Spark query whose windows lie on S3: killed, cut off, restarted, inspected and tidied, with exact results."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import ArgumentError
from tests.support.frame_query import expected, started, write_input
from tests.support.s3 import BUCKET, S3, SECRET, needs_s3, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, needs_s3]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, by a short name: the path of a socket in it has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="sj-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Path(folder)


def run(folder: Path, blocks: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.frame_query", str(folder), blocks, *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def committed(folder: Path) -> int:
    return max(int(path.name) for path in (folder / "checkpoint" / "commits").iterdir() if path.name.isdigit())


def objects(s3: S3) -> set[str]:
    from streamjoin_ds.blocks import BlockStore

    return set(BlockStore(s3.uri("windows")).names())


@pytest.mark.long
def test_killed_cut_off_restarted_inspected_and_tidied(
    spark: SparkSession, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamjoin_ds.spark.session.spark_session", lambda *_, **__: spark)
    write_input(tmp_path)
    with served(tmp_path) as s3:
        uri = s3.uri("windows")

        def typed(*arguments: str) -> Result:
            return CliRunner().invoke(group, arguments, prog_name="streamjoin")

        killed = run(tmp_path, uri, "1")
        assert killed.returncode == -9, killed.stderr
        assert "killed" in killed.stdout
        # Another machine goes on, without the first one's copies. It loses its line on the way.
        for copy in scratch.rglob("*.arrow"):
            copy.unlink()
        s3.line.left_bytes = 400_000
        cut = run(tmp_path, uri)
        assert "done" not in cut.stdout
        assert "BLOCK_WRITE" in cut.stderr or "BLOCK_MISSING" in cut.stderr
        assert "network connection" in cut.stderr
        assert SECRET not in cut.stderr
        s3.line.left_bytes = None
        assert run(tmp_path, uri).returncode == 0

        found = spark.read.parquet(str(tmp_path / "out")).select("l_text", "r_text").collect()
        assert sorted(map(tuple, found)) == expected()
        assert list(scratch.rglob("*.arrow"))  # there are copies, but no blocks in the checkpoint
        assert not list((tmp_path / "checkpoint").rglob("*.arrow"))

        checkpoint = str(tmp_path / "checkpoint")
        done = typed("inspect", checkpoint, "--blocks-in", uri, "--json")
        assert done.exit_code == 0, done.output
        facts = json.loads(done.stdout)
        assert facts["batch_id"] == committed(tmp_path)
        runs = [run for cell in facts["cells"] for window in cell["windows"] for run in window["runs"]]
        named = {run["block"]: run["size_bytes"] for run in runs if run["block"]}
        assert named
        assert all(size for size in named.values())
        assert all(name.startswith(facts["prefix"]) for name in named)
        there = objects(s3)
        retired = {name for cell in facts["cells"] for name in cell["retired"]}
        assert set(named) <= there
        without = typed("inspect", checkpoint)
        assert without.exit_code == 2
        assert "--blocks-in" in without.output

        foreign = f"{BUCKET}/windows/another/00-0000-0000000007-{'0' * 32}.arrow"
        orphan = f"{BUCKET}/windows/{facts['prefix']}00-0000-0000000007-{'0' * 32}.arrow"
        files = s3.files()
        for path in (foreign, orphan):
            with files.open_output_stream(path) as file:
                file.write(b"left")
        assert "0 files" in typed("vacuum", checkpoint, "--blocks-in", uri).output  # they are too young to be removed
        monkeypatch.setattr("streamjoin_ds.cli.checkpoint.time.time", lambda: time.time_ns() / 1e9 + 7200)
        dry = typed("vacuum", checkpoint, "--blocks-in", uri, "--dry-run")
        assert orphan.partition("windows/")[2] in dry.output
        assert "another" not in dry.output
        assert SECRET not in dry.output
        assert typed("vacuum", checkpoint, "--blocks-in", uri).exit_code == 0
        left = objects(s3)
        assert left - {foreign.partition("windows/")[2]} == (set(named) | retired) & there
        assert foreign.partition("windows/")[2] in left
        # A missing block is shown.
        name = next(iter(named))
        files.delete_file(f"{BUCKET}/windows/{name}")
        assert "1 MISSING" in typed("inspect", checkpoint, "--blocks-in", uri).output


def test_a_folder_that_is_none_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path)
    with pytest.raises(ArgumentError, match="Arrow cannot open the folder of blocks"):
        started(spark, tmp_path, "s4://bucket/blocks")
    assert not (tmp_path / "checkpoint").exists()
