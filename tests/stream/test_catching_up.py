"""A checkpoint that was taken back catches up: the ledger repeats everything that was decided in its batches."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.recovery import planned_recovery
from streamjoin_ds.checkpoint.repair import Finding, repaired
from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.idleness import Idleness
from streamjoin_ds.spec import Join, Stream, band, bind
from streamjoin_ds.stream import commit as commit_room
from tests.support.microbatch import QUERY_ID, MicroBatches
from tests.support.table_rows import contents

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
TABLES = ("", "_late", "_rejects", "_ledger", "_punctuations")
KEPT = 3  # batches that the backup of the checkpoint has


class Operated:
    """A join over two folders of files; its checkpoint may be copied, lost and mended."""

    def __init__(self, home: Path, options: dict[str, str], **facts: Any) -> None:
        self.home, self.options, self.now_s = home, options, 0.0
        streams = [
            Stream("l", home / "l", schema=SCHEMA, format="csv"),
            Stream("r", home / "r", schema=SCHEMA, **{"format": "csv", **facts}),
        ]
        for name in ("l", "r"):
            (home / name).mkdir()
        if facts.get("format") == "delta":
            write_deltalake(str(home / "r"), SCHEMA.empty_table())
        self.join = Join(streams, [band("l.x", "r.x", 5)], "100s")
        self.bound = bind(self.join, dict.fromkeys(self.join.names, SCHEMA))
        self.begin([])

    def begin(self, cuts: list[Any]) -> None:
        commit_room.forget_committers()
        options = self.options | ({"cuts": json.dumps(cuts)} if cuts else {})
        self.micro = MicroBatches(self.bound, self.home, Layout.parse("1x1", 2), options=options, block_bytes=1 << 12)
        self.micro.reader.planner._idleness = Idleness(self.join.streams, lambda: self.now_s, lambda: self.now_s + 1e9)

    def put(self, name: str, file: str, *seconds: int, end: str = "\n") -> None:
        path = self.home / name / file
        text = "\n".join(f"{1_700_000_000_000_000 + second * 1_000_000},{second % 7}" for second in seconds) + end
        path.write_text((path.read_text() if path.exists() else "ts,x\n") + text)

    def step(self) -> None:
        assert self.micro.step()
        self.log("commits", self.micro.batch_id - 1, "v1\n{}")
        self.log("state/0/0", f"{self.micro.batch_id}.snapshot", "whole")

    def log(self, folder: str, name: object, text: str) -> None:
        path = self.home / folder / str(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def take_back(self, states: dict[int, bytes]) -> None:
        """Take the checkpoint back to what it was after the first `KEPT` batches."""
        for batch in range(KEPT, self.micro.batch_id):
            for path in (f"offsets/{batch}", f"commits/{batch}", f"state/0/0/{batch + 1}.snapshot"):
                (self.home / path).unlink()
        CheckpointIdentity.create(self.home, self.bound, Layout.parse("1x1", 2), 1)
        self.log("", "metadata", json.dumps({"id": QUERY_ID}))
        self.taken = states, json.loads((self.home / "offsets" / str(KEPT - 1)).read_text().splitlines()[2])

    def repair(self) -> list[Finding]:
        return repaired(
            lambda: pytest.fail("no session is needed"), str(self.home), f"{self.home}/matches", dry_run=False
        )

    def go_on(self) -> None:
        """Go on from the mended checkpoint, with a clock that starts anew."""
        self.now_s = 0.0
        self.begin(planned_recovery(self.home, TableSet(f"{self.home}/matches"), 1).cuts())
        self.micro.states, self.micro.offset = self.taken
        self.micro.batch_id = KEPT


def silent(run: Operated, batch: int) -> None:
    """Let `r` fall silent, and come back with records that are late by then."""
    run.now_s = batch * 20
    run.put("l", "a.csv", 30 * batch, 30 * batch + 1)
    if batch < 2:
        run.put("r", "a.csv", 30 * batch)
    if batch == 5:
        run.put("r", "a.csv", 32, 150)


def from_the_future(run: Operated, batch: int) -> None:
    run.put("l", "a.csv", 10 * batch, 10 * batch + 1)
    run.put("r", "a.csv", 10 * batch, 900_000 + batch, 10 * batch + 3)


def bad_files(run: Operated, batch: int) -> None:
    """Let a file come late that sorts before what was read, and another one change after it was read."""
    run.put("l", "a.csv", 10 * batch, 10 * batch + 1)
    run.put("r", f"f{batch}.csv", 10 * batch, 10 * batch + 3)
    if batch == 4:
        run.put("r", "f1-late.csv", 12, 13)
    if batch == 5:
        (run.home / "r" / "f1.csv").write_text("ts,x\n7,7\n")


def all_of_them(run: Operated, batch: int) -> None:
    run.now_s = batch * 20
    run.put("l", "a.csv", 30 * batch, 30 * batch + 1)
    if batch < 2:
        run.put("r", f"f{batch}.csv", 30 * batch, 900_000, 30 * batch + 1)
    if batch == 5:
        run.put("r", "f5.csv", 155, 32, 900_000, 150)
        run.put("r", "e.csv", 1)
        (run.home / "r" / "f0.csv").write_text("ts,x\n7,7\n")


def removed_files(run: Operated, batch: int) -> None:
    run.put("l", "a.csv", 10 * batch, 10 * batch + 1)
    run.put("r", f"f{batch}.csv", 10 * batch, 10 * batch + 3)
    if batch == 4:
        (run.home / "r" / "f0.csv").unlink()


def versions(run: Operated, batch: int) -> None:
    """Let `r` be a Delta table that grows, is optimized, and loses rows that were read."""
    run.put("l", "a.csv", 10 * batch, 10 * batch + 1)
    seconds = [10 * batch, 10 * batch + 3, 10 * batch - 2]
    times = [1_700_000_000_000_000 + second * 1_000_000 for second in seconds]
    rows = pa.table({"ts": times, "x": [second % 7 for second in seconds]}, schema=SCHEMA)
    write_deltalake(str(run.home / "r"), rows, mode="append")
    table = DeltaTable(str(run.home / "r"))
    if batch in (1, 4):
        table.optimize.compact()
    if batch in (2, 5):
        table.delete(f"ts < {times[2]}")


def cut_lines(run: Operated, batch: int) -> None:
    """Leave the last line without a newline; with availableNow it is read."""
    run.put("l", "a.csv", 10 * batch, 10 * batch + 1)
    run.put("r", f"f{batch}.csv", 10 * batch, 10 * batch + 3, end="")
    run.micro.reader.prepareForTriggerAvailableNow()


CASES: dict[str, tuple[Callable[[Operated, int], None], dict[str, str], dict[str, str]]] = {
    "silent": (silent, {}, {"idle_timeout": "30s"}),
    "from the future": (from_the_future, {}, {"max_ahead": "1h"}),
    "bad files": (bad_files, {}, {"on_bad_file": "quarantine"}),
    "all of them": (
        all_of_them,
        {},
        {"on_bad_file": "quarantine", "max_ahead": "1h", "idle_timeout": "30s"},
    ),
    "removed files": (removed_files, {"missing_files": "ignore"}, {}),
    "a table": (versions, {}, {"format": "delta", "on_change": "ignore"}),
    "a cut line": (cut_lines, {}, {}),
    "counts alone": (lambda run, batch: [run.put(name, "a.csv", 9 * batch) for name in "lr"] and None, {}, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_batches_that_are_cut_anew_repeat_what_was_decided(case: str, tmp_path: Path) -> None:
    happens, options, facts = CASES[case]
    runs = []
    for name in ("straight", "back"):
        (tmp_path / name).mkdir()
        run = Operated(tmp_path / name, options, **facts)
        runs.append(run)
        for batch in range(6):
            happens(run, batch)
            run.step()
            if batch == KEPT - 1:
                states = dict(run.micro.states)
        if name == "back":
            run.take_back(states)
            findings = run.repair()
            assert [finding.is_mended for finding in findings] == [True], findings
            assert "it catches up" in findings[0].text
            run.go_on()
            for _ in range(KEPT, 6):
                run.step()
        run.now_s = 200.0
        run.put("l", "a.csv", 200)
        if case != "a table":
            run.put("r", "z.csv", 201)
        if case == "a cut line":
            run.micro.reader.prepareForTriggerAvailableNow()
        run.step()
    straight, back = (json.dumps(contents(run.home / "matches", TABLES), default=str) for run in runs)
    if case == "a table":  # the two runs have tables of their own, whose ids and files have other names
        straight, back = (re.sub(r'(digest|mark|table)\\":\\"[0-9a-f-]+', r"\1", text) for text in (straight, back))
    assert back.replace(f"{tmp_path}/back/", f"{tmp_path}/straight/") == straight


@pytest.mark.parametrize("case", ["silent", "from the future", "bad files"])
def test_a_ledger_of_an_older_version_is_refused_by_name(case: str, tmp_path: Path) -> None:
    happens, options, facts = CASES[case]
    with pytest.MonkeyPatch.context() as patch:
        as_an_older_version(patch)
        run = Operated(tmp_path, options, **facts)
        for batch in range(6):
            happens(run, batch)
            run.step()
    run.take_back({})
    (finding,) = run.repair()
    assert not finding.is_mended
    assert "batch 3 was committed by an older version" in finding.text
    assert "known to be complete" in finding.text


def as_an_older_version(patch: pytest.MonkeyPatch) -> None:
    """Write ledgers with fewer columns, as an older version does."""
    newer = ("files_set_aside", "held_back_bytes", "decided", "duplicates", "lost_offsets")
    old = pa.schema([field for field in commit_room.LEDGER_SCHEMA if field.name not in newer])
    for place in ("streamjoin_ds.sink.commit", "streamjoin_ds.stream.commit"):
        patch.setattr(f"{place}.LEDGER_SCHEMA", old)
    rows_of = commit_room._ledger

    def rows(*arguments: Any) -> list[dict[str, Any]]:
        return [row | dict.fromkeys(newer) for row in rows_of(*arguments)]

    class Table:
        @staticmethod
        def from_pylist(found: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
            rows = [{name: row.get(name) for name in schema.names} for row in found]
            return pa.Table.from_pylist(rows, schema=schema)

    patch.setattr(commit_room, "_ledger", rows)
    patch.setattr(commit_room, "pa", SimpleNamespace(Table=Table))


def test_a_ledger_that_says_other_places_is_refused(tmp_path: Path) -> None:
    run = Operated(tmp_path, {}, max_ahead="1h")
    for batch in range(6):
        from_the_future(run, batch)
        run.step()
    run.take_back({})
    shutil.copy(tmp_path / "offsets" / "1", tmp_path / "offsets" / "2")  # an offset of another history
    (finding,) = run.repair()
    assert not finding.is_mended
    assert "batch 3 cannot be done again: ledger and checkpoint disagree on the position of r" in finding.text
