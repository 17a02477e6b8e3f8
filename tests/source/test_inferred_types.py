"""The columns of a stream whose first records are broken: they are those of the records that can be read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, Table, band
from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.stream_source import first_records, infer_schema
from streamjoin_ds.source.table_versions import open_table
from streamjoin_ds.spec import Join, bind
from streamjoin_ds.spool.writer import SpoolWriter
from streamjoin_ds.stream.source_facts import bound_join, first_seen

GOOD = [b'{"ts": %d, "x": %d, "who": "a"}' % (1_700_000_000_000 + n, n) for n in range(5)]
BROKEN = [
    b"poison",
    json.dumps({"ts": 1}).encode("utf-16-le"),
    b'{"ts": 1',
    b"[1, 2]",
    b"null",
    b"\xff\xfd",
    b"{} {}",
    b'{"ts": 1}{"ts": 2}',
    b"[" * 5_000,
]
CONTRADICTING = [b'{"ts": 1, "x": "n/a"}', b'{"ts": 1, "x": [1]}', b'{"ts": 1, "x": {"y": 1}}', b'{"ts": 1, "who": 7}']
EXPECTED = {"ts": pa.int64(), "x": pa.int64(), "who": pa.string()}


def of_lines(folder: Path, records: list[bytes]) -> pa.Schema:
    path = folder / "e.jsonl"
    path.write_bytes(b"\n".join(records) + b"\n")
    return infer_schema(Stream("e", str(path), time_unit="ms"))


def of_spool(folder: Path, records: list[bytes]) -> pa.Schema:
    with SpoolWriter(folder / "spool") as spool:
        spool.append([(b"topic", record) for record in records])
    return infer_schema(Stream("e", str(folder / "spool"), time_unit="ms", format="spool"))


@pytest.mark.parametrize("of", [of_lines, of_spool])
@pytest.mark.parametrize("bad", BROKEN + CONTRADICTING)
@pytest.mark.parametrize("place", [0, 3, 5])
def test_a_bad_record_changes_nothing(tmp_path: Path, of, bad: bytes, place: int) -> None:
    found = of(tmp_path, [*GOOD[:place], bad, *GOOD[place:]])
    assert {name: found.field(name).type for name in EXPECTED} == EXPECTED


@pytest.mark.parametrize("of", [of_lines, of_spool])
def test_where_no_record_is_an_object_the_file_is_refused(tmp_path: Path, of) -> None:
    with pytest.raises(FileFormatError):
        of(tmp_path, [b"poison", b"7"])


@given(
    st.lists(st.sampled_from(GOOD), min_size=4, max_size=8),
    st.lists(st.sampled_from(BROKEN + CONTRADICTING), max_size=3),
    st.randoms(),
)
def test_most_records_decide(
    tmp_path_factory: pytest.TempPathFactory, good: list[bytes], bad: list[bytes], order
) -> None:
    records = [*good, *bad]
    order.shuffle(records)
    found = of_lines(tmp_path_factory.mktemp("lines"), records)
    assert {name: found.field(name).type for name in EXPECTED} == EXPECTED


NESTED = [
    b'{"ts": 1, "x": 1, "who": "a", "p": {"v": %s, "w": [%s]}}' % pair for pair in [(b"1", b"1"), (b'"on"', b"{}")]
]


@pytest.mark.parametrize("of", [of_lines, of_spool])
def test_most_records_decide_inside_of_others_too(tmp_path: Path, of) -> None:
    found = of(tmp_path, [NESTED[0], NESTED[0], NESTED[1]])
    assert found.field("p").type == pa.struct([("v", pa.int64()), ("w", pa.list_(pa.int64()))])


def test_objects_that_are_empty_in_all_records_are_no_columns(tmp_path: Path) -> None:
    record = b'{"ts": 1, "a": {}, "b": {"c": {}, "d": 5}, "e": [{}], "f": [{"g": {}, "h": 1}], "i": []}'
    (tmp_path / "z.json").write_bytes(record + b"\n")
    kinds = {
        "b": pa.struct([("d", pa.int64())]),
        "f": pa.list_(pa.struct([("h", pa.int64())])),
        "i": pa.list_(pa.null()),
    }
    expected = pa.schema([("ts", pa.int64()), *kinds.items()])
    assert of_lines(tmp_path, [record, record]) == expected
    assert of_lines(tmp_path, [record, record.replace(b"{}", b'{"x": 1}', 1)]).names == ["ts", "a", "b", "f", "i"]
    assert open_table(Table("z", str(tmp_path / "z.json"), finished_after="0s")).schema() == expected


@pytest.mark.parametrize(("name", "path"), [("v", "v"), ("p", "p.v")])
def test_a_column_that_is_cast_by_try_cast_is_a_text_where_records_contradict(
    tmp_path: Path, name: str, path: str
) -> None:
    of = {"v": b'{"ts": 1, "v": %s}', "p": b'{"ts": 1, "p": {"v": %s, "n": 5}}'}[name]
    file = tmp_path / "e.jsonl"
    records = [b"19.18", b'"on"', b"20", b'"7.5"', b"null"]
    file.write_bytes(b"".join(of % value + b"\n" for value in records))
    stream = Stream("e", str(file), time_unit="s", columns={"x": f"try_cast({path} AS DOUBLE)", "y": f"{path}"})
    bound = bound_join(Join([stream, Stream("r", str(file), time_unit="s")], window="1s"))
    chunk = first_records(bound.join.streams[0], bound.read_schemas[0], 10)[0]
    assert not chunk.rejects
    assert chunk.tuples.column("x").to_pylist() == [19.18, None, 20, 7.5, None]
    assert chunk.tuples.column("y").to_pylist() == ["19.18", "on", "20", "7.5", None]
    # Without a contradiction the numbers stay what they are.
    file.write_bytes(of % b"19.18" + b"\n")
    there = infer_schema(stream).field(name).type
    assert there == (pa.float64() if name == "v" else pa.struct([("v", pa.float64()), ("n", pa.int64())]))


def test_a_restart_goes_by_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "in" / "e.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"\n".join(GOOD))
    streams = [Stream("e", str(path.parent), time_unit="ms"), Stream("w", str(path.parent), time_unit="ms")]
    join = Join(streams, [band("e.x", "w.x", 1)], "1s")
    identity: Any = SimpleNamespace(bound=bound_join(join))
    recorded = identity.bound.read_schemas[0]
    for content in (b"poison\n", b""):
        path.write_bytes(content)
        assert first_seen(join, identity)["e"].equals(recorded)
    path.unlink()
    assert first_seen(join, identity)["e"].equals(recorded)


def test_a_restart_has_the_recorded_columns_though_files_came_with_others(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.csv").write_text("ts,x,old\n1,20,a\n2,21,b\n")
    streams = [Stream("e", str(folder), time_unit="s"), Stream("w", str(folder), time_unit="s")]
    for select in (None, "e.x, w.x AS y"):
        join = Join(streams, [band("e.x", "w.x", 1)], "1s", select=select)
        identity: Any = SimpleNamespace(bound=bound_join(join))
        (folder / "1.csv").write_text("ts,x,new\n3,16.81,c\n")
        assert infer_schema(streams[0]).field("x").type == pa.float64()  # a new join would have this type
        found = bind(join, first_seen(join, identity))
        assert found.read_schemas == identity.bound.read_schemas
        assert found.to_facts() == identity.bound.to_facts()
        (folder / "0.csv").rename(tmp_path / "gone.csv")
        assert bind(join, first_seen(join, identity)).to_facts() == identity.bound.to_facts()
        (tmp_path / "gone.csv").rename(folder / "0.csv")
        (folder / "1.csv").unlink()
