from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from streamjoin_ds.errors import ArgumentError, LogCleanedError, PunctuationError, TableError
from streamjoin_ds.sink.reader import Follower, between, complete, follow, last_punctuation, ordered, scanned
from streamjoin_ds.sink.tables import TIMESTAMP

from .conftest import MATCH_SCHEMA, ROWS, STEP_US, match_rows

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rows_at(times_us, batch_id):
    """Return two results at each of these times, with the s_seq 1 and 0."""
    columns = {
        "r_seq": [7 for _ in times_us for _ in range(2)],
        "r_x": [0 for _ in times_us for _ in range(2)],
        "s_seq": [i for _ in times_us for i in (1, 0)],
        "s_name": [None for _ in times_us for _ in range(2)],
        "event_time": pa.array([time for time in times_us for _ in range(2)], TIMESTAMP),
        "batch_id": [batch_id for _ in times_us for _ in range(2)],
    }
    return pa.table(columns, schema=MATCH_SCHEMA)


def keys(table):
    times = table.column("event_time").cast("int64").to_pylist()
    return list(zip(times, table.column("r_seq").to_pylist(), table.column("s_seq").to_pylist(), strict=True))


def commit_times(join, committer, batches):
    """Commit a batch for each (times, punctuation)."""
    for batch_id, (times_us, punctuation_us) in enumerate(batches):
        reports = join.write(batch_id, rows_at(times_us, batch_id)) if times_us else []
        join.commit(committer, batch_id, reports, punctuation_us=punctuation_us)


def test_complete_leaves_out_what_is_not(join, committer):
    assert last_punctuation(join.root) is None
    commit_times(join, committer, [([10, 20, 30], None)])
    assert complete(join.root).num_rows == 0
    assert complete(join.root).column_names == MATCH_SCHEMA.names
    commit_times(join, join.committer(), [([10, 20, 30], None), ([40, 25], 30)])
    assert last_punctuation(join.root) == 30
    assert sorted({key[0] for key in keys(complete(join.root))}) == [10, 20, 25]


def test_between_is_half_open_and_ordered(join, committer):
    commit_times(join, committer, [([30, 10], 5), ([20, 11, 10], 25)])
    found = between(join.root, 10, 20)
    assert keys(found) == sorted([(10, 7, 0), (10, 7, 1)] * 2 + [(11, 7, 0), (11, 7, 1)])
    assert keys(between(join.root, EPOCH + timedelta(microseconds=20), 25)) == [(20, 7, 0), (20, 7, 1)]
    assert between(join.root, 10, 10).num_rows == 0


def test_between_refuses_what_is_not_complete(join, committer):
    commit_times(join, committer, [([10], 15)])
    with pytest.raises(PunctuationError, match="complete before 15"):
        between(join.root, 0, 16)
    assert between(join.root, 0, 15).num_rows == 2


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), 1.5, "now", True, None])
def test_points_in_time_are_checked(join, committer, value):
    with pytest.raises(ArgumentError) as raised:
        between(join.root, value, 10)
    assert raised.value.name == "begin"


def test_between_prunes_files_by_event_time(join, committer):
    for batch_id in range(4):
        join.commit(committer, batch_id)
    dataset = scanned(DeltaTable(join.tables.matches))
    condition = pa.dataset.field("event_time") >= pa.scalar(3 * STEP_US, pa.int64()).cast(TIMESTAMP)
    assert len(list(dataset.get_fragments(filter=condition))) == 1


def test_no_thread_of_arrow_holds_a_file_system_of_python(join, committer):
    """One that still does when the interpreter ends aborts the process (apache/arrow#34314)."""
    join.commit(committer, 0)
    files = scanned(DeltaTable(join.tables.matches)).filesystem
    assert isinstance(files.base_fs, pa.fs.LocalFileSystem)
    (fragment,) = scanned(DeltaTable(join.tables.matches)).get_fragments()
    assert not isinstance(fragment.filesystem, pa.fs.PyFileSystem)


READS = {
    "complete": "from streamjoin_ds.sink.reader import complete; assert complete({root!r}).num_rows",
    "between": "from streamjoin_ds.sink.reader import between; assert between({root!r}, 0, 15).num_rows",
    "follow": "from streamjoin_ds.sink.reader import follow; assert [rows for _, rows in follow({root!r})]",
    "explain": "from streamjoin_ds.cli.main import main; import sys; sys.argv[1:] = {explain!r}; main()",
}
EXPLAIN = "explain --stream m={root} --stream n={root} --time event_time --on 'abs(m.r_x - n.r_x) <= 1' --window 1s"


