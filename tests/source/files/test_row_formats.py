"""ORC, Avro and Arrow files as streams: every type as another reader has it, every codec, any group, damage."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from streamjoin_ds import Stream, band
from streamjoin_ds.errors import ColumnError, FileFormatError
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.source.table_versions import open_table
from streamjoin_ds.spec import Join, Table, bind
from tests.source.feeds import (
    ROW_ENDINGS,
    SCHEMA,
    START_US,
    expected,
    feed,
    read_all,
    rows,
    steps,
    tuples,
    write,
    write_rows,
)

UTC = timezone.utc
MOMENT = datetime(2024, 3, 5, 9, 0, 7, 120_000, UTC)
ROWS = rows(40)
RECORD = {
    "type": "record",
    "name": "reading",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "ns", "type": ["null", {"type": "long", "logicalType": "timestamp-nanos"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "x", "type": ["null", "double"]},
        {"name": "f", "type": "float"},
        {"name": "n", "type": ["int", "long"]},
        {"name": "wide", "type": ["null", "int", "double"]},
        {"name": "ok", "type": "boolean"},
        {"name": "who", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["a", "b"]}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "list", "type": {"type": "array", "items": "long"}},
        {"name": "in", "type": {"type": "record", "name": "inner", "fields": [{"name": "y", "type": "double"}]}},
        {"name": "again", "type": ["null", "inner"]},
    ],
}


def record(number: int) -> dict[str, Any]:
    return {
        "ts": MOMENT.replace(second=number % 60),
        "local": MOMENT.replace(tzinfo=None),
        "ns": None if number % 2 else 1_709_629_207_120_000_001 + number,
        "day": date(2024, 3, 5),
        "x": None if number % 3 else number / 7,
        "f": 1.5,
        "n": (1 << 40) + number,
        "wide": number if number % 2 else number / 3,
        "ok": number % 2 == 0,
        "who": f"w{number}",
        "raw": bytes([number % 256]),
        "price": Decimal("12.34"),
        "kind": "ab"[number % 2],
        "id": "6f1b1a1e-0000-4000-8000-000000000000",
        "list": [number, number + 1],
        "in": {"y": number / 2},
        "again": None if number % 2 else {"y": 1.0},
    }


def read_with_all(path: Path, size: int = 7) -> list[dict[str, Any]]:
    """Return all columns of all tuples, in batches of `size`."""
    streams = [Stream(name, str(path)) for name in "er"]
    join = Join(streams, [band("e.ts", "r.ts", "1s")], "1s")
    schema = bind(join, {stream.name: infer_schema(stream) for stream in streams}).read_schemas[0]
    positions = steps(open_feed(streams[0], schema), FilePosition(), size)
    chunks = [c for low, high in pairwise(positions) for c in open_feed(streams[0], schema).read(low, high)]
    assert not [reject for chunk in chunks for reject in chunk.rejects]
    return [row for chunk in chunks for row in chunk.tuples.to_pylist()]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_avro_files_are_read_as_fastavro_reads_them(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.avro"
    records = [record(number) for number in range(100)]
    with path.open("wb") as file:
        fastavro.writer(file, RECORD, records, codec="null", sync_interval=900)
    path.write_bytes(recompressed(path.read_bytes(), codec))
    found = read_with_all(path)
    assert len(found) == 100
    with path.open("rb") as file:
        wanted = list(fastavro.reader(file)) if codec not in ("snappy", "zstandard") else records
    for row, given in zip(found, wanted, strict=True):
        assert row["_ts"] == int(given["ts"].timestamp() * 1_000_000)
        ns = None if given["ns"] is None else datetime.fromtimestamp(given["ns"] // 1_000_000_000, UTC)
        assert (row["ns"] is None) == (ns is None)
        assert ns is None or row["ns"].replace(microsecond=0) == ns
        assert row["local"] == MOMENT
        assert row["id"] == str(given["id"])
        plain = ("day", "x", "f", "n", "ok", "who", "raw", "price", "kind", "list", "in", "again")
        assert {name: row[name] for name in plain} == {name: given[name] for name in plain}
        assert row["wide"] == given["wide"]


def recompressed(data: bytes, codec: str) -> bytes:
    """Return a container of Avro without a codec with its blocks in another one, as Avro 1.11 says it."""
    ways: dict[str, Callable[[bytes], bytes]] = {
        "null": lambda text: text,
        "deflate": lambda text: zlib.compress(text)[2:-4],
        "bzip2": bz2.compress,
        "xz": lzma.compress,
        "snappy": lambda text: pa.Codec("snappy").compress(text, asbytes=True) + zlib.crc32(text).to_bytes(4, "big"),
        "zstandard": lambda text: pa.Codec("zstd").compress(text, asbytes=True),
    }
    assert len(codec) < 64
    data = data.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + bytes([2 * len(codec)]) + codec.encode())
    sync = data[-16:]
    head, *blocks = data.split(sync)
    made = [head]
    for block in filter(None, blocks):
        count, at = number_of(block, 0)
        _, begin = number_of(block, at)
        packed = ways[codec](block[begin:])
        made.append(block[:at] + number_text(len(packed)) + packed)
    assert count > 0
    return sync.join(made) + sync


def number_of(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        found |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return found >> 1, at


def number_text(number: int) -> bytes:
    number, made = number << 1, bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def plain_table(count: int = 50) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([START_US + k * 1000 for k in range(count)], pa.timestamp("us", tz="UTC")),
            "who": pa.array([f"n{k % 3}" for k in range(count)]).dictionary_encode(),
            "x": pa.array([None if k % 5 == 0 else k / 4 for k in range(count)]),
            "n": pa.array(range(count), pa.int16()),
            "list": pa.array([[k] * (k % 3) for k in range(count)]),
            "in": pa.array([{"y": k} for k in range(count)]),
            "day": pa.array([date(2024, 1, 1)] * count),
            "price": pa.array([Decimal(k) for k in range(count)], pa.decimal128(12, 2)),
        }
    )


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("orc", {}),
        *(("orc", {"compression": name}) for name in ("snappy", "zlib", "zstd")),
        *(("arrow", {"compression": name}) for name in (None, "lz4", "zstd")),
        *(("arrows", {"compression": name}) for name in (None, "lz4")),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_orc_and_arrow_have_what_was_written(tmp_path: Path, ending: str, options: dict[str, Any], size: int) -> None:
    table = plain_table()
    path = tmp_path / f"a.{ending}"
    write_rows(
        path, table.set_column(1, "who", table["who"].cast(pa.string())) if ending == "orc" else table, **options
    )
    found = read_with_all(path, size)
    wanted = table.append_column("_ts", table["ts"].cast(pa.int64())).drop_columns("ts").to_pylist()
    assert [{name: row[name] for name in wanted[0]} for row in found] == wanted


@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_feather_files_and_streams_under_any_of_their_names(tmp_path: Path, compression: str) -> None:
    table = pa.table({"ts": [START_US], "name": ["a"], "x": [1.0], "n": [7]})
    table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", tz="UTC")))
    feather.write_feather(table, str(tmp_path / "a.feather"), compression=compression)
    write_rows(tmp_path / "b.arrows", table)
    (tmp_path / "b.arrows").rename(tmp_path / "b.arrow")  # a stream, by what it begins with
    write_rows(tmp_path / "c.arrow", table)
    (tmp_path / "c.arrow").rename(tmp_path / "c.IPC")
    assert [row[1:] for row in read_all(tmp_path, 2)] == [(k, "a", 1.0, 7) for k in range(3)]


@pytest.mark.parametrize("ending", ["orc", "avro", "arrow", "arrows"])
@pytest.mark.parametrize("cut", [1, 9, 40, 0.55, 0.99])  # of Avro a cut between two blocks is none
def test_a_file_that_is_cut_off_is_no_file_of_its_format(tmp_path: Path, ending: str, cut: float) -> None:
    path = write(tmp_path / f"a.{ending}", ROWS)
    data = path.read_bytes()
    path.write_bytes(data[: -int(cut) if cut >= 1 else int(len(data) * cut)])
    if ending == "arrows" and cut == 1:  # the end of a stream may be its end without a mark
        return
    with pytest.raises(FileFormatError, match="is cut off") as caught:
        read_all(path, 7)
    assert caught.value.name == str(path)


@pytest.mark.parametrize("ending", ["orc", "avro"])
def test_rows_before_a_damage_are_read_and_the_rest_is_set_aside(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", rows(4000))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    if ending == "avro":
        middle = data.index(b"n2", len(data) * 3 // 4) - 9
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(bytes(data))
    write(tmp_path / f"b.{ending}", rows(3, 4000))
    with pytest.raises(FileFormatError, match="cannot be read in rows"):
        list(feed(tmp_path).read(FilePosition(), None))
    positions = steps(feed(tmp_path, on_bad_file="quarantine"), FilePosition(), 300)
    chunks = [c for low, high in pairwise(positions) for c in feed(tmp_path, on_bad_file="quarantine").read(low, high)]
    found = tuples(chunks)
    assert [row[0] for row in found[-3:]] == [row[0] for row in rows(3, 4000)]
    assert len(found) > 1000
    assert [reject.file for chunk in chunks for reject in chunk.rejects] == [str(path)]


def test_a_column_that_no_type_holds_is_refused_only_where_it_is_wanted(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "x", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "any", "type": ["string", "double"]},
    ]}  # fmt: skip
    path = tmp_path / "a.avro"
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"ts": MOMENT, "x": 1.5, "tags": {"a": "b"}, "any": "c"}])
    streams = [Stream(name, str(path)) for name in "er"]
    schemas = {stream.name: infer_schema(stream) for stream in streams}
    with pytest.raises(ColumnError, match="tags") as caught:
        bind(Join(streams, [band("e.x", "r.x", 1)], "1s"), schemas)
    assert "select" in caught.value.hint
    bound = bind(Join(streams, [band("e.x", "r.x", 1)], "1s", select="e.x, r.x"), schemas)
    (chunk,) = open_feed(streams[0], bound.read_schemas[0]).read(FilePosition(), None)
    assert [row["x"] for row in chunk.tuples.to_pylist()] == [1.5]


def test_an_avro_file_that_may_not_be_read_safely_is_refused(tmp_path: Path) -> None:
    fields = [{"name": "ts", "type": "long"}, {"name": "in", "type": ["null", "r"]}]
    within = {"type": "record", "name": "r", "fields": fields}
    path = tmp_path / "a.avro"
    with path.open("wb") as file:
        fastavro.writer(file, within, [{"ts": 1, "in": None}])
    with pytest.raises(FileFormatError):
        infer_schema(Stream("e", str(path)))


def test_formats_of_rows_lie_beside_each_other(tmp_path: Path) -> None:
    for number, ending in enumerate(["avro", "csv", "orc", "arrow", "json", "parquet", "feather"]):
        path = write(tmp_path / f"{number}.{'arrow' if ending == 'feather' else ending}", rows(6, 6 * number))
        path.rename(tmp_path / f"{number}.{ending}")
    assert read_all(tmp_path, 5) == expected(rows(42))


@pytest.mark.parametrize("ending", ROW_ENDINGS)
def test_a_table_may_be_such_a_file(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"z.{ending}", ROWS)
    table = open_table(Table("z", str(path), finished_after="0s"))
    version = table.newest(None)
    assert version is not None
    found = table.rows(version, pa.schema([("name", pa.string()), ("n", pa.int64())]))
    assert found.to_pylist() == [{"name": name, "n": n} for _, name, _, n in ROWS]
    assert table.schema().names == SCHEMA.names
