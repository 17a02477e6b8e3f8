"""Files in an object store as a stream: the rows of the same files on a disk; a listing a look; errors by setting."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.blocks import files
from streamjoin_ds.blocks.files import RemoteFiles, files_at
from streamjoin_ds.blocks.object_store import Conditional
from streamjoin_ds.blocks.place import StorePath
from streamjoin_ds.errors import (
    ArgumentError,
    FileChangedError,
    FileFormatError,
    FileMissingError,
    FileOrderError,
    StoreUnreachableError,
    StreamJoinError,
)
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Stream
from tests.source.feeds import FORMATS, SCHEMA, csv_text, expected, rows, steps, tuples, write
from tests.support.s3 import BUCKET, S3, SECRET, forget, needs_s3, served

pytestmark = [needs_s3, pytest.mark.slow]


class Clock:
    """Seconds that go on when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        found = files_at(f"s3://{BUCKET}/")
        assert isinstance(found, RemoteFiles)
        found._clock = lambda: self.now_s


def feed(path: str, *, ignore_missing: bool = False, **stream: Any) -> FileFeed:
    return FileFeed(Stream("e", f"s3://{BUCKET}/{path}", **stream), SCHEMA, ignore_missing=ignore_missing)


def read_all(path: str, size: int, **more: Any) -> list[tuple[Any, ...]]:
    """Return all tuples, read in batches of `size`, each by a feed of its own, as tasks read them."""
    reader = feed(path, **more)
    found = []
    for low, high in pairwise(steps(reader, FilePosition(), size)):
        found += tuples(feed(path, **more).read(low, high, files=reader.files_between(low, high)))
    return found


def test_the_rows_of_a_folder_on_a_disk_in_every_format(s3: S3, tmp_path: Path) -> None:
    for number, ending in enumerate(FORMATS):
        write(tmp_path / f"f{number:02}.{ending}", rows(12, 12 * number))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "a.csv", rows(3))
    s3.put_folder(tmp_path, "every")
    assert infer_schema(Stream("e", f"s3://{BUCKET}/every")).names == ["ts", "name", "x", "n"]
    for size in (5, 1000):
        assert read_all("every", size) == expected(rows(12 * len(FORMATS)))
    assert read_all("every/*.csv", 7) == expected(rows(12))
    place = FORMATS.index("parquet")
    assert read_all(f"every/f{place:02}.parquet", 5) == expected(rows(12, 12 * place))


def test_a_look_is_one_listing_after_the_last_name(s3: S3, tmp_path: Path) -> None:
    clock = Clock()
    for number in range(3):
        s3.put(f"look/2024-{number}.csv", csv_text(rows(2, 2 * number)).encode())
    s3.put("look/archive/old.csv", b"ts\n")  # sorts after the files, and must not hide new ones
    reader = feed("look")
    at = steps(reader, FilePosition(), 10)[-1]

    def asked() -> list[str]:
        before = len(s3.requests())
        clock.now_s += 1
        assert reader.frontier(at, 10).rows == len(new)
        return s3.requests()[before:]

    new: list[Any] = []
    for _ in range(3):
        (listing,) = asked()
        assert "start-after=look/2024-2.csv" in listing
    new = rows(3, 6)
    s3.put("look/2024-3.csv", csv_text(new).encode()[:-1])  # an object is whole when it is there, its last line too
    told = asked()
    assert [text.split("?")[0] for text in told[:2]] == [f"GET /{BUCKET}", f"HEAD /{BUCKET}/look/2024-3.csv"]
    assert all("2024-3.csv" in text or text.startswith(f"GET /{BUCKET}?") for text in told)


def test_a_thousand_looks_in_a_second_ask_once(s3: S3) -> None:
    Clock()
    s3.put("often/a.csv", csv_text(rows(2)).encode())
    reader = feed("often")
    at = steps(reader, FilePosition(), 10)[-1]
    before = len(s3.requests())
    for _ in range(1000):
        reader.frontier(at, 10)
    assert s3.requests()[before:] == []


def late(s3: S3, folder: str) -> None:
    s3.put(f"{folder}/a0.csv", csv_text(rows(2)).encode())


def replaced(s3: S3, folder: str) -> None:
    s3.put(f"{folder}/a.csv", csv_text([(ts, "other", x, n) for ts, _, x, n in rows(4)]).encode())


def replaced_alike(s3: S3, folder: str) -> None:
    s3.put(f"{folder}/a.csv", csv_text([(ts, name.replace("n", "m"), x, n) for ts, name, x, n in rows(4)]).encode())


