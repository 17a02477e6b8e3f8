"""Merging of windows that are written as blocks: a row is written twice at most, whatever the window; runs stay few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds.blocks import BlockRef, BlockStore
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.engine.storage.merge_policy import BlockMergePolicy
from streamjoin_ds.engine.storage.run_store import RunStore, restored_run, run_facts
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.spec import BoundJoin
from tests.engine.streams import band_join, engine_options, filled, tuples
from tests.support.further import further

SECOND_US = 1_000_000
ROWS = 1_100  # more than the tail takes at once
ROW_BYTES = 36  # of r: time, number, two float64, one float32
STEMS = ("00-0000", "01-0000")


class Scales(BlockStore):
    """A store that counts the bytes written to it."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.written_bytes = 0

    def write(self, *args: object, **options: object) -> BlockRef:
        ref = super().write(*args, **options)  # type: ignore[arg-type]
        self.written_bytes += ref.size_bytes
        return ref


def batches(bound: BoundJoin, count: int, rows: int) -> Iterator[tuple[dict[int, object], int]]:
    """Yield a batch of stream 0 for each second, and the watermark after it."""
    for n in range(count):
        yield {0: tuples(bound, 0, rows, start_us=n * SECOND_US, seq=n * rows)}, (n + 1) * SECOND_US


def weighed(folder: Path, seconds: int, weighed_batches: int, **options: int) -> tuple[float, float, int]:
    """Return the copies of a new row among the blocks, bytes of the state row a batch, and the most runs.

    They are measured while the windows are full.
    """
    bound = band_join(window=f"{seconds}s")
    blocks = Scales(folder)
    store = RunStore(blocks, STEMS, "", least_bytes=16_000)
    join = WindowJoin(bound, **engine_options(**options))
    row_bytes = most_runs = 0
    for n, (batch, watermark) in enumerate(batches(bound, 2 * seconds + weighed_batches, ROWS)):
        if n == 2 * seconds:
            blocks.written_bytes = row_bytes = 0
        before = join.blocks
        list(join.push(batch, watermark))
        row_bytes += len(join.save(store))
        blocks.remove(before - join.blocks)
        most_runs = max(most_runs, join.counters["runs"])
    copies = blocks.written_bytes / (weighed_batches * ROWS * ROW_BYTES)
    return copies, row_bytes / weighed_batches, most_runs


@pytest.mark.slow
def test_bytes_written_for_a_row_stay_flat_while_the_window_grows_16_times(tmp_path: Path) -> None:
    small, row_bytes, _ = weighed(tmp_path / "small", 12, 128, block_bytes=16_000)
    large, larger_row_bytes, most_runs = weighed(tmp_path / "large", 192, 128, block_bytes=16_000)
    assert 1.5 < small < large < 1.3 * small
    assert large < 2.1  # the headers included
    assert most_runs <= 50
    assert larger_row_bytes - row_bytes < 200 * most_runs


def test_a_forced_ratio_copies_once_a_level(tmp_path: Path) -> None:
    small, _, _ = weighed(tmp_path / "small", 12, 48, merge_runs=2)
    large, _, _ = weighed(tmp_path / "large", 48, 48, merge_runs=2)
    assert large > 1.3 * small


