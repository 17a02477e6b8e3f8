"""Paths into nested values are columns: the same values, times, numbers and rejects in every source, by every cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.errors import ColumnError
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import Lines, parse_lines
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind, bound_from_facts
from streamjoin_ds.spec.nested_path import inner_column, inner_value, path_of, path_text, with_paths
from streamjoin_ds.spec.time_text import event_times
from tests.source.feeds import iso, rows, segment, steps
from tests.support.examples import examples

W = Stream("w", schema={"ts": "timestamp[us]", "y": "double"})
ON = "abs(e.payload.x - w.y) <= 1"
SELECT = "e.payload.`a.b`.n, e.list[1].v, e.payload.name AS called"


def bound(stream: Stream, on: str = ON, select: str = SELECT) -> BoundJoin:
    """Return a join of a stream and another one, as a worker has it."""
    return bound_from_facts(
        bind(Join([stream, W], on, "10s", select), {"e": infer_schema(stream), "w": W.schema}).to_facts()
    )


def record(ts: Any, name: str, x: float, n: int) -> dict[str, Any]:
    """Return a record whose values lie inside of others; some of these lack."""
    inner: dict[str, Any] = {"name": name, "x": x, "other": [{"deep": {"a": n}}], "a.b": {"n": n} if n % 3 else None}
    return {"id": n, "payload": inner, "when": {"ts": ts}, "list": [{"v": k + n, "w": "x"} for k in range(n % 4)]}


ITEMS = rows(30)
EXPECTED = [
    (ts, n, name, x, n if n % 3 else None, n + 1 if n % 4 > 1 else None) for ts, name, x, n in ITEMS
]  # fmt: skip
NAMES = ["_ts", "_seq", "payload.name", "payload.x", "payload.`a.b`.n", "list[1].v"]


def _written(path: Path, form: str) -> Path:
    records = [record(iso(ts), name, x, n) for ts, name, x, n in ITEMS]
    lines = [json.dumps(one) for one in records]
    if form == "spool":
        (path / f"{0:020d}.spool").write_bytes(segment([line.encode() for line in lines]))
    elif form in ("parquet", "arrow", "delta"):
        moments = [datetime.fromtimestamp(ts / 1e6, timezone.utc) for ts, *_ in ITEMS]
        table = pa.Table.from_pylist([{**one, "when": {"ts": ts}} for one, ts in zip(records, moments, strict=True)])
        if form == "delta":
            write_deltalake(path, table)
        elif form == "parquet":
            pq.write_table(table, path / "a.parquet", row_group_size=7)
        else:
            feather.write_feather(table, path / "a.arrow")
    else:
        (path / f"a.{form}").write_text("\n".join(lines) + "\n")
    return path


def found(stream: Stream, size: int) -> list[tuple[Any, ...]]:
    join = bound(stream)
    feed = open_feed(join.join.streams[0], join.read_schemas[0])
    chunks = [chunk for low, high in pairwise(steps(feed, feed.initial(), size)) for chunk in feed.read(low, high)]  # type: ignore[arg-type]
    assert not [chunk.rejects for chunk in chunks if chunk.rejects]
    table = pa.Table.from_batches([chunk.tuples for chunk in chunks]).select(NAMES)
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


@pytest.mark.parametrize("form", ["json", "spool", "parquet", "arrow", "delta"])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_paths_are_columns_in_every_format_and_cut(tmp_path: Path, form: str, size: int) -> None:
    assert found(Stream("e", _written(tmp_path, form), time="when.ts"), size) == EXPECTED


def test_a_restarted_join_reads_what_was_recorded(tmp_path: Path) -> None:
    """A worker has no more than the facts: they say which columns are paths, and `*` has none of these."""
    stream = Stream("e", _written(tmp_path, "json"), time="when.ts", where="payload.name <> 'n1'", unique="payload.x")
    join = bound(stream, select="e.*, e.payload.x")
    assert [column.name for column in join.result] == ["e_id", "e_payload", "e_when", "e_list", "e_payload_x"]
    assert join.join.streams[0].nested == ("payload.name", "payload.x", "when.ts")
    assert bound_from_facts(join.to_facts()).fingerprint == join.fingerprint


def test_only_what_is_used_is_read(tmp_path: Path) -> None:
    join = bound(Stream("e", _written(tmp_path, "json"), time="when.ts"))
    assert sorted(join.written_schemas[0].names) == sorted(["when.ts", *NAMES[2:]])


@pytest.mark.parametrize("is_table", [True, False])
def test_what_is_pushed_has_paths(is_table: bool) -> None:
    kinds = {"payload": pa.struct([("x", pa.float64()), ("name", pa.string())]), "list": pa.list_(pa.int64())}
    schema = pa.schema([("when", pa.struct([("ts", pa.timestamp("us", tz="UTC"))])), *kinds.items()])
    streams = [Stream("e", schema=schema, time="when.ts", delay="5s"), W]
    engine = JoinEngine(Join(streams, ON, "10s", "e.payload.name, e.list[0], e.payload.x, w.y"))
    made = [
        {"when": {"ts": ts}, "payload": {"x": x, "name": name, "z": 1}, "list": [n] * (n % 2)}
        for ts, name, x, n in ITEMS
    ]
    table = [{**one, "payload": {"x": one["payload"]["x"], "name": one["payload"]["name"]}} for one in made]
    engine.push({"e": pa.Table.from_pylist(table, schema) if is_table else made})
    found = engine.push({"w": [{"ts": ITEMS[29][0], "y": 6.5}]})
    near = [(ts, name, n, x) for ts, name, x, n in ITEMS if abs(x - 6.5) <= 1 and abs(ts - ITEMS[29][0]) <= 10_000_000]
    assert near
    rows = zip(*(found[name].to_pylist() for name in found.column_names[:4]), strict=True)
    assert sorted(map(str, rows)) == sorted(str((name, n if n % 2 else None, x, 6.5)) for _, name, n, x in near)
    assert found.column_names[:4] == ["e_payload_name", "e_list_0", "e_payload_x", "w_y"]


SHAPES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab.`["), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.sampled_from(["a", "b", ".", "`", "[", 0, 1, 2]), min_size=1, max_size=4)


@examples(200)
@given(
    st.lists(st.text(max_size=4).filter(bool) | st.integers(0, 99), min_size=1, max_size=4).filter(
        lambda p: isinstance(p[0], str)
    )
)
def test_a_path_is_what_its_text_says(parts: list[str | int]) -> None:
    assert path_of(path_text(parts)) == tuple(parts)


@examples(300)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), SHAPES, max_size=2), min_size=1, max_size=4), PARTS)
def test_values_are_those_of_pythons_own_reader(records: list[dict[str, Any]], parts: list[Any]) -> None:
    """Whatever lies in JSON: a path leads to what Python finds, as far as Arrow has a type for all of it."""
    name = path_text(["a", *parts])
    expected = [_walked(one, ["a", *parts]) for one in records]
    assert [inner_value(one, name) for one in records] == expected
    try:
        table = pa.Table.from_pylist([{"a": one.get("a")} for one in records])
        schema = with_paths(table.schema, [name])
    except (pa.ArrowException, ValueError):
        return
    if name in schema.names:
        values = inner_column(table, name)
        assert values is not None
        assert values.type == schema.field(name).type
        if not pa.types.is_nested(values.type):
            assert values.to_pylist() == expected


def _walked(value: Any, parts: list[Any]) -> Any:
    for part in parts:
        if isinstance(part, str):
            value = value.get(part) if isinstance(value, Mapping) else None
        else:
            value = value[part] if isinstance(value, list) and part < len(value) else None
    return value


def test_times_inside_are_read_in_each_form_they_have() -> None:
    """A number and a text beside each other, and a fraction beside a whole number, as in a column of their own."""
    texts = ['"2024-03-05T09:00:07.123456789Z"', "1709629207", "1709629207.12", "null", '"5 March"', "[]"]
    lines = "".join(f'{{"when":{{"ts":{text}}}}}\n' for text in texts) + '{"when":null}\n{"when":5}\n{}\n'
    form = JsonLines(pa.schema([("when.ts", pa.timestamp("us", tz="UTC"))]), "when.ts", ["when.ts"])
    raw = parse_lines(Lines.of(lines.encode()), form, file="f", at_file_start=False)
    assert [place for place, *_ in raw.broken] == [5, 7]
    us, valid = event_times(raw.table.column(0).combine_chunks(), "s")
    assert us[:3].tolist() == [1_709_629_207_123_456, 1_709_629_207_000_000, 1_709_629_207_120_000]
    assert valid.tolist() == [True] * 3 + [False] * 4


def test_a_column_whose_own_name_has_dots_comes_first(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"ts":"2024-03-05T09:00:07Z","p.x":1,"p":{"x":2,"y":3}}\n')
    join = bound(Stream("e", tmp_path), on="e.p.x = w.y", select="e.p.y, e.`p.x`")
    feed = open_feed(join.join.streams[0], join.read_schemas[0])
    (chunk,) = feed.read(feed.initial(), None)
    assert chunk.tuples.select(["p.x", "p.y"]).to_pylist() == [{"p.x": 1, "p.y": 3}]


@pytest.mark.parametrize(
    ("on", "hint"),
    [
        ("e.payload.y = w.y", "'payload' holds name, x"),
        ("e.payload.x.z = w.y", "'payload.x' is double"),
        ("e.list.v = w.y", "its elements are list[0]"),
        ("e.pay.x = w.y", "did you mean"),
    ],
)
def test_a_path_to_nothing_is_refused_with_what_there_is(tmp_path: Path, on: str, hint: str) -> None:
    with pytest.raises(ColumnError) as refused:
        bound(Stream("e", _written(tmp_path, "json"), time="when.ts"), on)
    assert hint in str(refused.value)


def test_a_path_is_declared_by_its_name(tmp_path: Path) -> None:
    """It has the declared type, where the first file has it there and no column of that name."""
    (tmp_path / "a.json").write_text(
        '{"at":{"ms":1709629207120},"p":{"x":1},"p.y":2}\n{"at":{"ms":1},"p":{"x":2.5},"p.y":3}\n'
    )
    declared = {"at.ms": "int64", "p.x": "double", "p.y": "int64"}
    join = bound(Stream("e", tmp_path, time="at.ms", time_unit="ms", schema=declared), "e.p.x = w.y", "e.p.y")
    assert join.join.streams[0].nested == ("at.ms", "p.x")
    feed = open_feed(join.join.streams[0], join.read_schemas[0])
    (chunk,) = feed.read(feed.initial(), None)
    assert chunk.tuples.select(["p.x", "p.y"]).to_pylist() == [{"p.x": 1.0, "p.y": 2}, {"p.x": 2.5, "p.y": 3}]


def test_a_file_that_begins_without_times_is_no_other_file(tmp_path: Path) -> None:
    lines = '{"p":{"ts":null},"x":1}\n' * 4 + '{"p":{"ts":"2024-03-05T09:00:07Z"},"x":1}\n' * 5
    (tmp_path / "a.json").write_text(lines)
    join = bound(Stream("e", tmp_path, time="p.ts"), "e.x = w.y", "e.x")
    (tmp_path / "a.json").write_text('{"p":{"ts":null},"x":1}\n' * 4)
    feed = open_feed(join.join.streams[0], join.read_schemas[0])
    (chunk,) = feed.read(feed.initial(), None)
    assert [(reject.column, reject.reason) for reject in chunk.rejects] == [("p.ts", "no event time")] * 4
