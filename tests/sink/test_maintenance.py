from __future__ import annotations

import json
import os
import shutil
import threading
import time

import pytest
from deltalake import DeltaTable

from streamjoin_ds.errors import ArgumentError, CommitConflictError
from streamjoin_ds.sink import maintenance
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.log import put_entry
from streamjoin_ds.sink.maintenance import (
    Maintenance,
    clean_log,
    remove_leftovers,
    size_to_compact_to,
    vacuum,
)
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.writer import WRITING_FOLDER
from tests.support.further import further

from .conftest import ROWS

DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S


def aged(path):
    then = time.time() - WEEK_S - 3600
    os.utime(path, (then, then))


def test_vacuum_takes_old_orphans_only(join, committer):
    join.commit(committer, 0)
    old, young, late_attempt = (join.write(1)[0].path for _ in range(3))
    folder = join.tables.matches
    aged(f"{folder}/{old}")
    halves = [f"{folder}/{WRITING_FOLDER}/{name}.parquet" for name in ("dead", "alive")]
    for half in halves:
        with open(half, "wb") as file:
            file.write(b"PAR1")
    aged(halves[0])
    removed = vacuum(folder, dry_run=True)
    assert sorted(removed) == sorted([old, f"{WRITING_FOLDER}/dead.parquet"])
    assert os.path.exists(f"{folder}/{old}")
    assert sorted(vacuum(folder)) == sorted(removed)
    left = set(os.listdir(folder))
    assert old not in left
    assert {young, late_attempt} <= left
    assert os.listdir(f"{folder}/{WRITING_FOLDER}") == ["alive.parquet"]
    join.assert_each_once([0])


def test_retention_has_a_floor(join, committer):
    with pytest.raises(ArgumentError) as raised:
        vacuum(join.tables.matches, retention_hours=167)
    assert raised.value.name == "retention_hours"


def test_leftovers_are_judged_by_the_time_given(join, committer):
    path = f"{join.tables.matches}/{WRITING_FOLDER}"
    assert remove_leftovers(join.tables.matches) == []
    os.makedirs(path)
    with open(f"{path}/x.parquet", "wb"):
        pass
    written_s = os.stat(f"{path}/x.parquet").st_mtime
    assert remove_leftovers(join.tables.matches, now_s=written_s + WEEK_S - 1) == []
    assert remove_leftovers(join.tables.matches, now_s=written_s + WEEK_S + 1) == [f"{WRITING_FOLDER}/x.parquet"]


def test_a_folder_of_leftovers_that_goes_while_it_is_listed(join, monkeypatch):
    class Going:
        def get_file_info(self, selector):
            raise FileNotFoundError(2, "Cannot list directory", selector.base_dir)

    monkeypatch.setattr("streamjoin_ds.sink.maintenance.filesystem_of", lambda path: (Going(), path))
    assert remove_leftovers(join.tables.matches) == []


def test_rounds_come_when_due(join, committer):
    looked_after = Maintenance(join.tables, every_batches=3, small_files=3, background=False)
    begun = []
    for batch_id in range(7):
        join.commit(committer, batch_id)
        begun.append(looked_after.after_commit())
    assert begun == [True, False, False, True, False, False, True]
    assert (looked_after.rounds, looked_after.failures) == (3, 0)
    for name in TableSet.names():
        assert len(DeltaTable(join.tables.path_of(name)).file_uris()) == 1, name
    join.assert_each_once(range(7))


def test_a_failure_is_counted_and_logged_and_no_more(join, committer, monkeypatch, caplog):
    join.commit(committer, 0)
    monkeypatch.setattr(maintenance, "vacuum", lambda path, now_s: 1 / 0)
    later_s = time.time() + 2 * DAY_S
    looked_after = Maintenance(join.tables, background=False, clock=lambda: later_s)
    assert looked_after.after_commit()
    assert looked_after.failures == len(TableSet.names())
    assert "VACUUM of" in caplog.text
    assert join.commit(committer, 1).committed


