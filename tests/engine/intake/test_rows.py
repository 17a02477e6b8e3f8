"""Rows made into tuples: dicts give what the table of them gives, whichever way their values are converted."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.intake.rows import RowIntake
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.testing.values import event_time_us
from tests.support.examples import examples

FIELDS = {
    "x": pa.int32(),
    "y": pa.float32(),
    "z": pa.float64(),
    "name": pa.string(),
    "price": pa.decimal128(9, 2),
    "flag": pa.bool_(),
    "day": pa.date32(),
}
BERLIN = timezone(timedelta(hours=2))


def intake_of(kernel: str, time: pa.DataType, unit: str = "us", window: str = "1s") -> RowIntake:
    schema = pa.schema([*FIELDS.items(), ("ts", time)])
    join = Join([Stream(name, schema=schema, time_unit=unit) for name in ("e", "w")], "e.x = w.x", window)
    return RowIntake(bind(join, {"e": schema, "w": schema}), 0, load_kernels(kernel).module)


def table_of(rows: list[dict[str, Any]], unit: str) -> pa.Table:
    """Return the table of dicts, with event times by the oracle's rule."""
    times = [event_time_us(row["ts"], unit) for row in rows]
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in FIELDS.items()}
    return pa.table({**columns, "ts": pa.array(times, pa.timestamp("us"))})


def answer(intake: RowIntake, rows: Any) -> object:
    """Return tuples, schema and number of rejected rows, or that a value does not fit."""
    try:
        arrival = intake.read(rows)
        tuples = intake.tuples(arrival, 7, {})
    except SchemaDriftError:
        return "does not fit"
    tuples.validate(full=True)
    rejected = 0 if arrival.rejected is None else arrival.rejected.num_rows
    assert rejected == arrival.count - tuples.num_rows
    # As text, since there NaN is like NaN.
    return str(tuples.to_pylist()), tuples.schema, rejected


