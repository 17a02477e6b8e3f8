"""JoinEngine: rows in any form; late rows are set aside and counted; nothing is lost."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from datetime import date, datetime, timezone
from threading import Thread

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError, ColumnError, SchemaDriftError
from streamjoin_ds.spec import Join, Stream, Table

SCHEMA = {"ts": "int64", "x": "float64"}


def _engine(window: str = "10us", delay: str = "0us", **stream: object) -> JoinEngine:
    streams = [Stream(name, delay=delay, schema=SCHEMA, **stream) for name in ("e", "w")]  # type: ignore[arg-type]
    return JoinEngine(Join(streams, "abs(e.x - w.x) <= 0.5", window))


class Capsule:
    """A frame that is known by Arrow's PyCapsule interface alone, as polars' are."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.dtypes = ["not", "pandas'"]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("form", ["table", "batch", "pandas", "dicts", "capsule", "reader", "duckdb", "views"])
def test_rows_come_in_any_form(form: str) -> None:
    engine = _engine()
    table = pa.table({"ts": [1, 2, 3], "x": [1.0, 5.0, 9.0], "ignored": ["a", "b", "c"]})
    rows = {
        "table": table,
        "batch": table.to_batches()[0],
        "pandas": pd.DataFrame({"ts": [1, 2, 3], "x": [1.0, 5.0, 9.0]}),
        "dicts": table.to_pylist(),
        "capsule": Capsule(table),
        "reader": table.to_reader(),
        "duckdb": duckdb.connect().from_arrow(table),
        "views": Capsule(table.set_column(2, "ignored", pa.array(["a", "b", "c"], pa.string_view()))),
    }[form]
    engine.push({"e": rows})
    result = engine.push({"w": {"ts": 4, "x": 5.25}})
    assert result.num_rows == 1
    assert result["e_seq"].to_pylist() == [1]
    assert result["event_time"].cast(pa.int64()).to_pylist() == [4]


def test_late_and_rejected_rows_are_set_aside_and_counted() -> None:
    engine = _engine(delay="5us")
    engine.push({"e": [{"ts": 10, "x": 1.0}, {"ts": 4, "x": 1.0}, {"ts": None, "x": 1.0}, {"ts": 5, "x": None}]})
    assert engine.late["e"]["_seq"].to_pylist() == [1]
    assert engine.rejected["e"]["x"].to_pylist() == [1.0]
    assert engine.watermark is None
    result = engine.push({"w": [{"ts": 10, "x": 1.0}]})
    assert result["e_seq"].to_pylist() == [0]
    assert engine.late == engine.rejected == {}
    assert engine.watermark == 5
    counters = engine.counters
    assert (counters["read_rows"]["e"], counters["stored_rows"]["e"]) == (4, 2)
    assert (counters["late_rows"]["e"], counters["rejected_rows"]["e"], counters["null_keys"]["e"]) == (1, 1, 1)


def test_late_rows_of_a_shuffled_frame_are_told_with_the_delay_that_keeps_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = np.arange(240, dtype=np.int64) * 1_000_000
    rows = pd.DataFrame({"ts": times, "x": np.arange(240.0)}).sample(frac=1, random_state=1)
    largest = np.maximum.accumulate(rows["ts"].to_numpy())
    late_by = (largest - rows["ts"].to_numpy())[largest > rows["ts"].to_numpy()]
    with caplog.at_level(logging.WARNING):
        engine = _engine("1s")
        assert engine.push({"w": rows.sort_values("ts"), "e": rows}).num_rows < 240
        engine.push({"e": rows})  # told once
    (told,) = caplog.messages
    assert told.startswith(f"stream e: {len(late_by)} of the 240 rows so far are late")
    delay = f"{-(-late_by.max() // 60_000_000) - 1}m"
    (named,) = re.findall(r"delay='([^']+)'", told)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert _engine("1s", delay=named).push({"w": rows.sort_values("ts"), "e": rows}).num_rows == 240
        assert not caplog.messages
        _engine("1s", delay=delay).push({"e": rows})  # a shorter one keeps not all of them
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("kind", "unit", "values"),
    [
        (pa.int64(), "s", [1, -1, None]),
        (pa.int32(), "ms", [1000, -1000, None]),
        (pa.int64(), "ns", [1_000_000_999, -1_000_000_000, None]),
        (pa.timestamp("ns"), "us", [1_000_000_999, -1_000_000_000, None]),
        (pa.timestamp("ms", tz="Europe/Berlin"), "us", [1000, -1000, None]),
        (pa.timestamp("s"), "us", [1, -1, None]),
    ],
)
def test_event_times_of_every_kind(kind: pa.DataType, unit: str, values: list[int | None]) -> None:
    schema = pa.schema([("ts", kind)])
    streams = [Stream(name, schema=schema, time_unit=unit, delay="10s") for name in ("e", "w")]
    engine = JoinEngine(Join(streams, (), "0s"))
    table = pa.table({"ts": pa.array(values, pa.int64()).cast(pa.int64() if kind != pa.int32() else kind).cast(kind)})
    result = engine.push({"e": table, "w": table})
    assert sorted(result["event_time"].cast(pa.int64()).to_pylist()) == [-1_000_000, 1_000_000]
    assert engine.counters["rejected_rows"] == {"e": 1, "w": 1}


