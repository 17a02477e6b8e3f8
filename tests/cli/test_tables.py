"""Tables beside streams in the file and as flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.request.request import request_of

FILE = """
on = "r.id = z.id"
refresh = "9m"
finished_after = {r = "5s", z = "6s"}
where = ["z.most > 1", "r.id <> 7"]
[streams.r]
source = "r.csv"
[tables.z]
source = "z.parquet"
where = "name <> 'x'"
[tables.y]
source = "y.csv"
refresh = "2m"
finished_after = "7s"
schema = {k = "int64"}
"""


def test_the_file_and_the_flags_say_the_same(tmp_path: Path) -> None:
    flags: dict[str, Any]
    (tmp_path / "join.toml").write_text(FILE)
    join = request_of(tmp_path / "join.toml", {"tables": ("y=other.csv", "x=x.jsonl"), "refresh": "z=30s"}).join
    z, y, x = join.tables
    assert (z.source, z.refresh, str(z.where)) == ("z.parquet", "30s", "(z.name <> 'x') AND (z.most > 1)")
    assert (y.source, y.refresh) == ("other.csv", "2m")
    assert (x.source, x.refresh) == ("x.jsonl", "9m")
    assert str(join.streams[0].where) == "r.id <> 7"
    assert [one.finished_after for one in (*(stream.source for stream in join.streams), *join.tables)] == [
        "5s",
        "6s",
        "7s",
        "2s",
    ]
    for given, ends in (("x=8s,y=9s", ["5s", "6s", "9s", "8s"]), ("4s", ["4s", "6s", "7s", "2s"])):
        flags = {"tables": ("x=x.jsonl",), "finished_after": given}
        join = request_of(tmp_path / "join.toml", flags).join
        assert [one.finished_after for one in (*(stream.source for stream in join.streams), *join.tables)] == ends
    flags = {
        "streams": ("r=r.csv",),
        "tables": ("z=z.csv",),
        "on": "r.id = z.id",
        "where": ("z: a > 1",),
    }
    join = request_of(None, flags).join
    assert (str(join.tables[0].where), join.streams[0].where, join.tables[0].refresh) == ("z.a > 1", None, "1m")


def test_what_is_refused_is_named(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"streams": ("r=r.csv", "s=s.csv"), "window": "1s"}
    with pytest.raises(ArgumentError, match="refresh is of tables"):
        request_of(None, {**flags, "refresh": "1m"})
    with pytest.raises(ArgumentError, match="refresh names the table 'r'"):
        request_of(None, {**flags, "tables": ("z=z.csv",), "refresh": "r=1m"})
    with pytest.raises(ArgumentError, match="finished_after names the stream 'q'"):
        request_of(None, {**flags, "tables": ("z=z.csv",), "finished_after": "q=1m"})
    with pytest.raises(ArgumentError, match="NAME=VALUE"):
        request_of(None, {**flags, "tables": ("z.csv",)})
    with pytest.raises(WindowError, match="no window"):
        request_of(None, {**flags, "window": None, "tables": ("z=z.csv",)})
    (tmp_path / "join.toml").write_text(FILE + "delay = '1s'\n")
    with pytest.raises(ArgumentError, match="table y has an unknown key 'delay'"):
        request_of(tmp_path / "join.toml", {})


def test_explain_says_what_a_table_is(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("ts,id\n2024-01-01T00:00:00Z,1\n")
    (tmp_path / "z.csv").write_text("id,most\n1,2.5\n")
    flags = [f"--stream=r={tmp_path}/r.csv", f"--table=z={tmp_path}/z.csv", "--on=r.id = z.id", "--refresh=0s"]
    flags.append("--finished-after=z=0s")
    done = CliRunner().invoke(group, ("explain", *flags), prog_name="streamjoin")
    assert done.exit_code == 0, done.output
    assert "table       z: no window, one version a batch, a new one looked for at each batch (a file" in done.output
    assert "(a file: once unchanged for 0s)" in done.output
    assert "window      none: a single stream meets tables alone" in done.output
