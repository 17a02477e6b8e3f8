"""The rule by which a range is finished, over a partition that is a list of messages and gaps."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import KafkaDataLostError, KafkaTopicChangedError, KafkaUnreachableError
from streamjoin_ds.source.kafka.range_read import Fetched, LostRange, RangeReader
from tests.support.examples import examples


class Partition:
    """A partition with its broker: messages at some offsets, the first that is kept, its end."""

    def __init__(self, offsets: list[int], end: int, first: int = 0, step: int = 3) -> None:
        self.offsets, self.end, self.first, self.step = sorted(offsets), end, first, step
        self.at = -1
        self.seeks = 0
        self.closed = False

    def first_offsets(self, topic: str, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self.first)

    def end_offsets(self, topic: str, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self.end)

    def seek(self, offset: int, epoch: int = -1) -> None:
        self.at, self.seeks = offset, self.seeks + 1

    def fetch(self, end: int, wait_seconds: float) -> Fetched:
        if self.at < self.first or self.at > self.end:
            return Fetched(None, -1, "_AUTO_OFFSET_RESET")
        come = [offset for offset in self.offsets if offset >= self.at][: self.step]
        if not come:
            self.at = self.end
            return Fetched(None, self.end, "_PARTITION_EOF")
        taken = [offset for offset in come if offset < end]
        self.at = come[len(taken)] if len(taken) < len(come) else come[-1] + 1
        return Fetched(pa.record_batch({"offset": taken}) if taken else None, self.at)

    def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def reader_of(partition: Partition, on_data_loss: str = "stop") -> RangeReader:
    return RangeReader(partition, partition, "t", 0, on_data_loss, clock=Clock())  # type: ignore[arg-type]


def read(reader: RangeReader, begin: int, end: int) -> tuple[list[int], int, list[LostRange]]:
    asked = reader.read(begin, end)
    found = [offset for batch in asked for offset in batch.column("offset").to_pylist()]
    return found, asked.empty_offsets, asked.lost


@examples(200)
@given(st.sets(st.integers(0, 60)), st.lists(st.integers(0, 70), max_size=6), st.integers(1, 5))
def test_ranges_end_to_end_give_each_message_once(kept: set[int], cuts: list[int], step: int) -> None:
    end = 70
    partition = Partition(list(kept), end, step=step)
    reader = reader_of(partition)
    places = sorted({0, *cuts, end})
    found, empty = [], 0
    for begin, stop in pairwise(places):
        part, gaps, lost = read(reader, begin, stop)
        assert part == [offset for offset in sorted(kept) if begin <= offset < stop]
        assert not lost
        found += part
        empty += gaps
    assert found == sorted(kept)
    assert empty == end - len(kept)
    assert partition.seeks == 1  # ranges that follow each other go on


@examples(100)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 40))
def test_what_retention_took_is_counted_or_refused(begin: int, length: int, first: int) -> None:
    end = begin + length
    partition = Partition(list(range(first, 50)), 50, first=first)
    lost = [LostRange(0, begin, min(first, end))] if begin < min(first, end) else []
    assert read(reader_of(partition, "skip"), begin, end) == (list(range(max(first, begin), end)), 0, lost)
    if lost:
        with pytest.raises(KafkaDataLostError, match=f"offsets {begin} to {min(first, end) - 1}"):
            read(reader_of(partition), begin, end)


@pytest.mark.parametrize("on_data_loss", ["stop", "skip"])
@pytest.mark.parametrize("begin", [3, 10, 30])
def test_a_partition_that_ends_before_its_range_is_refused(begin: int, on_data_loss: str) -> None:
    reader = reader_of(Partition(list(range(10)), 10), on_data_loss)
    with pytest.raises(KafkaTopicChangedError, match="ends at offset 10"):
        read(reader, begin, 40)


class CutLog(Partition):
    """A log that was cut at an offset, and has grown again under a leader of a later epoch (or an earlier one)."""

    def __init__(self, cut: int, epochs: tuple[int, int]) -> None:
        super().__init__(list(range(20)), 20)
        self.cut, self.epochs, self.told = cut, epochs, -1

    def seek(self, offset: int, epoch: int = -1) -> None:
        super().seek(offset)
        self.told = epoch

    def fetch(self, end: int, wait_seconds: float) -> Fetched:
        # What librdkafka says where the leader has no such epoch at the offset that it is to go on from.
        if 0 <= self.told < self.epochs[1] and self.cut < self.at:
            return Fetched(None, -1, "_LOG_TRUNCATION")
        self.told = -1  # it is asked once, where reading begins
        epoch = self.epochs[self.at >= self.cut]
        found = super().fetch(min(end, self.cut) if self.at < self.cut else end, wait_seconds)
        return Fetched(found.messages, found.position, found.error, epoch)


def test_a_log_that_was_cut_before_a_range_and_has_grown_again_is_refused() -> None:
    with pytest.raises(KafkaTopicChangedError, match="holds other messages before offset 15"):
        list(reader_of(CutLog(10, (3, 4))).read(15, 20, epoch=3))
    assert sum(map(len, reader_of(CutLog(10, (3, 4))).read(15, 20, epoch=4))) == 5
    assert sum(map(len, reader_of(CutLog(10, (3, 4))).read(15, 20))) == 5  # an offset of an older version knows none


def test_epochs_grow_along_a_log_and_never_go_back() -> None:
    asked = reader_of(CutLog(10, (3, 4))).read(5, 20, epoch=3)
    assert sum(map(len, asked)) == 15
    assert asked.epoch == 4
    with pytest.raises(KafkaTopicChangedError, match="another cluster"):
        list(reader_of(CutLog(10, (3, 1))).read(5, 20, epoch=3))


def test_silence_is_bounded() -> None:
    class Silent(Partition):
        def fetch(self, end: int, wait_seconds: float) -> Fetched:
            return Fetched(None, -1, "_ALL_BROKERS_DOWN")

    with pytest.raises(KafkaUnreachableError, match="_ALL_BROKERS_DOWN") as caught:
        read(reader_of(Silent([1], 2)), 0, 2)
    assert caught.value.name == "bootstrap.servers"


def test_after_an_error_the_source_is_told_where_to_go_on() -> None:
    partition = Partition(list(range(10)), 10, first=5)
    reader = reader_of(partition)
    with pytest.raises(KafkaDataLostError):
        read(reader, 0, 10)
    assert read(reader, 5, 10)[0] == [5, 6, 7, 8, 9]
    assert partition.seeks == 2


def test_an_empty_range_asks_nobody() -> None:
    partition = Partition([], 0)
    assert read(reader_of(partition), 7, 7) == ([], 0, [])
    assert partition.seeks == 0
