"""Epochs as they stand in an offset."""

from __future__ import annotations

import json

import pytest

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.plan import Difference, Epochs, Layout, RangeLayout, Reach
from streamjoin_ds.spec import Key


def test_the_first_is_the_checkpoints_layout() -> None:
    epochs = Epochs.first(Layout((2, 3)))
    assert (epochs.current.number, epochs.current.first_seqs, epochs.older) == (0, (0, 0), ())


def test_they_follow_each_other_and_go() -> None:
    first = Epochs.first(Layout((2, 2)))
    second = first.entered(Layout((4, 1)), [10, 20], 7)
    third = second.entered(Layout((1, 4)), [30, 40])
    assert [epoch.number for epoch in third.live] == [0, 1, 2]
    assert third.current.layout == Layout((1, 4))
    assert [epoch.number for epoch in third.without([0]).live] == [1, 2]
    assert third.without([0, 1, 2]).live == (third.current,), "the current one stays, whatever is told"
    assert third.without([0, 1]).entered(Layout((2, 2)), [50, 60]).current.number == 3


def test_they_come_back_from_json() -> None:
    epochs = Epochs.first(Layout((2, 2))).entered(Layout((4, 1)), [10, 20], -7)
    assert Epochs.from_facts(json.loads(json.dumps(epochs.to_facts())), 2) == epochs


def test_ranges_come_back_from_json_with_every_bit() -> None:
    keys = (Key("x", "float"), Key("y", "float"))
    reach = Reach(2, (Difference(0, 1, -0.1, 1e300),), False, keys)
    grids = (Layout((1, 1)), Layout((2, 2)), Layout((1, 1)))
    ranges = RangeLayout(9, reach, 1, (-5e-324, 0.1 + 0.2), grids)
    epochs = Epochs.first(Layout((2, 2))).entered(ranges, [10, 20], -7)
    assert epochs.has_ranges
    assert not Epochs.first(Layout((2, 2))).has_ranges
    assert Epochs.from_facts(json.loads(json.dumps(epochs.to_facts())), 2) == epochs


GOOD = {"first": [0, 0], "layout": [2, 2], "number": 0}


@pytest.mark.parametrize(
    "facts",
    [
        None,
        [],
        {},
        [None],
        [GOOD | {"more": 1}],
        [{"first": [0, 0], "layout": [2, 2]}],
        [GOOD | {"number": "0"}],
        [GOOD | {"number": -1}],
        [GOOD | {"first": [0]}],
        [GOOD | {"first": [0, 1.5]}],
        [GOOD | {"layout": [2, 2, 1]}],
        [GOOD | {"layout": [0, 2]}],
        [GOOD | {"layout": {"boundaries": []}}],
        [GOOD | {"layout": "2x2"}],
        [GOOD | {"since_us": "then"}],
    ],
)
def test_anything_else_is_refused(facts: object) -> None:
    with pytest.raises(OffsetError) as caught:
        Epochs.from_facts(facts, 2)
    assert caught.value.name == "epochs"