@pytest.mark.parametrize(
    ("program", "runs"),
    [("complete", 2), *(pytest.param(name, 50, marks=pytest.mark.campaign) for name in READS)],
)
def test_a_process_that_reads_a_table_and_ends_does_not_abort(join, committer, program, runs):
    """Where Arrow's threads held Python's objects, 3 of 30 processes ended with 134."""
    commit_times(join, committer, [([10], 15)])
    code = READS[program].format(root=join.root, explain=shlex.split(EXPLAIN.format(root=join.root)))
    ended = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=False) for _ in range(runs)]
    assert [each.returncode for each in ended] == [0] * runs, ended[0].stderr[-2000:]


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(TableError, match="there is no Delta table"):
        complete(f"{tmp_path}/nothing")


@pytest.mark.parametrize("seed", range(4))
def test_following_gives_the_same_rows_in_the_same_order_whatever_the_batching(join, seed):
    chance = random.Random(seed)
    times = [chance.randrange(1, 400) for _ in range(60)]
    limit = 40  # a result is at most this much older than the newest of an earlier batch, in microseconds
    times.sort(key=lambda time: time + chance.randrange(limit))
    batches, punctuation, start = [], None, 0
    while start < len(times):
        stop = start + chance.randrange(0, 15)
        remaining = times[stop:]
        punctuation = min(remaining, default=1000)
        batches.append((times[start:stop], punctuation))
        start = stop
    monotone = [(part, min(p for _, p in batches[i:])) for i, (part, _) in enumerate(batches)]
    committer = join.committer()
    follower = Follower(join.root)
    pieces, last = [], None
    for batch_id, (part, p) in enumerate(monotone):
        join.commit(
            committer, batch_id, join.write(batch_id, rows_at(part, batch_id)) if part else [], punctuation_us=p
        )
        if chance.random() < 0.3:
            DeltaTable(join.tables.matches).optimize.compact()
        if chance.random() < 0.5:
            for punctuation_us, rows in follower.poll():
                assert all(key[0] < punctuation_us for key in keys(rows))
                assert last is None or punctuation_us >= last
                last = punctuation_us
                pieces += keys(rows)
    for _, rows in follower.poll():
        pieces += keys(rows)
    assert pieces == sorted((time, 7, s_seq) for time in times for s_seq in (0, 1))
    assert pieces == keys(between(join.root, 0, 1000))
    assert list(follower.poll()) == []


def test_following_without_order_gives_each_commit(join, committer):
    for batch_id in range(3):
        join.commit(committer, batch_id)
    join.commit(committer, 3, [])
    DeltaTable(join.tables.matches).optimize.compact()
    found = list(follow(join.root, in_order=False))
    assert [punctuation_us for punctuation_us, _ in found] == [STEP_US, 2 * STEP_US, 3 * STEP_US, 4 * STEP_US]
    assert [rows.num_rows for _, rows in found] == [ROWS, ROWS, ROWS, 0]
    assert found[1][1].cast(MATCH_SCHEMA).equals(match_rows(1))


def test_following_from_a_later_version_loses_nothing(join, committer):
    commit_times(join, committer, [([10, 30], 15), ([20, 50], 25), ([40], 45), ([60], 61)])
    everything = [keys(rows) for _, rows in follow(join.root)]
    for version in range(1, 5):
        assert [keys(rows) for _, rows in follow(join.root, from_version=version)] == everything[version - 1 :]


