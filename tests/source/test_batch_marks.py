"""Marks within a batch: they add up to the batch, and tell the rates at its end from those at its begin."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.plan import EpochsOver, Layout, Plan
from streamjoin_ds.source.batch_plan import batch_marks
from streamjoin_ds.source.feed import ArrayFrontier
from streamjoin_ds.source.layout_rule import LayoutFacts, LayoutRule, Progress
from streamjoin_ds.spec import Join, Stream, bind
from tests.support.examples import examples

SECOND = 1_000_000


def steps_of(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(times, max_size=40).map(sorted)


@examples(100)
@given(st.lists(steps_of(st.integers(0, 1_000)), min_size=2, max_size=4), st.data())
def test_pieces_add_up_to_the_batch(streams: list[list[int]], data: st.DataObject) -> None:
    first = [data.draw(st.integers(0, len(times))) for times in streams]
    rows = [data.draw(st.integers(0, len(times) - at)) for times, at in zip(streams, first, strict=True)]
    ends = [at + count for at, count in zip(first, rows, strict=True)]

    def told(places: list[int]) -> Progress:
        known = zip(streams, places, strict=True)
        return Progress(tuple(places), tuple(times[at - 1] if at else None for times, at in known))

    begin, end = told(first), told(ends)
    frontiers = [ArrayFrontier(np.array(times[at:], np.int64)) for times, at in zip(streams, first, strict=True)]
    marks = batch_marks(begin, end, frontiers, rows)
    assert (marks[0], marks[-1]) == (begin, end)
    for before, after in pairwise(marks):
        for low, high in zip(before.seqs, after.seqs, strict=True):
            assert low <= high
        for since_us, until_us in zip(before.times_us, after.times_us, strict=True):
            assert since_us is None or (until_us is not None and since_us <= until_us)
    for mark in marks[1:-1]:
        at_us = mark.latest_us
        assert at_us is not None
        for stream, seq in enumerate(mark.seqs):
            assert all(streams[stream][number] <= at_us for number in range(first[stream], seq))
            assert all(streams[stream][number] > at_us for number in range(seq, ends[stream]))


def test_without_a_time_there_are_only_the_boundaries() -> None:
    begin, end = Progress((0, 0), (None, None)), Progress((1, 1), (5, 5))
    frontiers = [ArrayFrontier(np.array([5])) for _ in range(2)]
    assert batch_marks(begin, end, frontiers, [1, 1]) == [begin, end]


@pytest.mark.parametrize("batch_s", [6, 20, 45, 60, 150])
@pytest.mark.parametrize("changes_at", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_change_within_a_long_batch_leads_to_its_layout_at_once(batch_s: int, changes_at: float) -> None:
    """By the mean rates of a whole batch 2x8 would be chosen in some cases, and 1x16 a window later."""
    schema = {"ts": "timestamp[us]", "x": "double"}
    streams = [Stream(name, schema=schema) for name in ("r", "s")]
    bound = bind(Join(streams, "abs(r.x - s.x) <= 1", "60s"), {stream.name: stream.schema for stream in streams})
    plan = Plan(bound, Layout((4, 4)), 2)
    rule, facts = LayoutRule(plan), LayoutFacts()
    steady = 2 + 60 // batch_s  # a window at least
    change_us = int((steady + changes_at) * batch_s * SECOND)
    slow = np.arange(0, (steady + 6) * batch_s * SECOND, SECOND // 100)
    fast = np.concatenate([slow[slow < change_us], np.arange(change_us, slow[-1], SECOND // 2_000)])
    at, layouts = Progress((0, 0), (None, None)), []
    for number in range(1, steady + 6):
        ends = [int(np.searchsorted(times, number * batch_s * SECOND)) for times in (slow, fast)]
        pairs = list(zip((slow, fast), at.seqs, ends, strict=True))
        end = Progress(tuple(ends), tuple(int(times[until - 1]) for times, _, until in pairs))
        facts = rule.decided(facts, at, EpochsOver())
        layouts.append(str(facts.epochs_from(plan.layout).current.layout))
        frontiers = [ArrayFrontier(times[since:]) for times, since, _ in pairs]
        for piece in pairwise(batch_marks(at, end, frontiers, [until - since for _, since, until in pairs])):
            facts = rule.counted(facts, *piece)
        at = end
    assert set(layouts) == {"4x4", "1x16"}