@pytest.mark.slow
@pytest.mark.parametrize("batches_a_process", [3, *further(1)])
def test_a_join_that_restarts_is_looked_after_as_one_that_runs(join, batches_a_process):
    """A new process comes every few batches of an hour each: tables are compacted, checkpointed and cleaned in time."""
    join.committer()
    born_s = time.time()
    orphan = join.write(0)[0].path
    os.utime(f"{join.tables.matches}/{orphan}", (born_s, born_s))
    cleaned = []
    for batch_id in range(0, 60, batches_a_process):
        now_s = born_s + batch_id * 3600
        committer = join.committer()
        looked_after = Maintenance(
            join.tables, small_files=8, checkpoint_entries=10, background=False, clock=lambda now_s=now_s: now_s
        )
        for number in range(batch_id, batch_id + batches_a_process):
            join.commit(committer, number)
            looked_after.after_commit()
        assert looked_after.failures == 0
        at_s = LogSnapshot(join.tables.matches).transactions.get("streamjoin/join-1#vacuum")
        if at_s not in [None, *cleaned]:
            cleaned.append(at_s)
    assert [round((at_s - born_s) / 3600) for at_s in cleaned] == [*range(0, 60, 6)]  # by the tables' own record
    assert not os.path.exists(f"{join.tables.matches}/{orphan}")
    for name in ("matches", "ledger", "metrics", "punctuations"):
        table = LogSnapshot(join.tables.path_of(name), with_files=True)
        assert len(table.live) < 2 * 8 + batches_a_process, name
        assert os.path.exists(f"{table.path}/_delta_log/_last_checkpoint")
    join.assert_each_once(range(60))


def test_vacuum_goes_by_the_tables_own_retention(join, committer):
    """Files of batches that are over go by it. A compaction's files stay for a day: the compaction may sleep."""
    for batch_id in range(4):
        join.commit(committer, batch_id)
    folder = join.tables.matches
    finished = join.write(2)[0].path
    compacted = finished.replace("batch-00000002-0-", "batch-00000000-compacted-")
    assert compacted != finished
    shutil.copy(f"{folder}/{finished}", f"{folder}/{compacted}")
    assert vacuum(folder, now_s=time.time() + 5 * 3600) == []
    assert vacuum(folder, now_s=time.time() + 7 * 3600) == [finished]
    DeltaTable(folder).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 minute"})
    finished = join.write(2)[0].path
    assert vacuum(folder, now_s=time.time() + 61) == [finished]
    assert vacuum(folder, now_s=time.time() + DAY_S + 1) == [compacted]
    join.assert_each_once(range(4))


def test_vacuum_keeps_what_a_reader_or_a_running_batch_needs(join, committer):
    """It keeps live files, files that were replaced lately, however old, and files of a batch that is not over."""
    for batch_id in range(4):
        join.commit(committer, batch_id)
    finished, running = join.write(2)[0].path, join.write(4)[0].path
    then_s = time.time() - 2 * DAY_S
    folder = join.tables.matches
    for name in os.listdir(folder):
        if name.endswith(".parquet"):
            os.utime(f"{folder}/{name}", (then_s, then_s))
    replaced = set(LogSnapshot(folder, with_files=True).live)
    compact(folder)
    assert vacuum(folder) == [finished]
    later_s = time.time() + 7 * 3600  # beyond delta.deletedFileRetentionDuration
    assert set(vacuum(folder, now_s=later_s)) == replaced
    assert os.path.exists(f"{folder}/{running}")
    join.assert_each_once(range(4))


def test_files_that_the_log_says_were_replaced_go_when_their_time_is_over(join, committer):
    """They go whoever wrote them.

    Otherwise a table that is compacted every few seconds, and cleaned every day, fills the disk.
    """
    for batch_id in range(4):
        join.commit(committer, batch_id)
    folder = join.tables.matches
    compact(folder)
    first = set(LogSnapshot(folder, with_files=True).live)
    join.commit(committer, 4)
    compact(folder)
    DeltaTable(folder).delete("r_seq % 2 = 1")
    join.commit(committer, 5)
    compact(folder)
    live = set(LogSnapshot(folder, with_files=True).live)
    dead = {name for name in os.listdir(folder) if name.endswith(".parquet")} - live
    assert any("-compacted-" in name for name in first)
    assert any(name.startswith("part-") for name in dead)
    assert first < dead
    assert vacuum(folder, dry_run=True, now_s=time.time() + 5 * 3600) == []
    assert set(vacuum(folder, dry_run=True, now_s=time.time() + 7 * 3600)) == dead
    looked_after = Maintenance(
        join.tables, background=False, clock=lambda: time.time() + 7 * 3600, vacuum_every_s=WEEK_S
    )
    looked_after.run_round()
    assert {name for name in os.listdir(folder) if name.endswith(".parquet")} == live
    assert not looked_after.failures


def test_replaced_files_go_before_a_checkpoint_forgets_them(join, committer):
    now_s = [time.time()]
    looked_after = Maintenance(
        join.tables, background=False, clock=lambda: now_s[0], vacuum_every_s=WEEK_S, checkpoint_entries=1
    )
    DeltaTable(join.tables.matches).alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 1 minute"}
    )
    folder, most = join.tables.matches, 0
    for batch_id in range(12):
        join.commit(committer, batch_id)
        compact(folder)
        looked_after.run_round()
        now_s[0] += 20.0
        most = max(most, sum(name.endswith(".parquet") for name in os.listdir(folder)))
    assert most <= 10, "of two minutes, two files a round and those that live"
    join.assert_each_once(range(12))


