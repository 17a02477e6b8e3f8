"""Records from the future: the rule gives what plain Python gives, wherever a stream is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Generator, Stream
from streamjoin_ds.spec.event_time import AheadLimit, running_maximum, too_far_ahead

NONE = -(1 << 63)
TIMES = st.lists(st.one_of(st.none(), st.integers(0, 40), st.integers((1 << 63) - 5, (1 << 63) - 1)), max_size=30)


def plainly(times: list[int | None], limit: int, is_measured: bool) -> list[bool]:
    far, largest = [], None
    for time in times:
        beyond = time is not None and largest is not None and is_measured and time > largest + limit
        far.append(beyond)
        if time is not None and not beyond:
            largest, is_measured = max(time, NONE if largest is None else largest), True
    return far


@given(times=TIMES, limit=st.integers(1, 30), cut=st.integers(0, 30))
def test_cuts_change_nothing(times: list[int | None], limit: int, cut: int) -> None:
    ts = np.array([0 if time is None else time for time in times], np.int64)
    valid = np.array([time is not None for time in times], np.bool_)
    whole = too_far_ahead(ts, valid, NONE, AheadLimit(limit))
    assert whole.tolist() == plainly(times, limit, is_measured=True)
    first = too_far_ahead(ts[:cut], valid[:cut], NONE, AheadLimit(limit))
    running = running_maximum(ts[:cut], valid[:cut] & ~first, NONE)
    before = int(running[-1]) if len(running) else NONE
    rest = too_far_ahead(ts[cut:], valid[cut:], before, AheadLimit(limit))
    assert [*first.tolist(), *rest.tolist()] == whole.tolist()


def test_the_first_after_a_silence_is_measured_against_nothing() -> None:
    times = np.array([1000, 1001, 2000, 5], np.int64)
    assert too_far_ahead(times, None, 10, AheadLimit(50)).tolist() == [True, True, True, False]
    assert too_far_ahead(times, None, 10, AheadLimit(50, is_measured=False)).tolist() == [False, False, True, False]


def test_streams_say_both_and_facts_of_old_have_neither() -> None:
    stream = Stream("r", "r.csv", idle_timeout="10 minutes", max_ahead="90m")
    assert (stream.idle_timeout, stream.max_ahead) == ("10m", "1h 30m")
    assert Stream.from_facts(stream.to_facts()) == stream
    plain = Stream("r", "r.csv")
    assert not {"idle_timeout_us", "max_ahead_us"} & set(plain.to_facts())
    assert (plain.idle_timeout_us, plain.max_ahead_us) == (None, None)
    with pytest.raises(ArgumentError, match="stream r is generated"):
        Stream("r", Generator("band2d"), max_ahead="1h")
    with pytest.raises(ArgumentError, match="idle_timeout of r must be longer than 0"):
        Stream("r", idle_timeout="0s")
