"""The writer: what it returned from is on the device, whatever breaks off; nothing else is ever half there."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import SpoolError, SpoolInUseError
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.spool.segment import HEADER_BYTES, MAX_PAYLOAD_BYTES, segment_paths
from streamjoin_ds.spool.writer import SpoolLimits, SpoolWriter
from tests.source.feeds import expected, feed, rows, steps, tuples
from tests.spool.spools import Clock, held, payload, spooled
from tests.support.examples import examples


def test_messages_are_there_again_with_their_numbers(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        assert writer.append([(b"a", b"1"), (b"b", b"2")]) == 0
        assert writer.append([]) == 2
    with SpoolWriter(tmp_path) as writer:
        assert writer.next_number == 2
        assert writer.append([(b"a", b"3")]) == 2
    assert held(tmp_path) == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", b"3")]


def test_a_group_is_synced_before_it_is_marked_and_its_segments_name_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    real_fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda d: (done.append(("fsync", os.fstat(d).st_size)), real_fsync(d))[1])
    writer = SpoolWriter(tmp_path, sync=lambda d: done.append(("sync", os.fstat(d).st_size)))
    writer.append([(b"a", b"12345")])
    size = segment_paths(tmp_path)[0].stat().st_size
    kinds = [kind for kind, _ in done]
    assert kinds == ["fsync", "fsync", "sync"]  # the header, the folder, the group
    assert done[-1][1] == size - 37  # all but the mark
    writer.close()


@pytest.mark.parametrize("limit", ["size", "time"])
def test_segments_end_and_are_named_in_order(tmp_path: Path, limit: str) -> None:
    clock = Clock()
    limits = SpoolLimits(segment_bytes=200) if limit == "size" else SpoolLimits(segment_s=10)
    with SpoolWriter(tmp_path, limits, clock=clock) as writer:
        for number in range(25):
            writer.append([(b"a", b"x" * 30)])
            clock.now += 4
            assert writer.next_number == number + 1
    names = [int(path.stem) for path in segment_paths(tmp_path)]
    assert names == ([*range(0, 25, 2)] if limit == "size" else [*range(0, 25, 3)])
    assert [number for number, _, _ in held(tmp_path)] == [*range(25)]


@pytest.mark.parametrize("limits", [{"kept_s": 100.0}, {"kept_bytes": 1000}], ids=["age", "size"])
def test_old_segments_are_removed_and_the_newest_never(tmp_path: Path, limits: dict[str, float]) -> None:
    clock = Clock()
    with SpoolWriter(tmp_path, SpoolLimits(segment_bytes=200, **limits), clock=clock) as writer:
        for _ in range(20):
            writer.append([(b"a", b"x" * 200)])
            path = segment_paths(tmp_path)[-1]
            os.utime(path, (clock.now, clock.now))
            clock.now += 30
        kept = [int(path.stem) for path in segment_paths(tmp_path)]
        assert kept == [*range(kept[0], 20)]
        assert writer.removed_segments == kept[0] > 10
        clock.now += 1_000_000
        writer.remove_old()
        assert len(segment_paths(tmp_path)) == (1 if "kept_s" in limits else 3)  # of 309 bytes each
        assert writer.next_number == 20


@examples(60)
@given(st.data())
def test_whatever_a_power_cut_leaves_acknowledged_messages_and_readers_positions_stand(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes that were not synced are lost, zero, or anything; a reader that read before goes on after."""
    folder = tmp_path_factory.mktemp("cut")
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    payloads = [payload(row) for row in rows(64)]  # more than three rounds of four groups take
    synced: dict[str, int] = {}
    loses_power = False

    def sync(descriptor: int) -> None:
        if loses_power:
            raise OSError(errno.EIO, "no power")
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size

    limits = SpoolLimits(segment_bytes=data.draw(st.sampled_from([400, 1 << 20])))
    reader, at, acknowledged = feed(folder), FilePosition(), 0
    for _ in range(3):
        loses_power = False
        with SpoolWriter(folder, limits, clock=Clock(), sync=sync) as writer:
            assert acknowledged <= writer.next_number
            acknowledged = writer.next_number
            for size in sizes:
                writer.append([(b"t", each) for each in payloads[writer.next_number :][:size]])
                acknowledged = writer.next_number
                if data.draw(st.booleans()):
                    at = steps(reader, at, data.draw(st.integers(1, 5)))[-1]
            if data.draw(st.booleans()):  # a group is being written
                loses_power = True
                with pytest.raises(SpoolError):
                    writer.append(
                        [(b"t", each) for each in payloads[writer.next_number :][: data.draw(st.integers(1, 4))]]
                    )
        newest = segment_paths(folder)[-1]
        safe = max(synced.get(str(newest), 0), HEADER_BYTES)
        lost = newest.read_bytes()[safe:]
        if data.draw(st.booleans()):
            lost += data.draw(st.binary(max_size=50))
        kept = bytearray(lost[: data.draw(st.integers(0, len(lost)))])
        for place in data.draw(st.lists(st.integers(0, max(len(kept) - 1, 0)), max_size=3)):
            if kept:
                kept[place] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):  # what was written first is not there, and what came after it is
            gone = data.draw(st.integers(0, len(kept)))
            kept[:gone] = bytes(gone)
        newest.write_bytes(newest.read_bytes()[:safe] + kept)
        reader = feed(folder)  # the reader's process died too
    with SpoolWriter(folder, limits) as writer:
        assert writer.next_number >= acknowledged
    assert [number for number, _, _ in held(folder)] == [*range(writer.next_number)]
    end = steps(feed(folder), at, 100)[-1]
    assert end.seq == writer.next_number
    found = tuples(feed(folder).read(FilePosition(), end))
    assert found == expected(rows(writer.next_number))
    shutil.rmtree(folder)


