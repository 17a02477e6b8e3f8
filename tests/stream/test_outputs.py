"""Calculated columns (``expression AS name``) from the source to the table, and what is said of them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import FingerprintMismatchError
from streamjoin_ds.plan import Layout
from streamjoin_ds.spec import bind
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.microbatch import MicroBatches

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("tag", pa.string())])
SELECT = [
    "e.tag",
    "abs(e.x - w.x) AS gap",
    "e.ts - w.ts AS lag_us",
    "concat(e.tag, '/', coalesce(w.tag, 'nobody')) AS both",
    "CAST(round(e.x, 1) AS DECIMAL(9, 1)) AS exact",
]


def write(folder: Path) -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = {}
    for name, step in (("e", 7), ("w", 11)):
        rows[name] = [
            {"ts": START + timedelta(seconds=n), "x": n * step % 61 / 4, "tag": f"{name}{n}"} for n in range(80)
        ]
        text = "".join(f"{row['ts'].isoformat()},{row['x']},{row['tag']}\n" for row in rows[name])  # type: ignore[attr-defined]
        (folder / f"{name}.csv").write_text(f"ts,x,tag\n{text}")
    return rows


def join_of(folder: Path, select: list[str], how: str = "left") -> StreamJoin:
    streams = [Stream(name, str(folder / f"{name}.csv"), schema=SCHEMA) for name in "ew"]
    return StreamJoin(streams, "abs(e.x - w.x) <= 0.5", "4s", select, how=how)


@pytest.mark.parametrize(("how", "layout"), [("inner", "2x2"), ("left", "3x1")])
def test_a_delta_table_has_them(how: str, layout: str, tmp_path: Path) -> None:
    rows = write(tmp_path)
    join = join_of(tmp_path, SELECT, how)
    found = MicroBatches(
        bind(join, dict.fromkeys("ew", SCHEMA)), tmp_path, Layout.parse(layout, 2), "reference", 30
    ).run()
    names = ["e_tag", "gap", "lag_us", "both", "exact"]
    assert found.schema.names[:5] == names
    assert [str(found.schema.field(name).type) for name in names[1:]] == [
        "double",
        "int64",
        "string",
        "decimal128(9, 1)",
    ]
    until_us = math.inf if how == "inner" else (START.timestamp() + 79) * 1e6
    wanted = sorted(
        tuple(row[name] for name in names)
        for row in oracle_join(join, rows, until_us=None if how == "inner" else int(until_us))
    )
    assert sorted(zip(*(found[name].to_pylist() for name in names), strict=True), key=repr) == sorted(wanted, key=repr)
    assert len(wanted) > 20
    assert (how == "left") == any(row[1] is None for row in wanted)


def test_explain_says_what_is_calculated(tmp_path: Path) -> None:
    write(tmp_path)
    told = join_of(tmp_path, SELECT).explain()
    assert "calculate   gap = abs(e.x - w.x)   double" in told
    assert "calculate   lag_us = e.ts - w.ts   int64" in told


def told(*arguments: str) -> str:
    result = CliRunner().invoke(group, ("explain", *arguments), prog_name="streamjoin")
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_line_and_a_file_take_them(tmp_path: Path) -> None:
    write(tmp_path)
    on, select = "abs(e.x - w.x) <= 0.5", "e.tag, power(e.x, 2) AS square"
    flags = ("--stream", f"e={tmp_path}/e.csv", "--stream", f"w={tmp_path}/w.csv", "--on", on, "--window", "4s")
    assert "calculate   square = power(e.x, 2)   double" in told(*flags, "--select", select)
    (tmp_path / "join.toml").write_text(
        f'window = "4s"\non = "{on}"\nselect = ["e.tag", "power(e.x, 2) AS square"]\n'
        f'[streams.e]\nsource = "{tmp_path}/e.csv"\n[streams.w]\nsource = "{tmp_path}/w.csv"\n'
    )
    assert "calculate   square = power(e.x, 2)   double" in told("--config", str(tmp_path / "join.toml"))


def test_a_checkpoint_refuses_other_expressions_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    first, other = (
        bind(join_of(tmp_path, [text]), dict.fromkeys("ew", SCHEMA)) for text in ("e.x AS a", "e.x + 1 AS a")
    )
    identity = CheckpointIdentity.create(tmp_path / "checkpoint", first, Layout((1, 1)), 1)
    with pytest.raises(FingerprintMismatchError, match="select"):
        identity.check(other)
