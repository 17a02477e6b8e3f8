"""How many cores this process has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamjoin_ds.engine import core_lease as module
from streamjoin_ds.engine.core_lease import usable_core_count


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_cores_follow_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_core_count() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert 1 <= usable_core_count() <= len(allowed)


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (1.5, 2), (0.2, 1), (64.0, 4)])
def test_a_quota_counts_where_it_is_less(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(module, "control_group_cores", lambda: quota)
    assert usable_core_count() == cores


@pytest.mark.parametrize(("text", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("torn", None)])
def test_control_group_limit(tmp_path: Path, text: str, cores: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert module._cpu_max(tmp_path / "cpu.max") == cores
    assert module._cpu_max(tmp_path / "absent") is None
