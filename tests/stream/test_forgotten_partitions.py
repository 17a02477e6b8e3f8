"""Partitions that were read to their ends: they leave the offset and the ledger, and no tuple depends on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.checkpoint.batch_end import Ends
from streamjoin_ds.errors import BlockMissingError, FileChangedError, OffsetError
from streamjoin_ds.source import partitions
from streamjoin_ds.source.files.file_feed import FilePartitions
from streamjoin_ds.source.partitioned_position import Forgotten, PartitionedPosition
from tests.stream.test_partitions import Devices


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget so many partitions together: fewer than in earnest."""
    monkeypatch.setattr(partitions, "_TOGETHER", 8)


class Waves(Devices):
    """Devices that send once, a wave after the other, beside one that goes on. The next wave finds one idle."""

    def __init__(self, folder: Path, **facts: Any) -> None:
        super().__init__(folder, idle_timeout="5s", **facts)
        self.waves = 0

    def wave(self, count: int) -> None:
        """Have so many new devices send a row each, and run the batch."""
        self.waves += 1
        self.now_s = 10.0 * self.waves
        for number in range(count):
            self.put(f"d{self.waves:03d}-{number}", (self.now_s, number % 3))
        self.put("live", (self.now_s, 1))
        self.put("", (self.now_s, 1))
        assert self.step()

    @property
    def forgotten(self) -> Forgotten:
        position = PartitionedPosition.from_facts(self.micro.offset["streams"]["l"], "l")
        return position.forgotten

    def decided(self) -> list[dict[str, Any]]:
        """Return what the ledger says was decided about stream `l`, by batch."""
        rows = self.micro.companion("ledger").sort_by("batch_id").to_pylist()
        return [json.loads(row["decided"]) for row in rows if row["stream"] == "l"]


def test_offset_and_ledger_do_not_grow_with_the_partitions_that_were_read_to_their_ends(tmp_path: Path) -> None:
    run = Waves(tmp_path)
    sizes = []
    for _ in range(12):
        run.wave(8)
        sizes.append((len(json.dumps(run.micro.offset)), len(json.dumps(run.decided()[-1]))))
    assert run.forgotten.numbers > 75
    assert run.forgotten.count > 75
    offsets, ledgers = zip(*sizes, strict=True)
    assert max(offsets[2:]) < offsets[1] * 1.2  # those that came, and those of two waves before
    assert max(ledgers[2:]) < ledgers[1] * 1.1  # those that came, and those that fell silent
    assert all("position" not in decided for decided in run.decided()[1:])
    run.now_s += 10
    for _ in range(2):
        run.put("live", (run.now_s, 1))
        assert run.step()
    assert len(json.dumps(run.micro.offset)) < 1_500
    assert len(json.dumps(run.decided()[-1])) < 500
    assert len(run.forgotten.blocks) <= 4
    run.check(run.rows)


def test_a_block_goes_when_no_offset_needs_it_and_those_that_stay_have_all(tmp_path: Path) -> None:
    run = Waves(tmp_path)
    run.micro.retain_batches = 2
    run.micro._connect()
    run.restart()
    for _ in range(9):
        run.wave(8)
    kept = BlockStore(str(tmp_path / "forgotten"))
    assert set(dict(run.forgotten.blocks)) < set(kept.names()) < {*kept.names(), "l/8"}
    names = [name for block, _ in run.forgotten.blocks for name in kept.read(block)["name"].to_pylist()]
    assert len(names) == len(set(names)) == run.forgotten.count
    for _ in range(6):
        run.wave(0)
    assert len(kept.names()) <= len(run.forgotten.blocks) + 1
    run.check(run.rows)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_goes_on_comes_back_with_its_number_where_it_was(tmp_path: Path, restarts: bool) -> None:
    run = Waves(tmp_path)
    run.wave(10)
    before = run.partitions()["d001-7.csv"]
    for _ in range(2):
        run.wave(1)
    assert "d001-7.csv" not in run.partitions()
    if restarts:
        run.restart()
    run.put("d001-7", (19, 1), (31, 2))  # older than the watermark, and not
    run.now_s += 1
    assert run.step()  # it comes back
    at = run.partitions()["d001-7.csv"]
    assert (at["number"], at["at"], at["clock"]["idle"]) == (before["number"], before["at"], True)
    assert run.micro.companion("ledger").sort_by("batch_id")["read"].to_pylist()[-2:] == [0, 0]
    assert run.step()
    at = run.partitions()["d001-7.csv"]
    assert at["at"]["seq"] == 3
    assert "idle" not in at["clock"]
    late = [row["seq"] for row in run.micro.companion("late").to_pylist()]
    assert late == [(before["number"] << 40) + 1]
    run.wave(10)
    for _ in range(2):
        run.wave(1)
    assert "d001-7.csv" not in run.partitions()  # it is forgotten again, and read no more
    run.check(run.rows)