MOMENTS = st.datetimes(
    datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.sampled_from([None, timezone.utc, BERLIN])
)
TIMES = st.one_of(
    st.integers(-(10**9), 10**9),
    MOMENTS,
    st.floats(-1e9, 1e9),
    st.sampled_from(
        [None, date(2024, 1, 1), (1 << 63) - 1, 1 << 63, float("nan"), float("inf"), 1e300, Decimal("2.5")]
    ),
    st.builds(np.int64, st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(np.float64, st.floats()),
    st.builds(pd.Timestamp, st.integers(-(10**18), 10**18)),
)
COLUMNS = st.fixed_dictionaries(
    {},
    optional={
        "x": st.one_of(st.integers(-5, 5), st.sampled_from([None, 1 << 31, True, 1.5, "1"])),
        "y": st.one_of(
            st.floats(width=32), st.integers(-5, 5), st.sampled_from([None, 1e300, True, (1 << 24) + 1, "y"])
        ),
        "z": st.one_of(st.floats(), st.sampled_from([None, 1, (1 << 53) + 1, np.float32(0.1)])),
        "name": st.sampled_from(["a", "", None, 5]),
        "price": st.sampled_from([Decimal("1.25"), None, "1.25"]),
        "flag": st.sampled_from([True, False, None]),
        "day": st.sampled_from([date(2024, 2, 29), None, 5]),
    },
)


@examples(300)
@given(
    st.sampled_from(["auto", "reference"]),
    st.sampled_from([(pa.timestamp("us", "UTC"), "us"), (pa.int64(), "us"), (pa.int64(), "s"), (pa.int64(), "ns")]),
    st.lists(st.tuples(TIMES, COLUMNS), min_size=1, max_size=3),
    st.booleans(),
)
def test_dicts_give_what_their_table_gives(kernel, time, rows, alike) -> None:
    kind, unit = time
    times = [rows[0][0] if alike else ts for ts, _ in rows]
    dicts = [{**values, "ts": ts, "other": object()} for ts, (_, values) in zip(times, rows, strict=True)]
    intake = intake_of(kernel, kind, unit)
    try:
        table = table_of(dicts, unit)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        assert answer(intake, dicts) == "does not fit"
    else:
        assert answer(intake, dicts) == answer(intake, table)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_at_the_ends_of_their_unit(kernel, unit) -> None:
    intake = intake_of(kernel, pa.int64(), unit)
    factor = {"s": 1_000_000, "ms": 1_000}.get(unit, 1)
    for end in ((1 << 63) - 1, -(1 << 63)):
        reach = abs(end) // factor * (1 if end > 0 else -1)
        for value in (reach - 1, reach, reach + 1):
            if -(1 << 63) <= value < 1 << 63:
                row = [{"ts": value, "x": 1}]
                assert answer(intake, row) == answer(intake, table_of(row, unit)), value


def as_lists(tables: dict[str, pa.Table]) -> dict[str, list]:
    return {name: table.to_pylist() for name, table in tables.items()}


@pytest.mark.slow
@pytest.mark.parametrize("window", ["5s", "last 40", "every 2s for 5s"])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_one_dict_a_push_gives_what_batches_give(kernel, window) -> None:
    rng = np.random.default_rng(4)
    count = 300 if kernel == "auto" else 80
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    seconds = np.arange(count) * 0.1 + rng.random(count) * 2
    rows = [
        {
            "ts": None if n % 37 == 5 else start + timedelta(seconds=float(seconds[n])),
            "x": None if n % 31 == 7 else int(rng.integers(0, 6)),
            "y": float("nan") if n % 29 == 3 else float(rng.random()),
            "name": None if n % 5 == 0 else f"n{n}",
        }
        for n in range(count)
    ]
    schema = pa.schema(
        [("ts", pa.timestamp("us", "UTC")), ("x", pa.int32()), ("y", pa.float32()), ("name", pa.string())]
    )

    def engine() -> JoinEngine:
        streams = [Stream(name, schema=schema, delay="1s", where="y > 0.05 OR y IS NULL") for name in ("e", "w")]
        return JoinEngine(Join(streams, "abs(e.x - w.x) <= 1", window), execution=Execution(kernel=kernel))

    singly, tables = engine(), engine()
    late: dict[str, list] = {"e": [], "w": []}
    found, expected = [], []
    for n, row in enumerate(rows):
        name = "ew"[n % 2]
        found.append(singly.push({name: row}))
        one = pa.Table.from_pylist([row], schema=schema)
        expected.append(tables.push({name: one if n % 3 else one.to_batches()[0]}))
        assert singly.late == tables.late
        # As text, since there NaN is like NaN.
        assert str(as_lists(singly.rejected)) == str(as_lists(tables.rejected))
        for stream, table in singly.late.items():
            late[stream] += table["_seq"].to_pylist()
    assert pa.concat_tables(found).equals(pa.concat_tables(expected))
    assert pa.concat_tables(found).num_rows > 20
    assert all(late.values())
    assert singly.counters == tables.counters
    assert singly.save() == tables.save()
    if window != "last 40":  # which rows a count window meets depends on how the pushes of the streams alternate
        whole = engine()
        at_once = whole.push({"e": rows[::2], "w": rows[1::2]})
        order = [("e_seq", "ascending"), ("w_seq", "ascending")]
        columns = [name for name in at_once.schema.names if name.endswith(("_seq", "_x"))]
        together = pa.concat_tables(found)
        assert together.select(columns).sort_by(order).equals(at_once.select(columns).sort_by(order))


def test_computed_columns_are_made_of_dicts_and_of_tables_alike() -> None:
    columns = {"ts": "day || ' ' || clock", "m": "kn * 0.5", "code": "cast(t as int)"}
    e = Stream("e", columns=columns, schema={"day": "string", "clock": "string", "kn": "double", "t": "string"})
    w = Stream("w", schema={"ts": "timestamp[us]", "x": "double"})
    join = Join([e, w], "abs(e.m - w.x) <= 1 AND e.code > 0", "10s", "e.ts, e.m, e.code")
    rows = [
        {"day": "2024-03-05", "clock": "09:00:07", "kn": 4.0, "t": "1"},
        {"day": "2024-03-05", "clock": "09:00:08", "kn": 4.0, "t": "one"},
        {"day": "soon", "clock": "09:00:08", "kn": 4.0, "t": "2"},
        {"day": "2024-03-05", "clock": "09:00:09", "kn": 4.5, "t": None},
        {"day": "2024-03-05", "clock": "09:00:09", "kn": 4.5, "t": "3"},
    ]
    found = []
    for pushed in (rows, pa.Table.from_pylist(rows)):
        engine = JoinEngine(join)
        engine.push({"w": {"ts": datetime(2024, 3, 5, 9, 0, 8, tzinfo=timezone.utc), "x": 2.0}})
        found.append(engine.push({"e": pushed}).to_pylist())
        assert sorted(engine.rejected["e"].column("t").to_pylist()) == ["2", "one"]
    assert found[0] == found[1]
    assert [(row["e_m"], row["e_code"], row["e_seq"]) for row in found[0]] == [(2.0, 1, 0), (2.25, 3, 4)]