def consumed(path, how):
    """Do to a table what a consumer may do: rewrite files, or bring in rows that no batch found."""
    table = DeltaTable(path)
    if how == "delete":
        table.delete("s_seq = 1 AND r_x = 0")
    elif how == "update":
        table.update({"r_x": "r_x + 1"}, predicate="s_seq = 0")
    elif how == "optimize":
        table.optimize.compact()
    elif how == "restore":
        write_deltalake(path, rows_at([20], 99), mode="append")
        before = table.version()
        DeltaTable(path).delete()
        DeltaTable(path).restore(before)
    elif how == "append":
        write_deltalake(path, rows_at([20], 99), mode="append")
    else:
        source = rows_at([10, 20], 99)
        merge = table.merge(source, "t.event_time = s.event_time AND t.s_seq = s.s_seq", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()


@pytest.mark.parametrize("how", ["delete", "update", "optimize", "restore", "append", "merge"])
@pytest.mark.parametrize("in_order", [True, False])
def test_what_a_consumer_writes_is_no_result(join, committer, how, in_order):
    """A reader gives each result of the join once, whatever is done to the table before and after it is read."""
    commit_times(join, committer, [([10], 5), ([11, 30], 15)])
    follower = Follower(join.root, in_order=in_order)
    pieces = [key for _, rows in follower.poll() for key in keys(rows)]
    consumed(join.tables.matches, how)
    assert list(follower.poll()) == []
    join.commit(committer, 2, join.write(2, rows_at([40], 2)), punctuation_us=41)
    consumed(join.tables.matches, how)
    pieces += [key for _, rows in follower.poll() for key in keys(rows)]
    everything = sorted((time, 7, s_seq) for time in (10, 11, 30, 40) for s_seq in (0, 1))
    assert (pieces if in_order else sorted(pieces)) == everything
    assert sorted(key for _, rows in follow(join.root, in_order=in_order) for key in keys(rows)) == everything


def test_a_commit_that_copies_the_metadata_of_a_batch_is_no_batch(join, committer):
    commit_times(join, committer, [([10], 15)])
    metadata = DeltaTable(join.tables.matches).history(1)[0]["userMetadata"]
    properties = CommitProperties(custom_metadata={"userMetadata": metadata})
    write_deltalake(join.tables.matches, rows_at([20], 0), mode="append", commit_properties=properties)
    assert [key[0] for _, rows in follow(join.root, in_order=False) for key in keys(rows)] == [10, 10]


def test_entries_that_are_cleaned_away_are_named_and_a_reader_goes_on_from_its_punctuation(join, committer):
    batches = [([10, 30], 15), ([20, 50], 25), ([40], 45), ([60], 61), ([70], 70)]
    commit_times(join, committer, batches)
    whole = [key for _, rows in follow(join.root) for key in keys(rows)]
    follower = Follower(join.root)
    read = iter(follower.poll())
    pieces, last = [], None
    for _ in range(2):
        last, rows = next(read)
        pieces += keys(rows)
    read.close()
    DeltaTable(join.tables.matches).create_checkpoint()
    for version in range(5):
        os.remove(f"{join.tables.matches}/_delta_log/{version:020d}.json")
    with pytest.raises(LogCleanedError, match="since") as raised:
        list(follower.poll())
    assert raised.value.name == join.tables.matches
    with pytest.raises(LogCleanedError):
        Follower(join.root, from_version=2)
    with pytest.raises(LogCleanedError):
        list(follow(join.root, in_order=False))
    again = Follower(join.root, since=last)
    found = list(again.poll())
    assert [punctuation_us for punctuation_us, _ in found] == [70]
    assert pieces + keys(found[0][1]) == whole
    assert again.next_version == 6
    join.commit(committer, 5, join.write(5, rows_at([80], 5)), punctuation_us=81)
    assert [key for _, rows in again.poll() for key in keys(rows)] == [(70, 7, 0), (70, 7, 1), (80, 7, 0), (80, 7, 1)]


@pytest.mark.parametrize("wrong", [{"in_order": False}, {"from_version": 1}])
def test_since_is_of_readers_in_order(join, committer, wrong):
    with pytest.raises(ArgumentError) as raised:
        Follower(join.root, since=5, **wrong)
    assert raised.value.name == "since"


def test_files_that_are_gone_are_named(join, committer):
    for batch_id in range(2):
        join.commit(committer, batch_id)
    path = DeltaTable(join.tables.matches).file_uris()[0].removeprefix("file://")
    os.rename(path, f"{path}_away")
    with pytest.raises(TableError, match="removed while the table was being read"):
        list(follow(join.root))
    with pytest.raises(TableError, match="removed while the table was being read"):
        Follower(join.root, since=0)


def test_results_of_several_windows_are_ordered_by_window_last():
    columns = {"r_seq": [1, 0, 0, 0], "s_seq": [0, 1, 1, 0], "window_id": [5, 9, 7, 8], "event_time": [3, 3, 3, 4]}
    rows = ordered(pa.table(columns)).select(["event_time", "r_seq", "s_seq", "window_id"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(3, 0, 1, 7), (3, 0, 1, 9), (3, 1, 0, 5), (4, 0, 0, 8)]
