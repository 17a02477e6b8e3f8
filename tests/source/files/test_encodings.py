"""Files in other encodings than UTF-8 hold the same records, wherever they are cut, and as they grow."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, FileChangedError, FileFormatError, FileRotatedError
from streamjoin_ds.source.files import text
from streamjoin_ds.source.files.decoders import Chain, Encoded
from streamjoin_ds.source.files.listing import location_of
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Files, Stream
from tests.source.feeds import SCHEMA, compressed, csv_text, expected, feed, json_text, read_all, rows, steps, tuples

ROWS = [(ts, f"{name} °ß", x, n) for ts, name, x, n in rows(11)]
JAPANESE = [(ts, f"{name} 温度", x, n) for ts, name, x, n in ROWS]
# By the name that is given, and by a mark where none is given.
WRITTEN = {
    "utf-16-le": {"encoding": "UTF-16LE"}, "utf_16_be": {"encoding": "utf-16-be"},
    "utf-32-le": {"encoding": "utf_32_le"},
    "latin-1": {"encoding": "latin-1"}, "cp1252": {"encoding": "windows-1252"},
    "utf-16": {}, "utf-32": {}, "utf-8-sig": {},
}  # fmt: skip
ASIAN = ("shift_jis", "iso2022_jp", "euc_jp", "gb18030")


def forget() -> None:
    """Let go of what was open, as a new process has it."""
    text._places.clear()
    text._begins.clear()


@pytest.mark.each_value
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst", "json", "json.bz2"])
@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("written", WRITTEN)
def test_the_records_are_those_of_utf8(tmp_path: Path, written: str, size: int, ending: str) -> None:
    data = (csv_text(ROWS) if "csv" in ending else json_text(ROWS)).encode(written)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(compressed(data, path.suffix))
    assert read_all(tmp_path, size, **WRITTEN[written]) == expected(ROWS)
    assert infer_schema(Stream("e", tmp_path, **WRITTEN[written])).names == SCHEMA.names


@given(
    st.sampled_from(["utf-16", "utf-16-be", "utf-32", *ASIAN, "big5", "cp1252"]),
    st.binary(max_size=40), st.lists(st.integers(1, 9), min_size=1), st.booleans(),
)  # fmt: skip
def test_any_bytes_cut_anywhere_give_one_text(name: str, data: bytes, cuts: list[int], is_text: bool) -> None:
    """That of Python's own decoder, where no byte is a bad one. A copy goes on as the decoder does."""
    written = data.decode("latin-1").encode(name, "ignore") if is_text else data
    begin = written[:4]
    whole = Encoded(name).decoder(begin, "f")
    if whole is None:
        return
    wanted = whole.feed(written) + whole.finish() if written else b""
    first = Encoded(name).decoder(begin, "f")
    assert first is not None
    decoder, found, at = Chain([first]), b"", 0
    while at < len(written):
        size = cuts[at % len(cuts)]
        decoder = decoder.copy()
        found += decoder.feed(written[at : at + size])
        at += size
    assert found + decoder.finish() == wanted
    try:
        wanted.decode()
    except UnicodeDecodeError:
        return
    assert wanted.decode() == written.decode(name)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("written", ["utf-16", "utf-16-be", "cp1252"])
def test_a_file_is_read_as_it_grows(tmp_path: Path, written: str, restarts: bool) -> None:
    """A part of a character at its end waits, and so does a last line."""
    path, data = tmp_path / "a.csv", csv_text(ROWS).encode(written)
    path.write_bytes(b"")
    options = {"encoding": written}
    reader = feed(tmp_path, **options)
    at, found = reader.initial(), []
    for end in [*range(0, len(data), 37), len(data)]:
        path.write_bytes(data[:end])
        if restarts:
            forget()
            reader = feed(tmp_path, **options)
        while count := reader.frontier(at, 3).rows:
            after = reader.advance(at, count)
            found += tuples(feed(tmp_path, **options).read(at, after))
            at = after
    assert found == expected(ROWS)
    assert reader.held_back_bytes == 0


def test_a_large_file_is_read_from_anywhere(tmp_path: Path) -> None:
    """Its segments are verified from their beginnings on, with or without what was left open."""
    items = [(ts, name + "é" * 40, x, n) for ts, name, x, n in rows(40_000)]
    path = tmp_path / "a.csv"
    path.write_bytes(csv_text(items).encode("utf-16"))
    places = steps(feed(path), FilePosition(), 9_000)
    for is_new in (False, True):
        found = []
        for low, high in reversed([*pairwise(places)]):
            if is_new:
                forget()
            found = tuples(feed(path).read(low, high)) + found
        assert found == expected(items)
    with path.open("ab") as file:
        file.write(csv_text(rows(3), header=False).encode("utf-16-le"))
    reader = feed(path)
    assert reader.frontier(places[-1], 99).rows == 3
    assert len(path.read_bytes()) > places[-1].offset > 2 * text.SEGMENT_BYTES


