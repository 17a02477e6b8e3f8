"""The engine's tuning: no result depends on it, and every number has a text that says what it is."""

from __future__ import annotations

import ast
import inspect
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine import tuning
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.tuning import DEFAULT, TailTuning, Tuning
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine.scenarios import Scenario, assert_values, cuts_of, numbers_of, run_engine, scenarios
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
# Values with which a few rows do what usually takes millions, and some usual values.
SMALL_OR_USUAL = {
    "layout": {
        "bucket_cost": (0.0, 62.0),
        "probe_cost": (0.0, 13.0),
        "sample_rows": (3, 512),
        "neighbours": (1, 8),
        "least_sorted_rows": (1, 48),
        "gain_share": (0.8, 100.0),
        "narrow_share": (0.0, 0.5, 1.1),
        "far_better": (1.0, 4.0),
        "outlier_share": (0.0, 0.125),
        "least_viewed_rows": (1, 256),
        "rows_per_search": (1, 64),
        "least_searched_rows": (0, 1 << 15),
        "interval_share": (0.0, 0.02, 1.1),
        "half_interval_share": (0.0, 0.4),
        "split_cost": (0.0, 256.0),
        "most_lengths": (1, 3, 64),
    },
    "merging": {
        "ratio": (2, 3, 4),
        "most_run_rows": (9, 1 << 23),
        "most_run_bytes": (900, 1 << 29),
        "span_parts": (1, 4),
        "span_growth": (1.0, 1.5),
    },
    "waiting": {
        "ratio": (2, 16),
        "most_merged_rows": (9, 1 << 18),
        "summed_rows": (3, 1 << 13),
        "held_rows": (2, 1 << 10),
    },
    "nearest": {"most_kept": (1, 5, 1 << 18)},
    "expiry": {"least_live_share": (0.1, 0.5, 1.0), "thinning_points": (2, 16)},
    "grid": {
        "foreseen_times": (1, 8),
        "rival_key_parts": (1, 4, 100),
        "rows_per_bucket": (1.0, 14.0),
        "most_covered_cells": (2.0, 12.0),
        "sample_rows": (5, 8192),
        "reached_spans": (1, 16),
        "spare_chunks": (1, 64),
        "spare_chunks_per_bucket": (0, 2),
        "widened_rows": (3, 1 << 18),
        "sweeps": (1, 4),
        "sampled_parts": (1, 100),
        "counted_parts": (1, 16, 100),
        "counted_buckets": (1, 2048),
        "crowd_sample_rows": (1, 256),
        "layout_uses": (1, 64),
    },
    "rebuild": {
        "grown_times": (1.0, 1.3),
        "shrunk_share": (0.25, 0.9),
        "crowded_times": (1, 4),
        "copied_rows": (1, 8),
        "moved_rows": (1, 1 << 14),
        "touched_bytes": (5_000, 1 << 21),
    },
    "probe": {
        "few_probes": (0, 1024),
        "batch_probes": (0, 1 << 16),
        "slice_probes": (1, 7, 2048),
        "groups_per_thread": (1, 2),
        "parts_per_thread": (1, 4),
        "least_part_ns": (1.0, 1e5),
        "snap_share": (0.0, 0.03, 0.4),
        "probed_run_ns": (0.0, 6.0),
        "probed_bucket_ns": (0.0, 28.0),
        "tested_pair_ns": (0.0, 0.45),
        "scanned_pair_ns": (0.0, 0.16, 4.0),
        "missed_line_ns": (0.0, 20.0),
        "chain_slices": (1, 4),
        "scan_pairs": (0, 4096),
        "trim_share": (0.0, 0.7, 1.1),
        "first_pairs": (64, 2048),
        "pairs_growth": (2, 8),
        "gathered_rows": (1, 8_192),
    },
    "order": {
        "sampled_runs": (1, 8),
        "sampled_share": (0.1, 0.75),
        "least_fresh_rows": (1, 64),
        "fresh_share": (0.0, 0.25),
        "many_fresh_rows": (1, 1024),
        "equal_share": (0.05, 0.9),
    },
    "threads": {"held_chunks": (1, 4), "sorted_alone_rows": (0, 2048)},
    "payload": {
        "least_rows": (1, 1024),
        "whole_rows": (8, 1 << 17),
        "whole_bytes": (100, 1 << 26),
        "slack_rows": (0, 1 << 14),
        "dead_share": (0.0, 0.25),
        "slack_bytes": (0, 1024),
    },
}


@st.composite
def tunings(draw: st.DrawFn) -> Tuning:
    rows = draw(st.integers(1, 20))
    tail = TailTuning(
        rows, draw(st.integers(0, rows)), draw(st.sampled_from([1, 32])), draw(st.sampled_from([0, 3, 256]))
    )
    groups = {
        group: replace(
            getattr(DEFAULT, group), **{name: draw(st.sampled_from(values)) for name, values in numbers.items()}
        )
        for group, numbers in SMALL_OR_USUAL.items()
    }
    return Tuning(tail, **groups)


@pytest.mark.slow
@examples(150)
@given(
    scenario=scenarios(rows=60),
    tuned=tunings(),
    seed=st.integers(0, 1000),
    bucket_rows=st.sampled_from([1, 30, None]),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 1, 2, 3]),
)
def test_no_result_depends_on_it(
    scenario: Scenario, tuned: Tuning, seed: int, bucket_rows: int | None, kernel: str, threads: int
) -> None:
    options = {
        "kernel": kernel,
        "threads": threads,
        "cores": (),
        "chunk_rows": 64,
        "bucket_rows": bucket_rows,
        "tuning": tuned,
    }
    result, _ = run_engine(scenario, cuts_of(scenario, seed), **options)
    assert numbers_of(scenario.join, result) == oracle_numbers(scenario.join, scenario.tables)
    assert_values(scenario, result)


def test_every_number_says_what_it_is() -> None:
    defined = [node for node in ast.parse(inspect.getsource(tuning)).body if isinstance(node, ast.ClassDef)]
    groups = [group for group in defined if group.name != "Tuning"]
    counted = 0
    for group in groups:
        for field, told in zip(group.body[1:], group.body[2:], strict=False):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(told, ast.Expr), f"{group.name}.{ast.unparse(field.target)}"
                assert isinstance(told.value, ast.Constant)
                counted += 1
    assert sorted(group.name for group in groups) == sorted(
        type(getattr(DEFAULT, group.name)).__name__ for group in fields(DEFAULT)
    )
    assert counted == sum(len(fields(getattr(DEFAULT, group.name))) for group in fields(DEFAULT))


def test_it_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        DEFAULT.tail.rows = 5  # type: ignore[misc]
    assert hash(Tuning()) == hash(DEFAULT)


def test_a_tuning_shows_what_is_not_as_usual() -> None:
    assert repr(Tuning()) == "Tuning()"
    changed = Tuning(tail=TailTuning(rows=5))
    assert repr(changed) == f"Tuning(tail={changed.tail!r})"