@pytest.mark.parametrize("size", range(0, HEADER_BYTES + 1, 5))
def test_a_segment_without_a_whole_header_is_begun_anew(tmp_path: Path, size: int) -> None:
    spooled(tmp_path, [[b"{}"]])
    path = segment_paths(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:size] + b"\0" * 7)
    with SpoolWriter(tmp_path) as writer:
        writer.append([(b"t", b"[]")])
    assert held(tmp_path) == [(0, b"t", b"[]")]


def test_a_damaged_header_before_records_is_refused_by_name(tmp_path: Path) -> None:
    spooled(tmp_path, [[b"{}"]])
    path = segment_paths(tmp_path)[0]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(SpoolError, match="header of the newest segment is damaged"):
        SpoolWriter(tmp_path)
    path.unlink()
    SpoolWriter(tmp_path).close()  # the lock was given free


def _hold(folder: Path, held: multiprocessing.synchronize.Event, end: multiprocessing.synchronize.Event) -> None:
    with SpoolWriter(folder):
        held.set()
        end.wait(60)


def test_a_second_process_is_refused_by_name_until_the_first_is_gone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    is_held, end = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, is_held, end))
    process.start()
    assert is_held.wait(60)
    with pytest.raises(SpoolInUseError, match=f"in use by process {process.pid}") as refused:
        SpoolWriter(tmp_path)
    assert refused.value.code == "SPOOL_IN_USE"
    process.kill()
    process.join()
    SpoolWriter(tmp_path).close()


def test_after_a_failed_write_nothing_more_is_taken(tmp_path: Path) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    writer = SpoolWriter(tmp_path, sync=fails)
    with pytest.raises(SpoolError, match=r"cannot be written: .*No space left"):
        writer.append([(b"a", b"1")])
    with pytest.raises(SpoolError, match="could not be written before"):
        writer.append([(b"a", b"2")])
    writer.close()
    with SpoolWriter(tmp_path) as again:
        again.append([(b"a", b"3")])
    assert [data for _, _, data in held(tmp_path)][-1] == b"3"


def test_a_folder_that_cannot_be_made_and_a_message_too_large_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot be used"):
        SpoolWriter(tmp_path / "file" / "spool")
    with SpoolWriter(tmp_path) as writer, pytest.raises(SpoolError, match="larger than a spool takes"):
        writer.append([(b"a", bytes(MAX_PAYLOAD_BYTES + 1))])
