"""Tables beside streams: against the contract in plain Python, with versions that change between pushes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Join, JoinEngine, Nearest, Stream, Table
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.errors import ArgumentError, ColumnError, SchemaDriftError, StreamJoinError, WindowError
from streamjoin_ds.testing.oracle import oracle_table_join
from tests.engine.streams import engine_options
from tests.engine.test_oracle import SMALL
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
STREAM = {"ts": "int64", "x": "float64", "k": "int64", "note": "string"}
TABLE = {"lo": "float64", "hi": "float64", "k": "int64", "since": "timestamp[us, tz=UTC]", "name": "string"}
CONDITIONS = [
    "e.x BETWEEN z.lo AND z.hi",
    "e.k = z.k",
    "e.k = z.k AND e.ts >= z.since",
    "abs(e.x - z.lo) <= 2 AND e.note <> z.name",
    "e.note = z.name",
    "TRUE",
]
CONDITIONS += ["e.x BETWEEN z.lo AND z.hi AND e.k > 0", "e.k = z.k AND coalesce(z.name, 'b') = 'b'"]
REDUCE = {"n": "count(*)", "most": "max(z.hi)", "one": "arg_min(z.name, abs(e.x - z.lo))", "all": "collect(z.k, 9)"}
ASKED: list[dict[str, Any]] = [{}, *({"how": how} for how in ("left", "semi", "anti"))]
ASKED += [{"reduce": REDUCE}, {"reduce": REDUCE, "how": "left"}]
ASKED += [{"nearest": Nearest(2, "abs(e.x - z.lo)")}, {"nearest": Nearest(1, "e.ts - z.since"), "how": "left"}]
numbers = st.one_of(st.none(), st.just(float("nan")), st.integers(-4, 12).map(lambda n: n / 2))
tuples = st.fixed_dictionaries(
    {
        "ts": st.integers(0, 30),
        "x": numbers,
        "k": st.one_of(st.none(), st.integers(0, 3)),
        "note": st.sampled_from(["a", "b", None]),
    }
)
rows = st.fixed_dictionaries(
    {
        "lo": numbers,
        "hi": numbers,
        "k": st.one_of(st.none(), st.integers(0, 3)),
        "since": st.one_of(st.none(), st.integers(0, 30)),
        "name": st.sampled_from(["a", "b", None]),
    }
)


def join_of(streams: int, on: str, where: str | None, window: str | None = None, **asked: Any) -> Join:
    names = ["e", "w", "v"][:streams]
    between = {1: [], 2: ["abs(e.x - w.x) <= 1"], 3: ["abs(e.x - w.x) <= 1", "w.k = v.k"]}[streams]
    shape = {"e": STREAM, "w": STREAM, "v": STREAM}
    window = window if window is not None else "10us" if streams > 1 else "0s"
    tables = [Table("z", schema=TABLE, where=where)]
    of = [Stream(n, schema=shape[n], delay="50us") for n in names]
    return Join(of, [*between, on], window, tables=tables, **asked)


def numbered(join: Join, found: list[pa.Table]) -> list[tuple[Any, ...]]:
    names = [f"{join.member_names[n]}_seq" for n in join.row_kind.shown]
    rows = [row for table in found for row in zip(*(table[name].to_pylist() for name in names), strict=True)]
    return sorted(rows, key=_nulls_last)


def _nulls_last(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(number is None, number or 0) for number in row]


@examples(70)
@given(data=st.data())
def test_results_are_the_contracts_for_any_versions_and_batches(data: st.DataObject) -> None:
    streams = data.draw(st.integers(1, 3))
    window = data.draw(st.sampled_from([None, "last 3", "every 5us for 12us"])) if streams > 1 else None
    on = data.draw(st.sampled_from(CONDITIONS))
    asked = data.draw(st.sampled_from(ASKED if streams == 1 else ASKED[:1]))
    join = join_of(streams, on, data.draw(st.sampled_from([None, "name <> 'a'"])), window, **asked)
    options: dict[str, Any] = {
        "kernel": data.draw(st.sampled_from(KERNELS)),
        "threads": data.draw(st.sampled_from([1, 1, 2])),
        "cores": (),
        "chunk_rows": 64,
        "tuning": SMALL,
        "bucket_rows": data.draw(st.sampled_from([None, 4])),
    }
    engine, found, whole, ends, versions = (
        JoinEngine(join, **engine_options(**options)),
        [],
        {n: [] for n in join.names},
        [],
        [],
    )
    for _ in range(data.draw(st.integers(1, 3))):
        if not versions or data.draw(st.booleans()):
            listed = data.draw(st.lists(rows, max_size=12))
            version = pa.Table.from_pylist(listed, pa.schema([(n, pa.field(n, t).type) for n, t in _types(TABLE)]))
        engine.use_table("z", version)
        versions.append({"z": version})
        pushed = {name: data.draw(st.lists(tuples, max_size=9 if streams < 3 else 5)) for name in join.names}
        found.append(engine.push(pushed))
        for name, listed in pushed.items():
            whole[name] += listed
        ends.append({name: len(listed) for name, listed in whole.items()})
        if data.draw(st.booleans()):
            blob, engine = engine.save(), JoinEngine(join, **engine_options(**options))
            engine.restore(blob)
    expected = oracle_table_join(join, whole, versions, ends=ends)
    shown = [join.member_names[n] for n in join.row_kind.shown]
    assert numbered(join, found) == sorted([tuple(row[f"{n}_seq"] for n in shown) for row in expected], key=_nulls_last)
    result = pa.concat_tables(found).to_pylist()
    assert all(row["event_time"] is not None for row in result)
    by_key = {tuple(row[f"{n}_seq"] for n in shown): row for row in expected}
    for row in result:
        told = by_key[tuple(row[f"{n}_seq"] for n in shown)]
        assert row["event_time"].timestamp() * 1e6 == pytest.approx(told["event_time_us"])
        for name in REDUCE if join.reduce else ():
            assert row[name] == told[name] or (row[name] != row[name] and told[name] != told[name])  # NaN
        assert row.get("rank") == told.get("rank")
        if row.get("z_seq") is None:
            assert row.get("z_name") is None
            continue
        assert row["z_name"] == next(v["z"] for v in [versions[_batch(ends, row, join)]])["name"][row["z_seq"]].as_py()


def _batch(ends: list[dict[str, int]], row: dict[str, Any], join: Join) -> int:
    return max(sum(end[name] <= row[f"{name}_seq"] for end in ends) for name in join.names)


def _types(schema: dict[str, str]) -> list[tuple[str, pa.DataType]]:
    declared = Table("t", schema=schema).schema
    return [(field.name, field.type) for field in declared]  # type: ignore[union-attr]


def test_two_tables_and_one_between_them() -> None:
    readings = Stream("r", schema={"ts": "int64", "sensor": "int64", "value": "float64"})
    sensors = Table("sensors", schema={"id": "int64", "kind": "string"})
    limits = Table("limits", schema={"kind": "string", "most": "float64"})
    on = "r.sensor = sensors.id AND sensors.kind = limits.kind AND r.value > limits.most"
    engine = JoinEngine(
        Join(
            [readings], on, select=["r.value", "limits.most", "r.value - limits.most AS over"], tables=[sensors, limits]
        )
    )
    engine.use_table("sensors", [{"id": 1, "kind": "hot"}, {"id": 2, "kind": "cold"}, {"id": 3, "kind": None}])
    engine.use_table("limits", [{"kind": "hot", "most": 50.0}, {"kind": "cold", "most": 5.0}])
    pushed = [{"ts": n, "sensor": n % 4, "value": float(n)} for n in range(60)]
    found = engine.push({"r": pushed})
    assert found.column_names == ["r_value", "limits_most", "over", "r_seq", "sensors_seq", "limits_seq", "event_time"]
    expected = [float(n) for n in range(60) if (n % 4 == 1 and n > 50) or (n % 4 == 2 and n > 5)]
    assert sorted(found["r_value"].to_pylist()) == expected
    assert all(row["over"] == row["r_value"] - row["limits_most"] for row in found.to_pylist())
    assert engine.counters["state_rows"] == 0  # the tuples of a single stream meet no other, so none is kept
    told = "\n".join(engine.explain())
    assert "table sensors: 2 rows" in told  # the null key is nobody's partner
    assert "new r: then" in told


def test_tables_that_are_given_first_tell_their_types() -> None:
    """Nobody declares any: what `use_table` was given, and what the first push brings, are all that there is."""
    engine = JoinEngine(Join([Stream("r")], "r.x BETWEEN z.lo AND y.hi", tables=[Table("z"), Table("y")]))
    engine.use_table("z", pa.table({"lo": [0.0, 5.0]}))
    engine.use_table("y", pa.table({"hi": [1.0, 9.0]}))
    found = engine.push({"r": pa.table({"ts": [1, 2], "x": [0.5, 7.0]})})
    rows = found.select(["r_seq", "z_lo", "y_hi"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (0, 0.0, 1.0), (0, 0.0, 9.0), (1, 0.0, 9.0), (1, 5.0, 9.0),
    ]  # fmt: skip


def test_a_large_table_is_sorted_and_a_same_version_costs_nothing() -> None:
    table = pa.table({"lo": [float(n) for n in range(20_000)], "hi": [n + 1.5 for n in range(20_000)]})
    engine = JoinEngine(
        Join([Stream("r", schema={"ts": "int64", "x": "float64"})], "r.x BETWEEN z.lo AND z.hi", tables=[Table("z")])
    )
    engine.use_table("z", table, version="1")
    first = engine.push({"r": [{"ts": 1, "x": 700.25}]})
    assert sorted(first["z_seq"].to_pylist()) == [699, 700]
    assert "table z: 20000 rows: sorted by z.hi" in engine.explain()
    engine.use_table("z", table.slice(0, 1), version="1")  # the version that is in use
    assert engine.push({"r": [{"ts": 2, "x": 700.25}]}).num_rows == 2
    engine.use_table("z", table.slice(0, 1), version="2")
    assert engine.push({"r": [{"ts": 3, "x": 700.25}]}).num_rows == 0
    assert engine.counters["candidates"] < 1000
    assert "table z: 1 rows: scanned" in engine.explain()


def test_what_a_table_cannot_be() -> None:
    stream = Stream("e", schema=STREAM)
    table, other = Table("z", schema=TABLE), Table("y", schema=TABLE)
    wrong: list[tuple[Any, type[StreamJoinError], str]] = [
        (lambda: Join([], (), tables=[table]), ArgumentError, "needs a stream"),
        (lambda: Join([stream], ()), ArgumentError, "2 to 8 streams"),
        (lambda: Join([stream], (), tables=[stream]), ArgumentError, "Table objects"),  # type: ignore[list-item]
        (lambda: Join([stream], (), tables=[Table("E", schema=TABLE)]), ArgumentError, "a stream and a table"),
        (lambda: Join([stream], "e.k = y.k", tables=[table]), ArgumentError, "'y'"),
        (lambda: Join([stream], "e.k = z.kk", tables=[table]), ColumnError, "table z has no column"),
        (lambda: Join([stream], (), "5s", tables=[table]), WindowError, "only one"),
        (lambda: Join([stream], (), how="full", tables=[table]), ArgumentError, "how=full has rows of a table"),
        (lambda: join_of(2, "TRUE", None, how="left"), ArgumentError, "the join has 2 streams and 1 table\\."),
        (lambda: Join([stream], (), reduce={"n": "count(*)"}, tables=[table, other]), ArgumentError, "and 2 tables"),
        (lambda: Join([stream], (), tables=[table], nearest=Nearest()), ArgumentError, "no event time by which"),
        (
            lambda: join_of(2, "TRUE", None, nearest=Nearest(1, "e.x - z.lo")),
            ArgumentError,
            "needs two streams, or one stream and one table",
        ),
        (lambda: Join([stream], (), select=["y.k"], tables=[table]), ColumnError, "'y'"),
        (lambda: Table("z", pa.table({"k": [1]})), ArgumentError, "no path"),  # type: ignore[arg-type]
        (lambda: Table("z", "z", refresh="soon"), StreamJoinError, "refresh"),
        (lambda: Table("z", "z", format="xml"), ArgumentError, "format"),
        (lambda: JoinEngine(join_of(1, "TRUE", "e.k = 1")), ColumnError, "table z has no column 'e.k'"),
    ]
    for make, kind, told in wrong:
        with pytest.raises(kind, match=told):
            make()
    engine = JoinEngine(Join([stream], "e.k = z.k", tables=[table]))
    with pytest.raises(ArgumentError, match="are not known"):
        engine.push({"e": []})
    with pytest.raises(ArgumentError, match="no table 'y'"):
        engine.use_table("y", [])
    with pytest.raises(ColumnError, match="no column 'hi'"):
        engine.use_table("z", pa.table({"lo": [1.0]}))
    whole = pa.Table.from_pylist([], pa.schema(_types(TABLE)))
    with pytest.raises(SchemaDriftError, match="does not fit"):
        engine.use_table("z", whole.set_column(2, "k", pa.array([], pa.list_(pa.int64()))))
    engine.use_table("z", whole)
    assert engine.push({"e": [{"ts": 1, "x": 1.0, "k": 1, "note": ""}]}).num_rows == 0
    with pytest.raises(ArgumentError, match="table z has no schema"):
        JoinEngine(Join([stream], "e.k = z.k", tables=[Table("z")])).push({"e": []})


def test_a_join_with_tables_comes_back_from_its_facts_and_a_table_is_in_the_fingerprint() -> None:
    join = join_of(2, "e.k = z.k", "name <> 'a'")
    engine = JoinEngine(join)
    assert Join.from_facts(join.to_facts()) == join
    assert join.with_streams(join.streams) == join
    other = Join(join.streams, "abs(e.x - w.x) <= 1", "10us")
    assert engine.bound.fingerprint != JoinEngine(other).bound.fingerprint
    refreshed = Join(
        join.streams,
        join.predicates,
        join.window,
        join.select,
        tables=[Table("z", "elsewhere", "5m", TABLE, "name <> 'a'")],
    )
    assert JoinEngine(refreshed).bound.fingerprint == engine.bound.fingerprint
