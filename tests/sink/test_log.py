"""An entry is put whole and once, also where the answer is lost on the way, and where a file system has no links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamjoin_ds.blocks import folder
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.guard import TableIdentity
from streamjoin_ds.sink.log import LogEntry, put_entry
from streamjoin_ds.sink.target import Batch, CommitTarget
from tests.sink.conftest import MATCH_SCHEMA, QUERY_ID, Join
from tests.support.s3 import BUCKET, forget, needs_s3, served


@needs_s3
@pytest.mark.slow
def test_a_commit_whose_answer_was_lost_is_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again and is told that another writer has this version: it was itself."""
    with served(tmp_path) as s3:
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        forget()
        path = f"s3://{BUCKET}/{tmp_path.name}/matches"
        target = CommitTarget(path, MATCH_SCHEMA, TableIdentity("join-1", "f1"), every_batch=True)
        target.open("matches")
        for number in range(3):
            s3.line.lost = [b"_delta_log/"] if number != 1 else []
            assert target.commit(Batch(number, QUERY_ID), lambda _: [])
            assert s3.line.lost == []
        assert not target.commit(Batch(2, QUERY_ID), lambda _: [])  # a replay finds it
        assert target.refresh().version == 3
        forget()


def test_an_entry_that_is_linked_although_the_system_says_it_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over NFS the answer to a link may be lost; the client asks again, and meets its own."""
    (tmp_path / "_delta_log").mkdir()
    link = os.link

    def twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert put_entry(str(tmp_path), 0, LogEntry("WRITE", 0))
    assert not put_entry(str(tmp_path), 0, LogEntry("WRITE", 0))
    assert [path.name for path in (tmp_path / "_delta_log").iterdir()] == [f"{0:020d}.json"]


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def without_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for exFAT, and some file systems of FUSE and SMB."""

    def refused(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "link", refused)


def test_a_join_s_tables_on_a_file_system_without_hard_links(join: Join, without_links: None) -> None:
    committer = join.committer()
    for batch_id in range(3):
        join.commit(committer, batch_id)
    join.commit(committer, 2)
    join.assert_each_once(range(3))


def test_of_two_writers_without_hard_links_one_has_the_version(tmp_path: Path, without_links: None) -> None:
    (tmp_path / "_delta_log").mkdir()
    assert put_entry(str(tmp_path), 0, LogEntry("WRITE", 1))
    assert not put_entry(str(tmp_path), 0, LogEntry("WRITE", 2))
    (entry,) = (tmp_path / "_delta_log").iterdir()
    assert entry.read_text() == LogEntry("WRITE", 1).text()


def test_a_file_system_that_can_do_neither_is_refused_by_name(
    tmp_path: Path, without_links: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_delta_log").mkdir()
    monkeypatch.setattr(folder, "_REPLACE_NOTHING", 1 << 30)  # a flag that no file system knows: EINVAL
    with pytest.raises(ArgumentError, match="no hard links, and no rename that replaces nothing") as refused:
        put_entry(str(tmp_path), 0, LogEntry("WRITE", 1))
    assert refused.value.name == f"{tmp_path}/_delta_log"
    assert list((tmp_path / "_delta_log").iterdir()) == []
