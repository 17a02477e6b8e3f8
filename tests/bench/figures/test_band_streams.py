"""The papers' two streams: tuples by group, and the count of matches against every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.suites.figures.band_streams import BandStreams
from tests.support.examples import examples

streams = st.builds(
    BandStreams,
    rates=st.tuples(st.sampled_from([10, 33, 200]), st.sampled_from([7, 50, 200])),
    windows_s=st.tuples(st.sampled_from([0.5, 1, 2]), st.sampled_from([0.25, 1, 3])),
    domain=st.sampled_from([30, 100]),
    eps=st.integers(0, 12),
    is_equality=st.booleans(),
    seed=st.integers(0, 5),
)


def every_pair(given, begin_us, end_us, fill):
    """Return the results of a stretch: every pair is looked at, one by one."""
    sides = []
    for stream in (0, 1):
        columns = given.batch(stream, 0, given.first_row(stream, end_us)).columns
        sides.append([column.to_pylist() for column in columns])
    reach_us = [round(window_s * 1e6) for window_s in given.windows_s]
    oldest_us = [begin_us - round(window_s * fill * 1e6) for window_s in given.windows_s]
    found = 0
    for r in zip(*sides[0], strict=True):
        for s in zip(*sides[1], strict=True):
            if max(r[0], s[0]) < begin_us or r[0] < min(oldest_us[0], begin_us) or s[0] < min(oldest_us[1], begin_us):
                continue
            if r[0] - s[0] > reach_us[1] or s[0] - r[0] > reach_us[0]:
                continue
            near = r[2] == s[2] if given.is_equality else abs(r[2] - s[2]) <= given.eps
            found += near and (given.is_equality or abs(r[3] - s[3]) <= given.eps)
    return found


@examples(25)
@given(streams, st.sampled_from([1.0, 0.5]), st.integers(1, 400_000))
def test_the_count_is_that_of_every_pair(given, fill, span_us):
    begin_us = given.warm_us
    assert given.matches_of(begin_us, begin_us + span_us, fill) == every_pair(given, begin_us, begin_us + span_us, fill)


@examples(25)
@given(streams, st.integers(1, 7), st.integers(0, 3_000_000))
def test_groups_share_out_the_tuples(given, groups, at_us):
    first, last = given.first_row(0, at_us), given.first_row(0, at_us + 700_000)
    whole = given.batch(0, first, last)
    parts = [given.batch(0, first, last, group, groups) for group in range(groups)]
    assert sorted(row for part in parts for row in part.column(1).to_pylist()) == whole.column(1).to_pylist()
    assert all(set(part.column(1).to_numpy() % groups) <= {group} for group, part in enumerate(parts))
    times_us = whole.column(0).to_numpy()
    assert (times_us >= at_us).all()
    assert (times_us < at_us + 700_000).all()


@pytest.mark.parametrize("is_equality", [False, True])
def test_the_hit_rate_is_that_of_the_tuples(is_equality):
    given = BandStreams((20_000, 20_000), (1, 1), domain=300, is_equality=is_equality, seed=3)
    begin_us = given.warm_us
    found = given.matches_of(begin_us, begin_us + 250_000)
    assert found / (given.load.pairs_per_s / 4) == pytest.approx(given.hit_rate, rel=0.03)


def test_the_papers_hit_rate():
    """One pair in 250,000 matches (Roy et al., 2014, section 7.1)."""
    assert 1 / BandStreams((1, 1), (1, 1)).hit_rate == pytest.approx(250_000, rel=0.1)
    values = BandStreams((1_000, 1_000), (1, 1)).batch(0, 0, 50_000).column(2).to_numpy()
    assert np.mean(values) == pytest.approx(5_000, rel=0.02)
