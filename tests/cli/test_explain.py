"""``streamjoin explain``: the plan in words, from the same flags and file as `run`, without paths and without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamjoin_ds.cli.main import group

JOIN = ("--on", "abs(l.x - r.x) <= 0.5", "--on", "l.s <> r.s", "--window", "l=6h,r=0s", "--delay", "r=3s")


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(group, ("explain", *arguments), prog_name="streamjoin")


@pytest.fixture
def streams(tmp_path: Path) -> tuple[str, ...]:
    """The `--stream` arguments of two files in a folder whose name must not be shown."""
    folder = tmp_path / "secret-place"
    folder.mkdir()
    for name in ("left", "right"):
        (folder / f"{name}.csv").write_text("ts,x,s\n2024-01-01T00:00:00Z,1.5,a\n")
    return ("--stream", f"l={folder}/left.csv", "--stream", f"r={folder}/right.csv")


def test_the_plan_says_what_finds_what_decides_and_where(streams: tuple[str, ...]) -> None:
    done = explain(*streams, *JOIN, "--layout", "1x3", "--exchange", "packed")
    assert done.exit_code == 0, done.output
    text = done.stdout
    assert "window      l=6h, r=0s" in text
    assert "find        abs(l.x - r.x) <= 0.5   [-0.5, 0.5] by float64 subtraction" in text
    assert "decide      l.s <> r.s" in text
    assert "every combination" not in text
    assert "delay 3s" in text
    assert "layout      1x3 = 3 cells" in text
    assert "packed inline" in text
    assert "[-6h, 0s]" in text


def test_a_bound_of_delays_is_told(streams: tuple[str, ...]) -> None:
    done = explain(*streams, *JOIN, "--max-delay", "500ms")
    assert done.exit_code == 0, done.output
    assert "source      max_delay 500ms" in done.stdout
    assert "max_delay" not in explain(*streams, *JOIN).stdout
    refused = explain(*streams, *JOIN, "--max-delay", "soon")
    assert refused.exit_code
    assert "soon" not in refused.output


def test_what_filters_and_what_decides_is_told(streams: tuple[str, ...]) -> None:
    done = explain(*streams, "--on", "l.x + r.x > 3 OR r.s IS NULL", "--where", "l: x < 5", "--window", "1s")
    assert done.exit_code == 0, done.output
    assert "filter      l.x < 5   at the source of l" in done.stdout
    assert "decide      (3 < (l.x + r.x)) OR (r.s IS NULL)" in done.stdout
    assert "find        no band and no equality: every combination inside the window is tested" in done.stdout


def test_no_path_is_shown(streams: tuple[str, ...], tmp_path: Path) -> None:
    done = explain(*streams, *JOIN)
    assert done.exit_code == 0, done.output
    assert "secret-place" not in done.output
    assert ".csv" not in done.output
    assert str(tmp_path) not in done.output


def test_cells_choose_a_layout(streams: tuple[str, ...]) -> None:
    assert "layout      4x1 = 4 cells" in explain(*streams, *JOIN, "--cells", "4").stdout, (
        "r has no window to share out"
    )
    assert "layout      2x2 = 4 cells" in explain(*streams, *JOIN[:4], "--window", "6h", "--cells", "4").stdout
    assert "layout      1x1 = 1 cells" in explain(*streams, *JOIN).stdout


SIDES = ("--stream", "r=gen:band2d?side=r&rate=100&rows=2000", "--stream", "s=gen:band2d?side=s&rate=100&rows=2000")


def test_a_kind_of_layout_is_told_with_its_costs() -> None:
    on = ("--on", "abs(r.x - s.a) <= 10", "--window", "10s", "--cells", "4")
    text = explain(*SIDES, *on, "--layout", "ranges").stdout
    assert "layout      4 ranges = 4 cells" in text
    assert "changes     between ranges, by a sample of the keys" in text
    assert "in the range of its key: " in text
    assert "4 ranges of r.x, s.a: 1.0" in text
    assert "2x2: 2.00 stored rows for each row read, the fullest cell has " in text
    chosen = explain(*SIDES, *on).stdout
    assert "layout      2x2 = 4 cells" in chosen
    assert "on 8 cells and more to ranges" in chosen
    assert "speak for ranges" in chosen
    assert "changes     between grids, by the streams' rates\n" in explain(*SIDES, *on, "--layout", "grid").stdout
    assert "changes     none" in explain(*SIDES, *on[:-2], "--layout", "1x2").stdout
    refused = explain(*SIDES, "--on", "r.x <> s.a", "--window", "1s", "--layout", "ranges")
    assert refused.exit_code
    assert "grid" in refused.output


def test_the_file_of_run_serves(streams: tuple[str, ...], tmp_path: Path) -> None:
    left, right = (text.partition("=")[2] for text in streams[1::2])
    path = tmp_path / "join.toml"
    path.write_text(
        f'on = "abs(l.x - r.x) <= 0.5"\nwindow = "1s"\nto = "matches"\nlayout = "2x1"\n'
        f'[streams.l]\nsource = "{left}"\n[streams.r]\nsource = "{right}"\n'
    )
    assert "layout      2x1" in explain("--config", str(path)).stdout
    assert "layout      1x1" in explain("--config", str(path), "--layout", "1x1").stdout
    path.write_text(path.read_text().replace('"2x1"', '"grid"\ncells = 2'))
    assert "changes     between grids" in explain("--config", str(path)).stdout


@pytest.mark.parametrize(
    ("written", "table", "shown"),
    [
        ("l=last 100,r=last 30", '{l = "last 100", r = "last 30"}', "l=last 100, r=last 30"),
        ("last 7", '"last 7"', "last 7"),
        ("every 10s for 60s", '"every 10s for 60s"', "every 10s for 1m"),
        (
            "l=every 10s for 60s,r=every 10s for 5s lag 3",
            '{l = "every 10s for 60s", r = "every 10s for 5s lag 3"}',
            "l=every 10s for 1m, r=every 10s for 5s lag 3",
        ),
    ],
)
def test_every_kind_of_window_by_flag_and_by_file(
    streams: tuple[str, ...], written: str, table: str, shown: str, tmp_path: Path
) -> None:
    path = tmp_path / "join.toml"
    path.write_text(f'on = "abs(l.x - r.x) <= 0.5"\nwindow = {table}\n')
    by_flag = explain(*streams, "--on", "abs(l.x - r.x) <= 0.5", "--window", written).stdout
    by_file = explain(*streams, "--config", str(path)).stdout
    assert f"window      {shown}\n" in by_flag
    assert by_file == by_flag


def test_mixed_kinds_of_windows_are_refused(streams: tuple[str, ...]) -> None:
    done = explain(*streams, "--on", "abs(l.x - r.x) <= 0.5", "--window", "l=last 3,r=15s")
    assert done.exit_code == 2
    assert done.stderr.startswith("streamjoin: WINDOW: the windows of l and r are of different kinds")


def test_an_unknown_column_is_named(streams: tuple[str, ...]) -> None:
    done = explain(*streams, "--on", "abs(l.y - r.x) <= 1", "--window", "1s")
    assert done.exit_code == 2
    assert done.stderr.startswith("streamjoin: COLUMN: ")
    assert "'y'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_no_spark_is_imported(streams: tuple[str, ...]) -> None:
    """`explain` answers at once: it starts no Java and does not load Spark's Python."""
    code = (
        "import sys\nfrom streamjoin_ds.cli.main import group\n"
        f"group.main(['explain', *{[*streams, *JOIN]!r}], standalone_mode=False)\n"
        "assert 'pyspark.sql.session' not in sys.modules and 'py4j.java_gateway' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_how_the_engine_is_to_work_by_flag_and_by_file(streams: tuple[str, ...], tmp_path: Path) -> None:
    plain = explain(*streams, *JOIN).stdout
    assert "threads     1 for each cell; on one machine its cells share the cores\n" in plain
    assert "merges      runs in blocks are merged once, many at a time" in plain
    assert "index       chosen run by run\n" in plain
    assert "  order  " not in plain
    path = tmp_path / "join.toml"
    path.write_text('threads = 4\nindex = {l = ["x", "ts"], r = "scan"}\nmerge_runs = 9\nkernel = "scalar"\n')
    told = explain(*streams, *JOIN, "--config", str(path)).stdout
    assert "kernel      scalar\n" in told
    assert "threads     1 to 4 for each cell, by the work of its batch, on leased cores where some are free\n" in told
    assert "index       l in buckets of x, sorted by ts; r scanned\n" in told
    assert "merges      9 runs of like size become one\n" in told
    flags = ("--no-pin", "--threads", "2", "--index", "l.x", "--order", "r,l")
    told = explain(*streams, *JOIN, "--config", str(path), *flags).stdout
    assert "threads     1 to 2 for each cell, by the work of its batch, not pinned\n" in told
    assert "index       l sorted by x\n" in told


def test_how_large_a_match_is(streams: tuple[str, ...]) -> None:
    sizes = "64 B each, and the values of l_s, r_s, before they are encoded; the metrics have match_bytes"
    assert f"  matches     {sizes}\n" in explain(*streams, *JOIN).stdout


def test_whether_a_batch_is_forced_to_the_device(streams: tuple[str, ...], tmp_path: Path) -> None:
    assert "durable     each batch is forced to the device before it counts" in explain(*streams, *JOIN).stdout
    assert "durable     left to the system" in explain(*streams, *JOIN, "--no-durable").stdout
    path = tmp_path / "join.toml"
    path.write_text("durable = false\n")
    assert "durable     left to the system" in explain(*streams, *JOIN, "--config", str(path)).stdout
    assert "durable     each batch is forced" in explain(*streams, *JOIN, "--config", str(path), "--durable").stdout


def test_the_order_of_three_streams_is_told(streams: tuple[str, ...], tmp_path: Path) -> None:
    third = ("--stream", f"m={tmp_path}/secret-place/left.csv", "--on", "l.x = m.x")
    assert "order       by estimated selectivity\n" in explain(*streams, *third, *JOIN[:2], "--window", "1s").stdout
    told = explain(*streams, *third, *JOIN[:2], "--window", "1s", "--order", "m, r, l").stdout
    assert "order       m, then r, then l\n" in told


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ("--index", "l.s2"),
            "COLUMN: the index of stream l has the column 's2', which no predicate and no window",
        ),
        (("--index", "q.x"), "ARGUMENT: the index names the stream 'q', which is not in the join"),
        (("--index", "nonsense"), "ARGUMENT: 'nonsense' does not name a stream's column"),
        (("--order", "l"), "ARGUMENT: the order does not name each of the join's streams once"),
        (("--threads", "999"), "ARGUMENT: the number of threads is out of range"),
    ],
)
def test_what_the_engine_cannot_do_is_one_line(streams: tuple[str, ...], flags: tuple[str, ...], says: str) -> None:
    done = explain(*streams, *JOIN, *flags)
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1


def test_the_first_tuples_are_shown_as_the_join_sees_them(streams: tuple[str, ...]) -> None:
    text = explain(*streams, *JOIN, "--where", "r: x > 2").stdout
    assert "Input\n  l           2024-01-01T00:00:00Z  x=1.5, s=a" in text
    assert "  r           2024" not in text
