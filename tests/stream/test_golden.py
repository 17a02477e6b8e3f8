"""This version reads the checkpoints of earlier versions and goes on with them: same windows, same results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from tests.golden.make import FOLDER, batches, gone_on, held

VERSIONS = sorted(path.name for path in FOLDER.iterdir() if (path / "expected.json").exists())


def test_there_is_one_of_this_format() -> None:
    assert "v1" in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_of_a_version_goes_on(version: str, tmp_path: Path) -> None:
    kept = FOLDER / version
    expected = json.loads((kept / "expected.json").read_text())
    query = batches(tmp_path / "checkpoint")
    shutil.copy(kept / "join.json", query.folder)
    shutil.copytree(kept / "blocks", query.plan.state_root)
    identity = CheckpointIdentity.load(query.folder)
    assert identity is not None
    identity.check(query.bound)
    assert identity.bound.fingerprint == query.bound.fingerprint
    query.states = {cell: (kept / f"state-{cell}.bin").read_bytes() for cell in range(query.layout.cells)}
    query.offset = json.loads((kept / "offset.json").read_text())
    query.batch_id = expected["batch_id"]
    assert held(query) == expected["held"]
    assert all(any(cell) for cell in expected["held"])
    results = gone_on(query)
    assert len(results) > 100
    assert results == expected["results"]
