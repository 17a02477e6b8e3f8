"""The bookkeeping of the kill campaign; its kills of real processes are tried by `test_driver_kill`."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.faults import campaign
from tests.faults.campaign import EXACT, Round, layout_of, main, places, rounds_in
from tests.faults.driver import POINTS
from tests.faults.test_driver_kill import BATCHES
from tests.support.kinds import EVERY


def test_a_rounds_kills_are_a_function_of_seed_and_number() -> None:
    assert list(places(random.Random("1 3"))) == list(places(random.Random("1 3")))
    drawn = [list(places(random.Random(f"1 {number}"))) for number in range(200)]
    assert {point for kills in drawn for point, _ in kills} == set(POINTS)
    assert {batch for kills in drawn for _, batch in kills} == set(range(BATCHES))
    assert any(len(kills) > BATCHES for kills in drawn)  # some kills come while a batch is done anew
    for kills in drawn:
        for (point, batch), (following, then) in pairwise(kills):
            assert batch <= then <= batch + 1
            assert (point, following) != ("after_batch", "planning")  # the next batch was planned before that kill


def test_every_second_round_changes_its_cells_and_their_kind() -> None:
    rounds = [Round(1, number, "drivers", join=[*EVERY][(number - 1) % len(EVERY)]) for number in range(1, 100)]
    layouts: dict[str, set[str]] = {}
    for one in rounds:
        seen = set()
        for batch in range(50):
            one.kills.append(("planning", batch))
            seen.add(layout_of(one))
        layouts[one.join] = layouts.get(one.join, set()) | seen
        assert seen in ({EVERY[one.join].layouts[0]}, {*EVERY[one.join].layouts})
    assert len(EVERY) % 2  # otherwise half of the kinds would keep their layouts in every turn
    assert layouts == {
        name: {*kind.layouts} for name, kind in EVERY.items()
    }  # every kind is met with layouts that change


def ran(
    monkeypatch: pytest.MonkeyPatch, log: Path, *lives: subprocess.CompletedProcess[str], sleepers: int = 0
) -> tuple[int, str]:
    """Return status and output of a campaign of 15 worker kills whose processes end as given."""
    left = list(lives)
    monkeypatch.setattr("tempfile.tempdir", str(log.parent))
    monkeypatch.setattr(campaign, "run_driver", lambda *armed, **of_kind: left.pop(0))
    monkeypatch.setattr(campaign, "undisturbed_run", lambda seed, join, root: root / join)
    monkeypatch.setattr(campaign, "assert_as_undisturbed", lambda table, undisturbed, planned_anew: None)
    monkeypatch.setattr(campaign, "rows", lambda table: [{}] * 7)
    result = CliRunner().invoke(
        main, ["--drivers=0", "--workers=15", "--servers=0", f"--sleepers={sleepers}", "--seed=4", f"--log={log}"]
    )
    assert not left
    return result.exit_code, result.output


def life(code: int, out: str = "", errors: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, out, errors)


TEN = life(0, "killed 2 that waited and 3 at work\nkilled 4 that waited and 1 at work\nfinished")


def test_a_campaign_goes_on_after_the_rounds_in_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(asdict(Round(5, 1, "workers", [("working worker", 99)], EXACT))) + "\n")
    starved = life(1, "", "... Python worker failed to connect back. ...")
    code, output = ran(monkeypatch, log, TEN, starved, TEN)
    assert code == 0, output
    (first, second) = rounds_in(log, 4)
    assert (first.number, first.outcome, first.starved, first.matches) == (1, EXACT, 0, 7)
    assert dict(first.counts()) == {"waiting worker": 6, "working worker": 4}
    assert (second.number, second.outcome, second.starved) == (2, EXACT, 1)
    assert "20 kills in 2 rounds" in output
    code, output = ran(monkeypatch, log)
    assert code == 0
    assert "20 kills in 2 rounds" in output


def test_drivers_that_sleep_are_rounds_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slept: list[int] = []
    monkeypatch.setattr(campaign, "sleep_through", lambda *paths, **of_kind: slept.append(paths[-1]))
    log = tmp_path / "log.jsonl"
    code, output = ran(monkeypatch, log, TEN, TEN, sleepers=12)
    assert code == 0, output
    assert "32 kills in 14 rounds" in output
    asleep = [one for one in rounds_in(log, 4) if one.kind == "sleepers"]
    assert [one.kills for one in asleep] == [[["asleep", batch]] for batch in slept]
    assert len(slept) == 12
    assert len(set(slept)) > 1


def test_a_round_that_is_not_exact_ends_it_for_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    code, output = ran(monkeypatch, log, life(1, "", "BLOCK_CORRUPT: ..."))
    assert code == 1
    assert "kept: " in output
    assert "BLOCK_CORRUPT" in rounds_in(log, 4)[0].outcome
    code, output = ran(monkeypatch, log)
    assert code == 1
    assert "not exact" in output