def test_a_log_is_cleaned_up_to_a_checkpoint_and_stays_whole(join, committer):
    for batch_id in range(30):
        join.commit(committer, batch_id, [])
        if batch_id % 10 == 5:
            DeltaTable(join.tables.matches).create_checkpoint()
    table = LogSnapshot(join.tables.matches)
    log = f"{join.tables.matches}/_delta_log"
    assert clean_log(table, kept_entries=5) == 0  # younger than six hours
    later_s = time.time() + 7 * 3600
    assert clean_log(table, now_s=later_s) == 0  # the newest 10 000 stay
    assert clean_log(table, kept_entries=5, now_s=later_s) > 0
    versions = sorted(int(name[:20]) for name in os.listdir(log) if name.endswith(".json"))
    assert versions == list(range(16, 31))  # checkpoints at 6, 16 and 26: the newest 5 are 26 to 30
    assert LogSnapshot(join.tables.matches).transactions == table.transactions
    assert join.commit(join.committer(), 29, []).already_there
    assert join.commit(committer, 30).committed


def test_a_log_is_kept_where_the_user_says_so(join, committer):
    DeltaTable(join.tables.matches).alter.set_table_properties({"delta.logRetentionDuration": "interval 2 weeks 1 day"})
    committer = join.committer()
    for batch_id in range(12):
        join.commit(committer, batch_id, [])
    DeltaTable(join.tables.matches).create_checkpoint()
    table = LogSnapshot(join.tables.matches)
    now_s = time.time()
    assert clean_log(table, kept_entries=0, now_s=now_s + 15 * DAY_S - 60) == 0
    assert clean_log(table, kept_entries=0, now_s=now_s + 15 * DAY_S + 60) > 0


@pytest.mark.slow
def test_checkpoints_never_outweigh_the_entries(join, committer):
    looked_after = Maintenance(join.tables, every_batches=1, small_files=4, checkpoint_entries=5, background=False)
    path = f"{join.tables.matches}/_delta_log/_last_checkpoint"
    written = set()
    for batch_id in range(60):
        join.commit(committer, batch_id)
        looked_after.after_commit()
        if os.path.exists(path):
            with open(path) as file:
                written.add(file.read())
    sizes = [json.loads(text)["sizeInBytes"] for text in written]
    assert 3 <= len(sizes) <= 60 // 5
    assert sum(sizes) <= 2 * 1024 * 65


def test_sizes_are_brought_up_class_by_class():
    mib = 1 << 20

    def chosen(*sizes_bytes):
        return size_to_compact_to(sizes_bytes, small_files=100, target_size_bytes=64 * mib)

    assert chosen(*[3000] * 99) is None
    assert chosen(*[3000] * 100) == mib // 8
    assert chosen(*[100_000] * 7, *[3000] * 50) is None
    assert chosen(*[100_000] * 8) == mib
    assert chosen(*[mib] * 8, *[100_000] * 8) == 8 * mib
    assert chosen(*[5 * mib] * 8) == 64 * mib
    assert chosen(*[40 * mib] * 500) is None  # no two of them fit into one file


def test_rows_are_rewritten_a_few_times_only():
    """Ten thousand files of 3 kB, compacted as delta-rs does it: few bytes are written again, and files stay few."""
    live, rewritten, most = [], 0, 0
    for number in range(10_000):
        live.append(3000)
        if number % 250 == 0:
            size = size_to_compact_to(live, small_files=100, target_size_bytes=64 << 20)
            if size is not None:
                small = [one for one in live if one < size]
                live = [one for one in live if one >= size]
                while small:
                    total, taken = 0, 0
                    while small and total + small[-1] <= size:
                        total, taken = total + small.pop(), taken + 1
                    rewritten += total if taken > 1 else 0
                    live.append(total)
        most = max(most, len(live))
    assert most < 400
    assert rewritten < 6 * 3000 * 10_000


def sleeping(join, other, batches, slept):
    """Return a `put_entry` that lets commits and a cleaning come in before its first entry of the matches."""

    def slow(path, version, entry):
        if path == join.tables.matches and not slept:
            slept.append(version)
            for batch_id in batches:
                join.commit(other, batch_id)
            DeltaTable(path).create_checkpoint()
            assert clean_log(LogSnapshot(path), kept_entries=0, now_s=time.time() + DAY_S) > 0
        return put_entry(path, version, entry)

    return slow


