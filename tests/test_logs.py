"""Logs: nothing unless they are asked for; decisions and commits if they are; never a secret."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from streamjoin_ds.blocks import BlockStore, Cache
from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.cli.main import group, main
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ColumnError
from streamjoin_ds.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, LEVELS, log_to_stderr, write_json_lines
from streamjoin_ds.sink.log import LogEntry, put_entry
from tests.engine.streams import band_join, filled, tuples
from tests.support.documents import ROOT

SECRET = "s3://someone:sEcReT@bucket/checkpoints/pairs?endpoint=sEcReT"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logger = logging.getLogger("streamjoin_ds")
    before = logger.level, logger.propagate, list(logger.handlers)
    logger.handlers = []  # no formatter of another test's handler is changed
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


def objects(text: str) -> list[dict[str, Any]]:
    """Return the lines of a standard error, each of which has to be an object."""
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        assert datetime.fromisoformat(line["time"].replace("Z", "+00:00")).tzinfo is not None
        assert line["level"] in LEVELS
        assert line["logger"].partition(".")[0] == "streamjoin_ds"
        assert isinstance(line["process"], int)
        assert line["message"]
    return found


AS_JSON = ("--log-format", "json")


def ran(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a join of two small files, as its user does."""
    for name in "lr":
        lines = [f"2024-01-01T00:00:{second:02}Z,{second}\n" for second in range(60)]
        (tmp_path / f"{name}.csv").write_text("".join(["ts,x\n", *lines, "2024-01-01T00:00:05Z,5\n", "never,1\n"]))
    streams = [part for name in "lr" for part in ("--stream", f"{name}={name}.csv")]
    join = ("--on", "|l.x - r.x| <= 1", "--window", "1s", "--to", "near", "--checkpoint", "near.ckpt")
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "run", *streams, *join, "--local", "--available-now"]
    return subprocess.run(
        [*command, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_as_json_each_line_is_an_object_and_a_batch_has_its_numbers(tmp_path: Path) -> None:
    done = ran(tmp_path, "--max-rows-per-batch", "40", *AS_JSON)
    assert (done.returncode, done.stdout) == (0, "")
    lines = objects(done.stderr)
    batches = [line for line in lines if "batch_id" in line]
    assert [line["batch_id"] for line in batches] == list(range(len(batches)))
    assert len(batches) > 1
    metrics = DeltaTable(str(tmp_path / "near_metrics")).to_pyarrow_table().to_pylist()
    ledger = DeltaTable(str(tmp_path / "near_ledger")).to_pyarrow_table().to_pylist()
    for line in batches:
        rows = [row for row in metrics if row["batch_id"] == line["batch_id"]]
        for name in ("matches", "state_rows", "state_bytes"):
            assert line[name] == sum(row[name] for row in rows)
        for name in ("read", "stored", "late", "rejected", "filtered", "duplicates"):
            assert line[name] == {row["stream"]: row[name] for row in ledger if row["batch_id"] == line["batch_id"]}
        assert line["table"] == str(tmp_path / "near")
    assert batches[-1]["punctuation"] is not None
    assert lines[-1]["message"] == "the run has ended"
    assert lines[-1]["matches"] == sum(line["matches"] for line in batches) > 0
    assert any(line["level"] == "warning" for line in lines), "what is late and rejected is warned of"


@pytest.mark.slow
def test_as_json_an_error_has_its_code(tmp_path: Path) -> None:
    for number, (more, code) in enumerate(
        (
            (("--on", "l.y = r.x"), "COLUMN"),
            (("--stream", "w=kafka://someone:sEcReT@broker/topic"), "ARGUMENT"),
        )
    ):
        done = ran(tmp_path, *more, *(AS_JSON if number else ()), **({} if number else {FORMAT_VARIABLE: "json"}))
        assert done.returncode == 2
        *_, error = objects(done.stderr)
        assert (error["level"], error["code"], error["more"]) == ("error", code, f"streamjoin help error {code}")
        assert error["message"].startswith(f"{code}: ")
        assert "sEcReT" not in done.stderr + done.stdout


def test_as_json_a_wrong_use_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    monkeypatch.setattr(sys, "argv", ["streamjoin", "explain", "kafka://me:sEcReT@broker/t", "--walk", *AS_JSON])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    warned, wrong = objects(printed.getvalue())
    assert "this looks like a secret" in warned["message"]
    assert (wrong["level"], "--walk" in wrong["message"]) == ("error", True)
    assert "sEcReT" not in printed.getvalue()


def test_as_json_what_others_print_are_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    log_to_stderr("info", "json")
    write_json_lines()
    print("half a", end=" ", file=sys.stderr)
    print("line\n\nand one more", file=sys.stderr)
    try:
        msg = "there is no column x"
        raise ColumnError(msg, name="x")
    except ColumnError:
        logging.getLogger("streamjoin_ds.sink").exception("it failed")
    lines = objects(printed.getvalue())
    assert [line["message"] for line in lines] == ["half a line", "and one more", "it failed"]
    assert lines[-1]["code"] == "COLUMN"
    assert "Traceback" in lines[-1]["error"]


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
