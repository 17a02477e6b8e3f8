"""The lines of RUNBOOK.md on a real checkpoint and tables: break them, mend them as the line says, start, compare.

The checkpoint is Spark's. What goes on with it is Spark where its own files were broken, and else a driver without it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streamjoin_ds.cli.main import error_text, group
from streamjoin_ds.plan import Plan
from streamjoin_ds.spec import Stream
from streamjoin_ds.stream import commit as commit_room
from streamjoin_ds.stream.join import StreamJoin
from tests.support.further import further
from tests.support.table_rows import contents as contents_of

pytestmark = pytest.mark.spark

# A batch has 1 500 rows of each stream: too many for a tail, and few enough for the window of 1 800. So it becomes a
# run, and the window holds the run as a whole: there are blocks.
ROWS = 7_200
TABLES = ("", "_late", "_rejects", "_ledger", "_punctuations")


def joined(folder: Path) -> StreamJoin:
    streams = [Stream(name, str(folder / f"{name}.csv"), time="ts", time_unit="s", delay="1s") for name in ("r", "s")]
    return StreamJoin(streams, "abs(r.x - s.x) <= 2", "1800s")


def line(name: str, number: int) -> str:
    late = 30 if number % 50 == 17 else 0
    return f"{1_704_067_200 + number - late},{number * (3 if name == 'r' else 7) % 10_007}\n"


def fed(folder: Path, rows: int) -> None:
    for name in ("r", "s"):
        (folder / f"{name}.csv").write_text("ts,x\n" + "".join(line(name, number) for number in range(rows)))


def run(home: Path, inputs: Path, spark: SparkSession | None = None, **options: Any) -> None:
    paths = home / "matches", home / "ckpt"
    options = {"max_rows_per_batch": 3_000, "layout": "1x1", "available_now": True} | options
    with pytest.MonkeyPatch.context() as patch:  # every run is a block, however small
        patch.setattr("streamjoin_ds.stream.query.Plan", partial(Plan, block_bytes=0))
        join = joined(inputs)
        query = join.run_local(*paths, **options) if spark is None else join.start(spark, *paths, **options)
        query.awaitTermination()


def contents(home: Path) -> dict[str, list[dict[str, Any]]]:
    return contents_of(home / "matches", TABLES)


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the join over the first two thirds of the input, in four batches; return the folder."""
    folder = tmp_path_factory.mktemp("runbook")
    (folder / "in").mkdir()
    fed(folder / "in", 2 * ROWS // 3)
    run(folder, folder / "in", spark)
    return folder


@pytest.fixture(scope="module")
def expected(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = copied(begun, tmp_path_factory.mktemp("expected"))
    fed(begun / "in", ROWS)
    run(home, begun / "in")
    return contents(home)


def copied(begun: Path, home: Path) -> Path:
    for path in begun.iterdir():
        if path.name != "in":
            shutil.copytree(path, home / path.name)
    commit_room.forget_committers()
    return home


@pytest.fixture
def home(begun: Path, expected: dict[str, Any], tmp_path: Path) -> Path:
    assert expected
    return copied(begun, tmp_path)


@pytest.fixture
def typed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr("streamjoin_ds.spark.session.spark_session", lambda *_, **__: spark)
    return lambda *arguments: CliRunner().invoke(group, arguments, prog_name="streamjoin")


def newest(folder: Path, pattern: str = "*.json") -> Path:
    return max(folder.glob(pattern), key=lambda path: int(path.name.split(".")[0]))


def torn_entry(home: Path, name: str) -> None:
    newest(home / f"matches{name}" / "_delta_log").write_bytes(b"")


def torn_offsets(home: Path) -> None:
    """Do what a power cut does while batch 4 is planned: its offsets are empty, and the commit of batch 3 is torn."""
    (home / "ckpt" / "offsets" / "4").write_bytes(b"")
    (home / "ckpt" / "commits" / "3").write_bytes(b"v1\n{")


def torn_state(home: Path) -> None:
    (home / "ckpt" / "state" / "0" / "0" / "4.delta").write_bytes(b"LZ4")


def last_two_states(home: Path) -> None:
    torn_state(home)
    path = home / "ckpt" / "state" / "0" / "0" / "3.delta"
    path.write_bytes(path.read_bytes()[:-30])


def log_checkpoint(home: Path) -> None:
    DeltaTable(str(home / "matches")).create_checkpoint()
    log = home / "matches" / "_delta_log"
    (log / "_last_checkpoint").write_bytes(b"")
    newest(log, "*.checkpoint.parquet").write_bytes(bytes(100))


BY_ITSELF: dict[str, Callable[[Path], object]] = {
    "an entry of the matches": lambda home: torn_entry(home, ""),
    "entries of three tables": lambda home: [torn_entry(home, name) for name in ("_ledger", "_punctuations", "_late")],
    "offsets and commit": torn_offsets,
    "two states": last_two_states,
    "a checkpoint of the log": log_checkpoint,
}
OF_SPARK = ("offsets and commit", "two states")


@pytest.mark.parametrize("what", BY_ITSELF)
def test_a_restart_mends_what_a_power_cut_tears(
    what: str, spark: SparkSession, home: Path, begun: Path, expected: dict[str, Any]
) -> None:
    BY_ITSELF[what](home)
    run(home, begun / "in", spark if what in OF_SPARK else None)
    assert contents(home) == expected


def test_a_whole_checkpoint_needs_no_repair(home: Path, typed: Callable[..., Result]) -> None:
    for flags in ((), ("--dry-run",)):
        done = typed("repair", str(home / "ckpt"), "--to", str(home / "matches"), *flags)
        assert done.exit_code == 0, done.output
        assert done.output == "nothing is wrong\n"


def mended(typed: Callable[..., Result], home: Path, says: str) -> None:
    """Check that a dry run says `says` and changes nothing, and that a repair then says it too."""
    before = {str(path): path.stat().st_mtime_ns for path in home.rglob("*") if path.name != ".driver.lock"}
    command = ("repair", str(home / "ckpt"), "--to", str(home / "matches"))
    dry = typed(*command, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert says in dry.output
    assert "would be mended" in dry.output
    after = {str(path): path.stat().st_mtime_ns for path in home.rglob("*") if path.name != ".driver.lock"}
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed <= {str(home / "ckpt")}  # the lock is in this folder
    done = typed(*command)
    assert done.exit_code == 0, done.output
    assert says in done.output


def test_a_missing_block_is_written_again(
    spark: SparkSession, home: Path, begun: Path, expected: dict[str, Any], typed: Callable[..., Result]
) -> None:
    facts = json.loads(typed("inspect", str(home / "ckpt"), "--json").stdout)
    runs = [run for cell in facts["cells"] for window in cell["windows"] for run in window["runs"]]
    blocks = sorted({run["block"] for run in runs if run["block"]})
    assert blocks
    (home / "ckpt" / "blocks" / blocks[-1]).unlink()
    with pytest.raises(Exception, match="BLOCK_MISSING"):
        run(home, begun / "in", spark)
    mended(typed, home, f"block {blocks[-1]} is not there: the batches that wrote it are done again")
    run(home, begun / "in")
    assert contents(home) == expected


def test_a_checkpoint_from_a_backup_catches_up(
    home: Path, begun: Path, expected: dict[str, Any], typed: Callable[..., Result]
) -> None:
    """A start is refused while the tables are ahead of the backup. After a repair it does the tables' batches again."""
    shutil.copytree(home / "ckpt", home / "backup")
    run(home, begun / "in")
    shutil.rmtree(home / "ckpt")
    (home / "backup").rename(home / "ckpt")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(home, begun / "in", max_rows_per_batch=1_100)
    assert "FOREIGN_CHECKPOINT" in error_text(caught.value)[0]
    shutil.rmtree(home / "ckpt")
    copied_checkpoint = begun / "ckpt"
    shutil.copytree(copied_checkpoint, home / "ckpt")
    mended(typed, home, "the tables hold batches up to 5: it catches up")
    run(home, begun / "in", max_rows_per_batch=1_100)
    assert contents(home) == expected


def test_a_restored_table_is_given_its_batches_again(home: Path, begun: Path, expected: dict[str, Any]) -> None:
    """The folder of the matches comes back from a copy that is one batch older."""
    log = home / "matches" / "_delta_log"
    newest(log).unlink()
    run(home, begun / "in")
    assert contents(home) == expected


def test_a_restore_is_undone_by_a_restore(home: Path, begun: Path, expected: dict[str, Any]) -> None:
    table = DeltaTable(str(home / "matches"))
    newest_version = table.version()
    table.restore(newest_version - 1)
    DeltaTable(str(home / "matches")).restore(newest_version)
    run(home, begun / "in")
    assert contents(home) == expected


def test_tables_may_move_together(home: Path, begun: Path, expected: dict[str, Any]) -> None:
    (home / "elsewhere").mkdir()
    for path in [path for path in home.iterdir() if path.name.startswith("matches")]:
        path.rename(home / "elsewhere" / path.name)
    (home / "ckpt").rename(home / "elsewhere" / "ckpt")
    run(home / "elsewhere", begun / "in")
    assert contents(home / "elsewhere") == expected


def test_matches_alone_are_refused(home: Path, begun: Path) -> None:
    (home / "alone").mkdir()
    (home / "matches").rename(home / "alone" / "matches")
    (home / "ckpt").rename(home / "alone" / "ckpt")
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark wraps it
        run(home / "alone", begun / "in")
    assert "FOREIGN_CHECKPOINT" in error_text(caught.value)[0]


def test_a_batch_that_fails_goes_on_when_its_file_is_back(home: Path, begun: Path, expected: dict[str, Any]) -> None:
    path = begun / "in" / "r.csv"
    text = path.read_text()
    before = {name: DeltaTable(f"{home}/matches{name}").version() for name in TABLES}
    path.write_text(text.replace(",3\n", ",4\n", 1))
    try:
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark wraps it
                run(home, begun / "in")
            assert "FILE_CHANGED" in error_text(caught.value)[0]
    finally:
        path.write_text(text)
    assert {name: DeltaTable(f"{home}/matches{name}").version() for name in TABLES} == before
    run(home, begun / "in")
    assert contents(home) == expected


def test_the_query_s_id_is_told_by_the_tables(
    spark: SparkSession, home: Path, begun: Path, expected: dict[str, Any], typed: Callable[..., Result]
) -> None:
    (home / "ckpt" / "metadata").write_bytes(b"")
    for driver in (spark, None):
        with pytest.raises(Exception, match=r"RECOVERY.*streamjoin repair"):
            run(home, begun / "in", driver)
    mended(typed, home, "written again, from the tables")
    run(home, begun / "in", spark)
    assert contents(home) == expected


def without_decisions(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables' rows without the ledger's column that says which layout was decided on."""
    ledger = [{name: value for name, value in row.items() if name != "decided"} for row in tables["_ledger"]]
    return {**tables, "_ledger": ledger}


@pytest.fixture
def moved(spark: SparkSession, home: Path, begun: Path, expected: dict[str, Any]) -> Path:
    """Return a copy whose last two batches were done by two cells, after a move; nothing is left to be read."""
    run(home, begun / "in", spark, layout="1x2")
    assert (home / "ckpt" / "generation-1" / "metadata").exists()
    assert without_decisions(contents(home)) == without_decisions(expected)
    return home


def torn_id(folder: Path) -> str:
    (folder / "metadata").write_bytes(b"")
    return "written again, from the tables"


def torn_states(folder: Path) -> str:
    """Tear the last state of one cell; the batch is done again by both."""
    path = newest(folder / "state" / "0" / "1", "*.delta")
    path.write_bytes(path.read_bytes()[:-30])
    return "is not whole"


def torn_offset(folder: Path) -> str:
    path = max(
        (path for path in (folder / "offsets").iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
    )
    path.write_bytes(b"")
    return "it catches up"


@pytest.mark.parametrize("tear", [torn_states, *further(torn_id, torn_offset)])
def test_a_moved_checkpoint_is_mended_alike(
    tear: Callable[[Path], str],
    spark: SparkSession,
    moved: Path,
    begun: Path,
    expected: dict[str, Any],
    typed: Callable[..., Result],
) -> None:
    mended(typed, moved, tear(moved / "ckpt" / "generation-1"))
    run(moved, begun / "in", spark, layout="2x1")
    assert without_decisions(contents(moved)) == without_decisions(expected)


@pytest.mark.long
def test_a_missing_block_of_a_moved_checkpoint_is_written_again(
    moved: Path, begun: Path, expected: dict[str, Any], typed: Callable[..., Result]
) -> None:
    facts = json.loads(typed("inspect", str(moved / "ckpt"), "--json").stdout)
    runs = [run for cell in facts["cells"] for window in cell["windows"] for run in window["runs"]]
    newest_block = max((run["block"] for run in runs if run["block"]), key=lambda name: name.split("-")[1:])
    (moved / "ckpt" / "blocks" / newest_block).unlink()
    mended(typed, moved, f"block {newest_block} is not there: the batches that wrote it are done again")
    run(moved, begun / "in", layout="1x2")
    assert without_decisions(contents(moved)) == without_decisions(expected)


@pytest.mark.parametrize("layout", ["2x2", *further("1x1", "1x2")])
def test_a_backup_from_before_a_move_catches_up_in_any_cells(
    layout: str, home: Path, begun: Path, expected: dict[str, Any], typed: Callable[..., Result]
) -> None:
    shutil.copytree(home / "ckpt", home / "backup")
    run(home, begun / "in", layout="1x2")
    shutil.rmtree(home / "ckpt")
    (home / "backup").rename(home / "ckpt")
    mended(typed, home, "the tables hold batches up to 5: it catches up")
    run(home, begun / "in", layout=layout, max_rows_per_batch=1_100)
    assert (home / "ckpt" / "generation-1").is_dir() == (layout != "1x1")
    assert without_decisions(contents(home)) == without_decisions(expected)


def test_what_is_lost_is_said_with_its_time(home: Path, typed: Callable[..., Result]) -> None:
    for path in (home / "ckpt" / "state" / "0" / "0").glob("*.delta"):
        path.write_bytes(b"")
    for path in (home / "ckpt" / "offsets").iterdir():
        if path.name in ("0", "1"):
            path.unlink()
    done = typed("repair", str(home / "ckpt"), "--to", str(home / "matches"))
    assert done.exit_code == 1
    assert "CANNOT BE MENDED: no state is kept from which batch" in done.output
    assert "only the results before 2024-01-01T01:1" in done.output


def test_a_second_driver_is_refused(home: Path, typed: Callable[..., Result]) -> None:
    import subprocess
    import sys

    code = (
        "import pathlib, sys\nfrom streamjoin_ds.checkpoint.lock import driving\n"
        "driving(pathlib.Path(sys.argv[1]).resolve())\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "ckpt")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    refused = typed("repair", str(home / "ckpt"))
    assert refused.exit_code == 2
    assert (
        f"CHECKPOINT_IN_USE: the checkpoint is in use by process {other.pid} on {os.uname().nodename}" in refused.output
    )
    other.kill()
    other.communicate()
    assert typed("repair", str(home / "ckpt"), "--to", str(home / "matches")).exit_code == 0