def test_windows_of_a_few_batches_are_written_once(tmp_path: Path) -> None:
    copies, _, most_runs = weighed(tmp_path, 4, 32, block_bytes=16_000)
    assert copies < 1.1
    assert most_runs <= 6


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["large and small", *further("equal", "growing")])
@pytest.mark.parametrize("spread_s", [1, 100])
@pytest.mark.parametrize("window_s", [60, 1_500])
def test_the_number_of_runs_stays_small(sizes: str, spread_s: int, window_s: int) -> None:
    bound = band_join(window=f"{window_s}s")
    form = WindowForm(bound, 0, load_kernels(), merge_policy=BlockMergePolicy(0, window_s * SECOND_US))
    kept, most = Window(form), 0
    for n in range(1_600):
        count = {"equal": 10, "large and small": 100 if n % 3 == 0 else 1, "growing": 1 + n // 40}[sizes]
        table = tuples(bound, 0, count, start_us=n * SECOND_US, span_us=spread_s * SECOND_US)
        kept = kept.inserted(form.sealed(table.combine_chunks().to_batches()[0])).merged()
        kept = kept.expired((n - window_s) * SECOND_US)
        most = max(most, len(kept.runs))
    assert most <= (50 if window_s == 60 else 96)
    live = [int((run.key(0) >= (n - window_s) * SECOND_US).sum()) for run in kept.runs]
    assert sum(live) >= 0.45 * kept.rows


@pytest.mark.slow
def test_a_window_without_end_is_copied_a_logarithmic_number_of_times() -> None:
    bound = band_join(window="10000000s")
    form = WindowForm(bound, 0, load_kernels(), merge_policy=BlockMergePolicy(0, bound.join.window.extent(0)))
    kept = Window(form)
    for n in range(5_000):
        table = tuples(bound, 0, 1, start_us=n * SECOND_US)
        kept = kept.inserted(form.sealed(table.combine_chunks().to_batches()[0])).merged()
    assert kept.rows == 5_000
    assert len(kept.runs) <= 96


def test_small_batches_wait_in_the_state_row_until_they_make_a_block(tmp_path: Path) -> None:
    bound = band_join(window="100s")
    store = RunStore(Scales(tmp_path), STEMS, "", least_bytes=40_000)
    join = WindowJoin(bound, block_bytes=40_000)
    sizes = []
    for n, (batch, watermark) in enumerate(batches(bound, 120, 300)):
        if n % 10 == 9:
            batch = {0: tuples(bound, 0, 1_050 if n % 20 == 9 else 2_000, start_us=n * SECOND_US, seq=n * 9_000)}
        list(join.push(batch, watermark))
        facts = state_blob.described(join.save(store))[0]
        sizes.append(sum(run.get("size_bytes", 0) for run in facts))
        assert all(run["rows"] * ROW_BYTES >= 40_000 for run in facts if "block" in run)
    # Only the tail and a run of 1 050 rows, too small for a block, lie in the state row.
    assert max(sizes) <= 2 * (40_000 + 300 * ROW_BYTES)
    assert sum(run.block is not None for run in join.windows[0].runs) > 3


@pytest.mark.parametrize("rows", [1_030, 1_110])  # 37 080 and 39 960 bytes
def test_runs_that_together_make_a_block_do_not_wait_for_more(tmp_path: Path, rows: int) -> None:
    bound = band_join(window="40s")
    store = RunStore(Scales(tmp_path), STEMS, "", least_bytes=40_000)
    join = WindowJoin(bound, block_bytes=40_000)
    for batch, watermark in batches(bound, 60, rows):
        list(join.push(batch, watermark))
        inline = [run["size_bytes"] for run in state_blob.described(join.save(store))[0] if "block" not in run]
        assert len(inline) <= 1
    assert len(join.blocks) > 6


def test_the_policy_is_of_whoever_keeps_the_windows_unless_it_is_forced() -> None:
    bound = band_join()
    chosen = ({}, {"block_bytes": 1}, {"merge_runs": 9, "block_bytes": 1})
    told = [WindowJoin(bound, **engine_options(**options)).explain()[1] for options in chosen]
    assert [line.split(",")[0] for line in told] == ["merge ratio 4", "runs merged once", "merge ratio 9"]


@pytest.mark.slow
def test_a_policy_changes_runs_and_no_result(tmp_path: Path) -> None:
    bound, found = band_join(window="20s"), []
    store = RunStore(Scales(tmp_path), STEMS, "", least_bytes=0)
    for options in ({}, {"block_bytes": 0}, {"merge_runs": 2}):
        join, chunks = WindowJoin(bound, **engine_options(**options)), list[pa.Table]()
        for n in range(60):
            batch = {s: tuples(bound, s, ROWS, start_us=n * SECOND_US, seq=n * ROWS) for s in (0, 1)}
            chunks += join.push(batch, (n + 1) * SECOND_US)
            join.save(store)
        pairs = pa.concat_tables(chunks).select(["r_seq", "s_seq"])
        found.append(pairs.sort_by([("r_seq", "ascending"), ("s_seq", "ascending")]))
    assert found[0].num_rows
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])


def test_a_restored_window_merges_as_one_that_was_never_away(tmp_path: Path) -> None:
    bound = band_join(window="20s")
    store = RunStore(Scales(tmp_path), STEMS, "", least_bytes=16_000)
    join = WindowJoin(bound, block_bytes=16_000)
    levels = set()
    blob = join.save(store)
    for batch, watermark in batches(bound, 60, ROWS):
        again = WindowJoin.restored(bound, blob, store, block_bytes=16_000)
        list(again.push(batch, watermark))
        list(join.push(batch, watermark))
        blob = join.save(store)
        assert again.save(store) == blob
        levels |= {run.level for run in again.windows[0].runs}
    assert levels == {0, 1}


@pytest.mark.parametrize("level", [-1, True, "1", 1.5])
def test_a_level_that_is_none_is_refused(level: object) -> None:
    [run] = [run for run in filled(band_join(), pushes=1, rows=ROWS).windows[0].runs]
    facts = {**run_facts(run), "level": level}
    with pytest.raises(ValueError, match="level"):
        restored_run(run.form, run.tuples, json.loads(json.dumps(facts)))


def test_what_is_left_of_a_run_that_was_most_of_the_window_is_written_again() -> None:
    bound = band_join(window="10s")
    join = WindowJoin(bound, block_bytes=0)
    list(join.push({0: tuples(bound, 0, 60_000, span_us=60 * SECOND_US)}, 59 * SECOND_US))
    assert join.state_rows < 15_000
    narrow = WindowJoin(bound, block_bytes=0)
    for batch, watermark in batches(bound, 60, ROWS):
        list(narrow.push(batch, watermark))
    assert 10 * ROWS <= narrow.state_rows <= 14 * ROWS
