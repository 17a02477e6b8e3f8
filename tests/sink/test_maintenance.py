from __future__ import annotations

import os
import threading
import time

import pytest
from deltalake import DeltaTable

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink import maintenance
from streamjoin_ds.sink.maintenance import Maintenance, checkpoint_log, remove_leftovers, vacuum
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.writer import WRITING_FOLDER

WEEK_S = 7 * 24 * 3600


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


def test_rounds_come_when_due(join, committer):
    looked_after = Maintenance(join.tables, every_batches=3, background=False)
    begun = []
    for batch_id in range(7):
        join.commit(committer, batch_id)
        begun.append(looked_after.after_commit(batch_id))
    assert begun == [False, False, True, False, False, True, False]
    assert (looked_after.rounds, looked_after.failures) == (2, 0)
    for name in TableSet.names():
        assert len(DeltaTable(join.tables.path_of(name)).file_uris()) == 2, name
    join.assert_each_once(range(7))


def test_a_failure_is_counted_and_logged_and_no_more(join, committer, monkeypatch, caplog):
    join.commit(committer, 0)
    monkeypatch.setattr(maintenance, "vacuum", lambda path: 1 / 0)
    looked_after = Maintenance(join.tables, every_batches=1, vacuum_every_rounds=1, background=False)
    assert looked_after.after_commit(0)
    assert looked_after.failures == len(TableSet.names())
    assert "VACUUM of" in caplog.text
    assert join.commit(committer, 1).committed


def test_a_round_in_the_background_does_not_hold_up_commits(join, committer, monkeypatch):
    going, go_on = threading.Event(), threading.Event()

    def slow(path, **options):
        going.set()
        assert go_on.wait(20)

    monkeypatch.setattr(maintenance, "compact", slow)
    looked_after = Maintenance(join.tables, every_batches=1)
    join.commit(committer, 0)
    assert looked_after.after_commit(0)
    assert going.wait(20)
    join.commit(committer, 1)
    assert not looked_after.after_commit(1)
    go_on.set()
    looked_after.close()
    assert looked_after.rounds == 1
    join.assert_each_once([0, 1])


def test_compaction_beside_commits(join, committer):
    """Compaction in a loop in another thread: every batch once, no failure on either side."""
    stop = threading.Event()
    looked_after = Maintenance(join.tables, every_batches=1, background=False)

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


@pytest.mark.parametrize("name", ["every_batches", "large_every_rounds", "vacuum_every_rounds"])
def test_the_schedule_is_checked(join, name):
    with pytest.raises(ArgumentError) as raised:
        Maintenance(join.tables, **{name: 0})
    assert raised.value.name == name


def test_most_rounds_leave_middling_files_alone(join, monkeypatch):
    sizes = []
    monkeypatch.setattr(maintenance, "compact", lambda path, target_size_bytes: sizes.append(target_size_bytes))
    looked_after = Maintenance(
        join.tables, every_batches=1, large_every_rounds=3, target_size_bytes=800, background=False
    )
    for batch_id in range(4):
        looked_after.after_commit(batch_id)
    assert sizes == [100] * 12 + [800] * 6 + [100] * 6


def test_a_checkpoint_by_hand(join, committer):
    join.commit(committer, 0)
    checkpoint_log(join.tables.matches)
    assert os.path.exists(f"{join.tables.matches}/_delta_log/_last_checkpoint")
    assert join.commit(join.committer(), 0).already_there
