"""Archives as files of a stream: members in the order of their names, one header, damage, what is passed over."""

from __future__ import annotations

import gzip
import zipfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.files import archives
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.source.table_versions import open_table
from streamjoin_ds.spec import Stream, Table
from tests.source.feeds import SCHEMA, csv_text, expected, feed, json_text, pack, read_all, rows, steps, tuples

ENDINGS = [".zip", ".tar", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"]
ALL = rows(30)


def parts(count: int = 3) -> dict[str, bytes]:
    size = len(ALL) // count
    return {f"{k}.csv": csv_text(ALL[k * size : (k + 1) * size]).encode() for k in range(count)}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_members_are_read_in_the_order_of_their_names(tmp_path: Path, ending: str, size: int) -> None:
    others = {"__MACOSX/0.csv": b"x", ".hidden.csv": b"x", "in/.DS_Store": b"x", "README.md": b"#", "a.json": b"{}"}
    pack(tmp_path / f"a.csv{ending}", ending, {**others, **parts()})
    assert read_all(tmp_path, size) == expected(ALL)
    assert infer_schema(Stream("e", str(tmp_path))).names == SCHEMA.names


def test_a_member_without_its_last_newline_ends_there(tmp_path: Path) -> None:
    pack(tmp_path / "a.csv.zip", ".zip", {name: data.rstrip(b"\n") for name, data in parts().items()})
    assert read_all(tmp_path, 7) == expected(ALL)


def test_members_may_be_compressed_or_in_another_encoding(tmp_path: Path) -> None:
    one, two, three = parts().values()
    mixed = {"0.csv.gz": gzip.compress(one), "1.csv": two.decode().encode("utf-16"), "2.CSV": three}
    pack(tmp_path / "a.csv.tar", ".tar", mixed)
    assert read_all(tmp_path, 7) == expected(ALL)


def test_lines_before_the_names_stand_in_each_member(tmp_path: Path) -> None:
    made = {name: b"a logger\n" + data for name, data in parts().items()}
    pack(tmp_path / "a.csv.zip", ".zip", made)
    assert read_all(tmp_path, 7, skip_lines=1) == expected(ALL)


def test_a_name_that_tells_no_format_needs_one(tmp_path: Path) -> None:
    path = tmp_path / "readings.zip"
    pack(path, ".zip", {"a.jsonl": json_text(ALL).encode(), "notes.csv": b"x"})
    with pytest.raises(FileFormatError, match="does not tell its format"):
        read_all(path, 7)
    assert read_all(path, 7, format="json") == expected(ALL)


def test_members_with_other_columns_are_refused(tmp_path: Path) -> None:
    pack(tmp_path / "a.csv.zip", ".zip", {**parts(), "9.csv": b"ts,name,n\n"})
    with pytest.raises(FileFormatError, match=r"member 9.csv of .* has other columns") as caught:
        read_all(tmp_path, 7)
    assert caught.value.hint
    found = quarantined(tmp_path)
    assert found == (expected(ALL), 1)


def quarantined(folder: Path) -> tuple[list[object], int]:
    positions = steps(feed(folder, on_bad_file="quarantine"), FilePosition(), 4)
    read = [feed(folder, on_bad_file="quarantine").read(low, high) for low, high in pairwise(positions)]
    chunks = [chunk for part in read for chunk in part]
    return tuples(chunks), sum(len(chunk.rejects) for chunk in chunks)


@pytest.mark.parametrize("ending", [".zip", ".tar", ".tgz", ".tar.zst"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path, ending: str, share: float) -> None:
    path = tmp_path / f"a.csv{ending}"
    pack(path, ending, parts())
    data = path.read_bytes()
    size = len(data.rstrip(b"\0")) if ending == ".tar" else len(data)
    path.write_bytes(data[: int(size * share)])
    with pytest.raises(FileFormatError, match="is damaged or cut off"):
        read_all(path, 7)


def test_what_stands_before_a_damaged_member_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as made:
        for name, data in parts().items():
            made.writestr(name, data)
    data = bytearray(path.read_bytes())
    data[data.index(b",12.") if b",12." in data else len(data) // 2] ^= 1  # within the second member
    path.write_bytes(bytes(data))
    with pytest.raises(FileFormatError, match="is damaged"):
        read_all(path, 7)
    found, aside = quarantined(tmp_path)
    assert aside == 1
    assert found[:10] == expected(ALL)[:10]
    assert found == expected(ALL)[: len(found)]


@pytest.mark.parametrize("ending", [".csv.zip", ".csv.tar.zst", ".jsonl.tgz"])
def test_an_archive_is_a_table(tmp_path: Path, ending: str) -> None:
    members = parts() if ending.startswith(".csv") else {"a.jsonl": json_text(ALL).encode(), "b.csv": b"x"}
    pack(tmp_path / f"z{ending}", ending.removeprefix(".csv").removeprefix(".jsonl"), members)
    table = open_table(Table("z", str(tmp_path / f"z{ending}"), finished_after="0s"))
    found = table.rows(str(table.newest(None)), SCHEMA).to_pylist()
    assert [(row["name"], row["x"], row["n"]) for row in found] == [row[1:] for row in ALL]


@pytest.mark.parametrize("ending", [".csv.zip", ".csv.tar.bz2", ".csv.zst", ".csv.bz2"])
def test_a_text_is_not_decoded_again_for_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path, data = tmp_path / f"a{ending}", csv_text(rows(40_000)).encode()
    if ending in (".csv.zst", ".csv.bz2"):
        with pa.output_stream(str(path), compression={".csv.zst": "zstd"}.get(ending, "bz2")) as out:
            out.write(data)
    else:
        pack(path, ending.removeprefix(".csv"), {"a.csv": data})
    given = 0

    def counted(self: archives._Forward, size: int) -> bytes:
        nonlocal given
        data = decoded(self, size)
        given += len(data)
        return data

    decoded = archives._Forward._decoded
    monkeypatch.setattr(archives._Forward, "_decoded", counted)
    planner, reader = feed(tmp_path), feed(tmp_path)
    position, count = planner.initial(), 0
    while there := planner.frontier(position, 2_000).rows:  # a planner and its tasks in one process
        end = planner.advance(position, min(there, 2_000))
        count += sum(chunk.count for chunk in reader.read(position, end))
        position = end
    assert count == 40_000
    assert given < 3 * len(data)  # by both, and the beginning
