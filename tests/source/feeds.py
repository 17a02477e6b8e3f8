"""What the tests of feeds share: small inputs in every format, and readers that cut them anywhere."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.files.file_names import ARCHIVES, COMPRESSIONS
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.columns import marked_needed
from streamjoin_ds.spool.segment import frames_of, header, mark

SCHEMA = marked_needed(
    pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string()), ("x", pa.float64()), ("n", pa.int64())]),
    {"name", "x", "n"},
)
START_US = 1_704_067_200_000_000  # 2024-01-01
ROW_ENDINGS = ("parquet", "orc", "avro", "arrow", "arrows")
FORMATS = (
    *("csv", "csv.gz", "csv.zst", "csv.bz2", "csv.snappy", "csv.zip", "csv.tar", "csv.tgz"),
    *("json", "json.gz", "json.lz4", "json.sz", "json.zip", "json.tar.zst", *ROW_ENDINGS, "spool"),
)

Row = tuple[int, str, float, int]


def rows(count: int, first: int = 0) -> list[Row]:
    """Return rows a second apart; every fifth is two seconds older than its place says."""
    made = []
    for k in range(first, first + count):
        ts = START_US + k * 1_000_000 - (2_000_000 if k % 5 == 4 else 0)
        made.append((ts, f"n{k % 3}", k / 4, k))
    return made


def iso(ts: int) -> str:
    return pa.scalar(ts, pa.timestamp("us", tz="UTC")).as_py().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def csv_text(items: Iterable[Row], header: bool = True) -> str:
    lines = [f"{iso(ts)},{name},{x},{n}\n" for ts, name, x, n in items]
    return ("ts,name,x,n\n" if header else "") + "".join(lines)


def json_text(items: Iterable[Row]) -> str:
    return "".join(json.dumps({"ts": iso(ts), "name": name, "x": x, "n": n}) + "\n" for ts, name, x, n in items)


def segment(payloads: Sequence[bytes]) -> bytes:
    """Return a segment of a spool that holds these payloads, in one group."""
    frames = b"".join(frames_of([(b"t", payload) for payload in payloads], 0, 0, salt=1))
    return header(1, 0) + frames + mark(len(payloads), 1)


def write(path: Path, items: Sequence[Row], *, group_rows: int = 7) -> Path:
    """Write rows in the format that the file's name says."""
    if path.suffix[1:] in ROW_ENDINGS:
        values = zip(*items, strict=True) if items else [()] * len(SCHEMA)
        columns = [pa.array(given, field.type) for given, field in zip(values, SCHEMA, strict=True)]
        write_rows(path, pa.table(columns, schema=SCHEMA), group_rows)
        return path
    archive = next((end for end in ARCHIVES if path.name.endswith(end)), None)
    if archive is not None:
        form, kind = (csv_text, "csv") if ".csv" in path.name else (json_text, "json")
        parts = [items[k : k + 9] for k in range(0, len(items), 9)] or [items]
        pack(path, archive, {f"in/{k:03}.{kind}": form(part).encode() for k, part in enumerate(parts)})
        return path
    text = csv_text(items) if ".csv" in path.name else json_text(items)
    if path.name.endswith(".spool"):
        path.write_bytes(segment(text.encode().splitlines()))
        return path
    data = text.encode()
    path.write_bytes(compressed(data, path.suffix))
    return path


def write_rows(path: Path, table: pa.Table, group_rows: int = 7, **options: Any) -> None:
    """Write a table in a format of rows, in groups; `options` are those of its writer."""
    kind = path.suffix[1:]
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=group_rows, **options)
    elif kind == "orc":
        orc.write_table(table, path, stripe_size=64, batch_size=group_rows, **options)
    elif kind == "avro":
        with path.open("wb") as file:
            fastavro.writer(file, avro_schema(table.schema), table.to_pylist(), sync_interval=64, **options)
    else:
        begin = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with begin(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table, max_chunksize=group_rows)


def avro_schema(schema: pa.Schema) -> Any:
    """Return the schema of Avro for columns of plain types, each of which may be null."""
    names = {"int64": "long", "int32": "int", "double": "double", "float": "float", "bool": "boolean"}
    fields = []
    for column in schema:
        kind: Any = names.get(str(column.type), "string")
        if pa.types.is_timestamp(column.type):
            kind = {"type": "long", "logicalType": "timestamp-micros"}
        fields.append({"name": column.name, "type": ["null", kind]})
    return fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})


def pack(path: Path, archive: str, members: dict[str, bytes]) -> None:
    """Write an archive with these members, the last one first."""
    if archive == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in reversed(members.items()):
                made.writestr(name, data)
        return
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as tar:
        for name, data in reversed(members.items()):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    ending = {".tgz": ".gz", ".tbz2": ".bz2", ".tzst": ".zst", ".txz": ".xz"}.get(archive, f".{archive.split('.')[-1]}")
    path.write_bytes(lzma.compress(kept.getvalue()) if ending == ".xz" else compressed(kept.getvalue(), ending))


def compressed(data: bytes, ending: str) -> bytes:
    """Return the bytes as a file with this ending has them; framed Snappy as .sz, Hadoop's as .snappy."""
    kind = COMPRESSIONS.get(ending)
    if kind is None:
        return data
    if kind == "snappy":
        parts = [data[k : k + 50_000] for k in range(0, len(data), 50_000)]
        packed = [pa.Codec("snappy").compress(part, asbytes=True) for part in parts]
        if ending == ".sz":
            chunks = [b"\0" + (len(one) + 4).to_bytes(3, "little") + b"crc!" + one for one in packed]
            return b"\xff\x06\0\0sNaPpY" + b"".join(chunks)
        both = zip(parts, packed, strict=True)
        return b"".join(len(part).to_bytes(4, "big") + len(one).to_bytes(4, "big") + one for part, one in both)
    if kind == "gzip":
        return gzip.compress(data, mtime=0)
    made = pa.BufferOutputStream()
    with pa.CompressedOutputStream(made, kind) as stream:
        stream.write(data)
    return made.getvalue().to_pybytes()


def feed(path: Path, *, schema: pa.Schema = SCHEMA, ignore_missing: bool = False, **stream: Any) -> FileFeed:
    return FileFeed(Stream("e", str(path), **stream), schema, ignore_missing=ignore_missing)


def tuples(chunks: Iterable[Any], schema: pa.Schema = SCHEMA) -> list[tuple[Any, ...]]:
    """Return ``(_ts, _seq, columns ...)`` of each tuple of the chunks."""
    found = []
    for chunk in chunks:
        columns = [column.to_pylist() for column in chunk.tuples.columns]
        found += list(zip(*columns, strict=True))
    return found


def steps(feed: FileFeed, start: FilePosition, size: int) -> list[FilePosition]:
    """Return positions from `start` to the end of what is there, `size` records apart."""
    found = [start]
    while count := feed.frontier(found[-1], size).rows:
        found.append(feed.position(json.loads(json.dumps(feed.advance(found[-1], count).to_facts()))))
    return found


def expected(items: Sequence[Row], first_seq: int = 0) -> list[tuple[Any, ...]]:
    return [(ts, first_seq + k, name, x, n) for k, (ts, name, x, n) in enumerate(items)]


def read_all(path: Path, size: int, **more: Any) -> list[tuple[Any, ...]]:
    """Return all tuples, read in batches of `size`, each by a feed of its own, as tasks read them."""
    positions = steps(feed(path, **more), FilePosition(), size)
    found = []
    for low, high in pairwise(positions):
        found += tuples(feed(path, **more).read(low, high))
    return found
