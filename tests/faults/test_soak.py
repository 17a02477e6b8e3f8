"""Half a minute of the soak, with most kinds of faults; ``python -m tests.faults.soak`` runs it for longer."""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.source.feeds import open_feed
from tests.faults.soak.faults import FAULTS
from tests.faults.soak.feeder import Feeder
from tests.faults.soak.poison import RESTS, Poison
from tests.faults.soak.power import Power, write_down
from tests.faults.soak.rows import ALONE, DELAY_US, Recorded, expected, soak_join
from tests.faults.soak.run import Soak

SECONDS = 30.0


@pytest.mark.spark
def test_half_a_minute_of_faults(tmp_path):
    # "full" needs a file system of its own, which the long soak has.
    kinds = tuple(kind for kind in FAULTS if kind != "full")
    (work := tmp_path / "work").mkdir()
    soak = Soak(work, tmp_path / "input", seconds=SECONDS, fault_every_s=SECONDS / 8, seed=1, kinds=kinds)
    verdict = soak.run()
    assert not verdict.violations, "\n".join(verdict.violations)
    assert len(verdict.faults) >= 3  # an idle machine has time for each kind once; a busy one for fewer
    assert verdict.batches > 10  # an idle machine does hundreds
    assert verdict.results > 0


@pytest.mark.parametrize("seed", range(3))
def test_its_oracle_is_the_nested_loop(tmp_path, seed):
    feeder = Feeder(tmp_path, seed, 20)
    for _ in range(20):
        feeder.step()
    feeder.fall_silent("w")
    for _ in range(3):
        feeder.step()
    feeder.come_back()
    left, right = feeder.recorded["e"], feeder.recorded["w"]
    pairs = [
        (one, other, max(left.times_us[one], right.times_us[other]))
        for one in range(len(left))
        for other in range(len(right))
        if left.is_stored[one] and right.is_stored[other] and left.keys[one] >= 0 and right.keys[other] >= 0
        if abs(left.times_us[one] - right.times_us[other]) <= 2_000_000 and abs(left.keys[one] - right.keys[other]) <= 1
    ]
    assert expected(left, right).tolist() == [list(pair) for pair in sorted(pairs)]
    until_us = min(left.largest_us, right.largest_us) - DELAY_US
    alone = [
        [
            (number, ALONE, side.times_us[number]) if side is left else (ALONE, number, side.times_us[number])
            for number in range(len(side))
            if side.is_stored[number] and number not in {pair[place] for pair in pairs}
            if side.times_us[number] + 2_000_000 < until_us
        ]
        for place, side in enumerate((left, right))
    ]
    assert all(alone)
    for how, rows in {"left": alone[0], "right": alone[1], "full": alone[0] + alone[1]}.items():
        assert expected(left, right, how, until_us).tolist() == [list(row) for row in sorted(pairs + rows)]


def test_what_comes_back_is_not_late(tmp_path):
    feeder = Feeder(tmp_path, 1, 20)
    feeder.fall_silent("e")
    for _ in range(50):
        feeder.step()
    before, first = len(feeder.recorded["e"]), feeder.recorded["w"].largest_us
    feeder.come_back()
    back: Recorded = feeder.recorded["e"]
    stored = np.array(back.times_us[before:])[np.array(back.is_stored[before:], bool)]
    assert len(stored) > 0
    assert stored.min() >= first - DELAY_US


@pytest.mark.parametrize("kind", RESTS)
def test_what_is_read_of_a_bad_file_is_told(tmp_path, kind):
    feeder = Feeder(tmp_path / "input", 1, 20)
    feeder.step()
    poison = Poison(feeder, random.Random(1))
    poison.drop("e", kind)
    feeder.step()
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    feed = open_feed(soak_join(str(tmp_path / "input")).streams[0], schema)
    assert feed.frontier(feed.initial(), 1000).rows == len(feeder.recorded["e"])
    assert poison.dropped.total() == 1


def test_a_power_cut_takes_what_was_not_forced(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", os.fsync)  # undone after the test: `write_down` puts another function in its place
    left = set()
    for seed in range(20):
        (folder := tmp_path / str(seed) / "checkpoint").mkdir(parents=True)
        (folder / "old").write_text("old")
        power = Power(folder.parent)
        write_down(folder.parent)
        for path in (folder / "forced", folder):
            if path != folder:
                path.write_text("forced")
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        (folder / "new").write_text("new")
        power.cut(random.Random(seed))
        assert (folder / "old").read_text() == "old"
        assert (folder / "forced").read_text() == "forced"
        left.add((folder / "new").read_text() if (folder / "new").exists() else None)
        power.end()
        assert sorted(path.name for path in folder.parent.iterdir()) == ["checkpoint"]
    assert {None, "", "new"} <= left
