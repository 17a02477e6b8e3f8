"""WindowJoin: DuckDB as the oracle, bounded chunks, self-joins, layouts, and what it refuses."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.tuning import CHUNK_ROWS, ProbeTuning, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind
from tests.engine.streams import TIME, band_join, engine_options, filled, pairs, tuples

KERNELS = [name for name in kernel_names() if name not in ("auto", "reference")] or ["reference"]
SECOND_US = 1_000_000


def _duckdb_pairs(r: pa.Table, s: pa.Table, where: str) -> list[tuple[int, int]]:
    with duckdb.connect() as connection:
        connection.register("r", r)
        connection.register("s", s)
        found = connection.execute(f"SELECT r._seq, s._seq FROM r, s WHERE {where} ORDER BY ALL").fetchall()
    return found


def _streams(bound: BoundJoin, pushes: int, rows: int) -> list[dict[int, pa.Table]]:
    return [{s: tuples(bound, s, rows, start_us=n * SECOND_US, seq=n * rows) for s in (0, 1)} for n in range(pushes)]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("window", "rule"),
    [
        ("1s", "abs(r._ts - s._ts) <= 1000000"),
        ("r=3s,s=0s", "r._ts - s._ts <= 0 AND s._ts - r._ts <= 3000000"),
        ("0s", "r._ts = s._ts"),
    ],
)
def test_mid_size_against_duckdb(kernel: str, window: str, rule: str) -> None:
    bound = band_join(window=window)
    batches = _streams(bound, 6, 3000)
    join, results = WindowJoin(bound, execution=Execution(kernel=kernel)), []
    for n, batch in enumerate(batches):
        results += join.push(batch, n * SECOND_US)
    r, s = (pa.concat_tables([batch[stream] for batch in batches]) for stream in (0, 1))
    expected = _duckdb_pairs(r, s, f"abs(r.x - s.a) <= 10 AND abs(r.y - s.b) <= 10 AND {rule}")
    assert pairs(results) == expected
    assert join.counters["matches"] == len(expected)
    assert len(expected) > 1000 or window == "0s"


@pytest.mark.parametrize(
    "index", ["auto", "scan", {"r": ("x",), "s": ("b", "a")}, {"r": ("y", "ts"), "s": ("ts", "a")}]
)
def test_the_layout_changes_nothing(index: object) -> None:
    bound = band_join()
    batches = _streams(bound, 3, 2000)
    join = WindowJoin(bound, execution=Execution(index=index))  # type: ignore[arg-type]
    found = [chunk for batch in batches for chunk in join.push(batch)]
    r, s = (pa.concat_tables([batch[stream] for batch in batches]) for stream in (0, 1))
    where = "abs(r.x - s.a) <= 10 AND abs(r.y - s.b) <= 10 AND abs(r._ts - s._ts) <= 1000000"
    assert pairs(found) == _duckdb_pairs(r, s, where)


@pytest.mark.slow
@pytest.mark.parametrize("index", ["auto", "scan"])
@pytest.mark.parametrize("on", ["abs(r.x - s.a) <= 10 and abs(r.y - s.b) <= 10", "abs(r.x - s.a) <= 200"])
def test_threads_change_nothing(index: str, on: str) -> None:
    bound = band_join(on=on)
    small = Tuning(probe=ProbeTuning(least_part_ns=1000.0))
    one = WindowJoin(bound, execution=Execution(index=index), tuning=small)
    three = WindowJoin(bound, execution=Execution(index=index, threads=3), tuning=small)
    for batch in _streams(bound, 2, 1500):
        expected, found = list(one.push(batch)), list(three.push(batch))
        assert pa.concat_tables(found).equals(pa.concat_tables(expected))
    assert one.counters == three.counters
    assert one.counters["matches"] > 1000
    assert one.save() == three.save()


@pytest.mark.parametrize("bucket_rows", [None, 500])
def test_the_number_of_threads_may_change_from_push_to_push(bucket_rows: int | None) -> None:
    bound = band_join()
    small = Tuning(probe=ProbeTuning(slice_probes=256, few_probes=0, least_part_ns=100.0))
    one, several = (WindowJoin(bound, bucket_rows=bucket_rows, tuning=small) for _ in range(2))
    for place, (batch, threads) in enumerate(zip(_streams(bound, 7, 900), (1, 3, 3, 2, 1, 4, 1), strict=True)):
        several.use_threads(threads)
        assert several.threads == threads
        expected, found = list(one.push(batch, place * SECOND_US)), list(several.push(batch, place * SECOND_US))
        assert pa.concat_tables(found).equals(pa.concat_tables(expected))
        assert one.counters == several.counters
        assert one.save() == several.save()


def test_results_that_are_being_read_are_given_up_with_the_threads_that_find_them() -> None:
    join = WindowJoin(band_join(), execution=Execution(threads=2), chunk_rows=64)
    batch = _streams(join.bound, 1, 1500)[0]
    assert next(join.push(batch)).num_rows == 64
    join.use_threads(1)
    assert join.counters["state_rows"] == 0
    expected = pairs(list(WindowJoin(join.bound).push(batch)))
    assert pairs(list(join.push(batch))) == expected
    with pytest.raises(ArgumentError):
        join.use_threads(0)


@pytest.mark.slow
def test_the_merge_ratio_changes_runs_and_no_result() -> None:
    bound = band_join(window="30s")
    batches = _streams(bound, 24, 1200)
    found, runs = [], []
    for merge_runs in (2, 4, 12, 1 << 20):
        join = WindowJoin(bound, execution=Execution(merge_runs=merge_runs))
        found.append(pairs([chunk for batch in batches for chunk in join.push(batch)]))
        runs.append(join.counters["runs"])
        assert join.explain()[1].startswith(f"merge ratio {merge_runs},")
    assert found[0]
    assert all(each == found[0] for each in found)
    assert runs == sorted(runs)
    assert runs[0] < runs[-1] == 2 * len(batches)


def test_the_model_indexes_what_narrows() -> None:
    join = WindowJoin(band_join())
    list(join.push(_streams(join.bound, 1, 30_000)[0]))
    lines = join.explain()
    assert lines[0].startswith("kernel")
    assert lines[1].startswith("merge ratio")
    assert lines[2:]
    assert all("buckets of" in line or "rows in" in line for line in lines[2:])
    late = band_join(window="1s", on="abs(r.x - s.a) <= 900")
    join = WindowJoin(late)
    list(join.push({0: tuples(late, 0, 5000, span_us=3600 * SECOND_US)}))
    assert any("sorted by ts" in line for line in join.explain())


def test_a_huge_product_comes_in_bounded_chunks_and_bounded_memory() -> None:
    bound = band_join(on=())  # type: ignore[arg-type]
    join = WindowJoin(bound)
    batch = {s: tuples(bound, s, 3000, span_us=10) for s in (0, 1)}
    rows, before = 0, pa.total_allocated_bytes()
    for chunk in join.push(batch):
        assert 0 < chunk.num_rows <= CHUNK_ROWS
        assert pa.total_allocated_bytes() - before < 200 << 20
        rows += chunk.num_rows
    assert rows == 9_000_000


def test_three_streams_of_products_stay_bounded() -> None:
    schema = pa.schema([("ts", TIME), ("n", pa.int64())])
    names = ("a", "b", "c")
    bound = bind(Join([Stream(name) for name in names], (), "1s"), dict.fromkeys(names, schema))
    join = WindowJoin(bound, chunk_rows=256)
    table = pa.table({"_ts": np.zeros(30, np.int64), "_seq": np.arange(30), "n": np.arange(30)})
    table = table.cast(bound.tuple_schema(0))
    found = set()
    for chunk in join.push(dict.fromkeys(range(3), table)):
        assert chunk.num_rows <= 256
        found.update(zip(*(chunk[f"{name}_seq"].to_pylist() for name in names), strict=True))
    assert len(found) == join.counters["matches"] == 27_000


@pytest.mark.parametrize("include", [False, True])
def test_a_self_join_leaves_out_a_tuple_with_itself(include: bool) -> None:
    schema = pa.schema([("ts", TIME), ("x", pa.float64())])
    join = Join([Stream("r", "in.csv"), Stream("s", "in.csv")], "abs(r.x - s.x) <= 1", "1s", include_self_pairs=include)
    engine = WindowJoin(bind(join, {"r": schema, "s": schema}))
    rng = np.random.default_rng(1)
    found = []
    for n in range(3):
        numbers = np.arange(n * 50, n * 50 + 50)
        table = pa.table({"_ts": numbers * 1000, "_seq": numbers, "x": rng.random(50) * 10})
        table = table.cast(engine.bound.tuple_schema(0))
        found += engine.push({0: table, 1: table})
    result = pairs(found)
    assert len(result) == len(set(result)) > 100
    assert sum(left == right for left, right in result) == (150 if include else 0)
    assert {(right, left) for left, right in result} == set(result)


def test_different_sources_with_equal_numbers_are_no_self_join() -> None:
    bound = band_join(on=())  # type: ignore[arg-type]
    join = WindowJoin(bound)
    batch = {s: tuples(bound, s, 5, span_us=1) for s in (0, 1)}
    assert len(pairs(list(join.push(batch)))) == 25


def test_null_and_nan_keys_are_counted_and_not_kept() -> None:
    bound = band_join()
    table = tuples(bound, 0, 4)
    table = table.set_column(2, table.schema.field("x"), [[1.0, None, float("nan"), float("inf")]])
    join = WindowJoin(bound)
    assert list(join.push({0: table})) == []
    counters = join.counters
    assert counters["null_keys"] == {"r": 2, "s": 0}
    assert counters["stored_rows"] == {"r": 4, "s": 0}
    assert join.state_rows == 2


def test_a_nan_counts_in_a_band_that_a_residual_decides_too() -> None:
    columns = {"r": [("ts", TIME), ("x", pa.float64())], "s": [("ts", TIME), ("a", pa.decimal128(18, 5))]}
    join = Join([Stream("r"), Stream("s")], "abs(r.x - s.a) <= 10", "1s")
    bound = bind(join, {name: pa.schema(fields) for name, fields in columns.items()})
    assert not any(key.kind == "float" for key in bound.keys[0])
    table = tuples(bound, 0, 3).set_column(2, bound.tuple_schema(0).field("x"), [[1.0, None, float("nan")]])
    counted = WindowJoin(bound)
    assert list(counted.push({0: table})) == []
    assert counted.counters["null_keys"] == {"r": 2, "s": 0}
    assert counted.state_rows == 1


def test_an_abandoned_push_changes_nothing() -> None:
    bound = band_join(on=())  # type: ignore[arg-type]
    join = filled(bound, pushes=1, rows=50)
    before = join.save()
    next(iter(join.push({0: tuples(bound, 0, 50)})))
    assert join.save() == before


def test_a_push_between_a_pushs_results_is_refused() -> None:
    bound = band_join(on=())  # type: ignore[arg-type]
    join = filled(bound, pushes=1, rows=50)
    first = join.push({0: tuples(bound, 0, 50)})
    next(first)
    list(join.push({0: tuples(bound, 0, 50, seq=50)}))
    with pytest.raises(ArgumentError, match="another push"):
        list(first)


def test_several_parts_and_record_batches_in_one_push() -> None:
    bound = band_join()
    r, s = tuples(bound, 0, 1000), tuples(bound, 1, 1000)
    whole, parts = WindowJoin(bound), WindowJoin(bound)
    expected = pairs(list(whole.push({0: r, 1: s})))
    pieces = [r.slice(0, 10), r.slice(10, 0), *r.slice(10).to_batches(max_chunksize=300)]
    assert pairs(list(parts.push({0: pieces, 1: s.to_batches()[0]}))) == expected
    assert list(parts.push({})) == list(parts.push({0: [], 1: s.slice(0, 0)})) == []


def test_int64_extremes_and_bounds() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    schema = pa.schema([("ts", TIME), ("x", pa.int64())])
    values = [low, low + 1, -1, 0, 1, high - 1, high]
    for lo, hi in ((low, -1), (0, 0), (high, high), (low, high), (-1, high), (low, low)):
        for left, right in (("r", "s"), ("s", "r")):
            if right == "r" and lo == low:
                continue
            on = f"{left}.x - {right}.x BETWEEN {lo} AND {hi}"
            bound = bind(Join([Stream("r"), Stream("s")], on, "1s"), {"r": schema, "s": schema})
            table = pa.table({"_ts": [0] * 7, "_seq": range(7), "x": values}).cast(bound.tuple_schema(0))
            for kernel in (*KERNELS, "reference"):
                for order in ((0, 1), (1, 0)):
                    join = WindowJoin(bound, execution=Execution(kernel=kernel, index={"r": ("x",), "s": ("x",)}))
                    found = pairs([chunk for stream in order for chunk in join.push({stream: table})])
                    difference = [[a - b if left == "r" else b - a for b in values] for a in values]
                    expected = [(i, j) for i in range(7) for j in range(7) if lo <= difference[i][j] <= hi]
                    assert found == expected, (on, kernel)


def test_more_conditions_than_a_kernel_takes() -> None:
    fields = [("ts", TIME), *((f"c{n}", pa.int64()) for n in range(20))]
    schema = pa.schema(fields)
    on = [f"abs(r.c{n} - s.c{n}) <= {n % 3}" for n in range(19)] + ["r.c19 - s.c19 BETWEEN -9223372036854775808 AND 0"]
    bound = bind(Join([Stream("r"), Stream("s")], on, "1s"), {"r": schema, "s": schema})
    rng = np.random.default_rng(2)
    tables = []
    for _ in range(2):
        columns = {f"c{n}": rng.integers(0, 3 if n in (0, 18) else 2, 300) * (n % 3 > 0 or n < 4) for n in range(20)}
        columns["c19"] = rng.choice([-(1 << 63), 0, (1 << 63) - 1], 300)
        tables.append(pa.table({"_ts": np.zeros(300, np.int64), "_seq": np.arange(300), **columns}))
    join = WindowJoin(bound)
    found = pairs(list(join.push({n: table.cast(bound.tuple_schema(n)) for n, table in enumerate(tables)})))
    rows = [table.to_pylist() for table in tables]
    expected = [
        (a["_seq"], b["_seq"])
        for a in rows[0]
        for b in rows[1]
        if all(abs(a[f"c{n}"] - b[f"c{n}"]) <= n % 3 for n in range(19)) and a["c19"] <= b["c19"]
    ]
    expected = [pair for pair in expected if rows[0][pair[0]]["c19"] - rows[1][pair[1]]["c19"] >= -(1 << 63)]
    assert found == expected
    assert len(found) > 50


def test_what_is_refused() -> None:
    bound = band_join()
    join = WindowJoin(bound)
    with pytest.raises(ArgumentError, match="a stream that the join does not have"):
        join.push({2: tuples(bound, 0, 1)})
    with pytest.raises(ColumnError, match="tag"):
        join.push({1: tuples(bound, 1, 1).drop_columns(["tag"])})
    wrong = tuples(bound, 0, 1)
    with pytest.raises(ColumnError, match="x"):
        join.push({0: wrong.set_column(2, "x", pa.array([1], pa.int64()))})
    holed = wrong.set_column(0, "_ts", pa.array([None], pa.int64()))
    with pytest.raises(ColumnError, match="nulls"):
        join.push({0: holed})
    for options in ({"chunk_rows": 1}, {"threads": 0}, {"merge_runs": 1}):
        with pytest.raises(ArgumentError) as refused:
            WindowJoin(bound, **engine_options(**options))
        assert [refused.value.name] == [*options]


def test_results_carry_any_payload() -> None:
    payload = pa.schema(
        [
            ("ts", TIME),
            ("x", pa.int8()),
            ("flag", pa.bool_()),
            ("price", pa.decimal128(20, 3)),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("where", pa.struct([("lat", pa.float32())])),
            ("raw", pa.binary()),
        ]
    )
    bound = bind(Join([Stream("r"), Stream("s")], "r.x = s.x", "1s"), {"r": payload, "s": payload})
    rows = [
        {"x": 1, "flag": True, "price": None, "day": None, "tags": ["a", None], "where": {"lat": 1.5}, "raw": b"\0"},
        {"x": 1, "flag": None, "price": 5, "day": 7, "tags": None, "where": None, "raw": None},
        {"x": 2, "flag": False, "price": -1, "day": 0, "tags": [], "where": {"lat": None}, "raw": b""},
    ]
    columns = [pa.array([0, 1, 2]), pa.array([0, 1, 2])]
    columns += [pa.array([row[f.name] for row in rows], f.type) for f in list(payload)[1:]]
    table = pa.Table.from_arrays(columns, schema=bound.tuple_schema(0))
    join = WindowJoin.restored(bound, WindowJoin(bound).save())
    list(join.push({0: table}))
    join = WindowJoin.restored(bound, join.save())
    result = pa.concat_tables(join.push({1: table})).sort_by([("r_seq", "ascending"), ("s_seq", "ascending")])
    assert pairs([result]) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)]
    for stream in ("r", "s"):
        expected = table.take(result[f"{stream}_seq"])
        for name in payload.names[1:]:
            assert result[f"{stream}_{name}"].to_pylist() == expected[name].to_pylist()
    assert result.schema == join.result_schema
    result.validate(full=True)


def test_a_probe_finds_what_a_push_finds_and_leaves_no_trace() -> None:
    bound = band_join()
    first, second = _streams(bound, 2, 3000)
    probed, pushed = WindowJoin(bound), WindowJoin(bound)
    for join in (probed, pushed):
        list(join.push(first))
    before = probed.save()
    found = pairs(list(probed.probe(second)))
    assert probed.save() == before
    assert pairs(list(probed.probe(second))) == found
    alone = WindowJoin(bound)
    own = pairs(list(alone.push(second)))
    assert sorted([*found, *own]) == pairs(list(pushed.push(second)))
    assert len(found) > 100


def test_a_probe_of_nothing_and_of_null_keys() -> None:
    bound = band_join()
    join = WindowJoin(bound)
    first, second = _streams(bound, 2, 100)
    assert list(join.probe(second)) == []
    list(join.push(first))
    assert list(join.probe({})) == []
    nulls = second[0].set_column(
        second[0].schema.get_field_index("x"), "x", pa.nulls(100, second[0].schema.field("x").type)
    )
    assert pairs(list(join.probe({0: nulls.slice(0, 0)}))) == []
    stored = join.counters["stored_rows"]
    assert pairs(list(join.probe({0: nulls}))) == []
    assert join.counters["stored_rows"] == stored


@pytest.mark.parametrize("asked", ["push", "probe"])
@pytest.mark.parametrize("meanwhile", ["threads", "push", "restore"])
def test_results_that_were_given_up_do_not_end_as_if_they_were_all(asked: str, meanwhile: str) -> None:
    """A reader that goes on gets an error, and a push that lost results is not in."""
    bound = band_join()
    first, second = _streams(bound, 2, 3000)
    join, whole = WindowJoin(bound, **engine_options(chunk_rows=64)), WindowJoin(bound)
    for one in (join, whole):
        list(one.push(first))
    expected = pairs(list(getattr(whole, asked)(second)))
    saved, before = join.save(), join.counters["stored_rows"]
    reading = getattr(join, asked)(second)
    assert 0 < next(reading).num_rows < len(expected)
    if meanwhile == "threads":
        join.use_threads(2)
    elif meanwhile == "push":
        list(join.push({}))
    else:
        join.restore(saved)
    with pytest.raises(ArgumentError, match="read the results to their end"):
        list(reading)
    assert join.counters["stored_rows"] == before
    assert pairs(list(getattr(join, asked)(second))) == expected
