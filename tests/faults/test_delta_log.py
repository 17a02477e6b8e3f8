"""The model's Delta log is Delta's: delta-rs reads it, goes on with it, and refuses what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.faults.model.delta_log import LogTable
from tests.faults.model.invariants import violations
from tests.faults.model.schedule import CRASH_POINTS, Fault, random_schedule
from tests.faults.model.world import simulated

KINDS = [LogTable, DeltaTable]
SCHEMA = pa.schema([pa.field("a", pa.int64())])


def created(kind: type, path: Path) -> object:
    kind.create(
        str(path), SCHEMA, description="d", configuration={"streamjoin.joinId": "j"}, raise_if_key_not_exists=False
    )
    return kind(str(path))


def commit(table: object, app: str, version: int) -> None:
    table.create_write_transaction(  # type: ignore[attr-defined]
        [],
        "append",
        table.schema(),  # type: ignore[attr-defined]
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": "{}"}, app_transactions=[Transaction(app, version)]
        ),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_stale_snapshot_loses_to_the_same_transaction_id_only(tmp_path: Path, kind: type) -> None:
    created(kind, tmp_path / "t")
    first, second, third = (kind(str(tmp_path / "t")) for _ in range(3))
    commit(first, "a", 1)
    assert first.version() == 0  # a snapshot stays as it is
    with pytest.raises(CommitFailedError):
        commit(second, "a", 1)
    commit(third, "b", 1)
    second.update_incremental()
    assert (second.version(), second.transaction_version("a"), second.transaction_version("b")) == (2, 1, 1)
    commit(second, "a", 2)
    assert kind(str(tmp_path / "t")).transaction_version("a") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_table_is_not_opened(tmp_path: Path, kind: type) -> None:
    assert not kind.is_deltatable(str(tmp_path / "t"))
    with pytest.raises(TableNotFoundError):
        kind(str(tmp_path / "t"))


@pytest.mark.parametrize(("writer", "reader"), [(LogTable, DeltaTable), (DeltaTable, LogTable)])
def test_each_goes_on_where_the_other_stopped(tmp_path: Path, writer: type, reader: type) -> None:
    created(writer, tmp_path / "t")
    commit(writer(str(tmp_path / "t")), "a", 7)
    table = reader(str(tmp_path / "t"))
    assert (table.version(), table.transaction_version("a")) == (1, 7)
    assert table.metadata().configuration == {"streamjoin.joinId": "j"}
    assert table.schema() == writer(str(tmp_path / "t")).schema()
    commit(table, "a", 8)
    assert writer(str(tmp_path / "t")).transaction_version("a") == 8


@pytest.mark.parametrize("seed", [3, 8])
def test_delta_rs_reads_the_tables_of_a_run(seed: int) -> None:
    with simulated(random_schedule(seed)) as world:
        assert not violations(world)
        tables = TableSet(world.plan.table_root)
        rows = scanned(DeltaTable(tables.matches)).to_table().to_pylist()
        expected = [(result["l_seq"], result["r_seq"]) for result in world.case.results]
        assert sorted((row["l_seq"], row["r_seq"]) for row in rows) == expected
        for name in TableSet.names():
            assert DeltaTable(tables.path_of(name)).version() >= 0


@pytest.mark.parametrize("seed", range(24))
def test_schedules_are_exact_over_delta_rs_itself(seed: int) -> None:
    with simulated(random_schedule(seed), "delta-rs") as world:
        assert not violations(world), f"{world.schedule}\n{violations(world)}"


@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("kind", ["crash", "freeze"])
def test_crash_points_over_delta_rs_itself(kind: str, point: str) -> None:
    fault = Fault(kind, 1, *CRASH_POINTS[point], delay=25 if kind == "freeze" else 0)
    schedule = replace(random_schedule(8), source="listed", faults=(fault,))
    with simulated(schedule, "delta-rs") as world:
        assert world.fired == [fault]
        assert not violations(world), f"{world.schedule}\n{violations(world)}"
