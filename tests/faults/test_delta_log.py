"""The package's own log is Delta's: delta-rs reads it and goes on with it, and the package goes on after delta-rs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.log import LogEntry, put_entry
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TableSet
from tests.faults.model.invariants import violations
from tests.faults.model.schedule import CRASH_POINTS, Fault, random_schedule
from tests.faults.model.simulation import simulated
from tests.support.further import further

SCHEMA = pa.schema([pa.field("a", pa.int64())])


def commit_by_delta_rs(path: str, app: str, version: int) -> None:
    table = DeltaTable(path)
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction(app, version)]),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    DeltaTable.create(path, SCHEMA, configuration={"streamjoin.joinId": "j"}, raise_if_key_not_exists=False)
    return path


def test_an_entry_is_put_once(path: str) -> None:
    assert put_entry(path, 1, LogEntry("WRITE", 5, transactions={"a": 1}))
    assert not put_entry(path, 1, LogEntry("WRITE", 5, transactions={"a": 2}))
    assert DeltaTable(path).transaction_version("a") == 1
    assert sorted(name.name for name in Path(path, "_delta_log").iterdir()) == [f"{n:020d}.json" for n in (0, 1)]


def test_an_entry_is_put_once_by_delta_rs_below(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamjoin_ds.sink.log.is_local", lambda _path: False)
    assert put_entry(path, 1, LogEntry("WRITE", 5, transactions={"a": 1}))
    assert not put_entry(path, 1, LogEntry("WRITE", 5, transactions={"a": 2}))
    commit_by_delta_rs(path, "b", 9)
    assert not put_entry(path, 2, LogEntry("WRITE", 5, transactions={"a": 2}))
    assert put_entry(path, 3, LogEntry("WRITE", 5, transactions={"a": 2}))
    assert (DeltaTable(path).transaction_version("a"), DeltaTable(path).version()) == (2, 3)


def test_each_goes_on_where_the_other_stopped(path: str) -> None:
    table = LogSnapshot(path)
    commit_by_delta_rs(path, "a", 7)
    assert (table.version, table.transactions) == (0, {})
    table.forward()
    assert (table.version, table.transactions) == (1, {"a": 7})
    assert put_entry(path, 2, LogEntry("WRITE", 5, transactions={"a": 8}))
    assert DeltaTable(path).transaction_version("a") == 8
    assert table.configuration == DeltaTable(path).metadata().configuration
    assert table.schema_text == DeltaTable(path).schema().to_json()


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_snapshot_of_a_checkpointed_log_is_that_of_its_entries(path: str, cleaned: bool) -> None:
    for number in range(1, 6):
        assert put_entry(path, number, LogEntry("WRITE", 5, transactions={"a": number}))
    held = LogSnapshot(path, with_files=True)
    DeltaTable(path).create_checkpoint()
    assert put_entry(path, 6, LogEntry("WRITE", 5, transactions={"b": -3}))
    if cleaned:
        for number in range(5):
            Path(path, "_delta_log", f"{number:020d}.json").unlink()
    held.forward()
    opened = LogSnapshot(path, with_files=True)
    assert (opened.version, opened.transactions) == (6, {"a": 5, "b": -3})
    for name in ("version", "transactions", "configuration", "schema_text", "table_id", "live", "features"):
        assert getattr(opened, name) == getattr(held, name), name


def test_who_slept_until_the_log_was_cleaned_opens_it_anew(path: str) -> None:
    asleep = LogSnapshot(path)
    for number in range(1, 6):
        assert put_entry(path, number, LogEntry("WRITE", 5, transactions={"a": number}))
    DeltaTable(path).create_checkpoint()
    for number in range(5):
        Path(path, "_delta_log", f"{number:020d}.json").unlink()
    asleep.forward()
    assert (asleep.version, asleep.transactions) == (5, {"a": 5})


def test_a_lost_entry_is_named(path: str) -> None:
    for number in range(1, 4):
        assert put_entry(path, number, LogEntry("WRITE", 5))
    Path(path, "_delta_log", f"{2:020d}.json").unlink()
    with pytest.raises(TableError, match="lacks the entry of version 2"):
        LogSnapshot(path)


@pytest.mark.parametrize("seed", [3, 8])
def test_delta_rs_reads_the_tables_of_a_run(seed: int) -> None:
    with simulated(random_schedule(seed)) as world:
        assert not violations(world)
        tables = TableSet(world.plan.table_root)
        rows = scanned(DeltaTable(tables.matches)).to_table().to_pylist()
        expected = [(result["l_seq"], result["r_seq"]) for result in world.case.results]
        assert sorted((row["l_seq"], row["r_seq"]) for row in rows) == expected
        for name in TableSet.names():
            assert DeltaTable.is_deltatable(tables.path_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(8), *further(*range(8, 24))])
def test_schedules_are_exact_where_delta_rs_puts_the_entries(seed: int) -> None:
    with simulated(random_schedule(seed), "delta-rs") as world:
        assert not violations(world), f"{world.schedule}\n{violations(world)}"


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("kind", ["crash", "freeze"])
def test_crash_points_where_delta_rs_puts_the_entries(kind: str, point: str) -> None:
    fault = Fault(kind, 1, *CRASH_POINTS[point], delay=25 if kind == "freeze" else 0)
    schedule = replace(random_schedule(8), source="listed", faults=(fault,))
    with simulated(schedule, "delta-rs") as world:
        assert world.fired == [fault]
        assert not violations(world), f"{world.schedule}\n{violations(world)}"
