"""The suite with made-up sides: wrong counts are found, and missing data and packages are named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

from streamjoin_ds.errors import ArgumentError, DependencyMissingError
from tests.bench.suites.oracle import count_matches
from tests.bench.suites.paths import suite
from tests.bench.suites.paths.inputs import SlicedInput
from tests.bench.suites.paths.side_process import SideRun
from tests.bench.suites.paths.suite import Settings, measure
from tests.bench.suites.processes import BenchError
from tests.bench.suites.sides import OURS, SIDES, Outcome
from tests.bench.suites.workloads import make_workload

_ROWS = 2_000


class FakeProcess:
    """A side's process that answers at once; its counts are right unless `lies` changes them."""

    lies: ClassVar[dict[str, Callable[[Outcome], Outcome]]] = {}
    tasks: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, side, log_path):
        self.side = side

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, task, within_s):
        self.tasks.append((self.side, task.slices))
        given = SlicedInput.load(task.input_folder)
        join = make_workload(task.workload, None, task.generated_rows).join
        matches = count_matches(join, *(given.table(stream, task.slices) for stream in given.streams))
        until_us = None if self.side == OURS else given.ends_us[task.slices - 1]
        outcome = Outcome(given.row_count(task.slices), matches, 0.5, 1, until_us)
        return SideRun(self.lies.get(self.side, lambda truth: truth)(outcome), 1.0, 10.0)


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # a bench that fails leaves its log in the temporary folder
    monkeypatch.setattr(suite, "SideProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "lies", {})
    monkeypatch.setattr(FakeProcess, "tasks", [])
    return FakeProcess


def _measured(**settings):
    said = []
    settings = Settings(**{"runs": 2, "generated_rows": _ROWS} | settings)
    return measure(["band2d-small"], settings, said.append), said


def test_sides_run_in_turn_after_a_run_that_does_not_count(fake):
    [result], said = _measured()
    assert {side: len(runs) for side, runs in result.runs.items()} == dict.fromkeys(SIDES, 2)
    assert [side for side, _ in fake.tasks] == list(SIDES) * 3
    # The peers warm up on the first slice only.
    assert [slices for _, slices in fake.tasks[: len(SIDES)]] == [8, *[1] * (len(SIDES) - 1)]
    assert sum("warm-up" in line for line in said) == len(SIDES)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("wrong", ["rows", "matches"])
def test_a_wrong_count_fails_the_bench(fake, side, wrong):
    fake.lies[side] = lambda truth: replace(truth, **{wrong: getattr(truth, wrong) + 1})
    with pytest.raises(BenchError, match=f"{side} gives .* {wrong} on band2d-small") as failed:
        _measured()
    assert failed.value.name == side


def test_a_wrong_count_in_a_later_run_fails_it_too(fake):
    fake.lies["duckdb"] = lambda truth: replace(truth, matches=truth.matches + (truth.rows == 2 * _ROWS))
    with pytest.raises(BenchError, match="duckdb gives"):
        _measured(peers=("duckdb",))


def test_data_that_are_not_what_is_known_fail_it(monkeypatch):
    known = make_workload("band2d-small", None, _ROWS)
    monkeypatch.setattr(suite, "make_workload", lambda *_: replace(known, matches=1))
    with pytest.raises(BenchError, match="but 1 are known"):
        _measured()


def test_recorded_data_that_are_not_there_are_told_of(tmp_path):
    said = []
    assert measure(["flights", "air"], Settings(1, data=tmp_path), said.append) == []
    assert [line.partition(":")[0] for line in said] == ["flights", "air"]


def test_unknown_names_are_refused_before_anything_runs(fake):
    with pytest.raises(ArgumentError, match="no workload 'x'"):
        measure(["band2d-small", "x"], Settings(1, generated_rows=_ROWS), lambda line: None)
    assert fake.tasks == []
    with pytest.raises(ArgumentError, match="no peer 'flink'"):
        Settings(1, peers=("flink",))
    with pytest.raises(ArgumentError, match="at least one run"):
        Settings(0)


@pytest.mark.parametrize("package", ["psutil", "duckdb"])
def test_a_missing_package_names_the_extra(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DependencyMissingError, match="make bench") as missing:
        _measured()
    assert missing.value.name == package