def gone(s3: S3, folder: str) -> None:
    s3.remove(f"{folder}/a.csv")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (late, FileOrderError),
        (replaced, FileChangedError),
        (replaced_alike, FileChangedError),
        (gone, FileMissingError),
    ],
)
def test_what_changes_is_noticed_at_the_next_whole_look(
    s3: S3, change: Callable[[S3, str], None], error: type[StreamJoinError]
) -> None:
    clock, folder = Clock(), change.__name__
    for name in "ab":
        s3.put(f"{folder}/{name}.csv", csv_text(rows(4)).encode())
    reader = feed(folder)
    at = steps(reader, FilePosition(), 100)[-1]
    change(s3, folder)
    clock.now_s += 5
    assert reader.frontier(at, 10).rows == 0  # nobody looks at all of it so soon
    clock.now_s += 60
    with pytest.raises(error):
        reader.frontier(at, 10)
    if change is gone:
        clock.now_s += 60
        ignoring = feed(folder, ignore_missing=True)
        assert ignoring.frontier(at, 10).rows == 0
    quarantined = feed(folder, on_bad_file="quarantine")
    if change in (late, replaced):
        assert quarantined.frontier(at, 10).rows == 1


@pytest.mark.parametrize("ending", ["csv", "json.gz", "parquet"])
def test_an_object_replaced_between_plan_and_read(s3: S3, tmp_path: Path, ending: str) -> None:
    s3.put(f"race/a.{ending}", write(tmp_path / f"a.{ending}", rows(30)).read_bytes())
    reader = feed(f"race/a.{ending}")
    low, high = steps(reader, FilePosition(), 30)
    names = reader.files_between(low, high)
    other = [(ts, name.replace("n", "m"), x, n) for ts, name, x, n in rows(30)]
    s3.put(f"race/a.{ending}", write(tmp_path / f"a.{ending}", other).read_bytes())
    forget()
    with pytest.raises(FileChangedError):
        list(feed(f"race/a.{ending}").read(low, high, files=names))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_partitions(s3: S3, tmp_path: Path, kind: str) -> None:
    for device in "ab":
        folder = tmp_path / device if kind == "folder" else tmp_path
        folder.mkdir(exist_ok=True)
        write(folder / f"{device}.csv", rows(5, 10 if device == "b" else 0))
    s3.put_folder(tmp_path, f"by-{kind}")
    found = {}
    for place in (str(tmp_path), f"s3://{BUCKET}/by-{kind}"):
        reader = open_feed(Stream("e", place, partition_by=kind), SCHEMA)
        start = reader.initial()
        end = reader.advance(start, reader.frontier(start, 100).rows)
        names = reader.files_between(start, end)
        found[place] = tuples(open_feed(Stream("e", place, partition_by=kind), SCHEMA).read(start, end, files=names))
    one, other = found.values()
    assert len(one) == 10
    assert sorted(one) == sorted(other)


@pytest.mark.parametrize(
    "options", [{"sub_folders": "read"}, {"sub_folders": "read", "file_order": "modified", "finished_after": "1us"}]
)
def test_sub_folders_and_the_order_of_modification(s3: S3, tmp_path: Path, options: dict[str, str]) -> None:
    clock, folder = Clock(), "-".join(options)
    for day in (9, 10):
        s3.put(f"{folder}/day={day}/b.csv", csv_text(rows(2, day)).encode())
    schema = pa.schema([*SCHEMA, ("day", pa.int64())])
    reader = FileFeed(Stream("e", f"s3://{BUCKET}/{folder}", **options), schema)
    at = steps(reader, FilePosition(), 10)[-1]
    found = tuples(reader.read(FilePosition(), at))
    assert [row[-1] for row in found] == [9, 9, 10, 10]
    s3.put(f"{folder}/day=11/a.csv", csv_text(rows(3, 11)).encode())
    clock.now_s += 1
    assert reader.frontier(at, 10).rows == 3


def test_a_line_that_breaks_is_neither_damage_nor_lost(s3: S3, tmp_path: Path) -> None:
    large = rows(60_000)
    s3.put("broken/a.parquet", write(tmp_path / "a.parquet", large, group_rows=20_000).read_bytes())
    s3.put("broken/b.csv.gz", write(tmp_path / "b.csv.gz", rows(20, 60_000)).read_bytes())
    reader = feed("broken", on_bad_file="quarantine")  # it must not be set aside either
    start = FilePosition()
    s3.line.left_bytes = 2_000  # a few requests
    for _ in range(2):
        with pytest.raises(StoreUnreachableError, match="network connection") as caught:
            reader.frontier(start, 100_000)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    s3.line.left_bytes = None
    end = reader.advance(start, reader.frontier(start, 100_000).rows)
    assert (end.seq, end.set_aside) == (60_020, 0)
    names = reader.files_between(start, end)
    s3.line.left_bytes = 0
    with pytest.raises(StoreUnreachableError):
        list(feed("broken").read(start, end, files=names))
    s3.line.left_bytes = None
    assert sum(chunk.count for chunk in feed("broken").read(start, end, files=names)) == 60_020