def test_event_times_from_dates_and_dicts_of_datetimes() -> None:
    schema = pa.schema([("ts", pa.date32())])
    engine = JoinEngine(Join([Stream(name, schema=schema) for name in ("e", "w")], (), "1d"))
    result = engine.push({"e": {"ts": date(1970, 1, 2)}, "w": {"ts": datetime(1970, 1, 3, tzinfo=timezone.utc)}})
    assert result["event_time"].cast(pa.int64()).to_pylist() == [2 * 86_400_000_000]


def test_seconds_too_large_for_microseconds_are_rejected_not_wrapped() -> None:
    engine = _engine(time_unit="s")
    engine.push({"e": [{"ts": (1 << 63) - 1, "x": 1.0}, {"ts": 1, "x": 1.0}]})
    assert engine.counters["rejected_rows"]["e"] == 1
    assert engine.counters["stored_rows"]["e"] == 1


def test_an_error_changes_nothing() -> None:
    engine = _engine()
    engine.push({"e": {"ts": 5, "x": 1.0}})
    before = engine.save()
    with pytest.raises(SchemaDriftError, match="x"):
        engine.push({"e": {"ts": 50, "x": 1.0}, "w": {"ts": 6, "x": "no number"}})
    with pytest.raises(SchemaDriftError, match="ts"):
        engine.push({"w": pa.table({"x": [1.0]})})
    with pytest.raises(ArgumentError, match="'z'"):
        engine.push({"z": {"ts": 6, "x": 1.0}})
    with pytest.raises(ArgumentError, match="no known form: int"):
        engine.push({"w": 5})
    assert engine.save() == before


def test_a_restored_engine_goes_on() -> None:
    rng = np.random.default_rng(3)
    table = pa.table({"ts": rng.integers(0, 200, 400), "x": rng.random(400) * 10})
    straight, results = _engine(delay="90us"), []
    restarted, other = _engine(delay="90us"), []
    for n in range(0, 400, 50):
        batch = {"e": table.slice(n, 50), "w": table.slice(n, 25)}
        results.append(straight.push(batch))
        again = _engine(delay="90us")
        again.restore(restarted.save())
        restarted = again
        other.append(restarted.push(batch))
        assert {k: t.to_pylist() for k, t in restarted.late.items()} == {
            k: t.to_pylist() for k, t in straight.late.items()
        }
    assert pa.concat_tables(other).equals(pa.concat_tables(results))
    assert pa.concat_tables(results).num_rows > 100
    assert restarted.save() == straight.save()


