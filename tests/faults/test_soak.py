"""Twenty seconds of the soak, with most kinds of faults; ``python -m tests.faults.soak`` runs it for longer."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable, write_deltalake

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spark.release import has_admission
from tests.faults.soak.comparison import differences, stretches
from tests.faults.soak.consumer import Consumer
from tests.faults.soak.faults import FAULTS
from tests.faults.soak.feeder import Feeder
from tests.faults.soak.life import Life
from tests.faults.soak.poison import RESTS, Poison
from tests.faults.soak.power import Power, write_down
from tests.faults.soak.rows import _FUTURE, DELAY_US, START_US, TICK_US, Recorded, give_kind, soak_join
from tests.faults.soak.run import Soak
from tests.faults.soak.settings import drawn
from tests.faults.soak.worker import _cell, _read
from tests.support.kinds import KINDS, SCHEMA, Kind, facts_of

SECONDS = 20.0


@pytest.mark.spark
@pytest.mark.skipif(not has_admission(), reason="its driver asks as Spark 4.2 does")
def test_some_seconds_of_faults(tmp_path):
    # "full" needs a file system of its own, which the long soak has.
    breaks = tuple(fault for fault in FAULTS if fault != "full")
    (work := tmp_path / "work").mkdir()
    soak = Soak(
        work, tmp_path / "input", seconds=SECONDS, fault_every_s=SECONDS / 8, seed=1, kind="full", breaks=breaks,
        least_faults=3, least_batches=11,
    )  # fmt: skip
    verdict = soak.run()
    assert not verdict.violations, "\n".join(verdict.violations)
    assert len(verdict.faults) >= 3  # each kind comes once before one comes again
    assert verdict.batches > 10  # an idle machine does hundreds
    assert verdict.results > 0


def fed(folder: Path, kind: Kind, seed: int = 1) -> Feeder:
    """Return what was fed while a stream was silent for a time."""
    feeder = Feeder(folder, seed, kind)
    for turn in range(14):
        if turn == 6:
            feeder.fall_silent(kind.names[-1])
        if turn == 10:
            feeder.come_back()
        feeder.step()
    return feeder


def ends_of(feeder: Feeder) -> list[dict[str, int]]:
    """Return the ends of batches over what was fed: some of each stream in each."""
    sizes = {name: len(side) for name, side in feeder.recorded.items()}
    return [{name: size * batch // 7 for name, size in sizes.items()} for batch in range(1, 8)]


_QUICK = ("left", "nearest", "unique", "partitions", "devices", "count")


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.long) for name in KINDS]
)
def test_what_it_expects_is_the_contracts_answer_over_all_that_was_fed(tmp_path, name):
    """The contract says itself what is late and what repeats; a stretch is asked about what was written as stored."""
    kind = KINDS[name]
    feeder = fed(tmp_path / "input", kind)
    ends, recorded = ends_of(feeder), feeder.recorded
    parts = list(stretches(kind, recorded, ends))
    assert len(parts) > 2
    found = [row for part in parts for row in part.results(kind)]
    rows = {one: side.at(range(len(side))) for one, side in recorded.items()}
    of = {one: [side.partition_of(row["id"]) for row in rows[one]] for one, side in recorded.items()}
    whole = kind.results(
        kind.join("", delay=f"{DELAY_US}us"),
        rows,
        ends=ends,
        until_us=min(side.largest_us for side in recorded.values()) - DELAY_US,
        partitions=of if kind.form == "folder" else {},
    )
    assert len(whole) > 20
    assert facts_of(found) == facts_of(whole)


class InOneProcess(Life):
    """A life whose driver does all tasks itself."""

    def _new_worker(self):
        return None

    def _done(self, tasks):
        ways = {"read": lambda *given: _read(self.reader, *given), "cell": lambda *given: _cell(self.plan, *given)}
        return [ways[kind](*given) for kind, *given in tasks]


def test_a_result_that_is_lost_or_there_twice_is_told(tmp_path):
    feeder = fed(tmp_path / "input", KINDS["reduce"])
    give_kind(tmp_path / "input", "reduce")
    (work := tmp_path / "work").mkdir()
    (work / "input").symlink_to(tmp_path / "input")
    (work / "drain").touch()
    life = InOneProcess(work, **drawn(random.Random(1), feeder.kind, execution={}, durable=False))
    life.run()
    life.lock.give_up()
    consumer = Consumer(work / "matches")
    assert consumer.read_on() > 100
    assert differences(work, feeder, Counter(), consumer, 1) == []
    consumer.followed.append(consumer.followed.pop(0))
    matches = scanned(DeltaTable(str(work / "matches"))).to_table()
    gone = matches["l_id"][3].as_py()
    write_deltalake(str(work / "matches"), matches.slice(4, 1), mode="append")
    DeltaTable(str(work / "matches")).delete(f"l_id = {gone}")
    told = differences(work, feeder, Counter({("l", "bad.csv"): 1}), consumer, 1)
    assert [text.split(";")[0] for text in told[:1]] == ["the follower gave results out of order"]
    assert "lost 1 [" in told[1]
    assert f"l_id={gone}.0" in told[1]
    assert "surplus 1 [" in told[1]
    assert told[2:] == ["the rejects lack files {('l', 'bad.csv'): 1}, and have {}"]


def test_what_comes_back_is_not_late(tmp_path):
    feeder = Feeder(tmp_path, 1, KINDS["left"])
    feeder.fall_silent("l")
    for _ in range(50):
        feeder.step()
    before, first = len(feeder.recorded["l"]), feeder.recorded["r"].largest_us
    feeder.come_back()
    back = feeder.recorded["l"]
    stored = np.array(back.times_us)[back.has_fate("stored")][before:]
    assert len(stored) > 0
    assert stored.min() >= first - DELAY_US


def test_a_record_from_the_future_comes_after_one_that_moves_the_clock() -> None:
    """A busy machine may let a stream seem silent at any step: then a record is measured against nothing until then."""
    recorded, dice, found = Recorded(KINDS["left"], "l"), np.random.default_rng(1), 0
    for step in range(3_000):
        recorded.pause()
        has_moved = False
        for number in range(10):
            before = recorded.largest_us
            (record,) = recorded.next(dice, START_US + (10 * step + number) * TICK_US)
            is_future = record["ts"] == _FUTURE
            assert has_moved or not is_future
            found += is_future
            has_moved |= recorded.largest_us > before
    assert found > 10


@pytest.mark.parametrize("kind", RESTS)
def test_what_is_read_of_a_bad_file_is_told(tmp_path, kind):
    feeder = Feeder(tmp_path / "input", 1, KINDS["left"])
    give_kind(tmp_path / "input", "left")
    feeder.step()
    poison = Poison(feeder, random.Random(1))
    poison.drop("l", kind)
    feeder.step()
    feed = open_feed(soak_join(str(tmp_path / "input")).streams[0], SCHEMA)
    assert feed.frontier(feed.initial(), 1000).rows == len(feeder.recorded["l"])
    assert poison.dropped.total() == 1


def test_a_file_changes_only_after_it_was_read_whole(tmp_path):
    feeder = Feeder(tmp_path / "input", 1, KINDS["left"])
    give_kind(tmp_path / "input", "left")
    poison = Poison(feeder, random.Random(1))
    feeder.step()
    assert poison.later("l") == ("late",)
    feeder.next_file("l")
    feeder.step()
    assert poison.later("l") == ("late", "changed")


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