def test_a_name_that_was_forgotten_is_no_new_partition_and_a_number_is_given_once(tmp_path: Path) -> None:
    run = Waves(tmp_path)
    run.wave(10)
    run.wave(1)
    run.wave(1)
    assert run.forgotten.count >= 8
    file = tmp_path / "l" / "d001-3.csv"
    text = file.read_text()
    file.unlink()  # what is forgotten may go
    run.restart()
    run.wave(1)
    assert run.partitions()["d004-0.csv"]["number"] == 13
    file.write_text(text)
    run.wave(1)
    assert run.partitions()["d005-0.csv"]["number"] == 14
    run.check(run.rows)
    file.write_text(text.replace(",", ",9"))
    with pytest.raises(FileChangedError, match=r"d001-3\.csv"):
        run.wave(1)


def test_partitions_that_vanished_are_forgotten_too(tmp_path: Path) -> None:
    run = Waves(tmp_path, options={"missing_files": "ignore"})
    run.wave(10)
    for number in range(10):
        (tmp_path / "l" / f"d001-{number}.csv").unlink()
    for _ in range(3):
        run.wave(1)
    assert not [name for name in run.partitions() if name.startswith("d001")]
    run.check(run.rows)


def test_a_query_that_ends_with_the_input_that_is_there_reads_what_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilePartitions, "looks", 1)
    run = Waves(tmp_path)
    run.wave(10)
    run.wave(1)
    run.wave(1)
    for number in (3, 9):
        run.put(f"d001-{number}", (run.now_s, 1))
    run.restart()
    run.micro.reader.prepareForTriggerAvailableNow()
    while run.step():
        pass
    run.check(run.rows)


def test_a_replay_of_the_batch_in_which_one_comes_back_reads_nothing_of_it(tmp_path: Path) -> None:
    run = Waves(tmp_path)
    run.wave(10)
    run.wave(1)
    run.wave(1)
    run.put("d001-7", (31, 1))
    run.put("live", (31, 1))
    start = run.micro.offset
    assert run.step()
    end = run.micro.offset
    assert "d001-7.csv" in run.partitions()
    run.restart()  # another process does the batch again
    tasks = [task for task in run.micro.reader.planner.tasks(start, end) if task.stream == 0]
    assert [list(task.end["partitions"]) for task in tasks] == [["live.csv"]]
    assert run.micro.reader.partitions(end, end) == []


def test_a_block_that_is_lost_is_named_before_anything_is_read_again(tmp_path: Path) -> None:
    run = Waves(tmp_path)
    run.wave(10)
    run.wave(1)
    run.wave(1)
    for block, _ in run.forgotten.blocks:
        (tmp_path / "forgotten" / block).unlink()
    run.restart()
    with pytest.raises(BlockMissingError, match="l/"):
        run.wave(1)


@pytest.mark.parametrize("first", [-1, 0, 2])
def test_the_ledger_tells_the_positions_of_batches_whose_offsets_are_lost(
    tmp_path: Path, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_TOGETHER", 2)
    run = Waves(tmp_path)
    for count in (5, 1, 2, 0, 3):
        run.wave(count)
    assert run.forgotten.blocks
    rows = {(row["batch_id"], row["stream"]): row for row in run.micro.companion("ledger").to_pylist()}
    ends = Ends(run.micro.bound, None if first < 0 else run.offsets[first])
    for batch in range(first + 1, 5):
        for name in "lr":
            assert not ends.move(name, rows[batch, name])
        told = PartitionedPosition.from_facts(ends.offset()["streams"]["l"], "l")
        right = PartitionedPosition.from_facts(run.offsets[batch]["streams"]["l"], "l")
        assert told.seq == right.seq
        assert told.next_number == right.next_number
        assert right.partitions.items() <= told.partitions.items()  # what was forgotten since stands there still
    run.micro.offset = json.loads(json.dumps(ends.offset()))
    run.offsets[-1] = run.micro.offset
    run.restart()
    for count in (1, 1):
        run.wave(count)
    run.check(run.rows)


def test_an_offset_that_tells_nothing_of_forgotten_ones_is_refused(tmp_path: Path) -> None:
    for blocks in ([["a"]], "a", None, [["a", "b"]], [5]):
        facts = {"blocks": blocks, "numbers": 1, "time": None}
        with pytest.raises(OffsetError, match="forgotten"):
            PartitionedPosition.from_facts({"seq": 0, "partitions": {}, "forgotten": facts}, "l")
    whole = {"seq": 0, "partitions": {}, "forgotten": {"blocks": [["l/1-a.arrow", 3]], "numbers": 5, "time": 7}}
    position = PartitionedPosition.from_facts(whole, "l")
    assert (position.to_facts(), position.next_number, position.largest_us) == (whole, 5, 7)
