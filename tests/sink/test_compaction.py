from __future__ import annotations

import os

import pytest
from deltalake import DeltaTable, Field

from streamjoin_ds.sink import compaction
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.reader import scanned

from .conftest import MATCH_SCHEMA, ROWS


def rows_of(join):
    return scanned(DeltaTable(join.tables.matches)).to_table().sort_by("r_seq")


def files_of(join):
    return {name for name in os.listdir(join.tables.matches) if name.endswith(".parquet")}


def test_rows_and_identity_stay(join, committer):
    for batch_id in range(6):
        join.commit(committer, batch_id)
    before = rows_of(join)
    done = compact(join.tables.matches)
    assert (done.files_removed, done.files_added) == (6, 1)
    table = DeltaTable(join.tables.matches)
    assert rows_of(join).equals(before)
    assert scanned(table).to_table().cast(MATCH_SCHEMA).num_rows == 6 * ROWS
    assert "min.event_time" in table.get_add_actions(flatten=True).schema.names
    assert join.commit(committer, 6).committed
    assert join.commit(join.committer(), 5).already_there
    assert compact(join.tables.matches, target_size_bytes=1).files_removed == 0


def test_files_of_about_the_target_size(join, committer):
    for batch_id in range(7):
        join.commit(committer, batch_id)
    size_bytes = max(os.path.getsize(f"{join.tables.matches}/{name}") for name in files_of(join))
    done = compact(join.tables.matches, target_size_bytes=3 * size_bytes + 2)
    assert (done.files_removed, done.files_added) == (6, 2)
    join.assert_each_once(range(7))


@pytest.mark.parametrize("meanwhile", ["compaction", "delta-rs", "delete", "append"])
def test_what_another_writer_does_meanwhile(join, committer, monkeypatch, meanwhile):
    """Each row is there once. A compaction whose files are gone gives up; one that an append overtook goes on."""
    for batch_id in range(4):
        join.commit(committer, batch_id)
    before = rows_of(join)
    path, write = join.tables.matches, compaction._rewritten

    def written(*arguments):
        reports = write(*arguments)
        monkeypatch.setattr(compaction, "_rewritten", write)
        if meanwhile == "compaction":
            assert compact(path).files_removed == 4
        elif meanwhile == "delta-rs":
            DeltaTable(path).optimize.compact()
        elif meanwhile == "delete":
            DeltaTable(path).delete("r_seq = 3")
        else:
            join.commit(committer, 4)
        return reports

    monkeypatch.setattr(compaction, "_rewritten", written)
    done = compact(path)
    assert done.files_removed == (4 if meanwhile == "append" else 0)
    expected = {"delete": before.num_rows - 1, "append": before.num_rows + ROWS}.get(meanwhile, before.num_rows)
    after = rows_of(join)
    assert after.num_rows == expected
    assert len(set(after.column("r_seq").to_pylist())) == expected
    # A compaction that gave up leaves nothing behind; what the others replaced is theirs.
    named = {os.path.basename(uri) for uri in DeltaTable(path).file_uris()}
    assert all(name in named for name in files_of(join) if "compacted" in name)


@pytest.mark.parametrize("whose", ["delta-rs", "ours"])
def test_two_compactions_of_delta_rs_double_the_rows_and_ours_do_not(join, committer, monkeypatch, whose):
    """Both begin at the same snapshot. If delta-rs' compaction is right one day, the runbook may say so."""
    for batch_id in range(4):
        join.commit(committer, batch_id)
    path, rows = join.tables.matches, rows_of(join).num_rows
    if whose == "delta-rs":
        first, second = DeltaTable(path), DeltaTable(path)
        first.optimize.compact()
        second.optimize.compact()
        assert rows_of(join).num_rows == 2 * rows
        return
    write = compaction._rewritten

    def written(*arguments):
        reports = write(*arguments)
        monkeypatch.setattr(compaction, "_rewritten", write)
        assert compact(path).files_removed == 4
        return reports

    monkeypatch.setattr(compaction, "_rewritten", written)
    assert compact(path).files_removed == 0
    assert rows_of(join).num_rows == rows


