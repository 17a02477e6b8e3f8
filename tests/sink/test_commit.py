from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streamjoin_ds.errors import (
    ArgumentError,
    ColumnError,
    CommitConflictError,
    FileMissingError,
    FingerprintMismatchError,
    ForeignCheckpointError,
    LedgerError,
    PunctuationError,
    TableError,
)
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TIMESTAMP
from streamjoin_ds.sink.target import CommitTarget
from streamjoin_ds.sink.writer import FileReport

from .conftest import MATCH_SCHEMA, QUERY_ID, ROWS, STEP_US, ledger_rows, match_rows


def test_batches_reach_every_table_once(join, committer):
    outcomes = [join.commit(committer, batch_id) for batch_id in range(4)]
    assert [outcome.committed for outcome in outcomes] == [True] * 4
    assert [outcome.version for outcome in outcomes] == [1, 2, 3, 4]
    join.assert_each_once(range(4))


def test_rows_come_back_as_they_were_written(join, committer):
    join.commit(committer, 0)
    found = scanned(DeltaTable(join.tables.matches)).to_table().cast(MATCH_SCHEMA)
    assert found.equals(match_rows(0))


def test_a_replayed_batch_is_already_there(join, committer):
    for batch_id in range(3):
        join.commit(committer, batch_id)
    again = join.commit(join.committer(), 2)
    assert again.already_there
    assert join.commit(committer, 1).already_there
    join.assert_each_once(range(3))


def test_the_commit_says_what_it_is(join, committer):
    join.commit(committer, 0)
    commit = DeltaTable(join.tables.matches).history(1)[0]
    facts = {"batch_id": 0, "query_id": QUERY_ID, "punctuation": STEP_US, "fingerprint": "f1"}
    assert json.loads(commit["userMetadata"]) == {"streamjoin": facts}


def test_an_empty_batch_moves_the_punctuation(join, committer):
    join.commit(committer, 0)
    outcome = join.commit(committer, 1, [])
    assert outcome.committed
    assert join.commit(committer, 1, []).already_there
    assert join.batches() == {0: ROWS}
    assert join.batches("punctuations") == {0: 1, 1: 1}


def test_late_and_rejects_are_left_alone_without_rows(join, committer):
    join.commit(committer, 0, join.write(0))
    assert DeltaTable(join.tables.late).version() == 0
    assert DeltaTable(join.tables.rejects).version() == 0


