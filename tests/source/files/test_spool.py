"""A spool as a source: however it is cut, torn or damaged, each durable record is read once, or rejected by name."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, ColumnError, FileFormatError, SchemaDriftError
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.records import Reject
from streamjoin_ds.source.stream_source import first_records, infer_schema
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spool.segment import TOLD, segment_paths
from streamjoin_ds.spool.writer import SpoolWriter
from tests.source.feeds import SCHEMA, expected, feed, read_all, rows, steps, tuples
from tests.spool.spools import payload, spooled
from tests.support.examples import examples


def all_rejects(path: Path, size: int, **more: str) -> list[Reject]:
    """Return all rejects, read in batches of `size`, each by a feed of its own, as tasks read them."""
    positions = steps(feed(path, **more), FilePosition(), size)
    chunks = [c for low, high in pairwise(positions) for c in feed(path, **more).read(low, high)]
    return [reject for chunk in chunks for reject in chunk.rejects]


def spool_of(folder: Path, count: int, *, group: int = 4, segment_bytes: int = 1 << 20) -> Path:
    payloads = [payload(row) for row in rows(count)]
    groups = [payloads[at : at + group] for at in range(0, count, group)]
    return spooled(folder, groups, segment_bytes=segment_bytes)


@pytest.mark.parametrize("format", ["auto", "spool"])
@pytest.mark.parametrize("segment_bytes", [1, 600, 1 << 20])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_spool_is_read_whatever_the_batches(tmp_path: Path, size: int, segment_bytes: int, format: str) -> None:
    spool_of(tmp_path, 21, segment_bytes=segment_bytes)
    assert len(segment_paths(tmp_path)) == {1: 6, 600: 3, 1 << 20: 1}[segment_bytes]
    assert read_all(tmp_path, size, format=format) == expected(rows(21))


def test_the_columns_of_the_frame_are_there_if_asked_for(tmp_path: Path) -> None:
    spooled(tmp_path, [[b'{"x": 1}', b'{"x": 2, "spool_topic": "mine"}']], topic="höhe/1".encode())
    stamp = pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        [("x", pa.int64()), ("spool_number", pa.int64()), ("spool_topic", pa.string()), ("spool_received", stamp)]
    )
    received = 1_700_000_000_000_000
    positions = steps(feed(tmp_path, schema=schema, time="spool_received"), FilePosition(), 1)
    read = feed(tmp_path, schema=schema, time="spool_received").read(positions[0], positions[-1])
    found = [row for chunk in read for row in chunk.tuples.to_pylist()]
    assert [(row["x"], row["spool_number"], row["spool_topic"]) for row in found] == [
        (1, 0, "höhe/1"),
        (2, 1, "höhe/1"),
    ]
    assert {row["_ts"] for row in found} == {received}


@pytest.mark.parametrize("size", [1, 2, 100])
def test_payloads_in_line_protocol_are_records_by_their_lines(tmp_path: Path, size: int) -> None:
    spooled(
        tmp_path, [[b"m,a=b x=1.5 1709629207120000000\nm x=", b"# no"], [b'm x=3,a="c" 1709629208120000000\n', b""]]
    )
    schema = pa.schema([("time", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("spool_number", pa.int64())])
    options: dict[str, Any] = {"format": "spool", "records": "influx", "time": "time", "time_unit": "ns"}
    assert infer_schema(Stream("e", str(tmp_path), **options)).names == ["measurement", "a", "x", "time"]
    positions = steps(feed(tmp_path, schema=schema, **options), FilePosition(), size)
    chunks = [c for low, high in pairwise(positions) for c in feed(tmp_path, schema=schema, **options).read(low, high)]
    rows = [(row["_ts"], row["_seq"], row["x"], row["spool_number"]) for c in chunks for row in c.tuples.to_pylist()]
    assert rows == [(1709629207120000, 0, 1.5, 0), (1709629208120000, 2, 3.0, 2)]
    rejects = [(one.seq, one.reason, one.text) for c in chunks for one in c.rejects]
    assert rejects == [(1, "no line of InfluxDB's", "m x="), (3, "no line of InfluxDB's", "an empty message")]


def test_lines_of_metrics_in_a_file_are_its_format(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("m x=1 5\n")
    with pytest.raises(ArgumentError, match="format=influx"):
        infer_schema(Stream("e", str(tmp_path / "a.json"), records="influx"))


def delivered(folder: Path) -> Path:
    """A spool of an intake before deliveries were told, and of one after."""
    with SpoolWriter(folder) as writer:
        writer.append([(b"t", b'{"ts": 1, "x": 1}'), (b"t", b'{"ts": 2, "x": 2}')])
        flags = [TOLD | 1, TOLD | 2, TOLD | 3, TOLD | 4]
        writer.append([(b"t", b'{"ts": %d, "x": %d}' % (n, n)) for n in range(3, 7)], flags)
    return folder


@pytest.mark.parametrize("records", [None, "$"])
def test_how_mqtt_brought_a_message_is_told_where_it_is_known(tmp_path: Path, records: str | None) -> None:
    columns = [("ts", pa.int64()), ("x", pa.int64()), ("spool_retained", pa.bool_()), ("spool_qos", pa.int32())]
    source = feed(delivered(tmp_path), schema=pa.schema(columns), format="spool", records=records)
    rows = [row for chunk in source.read(FilePosition(), None) for row in chunk.tuples.to_pylist()]
    told = [(None, None)] * 2 + [(True, 0), (False, 1), (True, 1), (False, 2)]
    assert [(row["spool_retained"], row["spool_qos"]) for row in rows] == told


@pytest.mark.parametrize("records", [None, "$"])
def test_a_column_of_the_frame_that_an_option_names_is_there_without_a_schema(
    tmp_path: Path, records: str | None
) -> None:
    options = {"format": "spool", "records": records}
    folder = str(delivered(tmp_path))
    assert infer_schema(Stream("e", folder, **options)).names == ["ts", "x"]
    computed = Stream("e", folder, columns={"device": "split_part(spool_topic, '/', 1)"}, **options)
    assert infer_schema(computed).names == ["ts", "x", "spool_topic"]
    stream = Stream("e", folder, where="NOT spool_retained", unique="spool_topic,x", **options)
    assert infer_schema(stream).names == ["ts", "x", "spool_topic", "spool_retained"]
    other = Stream("o", schema={"ts": "timestamp[us]", "y": "double"})
    bound = bind(
        Join([stream, other], "o.y > 0", "10s", "e.x"), {one.name: infer_schema(one) for one in (stream, other)}
    )
    (chunk,) = first_records(bound.join.streams[0], bound.read_schemas[0], 10)
    kept = bound.let_through(0, chunk.tuples)
    assert kept is not None
    assert [x for x, is_kept in zip(chunk.tuples.column("x").to_pylist(), kept, strict=True) if is_kept] == [4, 6]


def test_a_column_of_the_frame_in_a_wrong_type_is_refused_by_name(tmp_path: Path) -> None:
    spool_of(tmp_path, 2)
    schema = SCHEMA.append(pa.field("spool_topic", pa.float64()))
    with pytest.raises(ColumnError, match="spool_topic"):
        list(feed(tmp_path, schema=schema).read(FilePosition(), None))


def test_payloads_that_are_no_objects_are_rejects_and_their_neighbours_are_not(tmp_path: Path) -> None:
    good = [payload(row) for row in rows(3)]
    # Joined as lines these would be as many rows as payloads: two halves make one object, and one payload holds two.
    bad = [good[0][:20], good[0][20:], good[1] + good[2], b"", b" ", b"[1]", b"null", b'"\xff"', b"{", b"}"]
    spooled(tmp_path, [[good[0], *bad[:3]], [good[1], *bad[3:], good[2]]])
    for size in (1, 2, 100):
        found = read_all(tmp_path, size)
        assert [row[2:] for row in found] == [row[1:] for row in rows(3)]
        rejects = all_rejects(tmp_path, size)
        assert len(rejects) == len(bad)
        assert {reject.seq for reject in rejects} | {row[1] for row in found} == set(range(len(bad) + 3))
        assert all(reject.file.endswith(".spool") and reject.reason for reject in rejects)


def test_a_payload_over_several_lines_is_one_record(tmp_path: Path) -> None:
    row = rows(1)[0]
    text = json.dumps(json.loads(payload(row)), indent=2).replace("\n", "\r\n").encode()
    spooled(tmp_path, [[text, payload(rows(2)[1])]])
    assert read_all(tmp_path, 1) == expected(rows(2))
    broken = payload(row).replace(b"n0", b"n\n0")  # a line end within a text is no JSON
    spooled(tmp_path / "broken", [[broken]])
    assert len(all_rejects(tmp_path / "broken", 5)) == 1


def test_a_damaged_record_is_a_reject_that_names_its_bytes_and_no_other_is_lost(tmp_path: Path) -> None:
    spool_of(tmp_path, 12)
    path = segment_paths(tmp_path)[0]
    data = bytearray(path.read_bytes())
    at = data.index(b'"n": 5')
    data[at + 5] = ord("6")
    path.write_bytes(data)
    for size in (1, 3, 100):
        found = read_all(tmp_path, size)
        assert found == [row for row in expected(rows(12)) if row[1] != 5]
        (reject,) = all_rejects(tmp_path, size)
        assert (reject.seq, reject.line, reject.file) == (5, 6, str(path))
        assert "record 6 of the intake follows" in reject.reason
        words = reject.reason.split()
        assert int(words[1]) < at < int(words[3])


@examples(60)
@given(st.data())
def test_any_damage_costs_only_what_it_hits(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes are changed anywhere before the last mark; every record that they do not touch is read, in its order."""
    folder = tmp_path_factory.mktemp("spool")
    spool_of(folder, 12, segment_bytes=600)
    first, *others = segment_paths(folder)
    assert others
    text = bytearray(first.read_bytes())
    hit = data.draw(st.integers(33, len(text) - 41))  # three bytes from here lie in the frames before the last mark
    for offset in range(data.draw(st.integers(1, 3))):
        text[hit + offset] ^= data.draw(st.integers(1, 255))
    first.write_bytes(text)
    size = data.draw(st.integers(1, 13))
    found = read_all(folder, size)
    all_rows = expected(rows(12))
    kept = [row[2:] for row in found]
    assert kept == [row[2:] for row in all_rows if row[2:] in kept]
    assert len(kept) >= 12 - 2  # three bytes touch two frames at most
    rejects = all_rejects(folder, size)
    assert len(rejects) <= 2
    assert all_rejects(folder, 100) == rejects
    assert len(rejects) + len(found) == (max(row[1] for row in found) + 1)
    shutil.rmtree(folder)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_what_is_not_marked_yet_is_not_there_yet(tmp_path: Path, size: int) -> None:
    """However the newest segment is torn, what is read is a prefix; what comes later is read by the same feed."""
    spool_of(tmp_path / "whole", 8)
    whole = segment_paths(tmp_path / "whole")[0].read_bytes()
    folder = tmp_path / "torn"
    folder.mkdir()
    path = folder / segment_paths(tmp_path / "whole")[0].name
    reader, at, seen = feed(folder), FilePosition(), []
    for cut in sorted({*range(0, len(whole), 7), len(whole)}):
        path.write_bytes(whole[:cut])
        reader.freeze()
        while count := reader.frontier(at, size).rows:
            end = reader.advance(at, count)
            seen += tuples(feed(folder).read(at, end))
            at = end
        assert seen == expected(rows(8))[: len(seen)]
        assert len(seen) in (0, 4, 8)
    assert len(seen) == 8


