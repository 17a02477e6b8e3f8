"""What a recovery refuses: each reason on its own, so that `repair` mends one and still sees the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamjoin_ds.checkpoint import recovery
from streamjoin_ds.errors import RecoveryError
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.tail import LogTail


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, *, refusal: str) -> recovery.Recovery:
    """Return the plan for a checkpoint whose second offsets are torn, and tables that hold that batch."""
    (folder / "metadata").write_text(json.dumps({"id": "0" * 36}))
    for name, texts in (("offsets", ("v1\n{}\n{}", "v1\n{")), ("commits", ("v1\n{}",))):
        (folder / name).mkdir()
        for number, text in enumerate(texts):
            (folder / name / str(number)).write_text(text)

    def tail(path: str) -> LogTail:
        torn = ("00000000000000000009.json",) if refusal else ()
        return LogTail(path, 8, 1, torn, refusal=refusal)

    monkeypatch.setattr(recovery, "tail_of", tail)
    return recovery.planned_recovery(folder, TableSet(str(folder / "matches")), 0)


def test_offsets_that_are_torn_stop_a_restart_and_are_for_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, monkeypatch, refusal="")
    assert found.torn_offsets == "the offsets of batch 1 are torn, and the tables hold batches up to 1"
    assert not found.refusal
    with pytest.raises(RecoveryError, match="offsets of batch 1 are torn"):
        found.carry_out()


def test_a_change_that_no_join_made_is_refused_though_offsets_are_torn_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, monkeypatch, refusal="after that comes a change that no join made")
    assert "a change that no join made" in found.refusal
    assert found.torn_offsets
    with pytest.raises(RecoveryError, match="no join made"):
        found.carry_out()
