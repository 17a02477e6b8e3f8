"""Delta tables in an object store as streams: the rows of a table here, whatever its log holds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streamjoin_ds.errors import FileFormatError, FileMissingError, StoreUnreachableError, StreamJoinError
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Stream
from tests.source.delta.tables import append, feed, optimize, read_all, rows, steps
from tests.source.delta.test_results_feed import SOME, commit, ordered, read_on
from tests.source.feeds import expected, tuples
from tests.support.further import further
from tests.support.s3 import BUCKET, S3, needs_s3

pytestmark = [needs_s3, pytest.mark.slow]


def place(name: str) -> Any:
    return f"s3://{BUCKET}/tables/{name}"


@pytest.mark.parametrize("size", [3, *further(100)])
def test_a_snapshot_and_the_versions_after_it(s3: S3, size: int) -> None:
    path = place(f"versions{size}")
    append(path, rows(5))
    reader = feed(path)
    ends = steps(reader, reader.initial(), size)
    append(path, rows(4, 5))
    optimize(path)
    append(path, rows(3, 9), partition_by=None)
    ends += steps(reader, ends[-1], size)[1:]
    found = []
    for low, high in pairwise(ends):
        found += tuples(feed(path).read(low, high, files=reader.files_between(low, high)))
    assert found == expected(rows(12))
    assert {row[2:] for row in read_all(path, 1000)} == {row[2:] for row in expected(rows(12))}
    assert infer_schema(Stream("e", path, format="delta")).names == ["ts", "name", "x", "n"]


def test_a_log_with_a_checkpoint(s3: S3) -> None:
    path = place("checkpoint")
    for number in range(4):
        append(path, rows(2, 2 * number))
    DeltaTable(path).create_checkpoint()
    append(path, rows(2, 8))
    assert read_all(path, 3) == expected(rows(10))


def test_results_of_a_join_are_the_next_ones_input(s3: S3) -> None:
    path = place("results")
    commit(path, SOME[:4], 5, 0)
    at, found = read_on(path, feed(path, time="event_time").initial(), 2)
    commit(path, SOME[4:], 10, 1)
    _, more = read_on(path, at, 2)
    assert [*found, *more] == ordered(SOME, 10)


def test_what_is_no_table_and_what_is_gone(s3: S3) -> None:
    with pytest.raises(FileFormatError, match="is no Delta table"):
        infer_schema(Stream("e", place("none"), format="delta"))
    path = place("gone")
    append(path, rows(5))
    reader = feed(path)
    low, high = steps(reader, reader.initial(), 10)
    names = reader.files_between(low, high)
    (data,) = DeltaTable(path).file_uris()
    s3.remove(data.partition(f"{BUCKET}/")[2])
    with pytest.raises(FileMissingError):
        list(feed(path).read(low, high, files=names))


@pytest.mark.long  # clients try again for 15 seconds
def test_a_line_that_breaks(s3: S3, tmp_path: Path) -> None:
    path = place("line")
    append(path, rows(500))
    reader = feed(path)
    start = reader.initial()
    low, high = steps(reader, start, 1000)
    names = reader.files_between(low, high)
    append(path, rows(5, 500))
    s3.line.left_bytes = 0
    for attempt in (
        lambda: reader.frontier(high, 10),
        lambda: list(feed(path).read(low, high, files=names)),
        lambda: infer_schema(Stream("e", path)),
    ):
        with pytest.raises(StreamJoinError, match="network connection") as caught:
            attempt()
        assert isinstance(caught.value, StoreUnreachableError)
    s3.line.left_bytes = None
    assert reader.frontier(high, 10).rows == 5
    assert tuples(feed(path).read(low, high, files=names)) == expected(rows(500))