@pytest.mark.parametrize("is_used_before", [False, True])
def test_a_forked_process_asks_by_clients_of_its_own(s3: S3, is_used_before: bool) -> None:
    """Spark forks its Python workers. A client whose threads are its parent's alone would wait for ever."""
    folder = f"fork{is_used_before}"
    s3.put(f"{folder}/a.csv", csv_text(rows(4)).encode())

    def asked(name: str) -> bool:
        lock = Conditional(f"s3a://{BUCKET}/{folder}/locks/{name}")
        is_first = lock.put(b"x", if_none=True) is not None
        whole = StorePath(f"s3a://{BUCKET}/{folder}/a.csv").read_bytes() == csv_text(rows(4)).encode()
        return is_first and whole and read_all(folder, 10) == expected(rows(4))

    forget()
    assert not is_used_before or asked("parent")
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if asked("child") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Conditional(f"s3a://{BUCKET}/{folder}/locks/child").get()[0] == b"x"


def test_without_botocore_all_is_listed(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "keys_of", lambda _: None)
    clock = Clock()
    s3.put("plain/a.csv", csv_text(rows(4)).encode())
    reader = feed("plain")
    at = steps(reader, FilePosition(), 10)[-1]
    s3.put("plain/b.csv", csv_text(rows(4)).encode())
    clock.now_s += 1
    assert reader.frontier(at, 10).rows == 4
    s3.put("plain/0.csv", csv_text(rows(4)).encode())
    clock.now_s += 1
    with pytest.raises(FileOrderError):
        reader.frontier(at, 10)


@pytest.mark.parametrize(
    "location",
    ["s3://AKID:sEcReT@bucket/in", "s3://sEcReT@bucket/in", "s3://bucket/in?secret_key=sEcReT", "gs://b/in?x=sEcReT"],
)
def test_a_location_holds_no_secret(location: str) -> None:
    with pytest.raises(ArgumentError, match="AWS_ACCESS_KEY_ID") as caught:
        Stream("e", location)
    assert caught.value.name == "source"
    assert "sEcReT" not in "".join(traceback.format_exception(caught.value))


def test_each_wrong_setting_is_named(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("set/a.csv", csv_text(rows(4)).encode())

    def told(bucket: str = BUCKET) -> str:
        forget()
        with pytest.raises(StreamJoinError) as caught:
            infer_schema(Stream("e", f"s3://{bucket}/set"))
        text = str(caught.value)
        assert "\n" not in text
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        return text

    assert "no bucket of this name" in told("nowhere")
    with served(tmp_path, checks_credentials=True) as strict, monkeypatch.context() as changed:
        changed.setenv("AWS_ENDPOINT_URL", strict.environment()["AWS_ENDPOINT_URL"])
        assert "STORE_ACCESS" in told()
        assert "AWS_ACCESS_KEY_ID" in told()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            changed.delenv(name)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            changed.setenv(name, str(tmp_path / "none"))
        assert "there are no credentials" in told()
    s3.line.left_bytes = 0
    unreachable = told()
    assert "STORE_UNREACHABLE" in unreachable
    assert "AWS_ENDPOINT_URL" in unreachable


def test_credentials_of_a_file(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("file/a.csv", csv_text(rows(4)).encode())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    secrets = tmp_path / "credentials"
    secrets.write_text(f"[mine]\naws_access_key_id = AKIDother\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(secrets))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert read_all("file", 10) == expected(rows(4))


def test_a_damaged_object_is_damage(s3: S3, tmp_path: Path) -> None:
    data = write(tmp_path / "a.parquet", rows(30)).read_bytes()
    s3.put("damage/a.parquet", data[: len(data) // 2])
    with pytest.raises(FileFormatError, match=r"a\.parquet"):
        steps(feed("damage"), FilePosition(), 10)


def test_a_table_is_no_folder_of_files(s3: S3) -> None:
    s3.put("lake/_delta_log/00000000000000000000.json", b"{}")
    s3.put("lake/day=1/a.csv", csv_text(rows(4)).encode())
    with pytest.raises(FileFormatError, match="lies in a Delta table"):
        infer_schema(Stream("e", f"s3://{BUCKET}/lake/day=1", schema=pa.schema(SCHEMA), format="csv"))
