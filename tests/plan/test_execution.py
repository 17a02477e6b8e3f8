"""The settings of a cell's engine: every form that a user may write becomes one object, and comes back from JSON."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from streamjoin_ds import JoinEngine, Stream, StreamJoin
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import DEFAULT_EXECUTION, KERNELS, Execution, OldOptions, execution_of

BY_COLUMNS = (("e", ("x", "PM2.5")), ("w", ("y",)))


@pytest.mark.parametrize(
    ("given", "inside"),
    [
        ("auto", "auto"),
        ("scan", "scan"),
        ("e.x, e.PM2.5,w.y", BY_COLUMNS),
        (["e.x", 'e."PM2.5"', "w.y"], BY_COLUMNS),
        (("e.x", "w.y", "e.PM2.5"), BY_COLUMNS),
        ({"e": ["x", "PM2.5"], "w": "y"}, BY_COLUMNS),
        ({"e": "scan", "w": ("y",)}, (("e", "scan"), ("w", ("y",)))),
        ({}, "auto"),
    ],
)
def test_an_index_in_all_its_forms(given: Any, inside: object) -> None:
    execution = Execution(index=given)
    assert execution.index == inside
    assert Execution(index=execution.index) == execution
    assert execution.sort_layouts == (inside if isinstance(inside, str) else dict(inside))  # type: ignore[call-overload]


@pytest.mark.parametrize(("given", "inside"), [("auto", "auto"), ("e, w,x", ("e", "w", "x")), (["w", "e"], ("w", "e"))])
def test_an_order_in_all_its_forms(given: Any, inside: object) -> None:
    assert Execution(order=given).order == inside


@pytest.mark.parametrize(
    "execution",
    [
        DEFAULT_EXECUTION,
        Execution("scalar", 3, False, "scan", "b,a", 7),
        Execution(index={"e": "scan", "w": ["x", "y"]}),
        Execution(index={}),
    ],
)
def test_json_brings_back_an_equal_one(execution: Execution) -> None:
    assert Execution(**json.loads(json.dumps(execution.to_facts()))) == execution


def test_options_one_by_one_are_taken_with_a_warning_that_shows_the_new_way() -> None:
    join = StreamJoin([Stream(name, schema={"ts": "int64", "x": "int64"}) for name in "ew"], "e.x = w.x", "1s")
    old: dict[str, Any] = {"kernel": "scalar", "index": "scan", "order": "w,e", "merge_runs": 9, "pin": False}
    new = Execution(threads=2, **old)
    with pytest.warns(DeprecationWarning, match=r"kernel, index.*give execution=Execution\(kernel=\.\.\., ") as warned:
        engine = JoinEngine(join, threads=2, **old)
    assert {each.filename for each in warned} == {__file__}
    assert engine.explain() == JoinEngine(join, execution=new).explain()
    with pytest.warns(DeprecationWarning, match="give execution"):
        told = execution_of(Execution(threads=2, order="w,e"), 2, OldOptions(**old))
    assert told == new
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert execution_of(Execution(index="scan"), 3, {}) == Execution(threads=3, index="scan")
    with pytest.raises(ArgumentError, match="threads is given twice"):
        JoinEngine(join, threads=2, execution=Execution(threads=3))
    with pytest.raises(TypeError, match="unexpected keyword argument 'merges'"):
        JoinEngine(join, merges=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "mmx"},
        {"threads": "2"},
        {"threads": True},
        {"pin": "no"},
        {"merge_runs": 2.0},
        {"index": "latitude"},
        {"index": ""},
        {"index": []},
        {"index": 5},
        {"index": {"e": 5}},
        {"index": {"e": []}},
        {"order": ""},
        {"order": ["e", 1]},
        {"order": 3},
    ],
)
def test_what_is_of_another_form_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as caught:
        Execution(**options)
    assert caught.value.name == next(iter(options)) or "index" in options
    assert caught.value.hint


def test_every_kernel_that_runs_here_can_be_asked_for() -> None:
    assert set(kernel_names()) <= set(KERNELS)
