from __future__ import annotations

import pyarrow as pa
import pytest

from streamjoin_ds.spec.expression.calculation import Calculation, output_type
from streamjoin_ds.spec.expression.parser import parse_value
from streamjoin_ds.spec.expression.tree import normalised
from streamjoin_ds.spec.expression.types import typed_value

ROWS = pa.table(
    {
        "n": pa.array([0, 1, 2, None], pa.int64()),
        "x": pa.array([0.0, 1.0, float("nan"), None], pa.float64()),
        "t": pa.array(["", "7", "x", None], pa.string()),
        "big": pa.array([1 << 62, -(1 << 62), 1, None], pa.int64()),
    }
)
NO_CAST = "a value that cannot be cast to int"


@pytest.mark.parametrize(
    ("text", "values", "failed"),
    [
        ("1 / n", [None, 1.0, 0.5, None], {0: "a division by zero"}),
        ("n % n", [None, 0, 0, None], {0: "a division by zero"}),
        ("cast(t as int)", [None, 7, None, None], {0: NO_CAST, 2: NO_CAST}),
        ("try_cast(t as int)", [None, 7, None, None], {}),
        ("coalesce(try_cast(t as int), 5)", [5, 7, 5, 5], {}),
        ("coalesce(n, cast(t as int))", [0, 1, 2, None], {}),  # what stands behind a known value does not count
        ("coalesce(nullif(n, 0), cast(t as int))", [None, 1, 2, None], {0: NO_CAST}),
        ("case when n = 0 then -1 else 1 / n end", [-1.0, 1.0, 0.5, None], {}),
        ("case when n = 0 then cast(t as int) else 3 end", [None, 3, 3, 3], {0: NO_CAST}),
        ("n <> 0 and 1 / n > 0.7", [False, True, False, None], {}),
        ("1 / n > 0.7 and n <> 0", [False, True, False, None], {}),
        ("n = 0 or 1 / n > 0.7", [True, True, False, None], {}),
        ("n = 1 or 1 / n > 0.7", [None, True, False, None], {0: "a division by zero"}),
        ("(cast(t as int)) is null", [True, False, True, True], {0: NO_CAST, 2: NO_CAST}),
        ("upper(t) || 'a'", ["a", "7a", "Xa", None], {}),
        ("ln(n)", [None, 0.0, pytest.approx(0.6931471805599453), None], {}),  # as Spark has it
        (
            "big + big + big",
            [None, None, 3, None],
            {0: "a value that does not fit int64", 1: "a value that does not fit int64"},
        ),
        ("x / 2", [0.0, 0.5, pytest.approx(float("nan"), nan_ok=True), None], {}),
        ("greatest(n, 1 / n)", [0.0, 1.0, 2.0, None], {0: "a division by zero"}),
    ],
)
def test_a_row_fails_where_sql_would(text: str, values: list[object], failed: dict[int, str]) -> None:
    expression = normalised(parse_value(text, "e"), fails=True)
    node = typed_value(expression, lambda column: ROWS.schema.field(column.name).type)
    calculation = Calculation(ROWS.num_rows, lambda column: ROWS.column(column.name).combine_chunks())
    found, reasons = calculation.column_of(node, output_type(expression, node))
    assert found.to_pylist() == values
    assert {place: why for mask, why in reasons for place in mask.nonzero()[0].tolist()} == failed
