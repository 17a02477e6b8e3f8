"""Windows that stay in a process from batch to batch: the same rows, whatever becomes of the process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import CellWindows, give_tables
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.engine.storage.bucket_grid.policy import BUCKET_ROWS
from streamjoin_ds.engine.storage.journal import Arrived, Journal
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.storage.sealed_run import RunMaker
from streamjoin_ds.engine.storage.state_blob import described
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Layout, Plan
from streamjoin_ds.spec import BoundJoin, Join, Stream, Table, bind
from tests.cell.test_epochs import WINDOWS, rows_of, sensors, still
from tests.support.examples import examples
from tests.support.microbatch import MicroBatches

# What may happen to the windows before a batch: they live on; the process dies; the batch is done in a worker, which
# keeps runs; an attempt of the batch is thrown away, and it is done again.
FATES = st.sampled_from(["live", "live", "live", "lost", "runs", "again"])


def named_blocks(states: dict[int, bytes]) -> set[str]:
    blobs = [blob for row in states.values() for blob in CellState.decode(row).engine_blobs()]
    return {entry["block"] for blob in blobs for runs in described(blob) for entry in runs if "block" in entry}


class Fated(MicroBatches):
    """Batches before each of which the windows have a fate."""

    fates: list[str]

    def cells(self, rows: list[Any]) -> list[Any]:
        fate = self.fates[self.batch_id % len(self.fates)]
        if fate == "lost" or (fate != "runs" and self.live is None):
            self.live = LiveWindows()
        if fate == "runs":
            self.live = None
        if fate == "again":
            before = dict(self.states)
            super().cells(rows)
            self.states = before
        return super().cells(rows)


def fated(
    folder: Path, bound: BoundJoin, layout: str, fates: list[str], *changes: tuple[int, str], **options: Any
) -> Fated:
    streams = len(bound.names)
    schedule = tuple((rows, Layout.parse(text, streams)) for rows, text in changes)
    batches = Fated(
        bound, folder, Layout.parse(layout, streams), max_rows_per_batch=60, layout_schedule=schedule, **options
    )
    batches.fates = fates
    return batches


@examples(12)
@given(
    window=st.sampled_from(WINDOWS),
    layout=st.sampled_from(["1x1", "1x2", "2x2"]),
    change=st.none() | st.tuples(st.integers(50, 400), st.sampled_from(["2x1", "1x1", "1x2"])),
    fates=st.lists(FATES, min_size=1, max_size=7),
    block_bytes=st.sampled_from([0, 1500, 1 << 20]),
    bucket_rows=st.sampled_from([1, 60, BUCKET_ROWS]),
)
def test_rows_do_not_depend_on_where_windows_live(
    window: str, layout: str, change: tuple[int, str] | None, fates: list[str], block_bytes: int, bucket_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, patch("streamjoin_ds.cell.cell_windows.BUCKET_ROWS", bucket_rows):
        changes = [] if change is None or layout == "1x1" else [change]
        batches = fated(
            Path(folder), sensors(window), layout, fates, *changes, block_bytes=block_bytes, retain_batches=1
        )
        batches.run()
        assert rows_of(batches.matches()) == still(window)[0]


@pytest.mark.each_value
@pytest.mark.parametrize("layout", ["1x1", "2x2"])
@pytest.mark.parametrize("fates", [["live"], ["live", "live", "lost"], ["live", "runs"]], ids=" ".join)
def test_a_block_goes_when_no_state_can_come_back_that_names_it(tmp_path: Path, layout: str, fates: list[str]) -> None:
    batches = fated(tmp_path / "c", sensors("3s"), layout, fates, retain_batches=1)
    store = BlockStore(batches.plan.state_root)
    batches.reader.prepareForTriggerAvailableNow()
    states: list[dict[int, bytes]] = []
    while batches.step():
        states.append(dict(batches.states))
        assert set(store.names()) == set[str]().union(*map(named_blocks, states[-3:]))
    assert not named_blocks(states[0]) & set(store.names())


def test_live_windows_are_used_at_their_own_state_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    kept = CellWindows._kept

    def seen(self: CellWindows, *arguments: Any) -> Any:
        made.append(self._cell)
        return kept(self, *arguments)

    monkeypatch.setattr(CellWindows, "_kept", seen)
    batches = fated(tmp_path, sensors("3s"), "1x1", ["live"])
    batches.reader.prepareForTriggerAvailableNow()
    for _ in range(3):
        batches.step()
    assert made == []
    batches.fates = ["again"]
    batches.step()
    assert made == [0]  # the second attempt


def test_many_small_blocks_become_few_large_ones(tmp_path: Path) -> None:
    bound = sensors("1h")
    batches = fated(tmp_path, bound, "1x1", ["live"], retain_batches=0)
    batches.max_rows_per_batch = 6
    batches._connect()
    batches.run()
    assert batches.batch_id > 64
    names = named_blocks(batches.states)
    assert len(names) < 2 * 33
    found = [BlockStore(batches.plan.state_root).read(name).num_rows for name in names]
    assert sum(found) == 600 - batches.companion("late").num_rows
    assert max(found) > 32


def test_blocks_of_the_exchange_are_linked_not_copied(tmp_path: Path) -> None:
    batches = fated(tmp_path, sensors("1h"), "1x1", ["live"])
    batches.reader.prepareForTriggerAvailableNow()
    batches.step()
    exchange = {path.stat().st_ino for path in (tmp_path / "exchange").glob("x*.arrow")}
    kept = {path.stat().st_ino for path in (tmp_path / "blocks").glob("*.arrow")}
    assert kept
    assert kept <= exchange


def test_tuples_with_null_keys_are_in_a_journal_and_in_no_window(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64())])
    bound = bind(Join([Stream("l"), Stream("r")], "abs(l.x - r.x) <= 1", "1s"), {"l": schema, "r": schema})
    form = bound.tuple_schema(0)
    tuples = pa.table({"_seq": [1, 2], "_ts": [10, 20], "x": [5.0, None]}).select(form.names).cast(form)
    engine = WindowJoin(bound)
    list(engine.push({0: [tuples]}))
    store = RunStore(BlockStore(str(tmp_path)), ["00", "01"], "")
    journal = Journal([(), ()]).after(
        {0: [Arrived(tuples)]}, [None, None], engine.forms, store, BlockStore(str(tmp_path))
    )
    again = WindowJoin.restored(bound, engine.save(store, journal), store)
    assert journal.rows == 2
    assert again.state_rows == engine.state_rows == 1


def test_two_queries_of_one_join_have_tables_of_their_own(tmp_path: Path) -> None:
    """They may be threads of one process, and what is sorted of a table is kept for all of them."""
    stream = Stream("r", schema={"ts": "int64", "x": "float64"})
    table = Table("z", schema={"k": "float64"})
    bound = bind(Join([stream], "r.x = z.k", tables=[table]), {"r": stream.schema, "z": table.schema})
    plan = Plan(bound, Layout.parse("1", 1), 1, "reference", str(tmp_path), str(tmp_path / "m"), "join")
    schema = bound.tuple_schema(1)
    rows = {
        name: pa.table([pa.array([n], kind) for kind in schema.types], schema=schema) for n, name in enumerate("ab")
    }
    engines = {block: WindowJoin(bound) for block in rows}
    for block, engine in engines.items():
        give_tables(plan, [engine], {"z": block}, rows.__getitem__)
    assert [engine.tables.versions["z"] for engine in engines.values()] == [*rows]


@pytest.mark.parametrize(("bucket_rows", "are_grids"), [(64, True), (None, False)])
def test_what_a_journal_has_goes_into_grids_at_once_or_is_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket_rows: int | None, are_grids: bool
) -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64())])
    bound = bind(Join([Stream("l"), Stream("r")], "abs(l.x - r.x) <= 1", "1s"), {"l": schema, "r": schema})
    form, random = bound.tuple_schema(0), np.random.default_rng(7)
    store = RunStore(BlockStore(str(tmp_path)), ["00", "01"], "", 1)
    engine, journal, found = WindowJoin(bound, bucket_rows=bucket_rows), Journal([(), ()]), []

    def tuples(batch: int, rows: int) -> pa.Table:
        numbers = np.arange(batch * rows, (batch + 1) * rows)
        values = {"_seq": numbers, "_ts": numbers + 1, "x": random.uniform(0, 1000, rows)}
        return pa.table(values).select(form.names).cast(form)

    def results(join: WindowJoin, pushed: dict[int, list[pa.Table]]) -> list[tuple[int, int]]:
        columns = [chunk.select(["l_seq", "r_seq"]).to_pydict() for chunk in join.push(pushed)]
        return sorted(pair for of in columns for pair in zip(of["l_seq"], of["r_seq"], strict=True))

    for batch in range(70):  # so many that small blocks become large ones, which stand behind newer ones
        new = {stream: [tuples(batch, 20)] for stream in (0, 1)}
        found += results(engine, new)
        arrived = {stream: [Arrived(table) for table in tables] for stream, tables in new.items()}
        journal = journal.after(arrived, [None, None], engine.forms, store, BlockStore(str(tmp_path)))
    assert len(found) > 1000
    assert len(journal.pieces[0]) < 40
    state = engine.save(store, journal)
    sorted_rows: list[int] = []
    sealed = RunMaker.sealed
    with monkeypatch.context() as patched:
        patched.setattr(RunMaker, "sealed", lambda form, rows: sorted_rows.append(rows.num_rows) or sealed(form, rows))
        again = WindowJoin.restored(bound, state, store, bucket_rows=bucket_rows)
    assert any("buckets by cells" in line for line in again.explain()) == are_grids
    assert sum(sorted_rows) == (0 if are_grids else 2 * 70 * 20)
    last = {stream: [tuples(70, 20)] for stream in (0, 1)}
    assert results(again, last) == results(engine, last) != []
