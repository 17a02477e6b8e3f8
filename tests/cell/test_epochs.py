"""Layouts that change while a join runs: the same rows, and no trace of an epoch once its tuples have expired.

Every schedule of faults is the simulator's (`tests.faults`, "relaid"); here are windows of each kind over sensors.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind
from tests.support.examples import examples
from tests.support.further import further
from tests.support.microbatch import MicroBatches

WINDOWS = ("3s", "l=0s,r=2s,s=1s", "last 40", "every 1s for 3s")
SOME_LONG = [WINDOWS[2], *further(*WINDOWS[:2], WINDOWS[3])]


def sensors(window: str, names: str = "lr") -> BoundJoin:
    streams = [
        Stream(name, Generator("sensor", {"rows": 300, "rate": 40, "seed": seed}), time="ts", delay="1s")
        for seed, name in enumerate(names)
    ]
    bound = 5 if len(names) == 2 else 0.5  # three streams have a hundred times as many results
    on = [f"abs({names[0]}.temperature - {name}.temperature) <= {bound}" for name in names[1:]]
    extent = ",".join(part for part in window.split(",") if "=" not in part or part[0] in names)
    join = Join(streams, on, extent)
    return bind(join, {stream.name: infer_schema(stream) for stream in streams})


def rows_of(table: pa.Table) -> pa.Table:
    names = [name for name in table.column_names if name.endswith("_seq") or name in ("window_id", "event_time")]
    return table.select(names).sort_by([(name, "ascending") for name in names]).combine_chunks()


def run(folder: Path, bound: BoundJoin, layout: str, *changes: tuple[int, str], **options: object) -> MicroBatches:
    streams = len(bound.names)
    schedule = tuple((rows, Layout.parse(text, streams)) for rows, text in changes)
    batches = MicroBatches(
        bound,
        folder,
        Layout.parse(layout, streams),
        max_rows_per_batch=60,
        layout_schedule=schedule,
        **options,  # type: ignore[arg-type]
    )
    batches.run()
    return batches


@cache
def still(window: str, names: str = "lr") -> tuple[pa.Table, dict[str, list[dict[str, object]]]]:
    """Return the results of a join whose layout does not change, and what the other tables say.

    No layout and no exchange changes any of it: `tests.stream.test_invariance`.
    """
    with tempfile.TemporaryDirectory() as folder:
        batches = run(Path(folder), sensors(window, names), "1x2" if len(names) == 2 else "1x1x4")
        return rows_of(batches.matches()), {name: told(batches, name) for name in ("punctuations", "late")}


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_two_streams(tmp_path: Path, window: str, exchange: str) -> None:
    changes = ((100, "4x1"), (200, "1x4"), (260, "2x2"), (450, "4x1"))
    found = run(tmp_path / "relaid", sensors(window), "2x2", *changes, exchange=exchange)
    assert rows_of(found.matches()) == still(window)[0]
    assert found.matches().num_rows > 100
    epochs = BatchPlan.from_offset(found.offset, found.bound.names).layout.epochs
    assert epochs is not None
    assert epochs.current.number == 4
    assert 0 not in [epoch.number for epoch in epochs.live], "the first is over"


@pytest.mark.slow
@pytest.mark.parametrize("window", SOME_LONG)
def test_three_streams(tmp_path: Path, window: str) -> None:
    found = run(tmp_path / "relaid", sensors(window, "lrs"), "1x1x4", (150, "4x1x1"), (300, "2x1x2"), (360, "1x4x1"))
    assert rows_of(found.matches()) == still(window, "lrs")[0]
    assert found.matches().num_rows > 100


@pytest.mark.long
@examples(12)
@given(
    st.lists(st.tuples(st.integers(0, 600), st.sampled_from(["1x6", "2x3", "3x2", "6x1"])), max_size=10),
    st.sampled_from(WINDOWS),
)
def test_any_schedule(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, str]], window: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    found = run(folder / "relaid", sensors(window), "2x3", *sorted(changes))
    assert rows_of(found.matches()) == still(window)[0]


def test_an_epoch_leaves_nothing_behind(tmp_path: Path) -> None:
    found = run(tmp_path / "relaid", sensors("1s"), "1x2", (200, "2x1"), retain_batches=1)
    states = {cell: CellState.decode(blob) for cell, blob in found.states.items()}
    assert {tuple(kept.epoch.number for kept in state.epochs or []) for state in states.values()} == {(1,)}
    named = set()
    for cell, blob in found.states.items():
        windows = CellWindows(found.plan, cell, blob)
        assert windows.epochs == [1]
        named |= windows.blocks | {name for _, name in windows.state.retired}
    assert set(BlockStore(found.plan.state_root).names()) == named
    assert all("e1-" in name for name in named), "the first epoch's blocks are gone"
    assert BatchPlan.from_offset(found.offset, found.bound.names).layout.epochs.older == ()


def test_a_state_of_one_layout_is_as_it_was(tmp_path: Path) -> None:
    still = run(tmp_path / "still", sensors("1s"), "1x2")
    assert len(still.states) == 2
    for blob in still.states.values():
        assert blob[7] == 1
        assert CellState.decode(blob).epochs is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "exchange"), list(zip(WINDOWS, ("reference", "packed", "packed", "reference"), strict=True))
)
def test_cells_come_and_go(tmp_path: Path, window: str, exchange: str) -> None:
    found = restarted(tmp_path / "moved", sensors(window), "1x2", (3, "2x2"), (5, "1x1"), (7, "3x2"), exchange=exchange)
    assert rows_of(found.matches()) == still(window)[0]
    assert found.matches().num_rows > 100
    for name, expected in still(window)[1].items():
        assert told(found, name) == expected


@pytest.mark.slow
@pytest.mark.parametrize("window", SOME_LONG)
def test_cells_of_three_streams_come_and_go(tmp_path: Path, window: str) -> None:
    moves = (2, "1x1x1"), (4, "2x2x1"), (6, "1x3x1"), (8, "1x1x6")
    found = restarted(tmp_path / "moved", sensors(window, "lrs"), "1x1x4", *moves)
    assert rows_of(found.matches()) == still(window, "lrs")[0]
    assert found.matches().num_rows > 100


@pytest.mark.long
@examples(8)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["1x1", "1x2", "2x1", "2x2", "1x5", "6x1"])), max_size=10),
    st.sampled_from(WINDOWS),
    st.sampled_from(["reference", "packed"]),
    st.integers(0, 3),
)
def test_any_change_of_cells(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, str]], window: str, exchange: str, retain: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    options = {"exchange": exchange, "retain_batches": retain}
    found = restarted(folder / "moved", sensors(window), "1x2", *sorted(moves), **options)
    assert rows_of(found.matches()) == still(window)[0]
    assert told(found, "punctuations") == still(window)[1]["punctuations"]


def test_cells_that_are_gone_hear_nothing_once_their_windows_have_expired(tmp_path: Path) -> None:
    found = restarted(tmp_path / "moved", sensors("1s"), "2x2", (3, "1x1"), retain_batches=1)
    epochs = BatchPlan.from_offset(found.offset, found.bound.names).layout.epochs
    assert (epochs.cells, str(epochs.current.layout), epochs.older) == (1, "1x1", ())
    for cell in (1, 2, 3):
        state = CellState.decode(found.states[cell])
        assert (state.epochs, state.windows, state.retired) == ([], b"", [])
    windows = CellWindows(found.plan, 0, found.states[0])
    kept = windows.blocks | {name for _, name in windows.state.retired}
    assert set(BlockStore(found.plan.state_root).names()) == kept, "nobody leaves a block behind"


def told(batches: MicroBatches, name: str) -> list[dict[str, object]]:
    rows = batches.companion(name).to_pylist()
    return sorted(({key: value for key, value in row.items() if key != "committed_at"} for row in rows), key=str)


def restarted(folder: Path, bound: BoundJoin, layout: str, *moves: tuple[int, str], **options: object) -> MicroBatches:
    """Run a join, each time until so many batches are done, and go on with another layout."""
    streams = len(bound.names)
    batches = MicroBatches(bound, folder, Layout.parse(layout, streams), max_rows_per_batch=60, **options)  # type: ignore[arg-type]
    batches.reader.prepareForTriggerAvailableNow()
    for batch, text in moves:
        while batches.batch_id < batch and batches.step():
            pass
        batches.restart(Layout.parse(text, streams))
        batches.reader.prepareForTriggerAvailableNow()
    batches.run()
    return batches