def test_a_torn_end_that_a_new_intake_cuts_off_stops_no_reader(tmp_path: Path) -> None:
    spool_of(tmp_path, 8)
    path = segment_paths(tmp_path)[0]
    reader = feed(tmp_path)
    at = steps(reader, FilePosition(), 100)[-1]
    with path.open("ab") as file:
        file.write(b"\xf5\xc7SJ torn")
    assert reader.frontier(at, 10).rows == 0
    assert reader.held_back_bytes == 9
    with SpoolWriter(tmp_path) as writer:
        assert writer.next_number == 8
        assert reader.frontier(at, 10).rows == 0
        writer.append([(b"t", payload(row)) for row in rows(10)[8:]])
    end = reader.advance(at, reader.frontier(at, 10).rows)
    assert tuples(feed(tmp_path).read(at, end)) == expected(rows(10))[8:]


@pytest.mark.parametrize("on_bad_file", ["stop", "quarantine"])
def test_a_segment_torn_in_the_middle_of_the_folder_is_a_bad_file(tmp_path: Path, on_bad_file: str) -> None:
    spool_of(tmp_path, 12, segment_bytes=600)
    first, second, *_ = segment_paths(tmp_path)
    first.write_bytes(first.read_bytes()[:-90])
    if on_bad_file == "stop":
        with pytest.raises(FileFormatError, match="torn or damaged from byte"):
            steps(feed(tmp_path), FilePosition(), 100)
        return
    found = read_all(tmp_path, 2, on_bad_file=on_bad_file)
    assert [row[2:] for row in found] == [row[1:] for row in rows(12)[:7] + rows(12)[8:]]
    (reject,) = all_rejects(tmp_path, 2, on_bad_file=on_bad_file)
    assert "rest of the file is set aside" in reject.text
    assert first.name in reject.reason
    assert second.exists()


def test_a_file_that_is_no_segment_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.spool").write_bytes(b"x" * 100)
    with pytest.raises(FileFormatError, match="no segment of a spool"):
        steps(feed(tmp_path), FilePosition(), 100)


def test_a_payload_without_the_time_is_said_at_once(tmp_path: Path) -> None:
    spooled(tmp_path, [[b'{"x": 1.5}'] * 4])
    with pytest.raises(SchemaDriftError, match="has no column 'ts'"):
        list(feed(tmp_path).read(FilePosition(), None))


def test_columns_are_inferred_from_payloads(tmp_path: Path) -> None:
    spool_of(tmp_path, 5)
    found = infer_schema(Stream("e", str(tmp_path)))
    assert found.names == ["ts", "name", "x", "n"]
    assert found.field("n").type == pa.int64()
