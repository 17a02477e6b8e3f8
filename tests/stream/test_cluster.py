"""Two machines: two workers of a standalone cluster, one of them blind or killed, give the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from tests.support.cluster import cluster, may_mount
from tests.support.kinds import KINDS, facts_of
from tests.support.microbatch import MicroBatches

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240


@dataclass(frozen=True)
class Standalone:
    """A cluster for all tests; one of its workers may not see all of a test's folder."""

    master: str
    root: Path

    def folder(self, name: str) -> Path:
        """Return the folder of one test."""
        (self.root / name).mkdir(exist_ok=True)
        return self.root / name


# Folders that the second worker does not see.
BLIND_TO = ("no-checkpoint/ckpt/exchange", "no-checkpoint/ckpt/blocks", "no-table/matches")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    root = tmp_path_factory.mktemp("standalone")
    hidden = [root / name for name in BLIND_TO] if may_mount() else []
    for folder in hidden:
        folder.mkdir(parents=True)
    with cluster(root / "cluster") as made:
        made.add_worker()
        made.add_worker(*hidden)
        yield Standalone(made.master, root)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, int]]:
    from streamjoin_ds.plan import Layout
    from streamjoin_ds.source.stream_source import infer_schema
    from streamjoin_ds.spec import bind
    from tests.faults.driver import join

    asked = join()
    bound = bind(asked, {stream.name: infer_schema(stream) for stream in asked.streams})
    return pairs(MicroBatches(bound, tmp_path_factory.mktemp("model") / "c", Layout((1, 1))).run())


def pairs(table) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    return sorted(zip(table["r_seq"].to_pylist(), table["s_seq"].to_pylist(), strict=True))


def submitted(standalone: Standalone, folder: Path, **options: object) -> dict[str, object]:
    """Run the driver in a process of its own; return the facts that it prints at its end."""
    command = [sys.executable, "-m", "tests.stream.cluster_driver", standalone.master, str(folder), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=ROOT)
    assert done.stdout, done.stderr[-3000:]
    facts: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return facts


def found(folder: Path) -> list[tuple[int, int]]:
    return pairs(scanned(DeltaTable(str(folder / "matches"))).to_table())


def test_two_workers_and_one_executor_killed_on_the_way(
    standalone: Standalone, expected: list[tuple[int, int]]
) -> None:
    folder = standalone.folder("all-is-seen")
    facts = submitted(standalone, folder, kill_in_batch=1)
    assert facts["error"] is None
    assert facts["killed"]
    assert facts["exchange"] == "reference"
    assert facts["blocks"]
    assert found(folder) == expected


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["full", "reduce", "partitions", "table"])
def test_executors_that_are_lost_while_cells_are_at_work(standalone: Standalone, kind: str) -> None:
    """What the cells had not fetched is lost with an executor: stages are tried again, and each row comes once.

    A table beside the streams has another version for each batch, and a batch that is tried again joins its own.
    """
    folder = standalone.folder(f"lost-{kind}")
    KINDS[kind].give_input(folder / "in")
    facts = submitted(standalone, folder, kind=kind, kills=3)
    assert facts["error"] is None
    assert facts["killed"]
    matches = scanned(DeltaTable(str(folder / "matches"))).to_table()
    assert facts_of(matches.to_pylist()) == KINDS[kind].expected(folder / "in")
    if KINDS[kind].has_table:
        versions = {row["z_zone"].split()[-1] for row in matches.to_pylist()}
        assert versions == {str(batch) for batch in range(KINDS[kind].batches)}


@pytest.mark.campaign
@pytest.mark.skipif(not may_mount(), reason="a mount namespace takes root")
def test_a_worker_that_does_not_see_the_checkpoints_files(
    standalone: Standalone, expected: list[tuple[int, int]]
) -> None:
    folder = standalone.folder("no-checkpoint")
    facts = submitted(standalone, folder)
    assert facts["error"] is None
    assert facts["exchange"] == "packed"
    assert not facts["blocks"]
    assert found(folder) == expected


@pytest.mark.long
@pytest.mark.skipif(not may_mount(), reason="a mount namespace takes root")
def test_an_exchange_that_a_worker_does_not_see_is_refused(standalone: Standalone) -> None:
    folder = standalone.folder("no-checkpoint")
    refused = submitted(standalone, folder / "other", exchange="reference", hide=str(folder / "ckpt"))
    assert "does not see the exchange's folder" in str(refused["error"])


@pytest.mark.long
@pytest.mark.skipif(not may_mount(), reason="a mount namespace takes root")
def test_a_worker_that_does_not_see_the_table(standalone: Standalone) -> None:
    folder = standalone.folder("no-table")
    facts = submitted(standalone, folder)
    assert "does not see the folder of the table" in str(facts["error"])
    assert not list((folder / "matches").glob("*.parquet"))
