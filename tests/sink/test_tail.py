"""The end of a table's log as a power cut leaves it: it is read right, and set aside only where that is safe."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tail import TORN_FOLDER, tail_of


def appended(path: Path, batch: int) -> None:
    """Append a batch's entry, as the sink has delta-rs write it."""
    facts = {"streamjoin": {"batch_id": batch, "punctuation": batch}}
    applications = [Transaction(name, batch) for name in ("streamjoin/j", "streamjoin/j/q", "streamjoin/j#punctuation")]
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(facts)}, app_transactions=applications)
    write_deltalake(str(path), pa.table({"a": [batch]}), mode="append", commit_properties=properties)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "matches"
    DeltaTable.create(str(path), pa.schema([("a", pa.int64())]))
    for batch in range(3):
        appended(path, batch)
    return path


def entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def test_a_whole_log(table: Path) -> None:
    tail = tail_of(str(table))
    assert tail is not None
    assert (tail.version, tail.last_batch, tail.query_id, tail.torn, tail.refusal) == (3, 2, "q", (), "")


def test_no_log(tmp_path: Path) -> None:
    assert tail_of(str(tmp_path)) is None
    assert tail_of("s3://bucket/matches") is None


def test_an_entry_cut_at_any_byte_is_torn(table: Path) -> None:
    """A cut at a line's end is found too, where the rest is JSON: the transaction ids come last."""
    data = entry(table, 3).read_bytes()
    for size in range(len(data)):
        entry(table, 3).write_bytes(data[:size])
        tail = tail_of(str(table))
        assert tail is not None
        assert (tail.version, tail.last_batch, tail.torn) == (2, 1, (entry(table, 3).name,)), data[:size][-40:]


@pytest.mark.parametrize("how", ["gone", "empty", "zeros", "short"])
def test_an_entry_without_its_file_is_torn(table: Path, how: str) -> None:
    add = next(json.loads(line)["add"] for line in entry(table, 3).read_text().splitlines() if '"add"' in line)
    file = table / add["path"]
    data = file.read_bytes()
    file.unlink()
    if how != "gone":
        file.write_bytes({"empty": b"", "zeros": bytes(len(data)), "short": data[:-1]}[how])
    tail = tail_of(str(table))
    assert tail is not None
    assert (tail.version, tail.last_batch) == (2, 1)


def test_what_comes_after_goes_too_and_a_reader_goes_on(table: Path) -> None:
    entry(table, 2).write_bytes(b"")
    tail = tail_of(str(table))
    assert tail is not None
    assert (tail.version, tail.last_batch, tail.batches, tail.refusal) == (1, 0, (2,), "")
    tail.set_aside()
    assert DeltaTable(str(table)).version() == 1
    assert sorted(path.name for path in (table / TORN_FOLDER).iterdir()) == [entry(table, 2).name, entry(table, 3).name]
    appended(table, 1)
    assert scanned(DeltaTable(str(table))).to_table()["a"].to_pylist() == [1, 0]


def test_a_change_of_others_after_a_torn_entry_is_not_set_aside(table: Path) -> None:
    DeltaTable(str(table)).delete("a = 0")
    entry(table, 3).write_bytes(b"{")
    tail = tail_of(str(table))
    assert tail is not None
    assert "a change of the table that no join made" in tail.refusal


def test_a_torn_compaction_is_taken_back(table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()
    lines = entry(table, 4).read_text().splitlines()
    add = next(json.loads(line)["add"] for line in lines if line.startswith('{"add"'))
    (table / add["path"]).write_bytes(b"")
    tail = tail_of(str(table))
    assert tail is not None
    assert (tail.version, tail.last_batch, tail.refusal) == (3, 2, "")
    tail.set_aside()
    assert sorted(scanned(DeltaTable(str(table))).to_table()["a"].to_pylist()) == [0, 1, 2]


def test_a_compaction_of_the_join_is_whole_and_torn_where_it_is_cut(table: Path) -> None:
    for batch in range(3):
        (file,) = (path for path in table.glob("*.parquet") if pq.read_table(path)["a"].to_pylist() == [batch])
        renamed = file.with_name(f"batch-{batch:08d}-0000.parquet")
        file.rename(renamed)
        log = entry(table, batch + 1)
        log.write_text(log.read_text().replace(file.name, renamed.name))
    compact(str(table))
    tail = tail_of(str(table))
    assert tail is not None
    assert (tail.version, tail.last_batch, tail.torn) == (4, 2, ())
    lines = entry(table, 4).read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    for count in range(len(lines)):
        entry(table, 4).write_bytes(b"".join(lines[:count]))
        tail = tail_of(str(table))
        assert tail is not None
        assert (tail.version, tail.last_batch, tail.torn) == (3, 2, (entry(table, 4).name,))


@pytest.mark.parametrize("how", ["delete", "update"])
def test_a_change_of_others_that_is_cut_between_its_files_is_torn(table: Path, how: str) -> None:
    write_deltalake(str(table), pa.table({"a": [1, 2, 3]}), mode="append")
    if how == "delete":
        DeltaTable(str(table)).delete("a = 2")
    else:
        DeltaTable(str(table)).update(updates={"a": "a + 1"}, predicate="a = 2")
    tail = tail_of(str(table))
    assert tail is not None
    assert (tail.version, tail.torn) == (5, ())
    lines = entry(table, 5).read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    for count in range(len(lines)):
        entry(table, 5).write_bytes(b"".join(lines[:count]))
        tail = tail_of(str(table))
        assert tail is not None
        assert (tail.version, tail.torn) == (4, (entry(table, 5).name,))


def test_a_torn_checkpoint_of_the_log_goes_while_entries_stand_for_it(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    checkpoint = entry(table, 3).with_suffix("").with_suffix(".checkpoint.parquet")
    checkpoint.write_bytes(b"")
    tail = tail_of(str(table))
    assert tail is not None
    assert set(tail.torn) == {checkpoint.name, "_last_checkpoint"}
    tail.set_aside()
    assert DeltaTable(str(table)).version() == 3
    DeltaTable(str(table)).create_checkpoint()
    checkpoint.write_bytes(b"")
    entry(table, 0).unlink()
    tail = tail_of(str(table))
    assert tail is not None
    assert "no whole checkpoint" in tail.refusal
