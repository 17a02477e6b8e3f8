"""Logs: nothing unless they are asked for; decisions and commits if they are; never a secret."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamjoin_ds.blocks import BlockStore, Cache
from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.cli.main import group
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, LEVELS
from streamjoin_ds.sink.log import LogEntry, put_entry
from tests.engine.streams import band_join, filled, tuples

SECRET = "s3://someone:sEcReT@bucket/checkpoints/pairs?endpoint=sEcReT"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logger = logging.getLogger("streamjoin_ds")
    before = logger.level, logger.propagate, list(logger.handlers)
    for name in (LEVEL_VARIABLE, FORMAT_VARIABLE):
        monkeypatch.setenv(name, "")
    yield
    logger.level, logger.propagate, logger.handlers = before
    logger.manager._clear_cache()  # type: ignore[attr-defined]  # whether a level is on is remembered


def explained(tmp_path: Path, *arguments: str, before: tuple[str, ...] = ()) -> Result:
    for name in "lr":
        (tmp_path / f"{name}.csv").write_text("ts,x\n2024-01-01T00:00:00Z,1.5\n")
    streams = [part for name in "lr" for part in ("--stream", f"{name}={tmp_path}/{name}.csv")]
    join = ("explain", *streams, "--on", "|l.x - r.x| <= 1", "--window", "1s", *arguments)
    return CliRunner().invoke(group, [*before, *join], prog_name="streamjoin")


def test_nothing_is_logged_by_default(tmp_path: Path) -> None:
    done = explained(tmp_path)
    assert done.exit_code == 0, done.output
    assert not done.stderr


@pytest.mark.parametrize("asked", [("--log-level", "debug"), ("--log-level=debug",), ("--verbose",)])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_level_is_asked_for_before_or_after_the_command(
    tmp_path: Path, asked: tuple[str, ...], is_first: bool
) -> None:
    done = explained(tmp_path, before=asked) if is_first else explained(tmp_path, *asked)
    assert done.exit_code == 0, done.output
    assert "streamjoin_ds.engine.window_join: kernel " in done.stderr
    assert "DEBUG" not in done.stdout
    assert done.stdout == explained(tmp_path, "--log-level", "error").stdout


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_higher_level_says_less(tmp_path: Path, level: str) -> None:
    done = explained(tmp_path, "--log-level", level)
    assert done.exit_code == 0, done.output
    assert not done.stderr


@pytest.mark.parametrize("is_first", [True, False])
def test_a_level_that_is_none_is_refused_by_name(tmp_path: Path, is_first: bool) -> None:
    asked = ("--log-level", "sEcReT")
    done = explained(tmp_path, before=asked) if is_first else explained(tmp_path, *asked)
    assert done.exit_code == 2
    assert "'--log-level': it is not one of debug, info, warning, error." in done.stderr
    assert "sEcReT" not in done.output


def test_a_worker_goes_by_the_environment() -> None:
    code = "import streamjoin_ds, logging; logging.getLogger('streamjoin_ds.engine').debug('here I am')"
    for level, is_told in (("debug", True), ("warning", False), ("no level", False)):
        environment = {**os.environ, LEVEL_VARIABLE: level}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert ("streamjoin_ds.engine: here I am" in done.stderr) is is_told, done.stderr


@pytest.fixture
def debug(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="streamjoin_ds")
    return caplog


def test_the_engine_tells_layouts_merges_and_grids(debug: pytest.LogCaptureFixture) -> None:
    filled(band_join("1h"), 1, 5_000)
    assert "stream r: a run of 5000 rows: sorted by x; " in debug.text
    filled(band_join("1h"), 24, 1_200, merge_runs=2)
    assert "stream r: 2 runs are merged into one of 2400 rows" in debug.text
    assert "to a bucket grid" not in debug.text
    filled(band_join("1h"), 2, 5_000, bucket_rows=10_000)
    assert "stream r: 10000 rows go from runs to a bucket grid, in " in debug.text


def test_the_engine_tells_what_expired_and_what_was_rebuilt(debug: pytest.LogCaptureFixture) -> None:
    filled(band_join("1s"), 6, 2_000)
    assert "runs have expired; " in debug.text
    filled(band_join("1h"), 24, 2_000, bucket_rows=2_000)
    assert "the bucket grid is too small; a rebuild for " in debug.text
    assert "the bucket grid is rebuilt and has " in debug.text


def test_blocks_tell_what_is_written_dropped_and_removed(
    tmp_path: Path, debug: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "worker_cache", Cache(1 << 30))
    blocks = BlockStore(str(tmp_path / "sEcReT"))
    store = RunStore(blocks, ("00-0000", "01-0000"), "")
    join = filled(band_join(), 2, 2_000)
    restored = WindowJoin.restored(band_join(), join.save(store), store)
    name = min(restored.blocks)
    assert f"block {name} is written: " in debug.text
    store.forget_but(())
    assert f"block {name} of " in debug.text
    assert "is dropped: it has left the windows" in debug.text
    assert blocks.remove([name]) == 1
    assert f"1 of 1 retired blocks are removed: ['{name}']" in debug.text
    assert "sEcReT" not in debug.text


def test_the_cache_tells_why(debug: pytest.LogCaptureFixture) -> None:
    cache: Cache[int] = Cache(100)
    cache.put("a", 1, 60)
    cache.put("b", 2, 60)
    cache.put("c", 3, 101)
    cache.begin_round(0)
    cache.begin_round(0)
    told = [record.getMessage() for record in debug.records]
    assert told == [
        "a of 60 bytes is dropped: others need its room",
        "c is not kept: its 101 bytes are over the limit of 100",
        "b of 60 bytes is dropped: none of the last 0 rounds has used it",
    ]


def test_an_entry_is_put_or_refused(tmp_path: Path, debug: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pairs" / "_delta_log").mkdir(parents=True)
    path, entry = str(tmp_path / "pairs"), LogEntry("WRITE", 0)
    assert put_entry(path, 7, entry)
    assert not put_entry(path, 7, entry)
    assert f"the entry WRITE of version 7 of {path} is written (0 files added, 0 removed)" in debug.text
    assert "is refused, as another writer has this version" in debug.text


def test_of_a_uri_only_the_last_part_is_logged() -> None:
    assert loggable(SECRET) == "pairs"
    assert loggable("/data/pairs") == "/data/pairs"
    assert loggable("file:/data/pairs") == "file:/data/pairs"


def test_a_push_of_one_tuple_logs_nothing(debug: pytest.LogCaptureFixture) -> None:
    bound = band_join()
    join = filled(bound, 2, 2_000)
    debug.clear()
    for number in range(50):
        list(join.push({number % 2: tuples(bound, number % 2, 1, start_us=2_000_000, seq=4_000 + number)}, 1_000_000))
    assert not debug.records
