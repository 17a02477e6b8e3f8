"""When the source changes the layout: by rates or keys, after a window, for a saving that counts; or by a schedule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.plan import CellLayout, EpochsOver, KeyHint, Layout, Plan, RangeLayout, SampledRows
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.layout_rule import LEAST_ROWS, LayoutFacts, LayoutRule, Progress
from streamjoin_ds.spec import Join, Stream, bind

SECOND = 1_000_000
SCHEMA = {"ts": "timestamp[us]", "x": "double"}


def a_plan(
    layout: tuple[int, ...] = (4, 4),
    window: object = "60s",
    schedule: Sequence[tuple[int, Layout]] = (),
    wanted: Layout | None = None,
) -> Plan:
    streams = [Stream(name, schema=SCHEMA) for name in ("r", "s")]
    bound = bind(Join(streams, "abs(r.x - s.x) <= 1", window), {stream.name: stream.schema for stream in streams})
    return Plan(bound, Layout(layout), 2, layout_schedule=tuple(schedule), wanted=wanted)


class Source:
    """Two streams that come at rates of their own, in batches of ten seconds."""

    def __init__(self, plan: Plan) -> None:
        self.rule, self.facts, self.over = LayoutRule(plan), LayoutFacts(), EpochsOver()
        self.at = Progress((0, 0), (None, None))
        self.layouts = [str(plan.layout)]

    def batch(self, r_per_s: int, s_per_s: int, seconds: int = 10) -> str:
        now_us = (self.at.latest_us or 0) + seconds * SECOND
        seqs = (self.at.seqs[0] + r_per_s * seconds, self.at.seqs[1] + s_per_s * seconds)
        end = Progress(seqs, (now_us, now_us))
        self.facts = self.rule.counted(self.rule.decided(self.facts, self.at, self.over), self.at, end)
        # It travels in an offset.
        self.facts = LayoutFacts.from_facts(self.facts.to_facts(), 2)
        self.at = end
        epochs = self.facts.epochs_from(self.rule._plan.layout)
        return str(epochs.current.layout)


def test_equal_rates_change_nothing() -> None:
    source = Source(a_plan())
    assert {source.batch(200, 200) for _ in range(60)} == {"4x4"}
    assert source.facts.epochs is None, "an offset says nothing of a layout that is the first"


def test_a_stream_that_grows_twentyfold_is_copied_less() -> None:
    source = Source(a_plan())
    assert {source.batch(200, 200) for _ in range(20)} == {"4x4"}
    seen = [source.batch(200, 4_000) for _ in range(20)]
    assert seen[:2] == ["4x4"] * 2, "one batch is no trend"
    source.over = EpochsOver((0,))
    seen += [source.batch(200, 4_000) for _ in range(20)]
    assert seen.index("1x16") <= 3
    assert [layout for place, layout in enumerate(seen) if not place or layout != seen[place - 1]] == [
        "4x4",
        "1x16",
    ]


@pytest.mark.parametrize("seconds", [1, 2, 5])
@pytest.mark.parametrize("times", [4, 8, 20, 40])
def test_the_layout_changes_once_for_one_change_of_rates(seconds: int, times: int) -> None:
    """While the estimates are on their way to the new rates they would choose a layout in between."""
    source = Source(a_plan())
    for _ in range(120 // seconds):
        source.batch(200, 200, seconds)
    seen = [source.batch(200, 200 * times, seconds) for _ in range(60 // seconds)]
    source.over = EpochsOver((0,))
    seen += [source.batch(200, 200 * times, seconds) for _ in range(120 // seconds)]
    changes = [layout for place, layout in enumerate(seen) if not place or layout != seen[place - 1]]
    assert changes in (["4x4", {4: "2x8", 8: "2x8", 20: "1x16", 40: "1x16"}[times]], ["4x4"] * (times == 4))
    assert seen.index(changes[-1]) * seconds <= 20


def test_while_an_older_epoch_has_tuples_the_next_change_waits() -> None:
    source = Source(a_plan())
    for _ in range(10):
        source.batch(200, 200)
    for _ in range(30):
        source.batch(200, 4_000)
    assert source.facts.epochs is not None
    first = source.facts.epochs
    assert [epoch.number for epoch in first.live] == [0, 1]
    for _ in range(60):
        source.batch(4_000, 200)
    assert source.facts.epochs == first
    source.over = EpochsOver((0,))
    seen = [source.batch(4_000, 200) for _ in range(10)]
    assert seen[-1] == "16x1"
    source.over = EpochsOver((0, 1))
    source.batch(4_000, 200)
    assert [epoch.number for epoch in source.facts.epochs.live] == [2]


def test_an_epoch_is_a_window_old_before_the_next() -> None:
    source = Source(a_plan(window="10m"))
    seen = [source.batch(200, 4_000) for _ in range(80)]
    first = seen.index("1x16")
    source.over = EpochsOver((0,))
    seen = [source.batch(4_000, 200) for _ in range(80)]
    change = seen.index(next(layout for layout in seen if layout != "1x16"))
    assert (80 - first + change) * 10 >= 600


def test_a_small_saving_is_not_worth_it() -> None:
    # 4x4 ships 4 * (100 + 180) = 1 120, 2x8 ships 8 * 100 + 2 * 180 = 1 160; 1:2.2: 1 280 and 1 240
    source = Source(a_plan())
    assert {source.batch(100, 220) for _ in range(60)} == {"4x4"}


def test_few_records_say_nothing() -> None:
    source = Source(a_plan(window="10s"))
    for _ in range(20):
        assert source.batch(1, 20) == "4x4"
    assert min(rates[0] for rates in source.facts.rates) < LEAST_ROWS


def test_one_cell_and_a_schedule_estimate_nothing() -> None:
    source = Source(a_plan((1, 1)))
    source.batch(100, 1_000)
    assert source.facts == LayoutFacts()
    source = Source(a_plan((2, 2), schedule=[(0, Layout((2, 2))), (3_000, Layout((4, 1))), (9_000, Layout((1, 4)))]))
    assert [source.batch(100, 100) for _ in range(6)] == ["2x2", "2x2", "4x1", "4x1", "4x1", "1x4"]
    assert source.facts.rates == ()
    assert [epoch.first_seqs for epoch in source.facts.epochs.live] == [(0, 0), (2_000, 2_000), (5_000, 5_000)]


def test_a_count_window_goes_by_records() -> None:
    source = Source(a_plan(window="last 20000"))
    seen = [source.batch(200, 4_000) for _ in range(40)]
    assert seen[-1] == "1x16"
    first = seen.index("1x16")
    assert first * 2_000 >= 20_000, "each stream has had a window of records"


@pytest.mark.parametrize("window", ["60s", "last 5000", "every 10s for 60s"])
def test_it_is_a_function_of_what_it_is_told(window: str) -> None:
    seen = []
    for _ in range(2):
        source = Source(a_plan(window=window))
        seen.append([source.batch(200 + 100 * (turn % 7), 3_000, 1 + turn % 5) for turn in range(50)])
    assert seen[0] == seen[1]


def test_other_cores_change_the_layout_at_once() -> None:
    source = Source(a_plan(wanted=Layout((2, 4))))
    assert source.batch(200, 200) == "2x4", "nothing is known of the rates: the layout that the start chose"
    assert [str(epoch.layout) for epoch in source.facts.epochs.live] == ["4x4", "2x4"]
    assert source.facts.epochs.cells == 16, "older tuples are in cells that the new layout does not have"


def test_other_cores_get_the_layout_of_the_rates_that_were_measured() -> None:
    source = Source(a_plan(layout=(2, 2)))
    for _ in range(10):
        source.batch(200, 4_000)
    source.rule = LayoutRule(a_plan(layout=(2, 2), wanted=Layout((4, 4))))
    assert source.batch(200, 4_000) == "1x16"
    assert source.facts.epochs.cells == 16


def test_cells_that_are_gone_hear_of_batches_until_they_have_nothing_left() -> None:
    source = Source(a_plan(wanted=Layout((1, 2))))
    source.batch(200, 200)
    source.over = EpochsOver((0,), 1, 5)
    source.batch(200, 200)
    assert (len(source.facts.epochs.live), source.facts.epochs.cells) == (1, 5)
    source.over = EpochsOver((0,), 0, 2)
    source.batch(200, 200)
    assert source.facts.epochs.cells == 5, "that was told of another epoch"
    source.over = EpochsOver((0,), 1, 1)
    source.batch(200, 200)
    assert source.facts.epochs.cells == 2, "no fewer than the layout has"
    source.over = EpochsOver((0,), 1, 9)
    source.batch(200, 200)
    assert source.facts.epochs.cells == 2, "who has heard nothing meanwhile does not know the time"


RANGED = a_plan((2, 4), window="60s")


def keys_of(place: int, **centers: float) -> KeyHint:
    """Return a sample of a minute of two streams with keys about a center; `newer` is that of the second half."""
    rng = np.random.default_rng(place)
    streams = []
    for _ in RANGED.bound.names:
        numbers = np.arange(2_000)
        center = np.where(numbers < 1_000, centers["older"], centers.get("newer", centers["older"]))
        table = {"seq": place * 2_000 + numbers, "ts": numbers * 30_000, "key0": rng.uniform(-200, 200, 2_000) + center}
        streams.append(SampledRows(pa.table(table), 0.5))
    return KeyHint(tuple(streams))


class KeySource(Source):
    """A source whose driver leaves samples of keys."""

    def __init__(self, kind: str, layout: CellLayout | None = None) -> None:
        super().__init__(replace(RANGED, layout=layout or RANGED.layout, layout_kind=kind))

    def told(self, keys: KeyHint | None, seconds: int = 90) -> CellLayout:
        start = self.at
        self.batch(200, 200, seconds)
        plan = self.rule._plan
        assert self.rule.asks_for_keys(self.facts, start, self.over) in (True, False)
        decided = self.rule.decided(self.facts, self.at, self.over, keys)
        self.facts = LayoutFacts.from_facts(json.loads(json.dumps(decided.to_facts())), 2)
        return self.facts.epochs_from(plan.layout).current.layout


def test_ranges_that_are_asked_for_come_with_the_first_keys() -> None:
    source = KeySource("ranges")
    assert source.told(None, 1) == Layout((2, 4)), "nothing is known of the keys"
    found = source.told(keys_of(1, older=0), 1)
    assert isinstance(found, RangeLayout)
    assert found.cells == 8
    assert decode_version(source.facts) == 6


def decode_version(facts: LayoutFacts) -> int:
    offset = BatchPlan((), (), layout=facts).to_offset()
    return int(offset["version"])


def test_a_choice_goes_over_to_ranges_once_an_epoch_is_a_window_old() -> None:
    source = KeySource("auto")
    keys = keys_of(1, older=0)
    short = KeyHint(tuple(sample.within(0, 25 * SECOND) for sample in keys.streams))
    assert source.told(short) == Layout((2, 4)), "it spans less than half a window"
    assert isinstance(source.told(keys_of(2, older=0)), RangeLayout)
    grids = KeySource("grid")
    assert {str(grids.told(keys_of(place, older=0))) for place in range(4)} == {"2x4"}


def test_keys_that_drift_within_a_window_are_left_to_a_grid() -> None:
    source = KeySource("auto")
    source.told(None)
    assert source.told(keys_of(1, older=0, newer=5_000)) == Layout((2, 4))


def test_ranges_follow_the_keys() -> None:
    source = KeySource("ranges")
    first = source.told(keys_of(1, older=0), 1)
    assert source.told(keys_of(2, older=300)) == first, "the epoch before it still has tuples"
    source.over = EpochsOver((0,))
    assert source.told(keys_of(3, older=0)) == first, "they are as they were"
    second = source.told(keys_of(4, older=300))
    assert isinstance(second, RangeLayout)
    assert second.boundaries[0] > first.boundaries[0] + 100
    source.over = EpochsOver((0, 1))
    assert source.told(keys_of(5, older=600)) != second
    assert source.facts.epochs is not None
    assert [epoch.number for epoch in source.facts.epochs.live] == [2, 3]


def test_few_keys_say_nothing() -> None:
    few = keys_of(1, older=0)
    few = KeyHint(tuple(sample.thinned(40) for sample in few.streams))
    for kind in ("auto", "ranges"):
        source = KeySource(kind)
        source.told(None)
        assert source.told(few) == Layout((2, 4))


def test_other_cores_get_ranges_of_the_keys() -> None:
    source = KeySource("ranges")
    first = source.told(keys_of(1, older=0), 1)
    source.rule = LayoutRule(replace(source.rule._plan, wanted=Layout((1, 3))))
    assert source.told(keys_of(2, older=0), 1).cells == 3
    source.rule = LayoutRule(replace(source.rule._plan, wanted=Layout((1, 3)), layout_kind="grid"))
    assert isinstance(first, RangeLayout)
    assert isinstance(source.told(None, 1), Layout), "only grids are wanted now"


def test_nothing_is_asked_of_keys_where_ranges_cannot_be() -> None:
    start = Progress((9, 9), (9, 9))
    one = LayoutRule(replace(RANGED, layout=Layout((1, 1)), layout_kind="ranges"))
    few = LayoutRule(replace(RANGED, layout=Layout((2, 2)), layout_kind="auto"))
    kept = LayoutRule(replace(RANGED, layout_kind="auto", layout_schedule=((0, Layout((2, 2))),)))
    grids = LayoutRule(RANGED)
    assert not any(rule.asks_for_keys(LayoutFacts(), start, EpochsOver()) for rule in (one, few, kept, grids))


@pytest.mark.parametrize("kind", ["auto", "grid"])
def test_ranges_that_nobody_balances_any_more_give_way_to_a_grid(kind: str) -> None:
    source = KeySource("ranges", Layout((2, 2)))
    assert isinstance(source.told(keys_of(1, older=0), 1), RangeLayout)
    source.rule = LayoutRule(replace(source.rule._plan, layout_kind=kind))
    assert source.told(None, 1) == Layout((2, 2))
