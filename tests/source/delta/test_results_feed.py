"""Another join's results as a stream: what is complete, in one order, however that join and its table are cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, FileChangedError, FileFormatError, OffsetError, TableChangedError
from streamjoin_ds.source.delta.delta_feed import DeltaFeed, with_table
from streamjoin_ds.source.delta.results_feed import ResultsFeed
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.event_time import AheadLimit
from tests.source.delta.tables import feed, optimize, steps, stream_of
from tests.source.feeds import START_US, tuples
from tests.support.examples import examples

RESULTS = pa.schema(
    [
        pa.field("r_x", pa.float64()),
        pa.field("r_seq", pa.int64(), nullable=False),
        pa.field("s_seq", pa.int64(), nullable=False),
        pa.field("event_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
    ]
)
JOIN = "j1"
Result = tuple[float, int, int, int]  # r_x, r_seq, s_seq, seconds


def commit(path: Path | str, results: Sequence[Result], punctuation_s: int | None, batch: int) -> None:
    """Commit results and a punctuation as a join does."""
    columns = zip(*[(x, r, s, START_US + t * 1_000_000, batch) for x, r, s, t in results], strict=True)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, RESULTS, strict=True)] if results else None
    table = RESULTS.empty_table() if arrays is None else pa.table(arrays, schema=RESULTS)
    transactions = [Transaction(f"streamjoin/{JOIN}", batch)]
    if punctuation_s is not None:
        transactions.append(Transaction(f"streamjoin/{JOIN}#punctuation", START_US + punctuation_s * 1_000_000))
    if not (path / "_delta_log").exists() if isinstance(path, Path) else batch == 0:
        identity = {"streamjoin.joinId": JOIN}
        DeltaTable.create(str(path), RESULTS, configuration=identity, raise_if_key_not_exists=False)
    properties = CommitProperties(app_transactions=transactions)
    write_deltalake(str(path), table, mode="append", commit_properties=properties)


def ordered(results: Sequence[Result], before_s: int) -> list[tuple[Any, ...]]:
    """Return the tuples of the results that are complete, in their order, with all columns but the batch."""
    found = sorted((START_US + t * 1_000_000, r, s, x) for x, r, s, t in results if t < before_s)
    return [(ts, seq, x, r, s) for seq, (ts, r, s, x) in enumerate(found)]


def read_on(path: Path | str, start: Any, size: int) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return where reading ends, and the tuples without their batches, each batch by feeds of its own."""
    found, at = [], start
    while True:
        reader = feed(path, time="event_time")
        count = reader.frontier(at, size).rows
        if not count:
            return at, found
        end = reader.position(json.loads(json.dumps(reader.advance(at, count).to_facts())))
        chunks = feed(path, time="event_time").read(at, end, files=reader.files_between(at, end))
        found += [row[:-1] for row in tuples(chunks)]
        at = end


SOME = [(0.5, 3, 1, 7), (0.25, 1, 1, 5), (0.0, 2, 9, 5), (1.0, 0, 4, 2), (2.0, 5, 5, 9), (3.0, 2, 3, 5)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_complete_results_come_by_event_time_and_number(tmp_path: Path, size: int) -> None:
    commit(tmp_path, SOME[:4], 5, 0)
    start = feed(tmp_path, time="event_time").initial()
    at, found = read_on(tmp_path, start, size)
    assert found == ordered(SOME, 5)
    commit(tmp_path, SOME[4:], 9, 1)
    at, more = read_on(tmp_path, at, size)
    assert [*found, *more] == ordered(SOME, 9)
    commit(tmp_path, [], 10, 2)
    at, last = read_on(tmp_path, at, size)
    assert [*found, *more, *last] == ordered(SOME, 10)


def test_without_a_punctuation_there_is_nothing(tmp_path: Path) -> None:
    commit(tmp_path, SOME, None, 0)
    reader = feed(tmp_path, time="event_time")
    assert isinstance(reader, ResultsFeed)
    assert reader.frontier(reader.initial(), 9).rows == 0
    assert tuples(reader.read(reader.initial(), None)) == []


@examples(40)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=8), min_size=1, max_size=5),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_no_cut_of_either_join_changes_what_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, int]]],
    sizes: list[int],
    optimized: list[bool],
) -> None:
    """Each batch of the first join has results at or after its punctuation before; the table is rewritten at times."""
    path = tmp_path_factory.mktemp("results")
    commit(path, [], None, 0)
    at: Any = feed(path, time="event_time").initial()
    results: list[Result] = []
    found: list[tuple[Any, ...]] = []
    ends, number = [at], 0
    for batch, deeds in enumerate(batches):
        made = [(x / 4, 100 * batch + n, x, 3 * batch + t) for n, (t, x) in enumerate(deeds)]
        results += made
        commit(path, made, 3 * (batch + 1), batch + 1)
        if optimized[batch]:
            optimize(path)
        reader = feed(path, time="event_time")
        count = reader.frontier(at, sizes[number % len(sizes)]).rows
        end = reader.advance(at, count)
        found += [row[:-1] for row in tuples(feed(path, time="event_time").read(at, end))] if count else []
        at, number = end, number + 1
        ends.append(at)
    at, more = read_on(path, at, sizes[0])
    ends.append(at)
    assert [*found, *more] == ordered(results, 3 * len(batches))
    optimize(path)
    again = [row[:-1] for low, high in pairwise(ends) for row in tuples(feed(path, time="event_time").read(low, high))]
    assert again == [*found, *more]