def test_a_push_from_another_thread_does_not_wait_but_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, errors = _engine(), []
    push = engine._join.push

    def meanwhile(*told: object, **named: object) -> object:
        def other() -> None:
            try:
                engine.push({"e": {"ts": 2, "x": 1.0}})
            except ArgumentError as error:
                errors.append(error)

        thread = Thread(target=other)
        thread.start()
        thread.join()
        return push(*told, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(engine._join, "push", meanwhile)
    engine.push({"e": {"ts": 1, "x": 1.0}})
    assert len(errors) == 1
    assert engine.counters["read_rows"]["e"] == 1


def test_a_stream_needs_a_schema() -> None:
    join = Join([Stream("e", schema=SCHEMA), Stream("w")], "abs(e.x - w.x) <= 1", "1s")
    engine = JoinEngine(join)
    for ask in (lambda: engine.result_schema, engine.explain, engine.save, lambda: engine.counters):
        with pytest.raises(ArgumentError, match="stream w has no schema"):
            ask()
    for rows in (
        {"e": {"ts": 1, "x": 1.0}},
        {"w": {"ts": 1, "x": 1.0}},
    ):  # one dict does not tell what the next one will hold
        with pytest.raises(ArgumentError, match="stream w has no schema"):
            engine.push(rows)
    assert JoinEngine(join, {"w": pa.schema([("ts", pa.int64()), ("x", pa.float32())])}).watermark is None


def test_the_first_push_tells_the_schemas() -> None:
    frame = pd.DataFrame({"ts": [1, 2], "x": [1.0, 9.0]})
    engine = JoinEngine(Join([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 1", "1s"))
    assert engine.watermark is None
    assert engine.push({"e": frame, "w": pa.Table.from_pandas(frame, preserve_index=False)}).num_rows == 2
    assert engine.push({"w": {"ts": 3, "x": 9.5}})["e_x"].to_pylist() == [9.0]
    again = JoinEngine(engine.bound)
    again.restore(engine.save())
    assert again.counters["read_rows"] == {"e": 2, "w": 3}


def test_frames_of_any_kind_tell_the_schemas_and_what_is_no_frame_is_refused_by_name() -> None:
    table = pa.table({"ts": [1, 2], "x": [1.0, 9.0]})
    for frame in (Capsule(table), table.to_reader(), table.to_struct_array().combine_chunks()):  # each is read once
        engine = JoinEngine(Join([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 0.5", "10us"))
        assert engine.push({"e": frame, "w": Capsule(table)}).num_rows == 2
    engine = JoinEngine(Join([Stream("e", schema=SCHEMA)], "e.x = z.x", tables=[Table("z")]))
    engine.use_table("z", Capsule(table))
    assert engine.push({"e": Capsule(table)}).num_rows == 2
    for known in (True, False):
        for bad in (pd.Series([1.0]), pa.array([1.0]), 5, [1, 2], np.zeros(3), None):
            engine = _engine() if known else JoinEngine(Join([Stream("e"), Stream("w")], "e.x = w.x", "10us"))
            with pytest.raises(ArgumentError, match="stream e have no known form") as caught:
                engine.push({"e": bad, "w": table})
            assert caught.value.name == "e"
            assert "__arrow_c_stream__" in caught.value.hint
    with pytest.raises(ArgumentError, match="no stream 'ee'"):  # and not: stream e has no schema
        JoinEngine(Join([Stream("e"), Stream("w")], "e.x = w.x", "10us")).push({"ee": table, "w": table})


@pytest.mark.parametrize("rows", [10, 1500, 5000])
def test_buffers_need_not_be_aligned(rows: int) -> None:
    def askew(values: np.ndarray, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(b"\0" + values.tobytes()).slice(1)])

    table = pa.table({"ts": askew(np.arange(rows), pa.int64()), "x": askew(np.arange(rows) * 2.0, pa.float64())})
    engine = _engine("10s")
    for _ in range(2):
        result = engine.push({"e": table, "w": table})
    assert result["e_x"].equals(result["w_x"])
    assert engine.counters["matches"] == rows + 3  # all of the second push but the last tuple is late


def test_a_column_that_is_there_twice_is_refused_by_name() -> None:
    table = pa.table([pa.array([1]), pa.array([1.0]), pa.array([2.0])], names=["ts", "x", "x"])
    with pytest.raises(SchemaDriftError, match="more than one column 'x'"):
        _engine().push({"e": table})
    with pytest.raises(ColumnError, match="more than one column 'x'"):
        JoinEngine(Join([Stream("e"), Stream("w")], "e.x = w.x", "1s")).push({"e": table, "w": table})


def test_a_thousand_columns_are_looked_at_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(columns: int) -> int:
        """Return how many Python calls it takes to bind a join of so many columns, and to push once."""
        schema = pa.schema([("ts", pa.int64()), *((f"c{n}", pa.float64()) for n in range(columns))])
        table = pa.table({"ts": [1, 2], **{f"c{n}": [0.0, 1.0] for n in range(columns)}})
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            streams = [Stream(name, schema=schema) for name in ("e", "w")]
            engine = JoinEngine(Join(streams, "abs(e.c1 - w.c1) <= 0.5", "1s"))
            engine.push({"e": table, "w": table})
        finally:
            sys.setprofile(before)
        return calls

    assert made(800) < 5 * made(200)


def test_more_text_than_a_column_can_hold_is_refused_by_name() -> None:
    """One block of 64 MiB is repeated: the push has 2 GiB of text, the test needs little memory."""
    schema = {"ts": "int64", "name": "string"}
    engine = JoinEngine(Join([Stream(name, schema=schema) for name in ("e", "w")], (), "1s"))
    block = pa.array(["x" * (1 << 26)])
    table = pa.table({"ts": pa.chunked_array([[n] for n in range(33)]), "name": pa.chunked_array([block] * 33)})
    with pytest.raises(ArgumentError, match="2 GiB") as caught:
        engine.push({"e": table})
    assert caught.value.name == "name"
    assert engine.counters["read_rows"]["e"] == 0


def test_importing_the_engine_imports_no_spark() -> None:
    import subprocess
    import sys

    modules = "streamjoin_ds.engine.join_engine, streamjoin_ds.testing"
    code = f"import sys, {modules}; sys.exit(any('pyspark' in m for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_option_that_there_is_not_is_named_at_once():
    """It is named even if only the first push would bind the join."""
    join = Join([Stream("e"), Stream("w")], "e.x = w.x", "10s")
    with pytest.raises(TypeError, match="thread_count"):
        JoinEngine(join, thread_count=2)


def test_the_options_are_those_of_a_window_join():
    """Few differ: no other engine has copies of its tuples. It has bucket grids, leases cores, and measures costs."""
    of_join, of_engine = (inspect.signature(made).parameters for made in (WindowJoin, JoinEngine))
    options = [name for name, each in of_engine.items() if each.kind is each.KEYWORD_ONLY]
    assert ["threads", *(name for name, each in of_join.items() if each.kind is each.KEYWORD_ONLY)] == [
        *options,
        "copied",
    ]
    differ = {name for name in options[1:] if of_join[name].default != of_engine[name].default}
    assert differ == {"execution", "cores", "bucket_rows", "costs"}
