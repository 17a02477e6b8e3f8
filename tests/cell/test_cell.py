"""What a cell writes about the rows that it sets aside."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from streamjoin_ds.cell.cell import _json_text


def refuse(constant: str) -> None:
    raise AssertionError(constant)


def test_a_late_tuple_is_json_that_a_strict_parser_takes() -> None:
    moment = datetime(2024, 1, 1, tzinfo=timezone.utc)
    row = {"x": float("nan"), "y": float("-inf"), "z": 1.5, "n": None, "t": moment, "s": "Zürich"}
    row |= {"l": [1.0, float("inf")], "in": {"x": [float("nan")]}, "map": [("a", float("nan"))]}
    found = json.loads(_json_text(row), parse_constant=refuse)
    assert found == {
        **{"x": "nan", "y": "-inf", "z": 1.5, "n": None, "t": str(moment), "s": "Zürich"},
        **{"l": [1.0, "inf"], "in": {"x": ["nan"]}, "map": [["a", "nan"]]},
    }
