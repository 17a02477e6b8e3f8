"""What the option `layout` may say, and what it is refused for."""

from __future__ import annotations

import pytest

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import AskedLayout, Layout
from streamjoin_ds.spec import bind


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (None, AskedLayout("auto")),
        ("auto", AskedLayout("auto")),
        (" grid ", AskedLayout("grid")),
        ("ranges", AskedLayout("ranges")),
        ("2x3", AskedLayout("grid", Layout((2, 3)))),
    ],
)
def test_kinds_and_grids(text: str | None, asked: AskedLayout) -> None:
    assert AskedLayout.parse(text, 2) == asked


@pytest.mark.parametrize("text", ["", "range", "2", "2x2x2", "0x1", "Auto"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        AskedLayout.parse(text, 2)
    assert caught.value.name == "layout"


@pytest.mark.parametrize(
    ("on", "is_tied"),
    [
        ("abs(r.x - s.x) <= 1", True),
        ("r.n = s.n", True),
        ("r.t2 - s.t2 BETWEEN INTERVAL 0 SECONDS AND INTERVAL 1 SECOND", True),
        ("r.name = s.name", False),
        ("r.x < s.x", False),
    ],
)
def test_ranges_need_a_column_that_ties_all_streams(on: str, is_tied: bool) -> None:
    schema = {"ts": "timestamp[us]", "t2": "timestamp[us]", "x": "double", "n": "int64", "name": "string"}
    join = StreamJoin([Stream(name, schema=schema) for name in "rs"], on=on, window="1s")
    bound = bind(join, {stream.name: stream.schema for stream in join.streams})
    for kind in ("auto", "grid"):
        AskedLayout(kind).check(bound)
    if is_tied:
        AskedLayout("ranges").check(bound)
    else:
        with pytest.raises(LayoutError) as caught:
            AskedLayout("ranges").check(bound)
        assert caught.value.name == "layout"
        assert "grid" in caught.value.hint