def test_who_slept_until_the_log_was_cleaned_commits_nothing_into_the_past(join, committer, monkeypatch):
    """The driver stops between its check and its entry; another driver and the cleaning of a day come in between."""
    join.commit(committer, 0)
    done = []
    slow = sleeping(join, join.committer(), range(1, 6), done)
    monkeypatch.setattr("streamjoin_ds.sink.target.put_entry", slow)
    with pytest.raises(CommitConflictError):
        join.commit(committer, 1)
    assert done == [2]
    assert not os.path.exists(f"{join.tables.matches}/_delta_log/{2:020d}.json")
    assert join.batches() == dict.fromkeys(range(6), ROWS)


def test_a_vacuum_that_slept_until_the_log_was_cleaned_is_noted_at_the_end(join, committer, monkeypatch):
    for batch_id in range(2):
        join.commit(committer, batch_id)
    path, done = join.tables.matches, []
    slow = sleeping(join, committer, range(2, 6), done)
    monkeypatch.setattr("streamjoin_ds.sink.maintenance.put_entry", slow)
    tended = Maintenance(join.tables, background=False, clock=lambda: time.time() + 2 * DAY_S)
    tended.run_round()
    assert tended.failures == 0
    assert not os.path.exists(f"{path}/_delta_log/{done[0]:020d}.json")
    assert DeltaTable(path).history(1)[0]["operation"] == "VACUUM END"
    assert join.batches() == dict.fromkeys(range(6), ROWS)


def test_a_table_made_earlier_gets_the_properties_that_nobody_set(join, committer):
    former = {"delta.checkpointInterval": "100", "delta.logRetentionDuration": "interval 24 hours"}
    table = DeltaTable(join.tables.matches)
    table.alter.set_table_properties(former)
    table = DeltaTable(join.tables.ledger)
    table.alter.set_table_properties({**former, "delta.deletedFileRetentionDuration": "interval 3 days"})
    committer = join.committer()
    found = DeltaTable(join.tables.matches).metadata().configuration
    assert found["delta.checkpointInterval"] == "1000"
    assert found["delta.logRetentionDuration"] == found["delta.deletedFileRetentionDuration"] == "interval 6 hours"
    found = DeltaTable(join.tables.ledger).metadata().configuration
    assert found["delta.deletedFileRetentionDuration"] == "interval 3 days"
    version = DeltaTable(join.tables.matches).version()
    committer = join.committer()
    assert DeltaTable(join.tables.matches).version() == version
    assert join.commit(committer, 0).committed


def test_a_round_in_the_background_does_not_hold_up_commits(join, committer, monkeypatch):
    going, go_on = threading.Event(), threading.Event()

    def slow(path, **options):
        going.set()
        assert go_on.wait(20)

    monkeypatch.setattr(maintenance, "compact", slow)
    looked_after = Maintenance(join.tables, every_batches=2, small_files=1)
    join.commit(committer, 0)
    assert looked_after.after_commit()
    assert going.wait(20)
    for batch_id in (1, 2):
        join.commit(committer, batch_id)
        assert not looked_after.after_commit()
    go_on.set()
    looked_after.close()
    assert looked_after.rounds == 1
    begun = []
    for batch_id in (3, 4, 5):  # the round that fell due after batch 2 begins at once, the one after it in time
        join.commit(committer, batch_id)
        begun.append(looked_after.after_commit())
        looked_after.close()
    assert begun == [True, False, True]
    join.assert_each_once(range(6))


def test_a_round_that_a_daemon_thread_begins_is_waited_for_as_the_process_ends(join, committer, monkeypatch):
    """The thread of a local query is one; a round that was one too ended within delta-rs, and crashed the process."""
    may_end = threading.Event()
    looked_after = Maintenance(join.tables)
    monkeypatch.setattr(looked_after, "_look", lambda path: may_end.wait(10))
    beginning = threading.Thread(target=looked_after.after_commit, daemon=True)
    beginning.start()
    beginning.join()
    assert not looked_after._thread.daemon
    may_end.set()
    looked_after.close()


def test_compaction_beside_commits(join, committer):
    """Compaction loops in another thread: every batch is there once, and neither side fails."""
    stop = threading.Event()
    looked_after = Maintenance(join.tables, every_batches=1, small_files=2, background=False)

    def compact_for_ever():
        while not stop.is_set():
            looked_after.run_round()

    thread = threading.Thread(target=compact_for_ever)
    thread.start()
    try:
        for batch_id in range(25):
            assert join.commit(committer, batch_id).committed
    finally:
        stop.set()
        thread.join()
    assert looked_after.rounds > 0
    assert looked_after.failures == 0
    join.assert_each_once(range(25))


@pytest.mark.parametrize("name", ["every_batches", "small_files", "checkpoint_entries", "vacuum_every_s"])
def test_the_schedule_is_checked(join, name):
    with pytest.raises(ArgumentError) as raised:
        Maintenance(join.tables, **{name: 0})
    assert raised.value.name == name