@pytest.mark.parametrize("step", range(6))
def test_a_crash_between_two_steps_is_completed_by_the_replay(join, step, monkeypatch):
    committer = join.committer()
    join.commit(committer, 0)
    commit = CommitTarget.commit
    done = []

    def dying(self, *args, **kwargs):
        if len(done) == step:
            raise KeyboardInterrupt
        done.append(self.path)
        return commit(self, *args, **kwargs)

    monkeypatch.setattr(CommitTarget, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        join.commit(committer, 1)
    monkeypatch.undo()
    assert len(done) == step
    join.commit(join.committer(), 1)
    join.commit(join.committer(), 1)
    join.assert_each_once([0, 1])


@pytest.mark.parametrize("table", ["late", "rejects", "ledger", "metrics", "matches", "punctuations"])
def test_a_zombie_paused_after_its_check_loses(join, table, monkeypatch):
    zombie = join.committer()
    join.commit(zombie, 0)
    other = join.committer()
    holds = CommitTarget.holds
    path = join.tables.path_of(table)

    committing = CommitTarget.commit
    inside = []

    def committing_marked(self, *args, **kwargs):
        inside.append(self.path)
        return committing(self, *args, **kwargs)

    def paused(self, batch):
        answer = holds(self, batch)
        # The zombie sleeps between its check of this table and its commit; the other driver does two batches.
        if inside[-1:] == [path] and self.path == path:
            monkeypatch.undo()
            join.commit(other, 1)
            join.commit(other, 2)
        return answer

    monkeypatch.setattr(CommitTarget, "commit", committing_marked)
    monkeypatch.setattr(CommitTarget, "holds", paused)
    with pytest.raises(CommitConflictError) as raised:
        join.commit(zombie, 1)
    assert raised.value.name == path
    join.assert_each_once([0, 1, 2])


def test_a_zombie_that_wakes_before_its_check_sees_the_batch(join):
    zombie = join.committer()
    other = join.committer()
    for batch_id in range(3):
        join.commit(other, batch_id)
    assert join.commit(zombie, 0).already_there
    join.assert_each_once(range(3))


@pytest.mark.parametrize("meanwhile", ["append", "compaction", "property"])
def test_other_writers_between_check_and_commit_do_no_harm(join, committer, meanwhile, monkeypatch):
    for batch_id in range(3):
        join.commit(committer, batch_id)
    actions = CommitTarget._actions

    def disturbed(self, reports):
        found = actions(self, reports)
        if self.path == join.tables.matches:
            monkeypatch.undo()
            table = DeltaTable(self.path)
            if meanwhile == "append":
                write_deltalake(table, match_rows(9), mode="append")
            elif meanwhile == "compaction":
                assert table.optimize.compact()["numFilesRemoved"] == 3
            else:
                table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        return found

    monkeypatch.setattr(CommitTarget, "_actions", disturbed)
    assert join.commit(committer, 3).committed
    expected = dict.fromkeys(range(4), ROWS)
    assert join.batches() == ({**expected, 9: ROWS} if meanwhile == "append" else expected)
    assert join.commit(join.committer(), 3).already_there


def test_another_checkpoint_is_refused_before_anything_is_written(join, committer):
    join.commit(committer, 0)
    with pytest.raises(ForeignCheckpointError) as raised:
        join.commit(join.committer(), 1, query_id="another-query")
    assert raised.value.name == join.tables.ledger
    with pytest.raises(ForeignCheckpointError):
        join.commit(join.committer(), 0, query_id="another-query")
    join.assert_each_once([0])


def test_another_join_is_refused(join, committer):
    with pytest.raises(ForeignCheckpointError) as raised:
        join.committer(join_id="join-2")
    assert raised.value.name == join.tables.late


def test_another_fingerprint_is_refused(join, committer):
    with pytest.raises(FingerprintMismatchError) as raised:
        join.committer(fingerprint="f2")
    assert raised.value.name == join.tables.late


def test_a_changed_fingerprint_is_seen_while_running(join, committer):
    join.commit(committer, 0)
    DeltaTable(join.tables.matches).alter.set_table_properties(
        {"streamjoin.fingerprint": "f2"}, raise_if_not_exists=False
    )
    with pytest.raises(FingerprintMismatchError):
        join.commit(committer, 1)


def test_a_gap_is_refused(join, committer):
    join.commit(committer, 0)
    with pytest.raises(ForeignCheckpointError, match="lacks the batches from 1 on"):
        join.commit(committer, 2)
    join.assert_each_once([0])


def test_a_table_deleted_while_running_is_noticed(join, committer):
    join.commit(committer, 0)
    reports = join.all_reports(1)
    for name in ("matches", "ledger"):
        path = join.tables.path_of(name)
        os.rename(path, f"{path}_away")
    with pytest.raises(TableError, match="deleted or replaced"):
        join.commit(committer, 1, reports)
    with pytest.raises(ForeignCheckpointError):  # a new driver makes new tables, which lack batch 0
        join.commit(join.committer(), 1)


def test_side_tables_may_be_deleted_between_runs(join, committer):
    join.commit(committer, 0)
    os.rename(join.tables.metrics, f"{join.tables.metrics}_away")
    join.commit(join.committer(), 1)
    assert join.batches("metrics") == {1: 2}
    assert join.batches() == {0: ROWS, 1: ROWS}


@pytest.mark.parametrize("punctuation_us", [STEP_US - 1, 0, None])
def test_a_punctuation_never_goes_back(join, committer, punctuation_us):
    join.commit(committer, 0)
    with pytest.raises(PunctuationError):
        join.commit(committer, 1, [], punctuation_us=punctuation_us)
    assert join.commit(committer, 1, [], punctuation_us=STEP_US).committed


def test_a_punctuation_may_be_unknown_at_first_and_negative(join, committer):
    for batch_id, punctuation_us in enumerate([None, None, -(10**15), -5, -5, 0]):
        join.commit(committer, batch_id, [], punctuation_us=punctuation_us)
    column = scanned(DeltaTable(join.tables.punctuations)).to_table().sort_by("batch_id").column("punctuation")
    assert column.cast("int64").to_pylist() == [None, None, -(10**15), -5, -5, 0]
    with pytest.raises(PunctuationError):
        join.commit(committer, 6, [], punctuation_us=-1)


def test_a_result_older_than_the_punctuation_is_refused(join, committer):
    join.commit(committer, 0)
    rows = match_rows(1)
    times = rows.column("event_time").cast("int64").to_pylist()
    for oldest, refused in ((STEP_US - 1, True), (STEP_US, False)):
        changed = rows.set_column(4, MATCH_SCHEMA.field(4), pa.array([oldest, *times[1:]], TIMESTAMP))
        reports = join.write(1, changed)
        if refused:
            with pytest.raises(PunctuationError, match="older than the punctuation"):
                join.commit(committer, 1, reports)
        else:
            assert join.commit(committer, 1, reports).committed


def test_a_ledger_that_does_not_balance_is_refused(join, committer):
    with pytest.raises(LedgerError) as raised:
        join.commit(committer, 0, ledger=ledger_rows(0, read=11))
    assert raised.value.name == "r"
    assert DeltaTable(join.tables.late).version() == 0


def test_rows_of_another_batch_are_refused(join, committer):
    with pytest.raises(ColumnError, match="another batch"):
        join.commit(committer, 0, ledger=ledger_rows(1))
    with pytest.raises(ArgumentError, match="another batch"):
        join.commit(committer, 0, join.write(1))


def test_a_file_reported_twice_is_refused(join, committer):
    reports = join.write(0)
    with pytest.raises(ArgumentError, match="reported twice"):
        join.commit(committer, 0, [*reports, *reports])


@pytest.mark.parametrize("change", ["missing", "longer"])
def test_a_file_that_is_not_as_reported_is_refused(join, committer, change):
    reports = join.write(0)
    path = f"{join.tables.matches}/{reports[0].path}"
    if change == "missing":
        os.remove(path)
    else:
        with open(path, "ab") as file:
            file.write(b"x")
    with pytest.raises(FileMissingError) as raised:
        join.commit(committer, 0, reports)
    assert raised.value.name == reports[0].path


def test_files_with_statistics_left_out_are_accepted(join, committer):
    report = join.write(0)[0]
    bare = FileReport("matches", report.path, report.rows, report.size_bytes, json.dumps({"numRecords": report.rows}))
    assert join.commit(committer, 0, [bare]).committed


@pytest.mark.parametrize("value", ["", "a b", "a/b", "a'; DROP", "ä", "x" * 129])
def test_ids_are_single_words(join, value):
    with pytest.raises(ArgumentError, match="the join_id has a form"):
        join.committer(join_id=value)
    with pytest.raises(ArgumentError, match="the fingerprint has a form"):
        join.committer(fingerprint=value)


def test_a_committer_must_be_opened(join):
    from streamjoin_ds.sink.commit import Committer

    closed = Committer(join.tables, MATCH_SCHEMA, join_id="j", fingerprint="f", description="")
    with pytest.raises(TableError, match="not open"):
        join.commit(closed, 0, [])
