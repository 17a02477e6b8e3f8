"""Tables that need no conversion are taken as they are, and every other table is looked at closely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.engine.intake.rows import PlainTable
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US

OUTSIDE = pa.schema([pa.field("ts", pa.timestamp("us")), pa.field("x", pa.int64()), pa.field("y", pa.float64())])
STREAM = Stream("r", schema=OUTSIDE)
TABLE = pa.table({"ts": pa.array([1, 2], pa.timestamp("us")), "x": [5, 6], "y": [0.5, None]}, schema=OUTSIDE)


def columns(table: pa.Table, outside: pa.Schema = OUTSIDE, stream: Stream = STREAM) -> Any:
    plain = PlainTable(table.schema, outside, stream)
    return plain.columns(table) if plain.is_plain else None


def test_columns_are_taken_as_they_are():
    times_us, made = columns(TABLE)
    assert times_us.tolist() == [1, 2]
    assert {name: column.to_pylist() for name, column in made.items()} == {"x": [5, 6], "y": [0.5, None]}


def test_columns_may_come_in_any_order_beside_others():
    table = TABLE.select(["y", "ts", "x"]).append_column("z", pa.array(["a", "b"]))
    times_us, made = columns(table)
    assert times_us.tolist() == [1, 2]
    assert made["x"].to_pylist() == [5, 6]


def test_a_slice_has_its_own_rows():
    times_us, made = columns(TABLE.slice(1))
    assert times_us.tolist() == [2]
    assert made["x"].to_pylist() == [6]


def test_numbers_are_event_times_in_microseconds_only():
    numbers = TABLE.set_column(0, "ts", pa.array([1, 2], pa.int64()))
    schema = numbers.schema
    assert columns(numbers, schema, Stream("r", schema=schema)) is not None
    assert columns(numbers, schema, Stream("r", schema=schema, time_unit="ms")) is None


@pytest.mark.parametrize(
    "table",
    [
        TABLE.drop_columns(["x"]),
        TABLE.drop_columns(["ts"]),
        TABLE.append_column("x", pa.array([1, 2])),
        TABLE.append_column("ts", TABLE["ts"]),
        TABLE.set_column(1, "x", pa.array([5, 6], pa.int32())),
        TABLE.set_column(0, "ts", pa.array([1, 2], pa.timestamp("ns"))),
        TABLE.set_column(0, "ts", pa.array([1, None], pa.timestamp("us"))),
        TABLE.set_column(0, "ts", pa.array([1, MAX_TS_US + 1], pa.timestamp("us"))),
        TABLE.set_column(0, "ts", pa.array([MIN_TS_US - 1, 1], pa.timestamp("us"))),
        TABLE.set_column(0, "ts", pa.array([MIN_TS_US - 1, 1], pa.timestamp("us"))).slice(0, 1),
        pa.concat_tables([TABLE, TABLE]),
        TABLE.slice(0, 0).combine_chunks().replace_schema_metadata({"a": "b"}).drop_columns(["y"]),
    ],
)
def test_a_table_that_needs_a_closer_look_is_not_plain(table):
    assert columns(table) is None


def test_a_column_of_times_needs_a_closer_look():
    outside = OUTSIDE.append(pa.field("seen", pa.timestamp("us")))
    table = TABLE.append_column("seen", pa.array([1, 2], pa.timestamp("us")))
    assert columns(table, outside, Stream("r", schema=outside)) is None


def test_a_null_that_must_not_be_needs_a_closer_look():
    outside = OUTSIDE.set(2, pa.field("y", pa.float64(), nullable=False))
    assert columns(TABLE, outside, Stream("r", schema=outside)) is None
    assert columns(TABLE.slice(0, 1), outside, Stream("r", schema=outside)) is not None


def test_an_engine_takes_tables_of_changing_schemas_alike():
    rng = np.random.default_rng(7)
    forms = [
        lambda rows: pa.table(rows, schema=OUTSIDE),
        lambda rows: pa.table(rows, schema=OUTSIDE).select(["x", "y", "ts"]),
        lambda rows: pa.table({**rows, "ts": pa.array(rows["ts"], pa.timestamp("us")).cast(pa.timestamp("ns"))}),
        lambda rows: pa.concat_tables([pa.table(rows, schema=OUTSIDE).slice(n, 1) for n in range(3)]),
        lambda rows: [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)],
    ]
    join = Join([Stream("r", schema=OUTSIDE), Stream("s", schema=OUTSIDE)], "abs(r.x - s.x) <= 2", "1s")
    plain, mixed = JoinEngine(join), JoinEngine(join)
    for push in range(40):
        for name in ("r", "s"):
            rows = {
                "ts": (push * 1_000 + rng.integers(0, 900, 3)).tolist(),
                "x": rng.integers(0, 20, 3).tolist(),
                "y": [0.5, None, 1.5],
            }
            found = plain.push({name: forms[0](rows)})
            assert mixed.push({name: forms[int(rng.integers(len(forms)))](rows)}).equals(found)
    assert mixed.counters == plain.counters
    assert plain.counters["matches"]