def test_what_was_left_open_is_not_of_another_text(tmp_path: Path) -> None:
    """A file that is written anew in place, and is longer, has other characters before a place."""
    path = tmp_path / "a.csv"
    for name in ("n", "°n°"):
        written = csv_text([(ts, name, x, n) for ts, _, x, n in rows(30_000 * len(name))])
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(written.encode("utf-16"))
        (entry,) = location_of(Stream("e", path)).entries()
        with text.open_text(entry) as opened:
            for at in (1_100_000, 1_000_000):
                assert opened.read(at, 99) == written.encode()[at : at + 99]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(("written", "bad"), [("utf-16-le", b"\x00\xd8"), ("cp1252", b"\x81"), ("euc_jp", b"\xff")])
def test_one_bad_byte_is_one_bad_record(tmp_path: Path, written: str, bad: bytes, is_last: bool) -> None:
    """Where a column that is read has it; and it does not end the line."""
    lines = csv_text([(ts, name.replace("°ß", ""), x, n) for ts, name, x, n in ROWS]).splitlines(keepends=True)
    place = len(lines) - 1 if is_last else 4
    data = [line.encode(written) for line in lines]
    name = lines[place].split(",")[1].encode(written)
    data[place] = data[place].replace(name, name + bad)
    (tmp_path / "a.csv").write_bytes(b"".join(data))
    reader = feed(tmp_path, encoding=written)
    low, high = steps(reader, FilePosition(), 99)
    chunks = [*reader.read(low, high)]
    ((reject,),) = [chunk.rejects for chunk in chunks]
    assert (reject.line, reject.column, reject.reason) == (place + 1, "name", f"the value is not {written.upper()}")
    assert "\ufffd" in reject.text
    assert len(tuples(chunks)) == len(ROWS) - 1
    assert infer_schema(Stream("e", tmp_path, encoding=written)).field("name").type == SCHEMA.field("name").type
    schema = SCHEMA.remove(1)
    ((chunk),) = feed(tmp_path, encoding=written, schema=schema).read(FilePosition(), None)
    assert chunk.tuples.num_rows == len(ROWS)


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_bytes(csv_text(ROWS).encode("utf-16"))
    running = feed(log)
    at = steps(running, FilePosition(), 99)[-1]
    log.write_bytes(csv_text(ROWS).replace("n1", "n7").encode("utf-16"))
    for reader in (running, feed(log)):
        with pytest.raises(FileChangedError):
            reader.frontier(at, 9)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rotated_file_is_named(tmp_path: Path, restarts: bool) -> None:
    log = tmp_path / "app.csv"
    data = csv_text(ROWS).encode("utf-16")
    log.write_bytes(data)
    running = feed(log)
    at = steps(running, FilePosition(), 99)[-1]
    (tmp_path / "app.csv.1.gz").write_bytes(gzip.compress(data))
    os.truncate(log, 0)
    with pytest.raises(FileRotatedError):
        (feed(log) if restarts else running).frontier(at, 9)
    (tmp_path / "app.csv.1.gz").unlink()
    with pytest.raises(FileChangedError if restarts else FileRotatedError):
        (feed(log) if restarts else running).frontier(at, 9)


def test_what_a_damaged_file_still_gives_is_read(tmp_path: Path) -> None:
    many = rows(5000)
    data = gzip.compress(csv_text(many).encode("utf-16"))
    (tmp_path / "a.csv.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(FileFormatError, match="ends in the middle"):
        read_all(tmp_path, 99_999)
    found = read_all(tmp_path, 1000, on_bad_file="quarantine")
    assert 100 < len(found) < 5000
    assert found == expected(many)[: len(found)]


def test_files_of_a_folder_may_differ(tmp_path: Path) -> None:
    for number, written in enumerate(("utf-16", "utf-8-sig", "cp1252", "utf-32")):
        (tmp_path / f"{number}.csv").write_bytes(csv_text(ROWS).encode(written))
    assert [row[2] for row in read_all(tmp_path, 7, encoding="cp1252")] == [row[1] for row in ROWS] * 4


def test_japanese(tmp_path: Path) -> None:
    for written in ASIAN:
        path = tmp_path / f"{written}.csv"
        path.write_bytes(csv_text([(ts, name.replace("ß", ""), x, n) for ts, name, x, n in JAPANESE]).encode(written))
        assert len(read_all(path, 4, encoding=written)) == 11


@pytest.mark.parametrize("given", ["klingon", "", 7, None, "base64", "rot13", "utf-7", "idna", "a\0b"])
def test_what_is_no_encoding(given: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        Files("a.csv", encoding=given).checked("e")  # type: ignore[arg-type]
    assert caught.value.name == "encoding"
    assert "cp1252" in caught.value.hint


def test_names_of_one_encoding_are_equal() -> None:
    one, other, plain = (Stream("e", "in/", encoding=name) for name in ("Latin-1", "iso-8859-1", "utf8"))
    assert one == other == Stream.from_facts(one.to_facts())
    assert one.to_facts()["encoding"] == "iso8859-1"
    assert "encoding" not in plain.to_facts()