def test_a_table_with_features_of_its_own_is_left_alone(join, committer, monkeypatch):
    for batch_id in range(3):
        join.commit(committer, batch_id)
    monkeypatch.setattr(compaction, "_is_plain", lambda table: False)
    assert compact(join.tables.matches).files_removed == 0


@pytest.mark.parametrize(("ahead", "attempts"), [(3, 4), (3, 3)])
def test_commits_come_first_and_it_is_given_up_in_the_end(join, committer, monkeypatch, ahead, attempts):
    for batch_id in range(3):
        join.commit(committer, batch_id)
    put, batches = compaction.put_entry, iter(range(3, 3 + ahead))

    def second(*arguments):
        batch_id = next(batches, None)
        if batch_id is not None:
            join.commit(committer, batch_id)
        return put(*arguments)

    monkeypatch.setattr(compaction, "put_entry", second)
    monkeypatch.setattr(compaction, "_ATTEMPTS", attempts)
    assert compact(join.tables.matches).files_removed == (3 if ahead < attempts else 0)
    monkeypatch.undo()
    join.assert_each_once(range(3 + ahead))
    assert len(DeltaTable(join.tables.matches).file_uris()) == ahead + (1 if ahead < attempts else 3)


def test_an_attempt_costs_what_is_new(join, committer, monkeypatch):
    """Beside a commit every few milliseconds, an attempt that looks at all files would always be too late."""
    for batch_id in range(40):
        join.commit(committer, batch_id)
    looked, find = [], compaction._files
    monkeypatch.setattr(compaction, "_files", lambda table: looked.append(table) or find(table))
    size_bytes = max(os.path.getsize(f"{join.tables.matches}/{name}") for name in files_of(join))
    done = compact(join.tables.matches, target_size_bytes=4 * size_bytes + 2)
    assert done.files_added == 10
    assert len(looked) == 1
    (action,) = DeltaTable(join.tables.matches).history(1)
    assert action["operation"] == "OPTIMIZE"


def test_who_slept_until_the_log_was_cleaned_compacts_nothing_in_the_past(join, committer, monkeypatch):
    for batch_id in range(4):
        join.commit(committer, batch_id)
    path, forward = join.tables.matches, compaction.LogSnapshot.forward

    def slept(log):
        """Let the log go on, and be cleaned, behind a snapshot that looked just before."""
        forward(log)
        monkeypatch.setattr(compaction.LogSnapshot, "forward", forward)
        for batch_id in range(4, 8):
            join.commit(committer, batch_id)
        DeltaTable(path).create_checkpoint()
        for version in range(log.version + 2):
            os.unlink(f"{path}/_delta_log/{version:020d}.json")

    monkeypatch.setattr(compaction.LogSnapshot, "forward", slept)
    assert compact(path).files_removed == 4
    join.assert_each_once(range(8))
    versions = sorted(int(name[:20]) for name in os.listdir(f"{path}/_delta_log") if name.endswith(".json"))
    assert versions[0] > 4


def test_a_column_that_comes_between_two_groups_ends_it(join, committer, monkeypatch):
    for batch_id in range(8):
        join.commit(committer, batch_id)
    path, write = join.tables.matches, compaction._rewritten

    def written(*arguments):
        monkeypatch.setattr(compaction, "_rewritten", write)
        DeltaTable(path).alter.add_columns([Field("note", "string", nullable=True)])
        return write(*arguments)

    monkeypatch.setattr(compaction, "_rewritten", written)
    size_bytes = max(os.path.getsize(f"{path}/{name}") for name in files_of(join))
    assert compact(path, target_size_bytes=4 * size_bytes + 2).files_removed == 0
    assert len(files_of(join)) == 8