def test_a_planner_reads_no_more_than_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(6):
        made = [(0.0, n, batch, 10 * batch + n) for n in range(10)]
        commit(tmp_path, made, 10 * (batch + 1), batch)
    reader = feed(tmp_path, time="event_time")
    seen: list[list[str]] = []
    from streamjoin_ds.source.delta import results_feed

    real = results_feed.read_results
    monkeypatch.setattr(
        results_feed, "read_results", lambda table, names, *rest: seen.append(names) or real(table, names, *rest)
    )
    assert reader.frontier(reader.initial(), 15).rows == 15
    assert max(map(len, seen)) <= 3
    assert sum(map(len, seen)) <= 4


def test_running_maxima_and_the_future(tmp_path: Path) -> None:
    results = [(0.0, n, 0, t) for n, t in enumerate([0, 1, 2, 500, 501, 3])]
    commit(tmp_path, results, 600, 0)
    reader = feed(tmp_path, time="event_time")
    for limit in (None, AheadLimit(60_000_000)):
        planned = feed(tmp_path, time="event_time")
        at = planned.initial()
        while count := planned.frontier(at, 4, limit).rows:
            running = list(planned.frontier(at, count, limit).running_max)
            if limit is None:  # a reader gets results by their times
                assert running == [ts for ts, *_ in ordered(results, 600)][at.seq : at.seq + count]
            end = planned.advance(at, count)
            assert list(reader.running_max(at, end, limit)) == running
            rejected = [reject for chunk in reader.read(at, end, limit) for reject in chunk.rejects]
            assert bool(rejected) == (limit is not None and end.at > START_US + 100_000_000)
            at = end
        assert at.seq == len(results)


def test_results_that_were_deleted_are_missed(tmp_path: Path) -> None:
    commit(tmp_path, SOME, 10, 0)
    reader = feed(tmp_path, time="event_time")
    ends = steps(reader, reader.initial(), 2)
    DeltaTable(str(tmp_path)).delete("r_seq = 1")
    with pytest.raises(FileChangedError):
        list(feed(tmp_path, time="event_time").read(ends[0], ends[1]))
    assert read_on(tmp_path, ends[-1], 3)[1] == []


def test_a_log_that_was_cleaned_takes_no_results_away(tmp_path: Path) -> None:
    commit(tmp_path, SOME[:2], 2, 0)
    reader = feed(tmp_path, time="event_time")
    start = reader.initial()
    assert reader.frontier(start, 9).rows == 0
    commit(tmp_path, SOME[2:4], 8, 1)
    commit(tmp_path, SOME[4:], 9, 2)
    DeltaTable(str(tmp_path)).create_checkpoint()
    for entry in sorted((tmp_path / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    count = reader.frontier(start, 9).rows
    found = tuples(feed(tmp_path, time="event_time").read(start, reader.advance(start, count)))
    assert [row[:-1] for row in found] == ordered(SOME, 9)


def test_a_table_made_again_is_refused(tmp_path: Path) -> None:
    commit(tmp_path / "a", SOME, 10, 0)
    commit(tmp_path / "b", SOME, 10, 0)
    reader = feed(tmp_path / "a", time="event_time")
    at = steps(reader, reader.initial(), 2)[-1]
    with pytest.raises(TableChangedError):
        feed(tmp_path / "b", time="event_time").frontier(at, 9)
    with pytest.raises(OffsetError):
        reader.position({**at.to_facts(), "ties": -1})


def test_how_a_table_of_matches_is_read(tmp_path: Path) -> None:
    commit(tmp_path, SOME, 10, 0)
    assert with_table(stream_of(tmp_path, time="event_time")).source.format == "results"
    assert Stream("m", str(tmp_path), format="results").time == "event_time"
    declared = Stream("m", str(tmp_path), format="results", schema=RESULTS)
    assert infer_schema(declared) == RESULTS
    assert declared.time == "event_time"
    assert Stream.from_facts(declared.to_facts()) == declared
    assert isinstance(feed(tmp_path, time="event_time", format="delta"), DeltaFeed)
    assert infer_schema(Stream("m", str(tmp_path), format="results")).names == RESULTS.names
    for options, name in (({}, "time"), ({"time": "event_time", "on_change": "ignore"}, "on_change")):
        with pytest.raises(ArgumentError, match="matches of a join") as caught:
            infer_schema(stream_of(tmp_path, **options))
        assert caught.value.name == name
        assert caught.value.hint.startswith("set time=event_time" if name == "time" else "leave on_change out")


def test_other_tables_hold_no_results(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"event_time": [1]}))
    with pytest.raises(FileFormatError, match="does not hold the matches"):
        infer_schema(Stream("m", str(tmp_path), format="results"))
    assert with_table(stream_of(tmp_path, time="event_time")).source.format == "delta"
    for option, value in (("on_bad_file", "quarantine"), ("partition_by", "folder")):
        with pytest.raises(ArgumentError) as caught:
            with_table(stream_of(tmp_path, time="event_time", **{option: value}))
        assert caught.value.name == option
