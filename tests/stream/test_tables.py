"""Tables beside streams through source, exchange, cells and commit: versions, replays, blocks, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc

from streamjoin_ds import JoinEngine, Stream, StreamJoin, Table
from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.files import LocalFile
from streamjoin_ds.checkpoint.batch_end import Ends, logged_plan
from streamjoin_ds.errors import (
    ArgumentError,
    BlockMissingError,
    ColumnError,
    FileFormatError,
    FileMissingError,
    OffsetError,
    SchemaDriftError,
    StateCorruptError,
)
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.batch_plan import BatchPlan, TableVersion, versions_from
from streamjoin_ds.source.table_versions import FileVersions, TableVersions, open_table, table_schema, tables_folder
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.table_rows import table_rows
from streamjoin_ds.stream.frame_tables import given_before, note_given
from streamjoin_ds.stream.source_facts import bound_join
from streamjoin_ds.testing.oracle import oracle_table_join
from tests.support.microbatch import MicroBatches

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64()), ("tag", pa.string())])
ZONES = pa.schema(
    [("lo", pa.int64()), ("hi", pa.int64()), ("since", pa.timestamp("us", tz="UTC")), ("zone", pa.string())]
)
ROWS = 60  # of a stream
STEP = {"e": 7, "w": 11}


def tuples(name: str, count: int = ROWS) -> list[dict[str, Any]]:
    return [{"ts": START + timedelta(seconds=n), "x": n * STEP[name] % 31, "tag": f"{name}{n}"} for n in range(count)]


def zones(seed: int) -> pa.Table:
    """Return a version: rows that overlap, one without a key, one that a `where` leaves out."""
    rows = [
        {"lo": n * 5 - seed, "hi": n * 5 + 4 + seed, "since": START + timedelta(seconds=3 * n), "zone": f"z{seed}-{n}"}
        for n in range(6)
    ]
    rows += [{"lo": None, "hi": 9, "since": START, "zone": "null"}, {"lo": 0, "hi": 40, "since": START, "zone": "gone"}]
    return pa.Table.from_pylist(rows, ZONES)


def write_streams(folder: Path, names: str = "ew") -> None:
    for name in names:
        lines = [f"{row['ts'].isoformat()},{row['x']},{row['tag']}\n" for row in tuples(name)]
        (folder / f"{name}.csv").write_text("ts,x,tag\n" + "".join(lines))


def join_of(
    folder: Path, names: str = "ew", source: str | None = "zones", how: str = "inner", **options: Any
) -> StreamJoin:
    streams = [Stream(name, str(folder / f"{name}.csv"), schema=SCHEMA) for name in names]
    of_source = {} if source is None else {"source": str(folder / source), "refresh": "0s", "finished_after": "0s"}
    table = Table("z", where="zone <> 'gone'", **of_source, **options)
    between = ["abs(e.x - w.x) <= 1"] if len(names) > 1 else []
    on = [*between, "e.x BETWEEN z.lo AND z.hi", "e.ts >= z.since"]
    return StreamJoin(streams, on, "9s" if len(names) > 1 else "0s", tables=[table], how=how)


def write_version(folder: Path, seed: int, kind: str) -> None:
    if kind == "zones":
        write_deltalake(str(folder / kind), zones(seed), mode="overwrite")
        return
    aside = folder / f"aside-{kind}"
    if kind.endswith("parquet"):
        pq.write_table(zones(seed), aside)
    else:
        text = {
            "csv": zones(seed).to_pandas().to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%S+00:00", float_format="%d")
        }
        lines = [
            {k: v if not isinstance(v, datetime) else v.isoformat() for k, v in row.items()}
            for row in zones(seed).to_pylist()
        ]
        text["jsonl"] = "".join(json.dumps(line) + "\n" for line in lines)
        aside.write_text(text[kind.rpartition(".")[2]])
    os.replace(aside, folder / kind)


def ran(folder: Path, bound: BoundJoin, kind: str, layout: str, **options: Any) -> tuple[MicroBatches, list[int]]:
    """Return a query after all batches of ten records, and for each the seed of the version that it joined."""
    write_version(folder, 0, kind)
    query = MicroBatches(
        bound,
        folder / "checkpoint",
        Layout.parse(layout, len(bound.names)),
        max_rows_per_batch=15 * len(bound.names),
        **options,
    )
    seeds: list[int] = []
    while query.step():
        seeds.append(len(seeds) // 2 if seeds else 0)
        write_version(folder, (len(seeds)) // 2, kind)
    return query, seeds


def numbers(names: str, rows: Any) -> list[tuple[int, ...]]:
    found = [tuple(row[f"{name}_seq"] for name in [*names, "z"]) for row in rows]
    return sorted(found, key=lambda numbers: [(number is None, number or 0) for number in numbers])


@pytest.mark.parametrize(
    ("names", "kind", "layout", "exchange", "how"),
    [
        ("ew", "zones", "2x1", "reference", "inner"),
        ("e", "z.parquet", "2", "packed", "left"),
        ("e", "z.csv", "1", "packed", "left"),
        ("ew", "z.jsonl", "1x2", "packed", "inner"),
    ],
)
def test_each_batch_joins_the_version_that_was_there_when_it_was_planned(
    tmp_path: Path, names: str, kind: str, layout: str, exchange: str, how: str
) -> None:
    write_streams(tmp_path, names)
    write_version(tmp_path, 0, kind)
    join = join_of(tmp_path, names, kind, how, schema=None if kind in ("zones", "z.parquet") else ZONES)
    query, seeds = ran(tmp_path, bound_join(join), kind, layout, exchange=exchange)
    assert len(seeds) > 3
    ledger = sorted(query.companion("ledger").to_pylist(), key=lambda row: (row["batch_id"], row["stream"]))
    ends, done = [], dict.fromkeys(names, 0)
    for batch in range(len(seeds)):
        done |= {row["stream"]: done[row["stream"]] + row["read"] for row in ledger if row["batch_id"] == batch}
        ends.append(dict(done))
    versions = [{"z": zones(seed)} for seed in seeds]
    expected = oracle_table_join(join, {name: tuples(name) for name in names}, versions, ends=ends)
    found = query.matches().to_pylist()
    assert numbers(names, found) == numbers(names, expected)
    assert len(found) > 20
    assert any(row["z_seq"] is None for row in found) == (how == "left")
    zone_of = {numbers(names, [row])[0]: row.get("z_zone") for row in expected}
    assert all(row["z_zone"] == zone_of[numbers(names, [row])[0]] for row in found)
    told = {row["batch_id"]: json.loads(row["table_versions"]) for row in query.companion("metrics").to_pylist()}
    assert len({row["z"] for row in told.values()}) == len(set(seeds)) if kind != "zones" else len(told)
    assert all(row["state_rows"] == 0 for row in query.companion("metrics").to_pylist() if names == "e")


@pytest.mark.slow
def test_a_layout_that_changes_changes_no_row(tmp_path: Path) -> None:
    found = []
    for number, schedule in enumerate(((), ((0, "2x1"), (40, "1x2"), (80, "2x2")))):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_streams(folder)
        write_version(folder, 0, "zones")
        layouts = tuple((rows, Layout.parse(text, 2)) for rows, text in schedule)
        query, _ = ran(folder, bound_join(join_of(folder)), "zones", "4x1", layout_schedule=layouts)
        found.append(numbers("ew", query.matches().to_pylist()))
    assert found[0] == found[1]
    folder = tmp_path / "one"
    folder.mkdir()
    write_streams(folder, "e")
    write_version(folder, 0, "zones")
    schedule_of_one = ((0, Layout.parse("2", 1)), (20, Layout.parse("3", 1)))
    bound = bound_join(join_of(folder, "e", how="left"))
    query, _ = ran(folder, bound, "zones", "3", layout_schedule=schedule_of_one)
    rows = numbers("e", query.matches().to_pylist())
    assert len(rows) == len(set(rows))
    assert {row[0] for row in rows} == set(range(ROWS))


def test_a_replay_joins_the_version_of_its_offset_although_the_source_is_gone(tmp_path: Path) -> None:
    write_streams(tmp_path, "e")
    write_version(tmp_path, 0, "z.parquet")
    bound = bound_join(join_of(tmp_path, "e", "z.parquet"))
    query = MicroBatches(bound, tmp_path / "checkpoint", Layout.parse("1", 1), max_rows_per_batch=20)
    start = query.offset
    assert query.step()
    end, states = query.offset, dict(query.states)
    first = numbers("e", query.matches().to_pylist())
    os.remove(tmp_path / "z.parquet")
    query.states.clear()
    query.batch_id = 0
    reports = query.cells(query.exchanged(start, end))  # the batch is done again: no source is asked
    assert sum(json.loads(row.facts)["matches"] for row in reports if row.kind == "cell") == len(first)
    query.states, query.batch_id = states, 1
    (block,) = (tmp_path / "checkpoint" / "tables").rglob("*.arrow")
    block.unlink()
    query.reader = query.source.streamReader(query.source.schema())
    with pytest.raises(FileMissingError, match="table z"):
        query.step()
    with pytest.raises(BlockMissingError, match=r"z/"):
        _fresh_cells(query, start, end)


def _fresh_cells(query: MicroBatches, start: dict[str, Any], end: dict[str, Any]) -> None:
    from streamjoin_ds.cell import cell_windows

    cell_windows._kept.clear()
    query.states.clear()
    query.batch_id = 0
    query.cells(query.exchanged(start, end))


def test_the_ledger_keeps_the_version_for_a_batch_that_is_cut_anew(tmp_path: Path) -> None:
    write_streams(tmp_path, "e")
    write_version(tmp_path, 0, "zones")
    bound = bound_join(join_of(tmp_path, "e"))
    query, _ = ran(tmp_path, bound, "zones", "1")
    last = query.batch_id - 1
    planned = logged_plan(tmp_path / "checkpoint", last, bound.join.streams)
    assert planned is not None
    assert planned == BatchPlan.from_offset(query.offset, bound.names)
    (row,) = [row for row in query.companion("ledger").to_pylist() if row["batch_id"] == last]
    ends = Ends(bound, None)
    assert not ends.move("e", row)
    assert BatchPlan.from_offset(ends.offset(), bound.names).tables == planned.tables


def test_a_version_is_looked_for_once_in_refresh_and_its_block_goes_when_no_offset_needs_it(tmp_path: Path) -> None:
    write_streams(tmp_path, "e")
    write_version(tmp_path, 0, "z.parquet")
    join = join_of(tmp_path, "e", "z.parquet")
    table = Table("z", str(tmp_path / "z.parquet"), refresh="10s", finished_after="0s")
    join = join.with_streams(join.streams, [table])
    now = [0.0]
    versions = TableVersions(bound_join(join), str(tmp_path / "c"), 3, clock=lambda: now[0])
    first = versions.decided({})
    write_version(tmp_path, 1, "z.parquet")
    now[0] = 9.9
    assert versions.decided(first) == first
    (tmp_path / "c" / "tables" / first["z"].block).unlink()
    write_version(tmp_path, 0, "z.parquet")
    assert TableVersions(bound_join(join), str(tmp_path / "c"), 3).decided(first) == first  # a start writes it again
    assert (tmp_path / "c" / "tables" / first["z"].block).exists()
    write_version(tmp_path, 1, "z.parquet")
    now[0] = 10.0
    second = versions.decided(first)
    assert second["z"].version != first["z"].version
    assert second["z"].rows == 8
    folder = tmp_path / "c" / "tables" / "z"
    for _ in range(3):
        versions.committed(second)
        assert len(list(folder.iterdir())) == 2
    for _ in range(3):
        versions.committed(second)
    assert [file.name for file in folder.iterdir()] == [Path(second["z"].block).name]
    write_version(tmp_path, 0, "z.parquet")
    now[0] = 30.0
    assert versions.decided(second)["z"].version == first["z"].version  # the same bytes are the same version


@pytest.mark.parametrize("kind", ["zones", "z.csv", "z.parquet"])
def test_what_no_version_can_be_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    write_streams(tmp_path, "e")
    write_version(tmp_path, 0, kind)
    bound = bound_join(join_of(tmp_path, "e", kind, schema=ZONES if kind == "z.csv" else None))
    query = MicroBatches(bound, tmp_path / "checkpoint", Layout.parse("1", 1), max_rows_per_batch=20)
    assert query.step()
    if kind == "zones":
        write_deltalake(str(tmp_path / kind), pa.table({"lo": ["x"]}), mode="overwrite", schema_mode="overwrite")
    elif kind == "z.parquet":
        pq.write_table(pa.table({"lo": ["x"]}), tmp_path / kind)
    else:
        (tmp_path / kind).write_text("lo,hi,since,zone\nx,1,2024-01-01T00:00:00Z,a\n")
    with pytest.raises((FileFormatError, SchemaDriftError), match="z"):
        query.step()
    write_version(tmp_path, 1, kind) if kind != "zones" else write_deltalake(
        str(tmp_path / kind), zones(1), mode="overwrite", schema_mode="overwrite"
    )
    assert query.step()  # it goes on with a version that can be joined


def test_frames_have_the_version_of_the_last_start_and_batches_before_keep_theirs(tmp_path: Path) -> None:
    """Batches over sources have it in their offsets, batches over DataFrames in a file."""
    write_streams(tmp_path, "e")
    bound = bound_join(join_of(tmp_path, "e", None, schema=ZONES))
    store, checkpoint = BlockStore(tables_folder(str(tmp_path / "c"))), tmp_path / "c"
    given = []
    for seed in range(3):
        ref = store.write("z/frame", pa.Table.from_batches([table_rows(bound, 1, zones(seed))]), {})
        given.append({"z": TableVersion(str(seed), ref.name, ref.rows)})
    first, second = (TableVersions(bound, str(checkpoint), 1, of_start) for of_start in given[:2])
    assert (first.decided({}), second.decided(first.decided({}))) == (given[0], given[1])
    for _ in range(4):  # what no batch joins any more goes, once no offset needs it
        second.committed(given[1])
    assert store.names() == [given[1]["z"].block]

    offsets = checkpoint / "offsets"
    offsets.mkdir()
    seen = given_before(checkpoint)
    assert seen == ()
    for planned, versions in [(-1, 0), (-1, 1), (2, 1), (4, 2), (6, 2), (6, 0)]:
        for batch in range(planned + 1):
            (offsets / str(batch)).touch()
        assert given_before(checkpoint) == seen
        seen = note_given(checkpoint, seen, given[versions], 3)
    assert [(first, versions_from(json.loads(text))) for first, text in seen] == [
        (0, given[1]), (5, given[2]), (7, given[0]),
    ]  # fmt: skip
    (offsets / "9").touch()
    assert [first for first, _ in note_given(checkpoint, seen, given[1], 3)] == [5, 7, 10]
    (checkpoint / "tables.json").write_text("[")
    with pytest.raises(StateCorruptError, match="cannot be read"):
        given_before(checkpoint)
    (checkpoint / "tables.json").unlink()
    with pytest.raises(StateCorruptError, match="is gone"):
        given_before(checkpoint)


def test_sources_that_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for table, told in (
        (Table("z"), "has no source"),
        (Table("z", str(tmp_path / "folder")), "neither a Delta table nor a file"),
        (Table("z", str(tmp_path / "a.txt.xml")), "neither a Delta table nor a file"),
        (Table("z", str(tmp_path / "folder"), format="delta"), "no Delta table"),
    ):
        with pytest.raises((ArgumentError, FileFormatError), match=told):
            open_table(table)
    with pytest.raises(FileMissingError, match="table z"):
        open_table(Table("z", str(tmp_path / "a.csv"))).schema()
    with pytest.raises(OffsetError, match="tables"):
        versions_from({"z": {"version": 3}})
    assert versions_from({"z": {"version": "3", "block": "b", "rows": 1}}) == {"z": TableVersion("3", "b", 1)}


def test_deleted_rows_of_a_delta_table_are_in_no_version_after(tmp_path: Path) -> None:
    write_version(tmp_path, 0, "zones")
    DeltaTable(str(tmp_path / "zones")).delete("zone = 'z0-1'")
    source = open_table(Table("z", str(tmp_path / "zones")))
    assert source.newest(None) == "1"
    assert "z0-1" not in source.rows("1", ZONES)["zone"].to_pylist()
    assert source.rows("0", ZONES).num_rows == source.rows("1", ZONES).num_rows + 1


def test_a_table_of_json_lines_has_lists_structs_and_dates_and_one_of_csv_has_none(tmp_path: Path) -> None:
    place = pa.struct([("on", pa.date32()), ("xs", pa.list_(pa.int32()))])
    columns = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("place", place), ("day", pa.date32())])
    rows = [{"place": {"on": f"2024-01-0{n % 3 + 1}", "xs": [n % 2, None]}, "day": "2024-02-03"} for n in range(12)]
    (tmp_path / "z.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[:5]))
    (tmp_path / "e.json").write_text("".join(f"{json.dumps({'ts': '2024-01-01T00:00:00Z', **row})}\n" for row in rows))

    def join(kind: str) -> StreamJoin:
        stream = Stream("e", str(tmp_path / "e.json"), schema=columns)
        table = Table("z", str(tmp_path / f"z.{kind}"), schema=columns.remove(0))
        return StreamJoin([stream], "e.place = z.place AND e.day = z.day", select=["e.place", "z.day"], tables=[table])

    found = MicroBatches(bound_join(join("jsonl")), tmp_path, Layout.parse("2", 1), "packed", 5).run()
    expected = [(n, m) for n, row in enumerate(rows) for m, other in enumerate(rows[:5]) if row == other]
    assert sorted(zip(found["e_seq"].to_pylist(), found["z_seq"].to_pylist(), strict=True)) == expected
    (tmp_path / "z.csv").write_text("place,day\n,2024-02-03\n")
    with pytest.raises(ColumnError, match=r"'place' of z is struct<on: date32\[day\], xs: list<int32>>, which no CSV"):
        bound_join(join("csv"))


NESTED = [
    {"id": "a", "cfg": {"most": 10, "unit": "C"}, "sites": [{"n": "x"}]},
    {"id": "b", "cfg": {"most": 20, "unit": 7}, "sites": [{"n": "y"}, {"n": "z"}]},
    {"id": "c", "cfg": None, "sites": []},
]


@pytest.mark.parametrize("kind", ["json", "json.gz", "parquet", "orc", "delta", "rows"])
def test_paths_lead_into_tables(tmp_path: Path, kind: str) -> None:
    text = "".join(json.dumps(row) + "\n" for row in NESTED)
    schema = {"id": "string", "cfg": "struct<most: double, unit: string>", "sites": "list<struct<n: string>>"}
    kinds = pa.struct([("most", pa.float64()), ("unit", pa.string())])
    rows = pa.table({
        "id": ["a", "b", "c"],
        "cfg": pa.array([{"most": 10, "unit": "C"}, {"most": 20, "unit": "7"}, None], kinds),
        "sites": [row["sites"] for row in NESTED],
    })  # fmt: skip
    place = tmp_path / f"z.{kind}"
    if kind == "delta":
        write_deltalake(str(place), rows)
    elif kind.startswith("json"):
        place.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    elif kind != "rows":
        (pq.write_table if kind == "parquet" else orc.write_table)(rows, str(place))
    (tmp_path / "e.csv").write_text("ts,id,x\n" + "".join(f"{n},{'abc'[n % 3]},{n * 5}\n" for n in range(9)))
    of_source = {} if kind == "rows" else {"source": str(place), "finished_after": "0s"}
    table = Table("z", **of_source, **({"schema": schema} if kind.startswith("json") else {}))
    stream = Stream("e", str(tmp_path / "e.csv"), schema={"ts": "int64", "id": "string", "x": "int64"})
    on, select = ["e.id = z.id", "e.x > z.cfg.most"], ["e.x", "z.cfg.unit", "z.sites[1].n"]
    join = StreamJoin([stream], on, "0s", tables=[table], select=select)
    expected = [(15, "C", None), (30, "C", None), (35, "7", "z")]
    if kind == "rows":
        engine = JoinEngine(join)
        engine.use_table("z", rows)
        found = engine.push({"e": [{"ts": n, "id": "abc"[n % 3], "x": n * 5} for n in range(9)]})
    else:
        found = MicroBatches(bound_join(join), tmp_path / "ck", Layout.parse("1", 1), "packed", 5).run()
    told = [found.column(name).to_pylist() for name in ("e_x", "z_cfg_unit", "z_sites_1_n")]
    assert sorted(zip(*told, strict=True)) == expected


LIMITS = pa.schema([("id", pa.string()), ("most", pa.float64()), ("since", pa.timestamp("us", tz="UTC"))])
FIRST, SECOND = ("a", 1010.5, START), ("b", None, START)
OF_TEXT: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "signs": (
        "z.csv",
        b"# export\nid;most;since\na;1.010,5;2024-01-01T00:00:00Z\nb;?;2024-01-01T00:00:00Z\n",
        {"delimiter": ";", "comment": "#", "decimal": ",", "thousands": ".", "null_values": ["?"]},
    ),
    "a head": (
        "z.csv.gz",
        gzip.compress("é\nid,most,since\n-,°,\na,1010.5,2024-01-01T00:00:00Z\nb,,2024-01-01T00:00:00Z\n".encode("cp1252")),
        {"skip_lines": 1, "header": 2, "encoding": "cp1252"},
    ),
    "widths": (
        "z.txt",
        b"id  most   since\na 1010.5   2024-01-01T00:00:00Z\nb          2024-01-01T00:00:00Z\n",
        {"widths": [2, 6, -3, 20], "format": "csv"},
    ),
    "no header": (
        "z.csv", b"a|1010.5|2024-01-01T00:00:00Z\nb|NA|2024-01-01T00:00:00Z\n", {"header": 0, "delimiter": "|"}
    ),
    "records": (
        "z.json",
        b'{"v": 1,\n "limits": [{"id": "a", "most": 1010.5, "since": "2024-01-01T00:00:00Z"},\n'
        b' {"id": "b", "since": "2024-01-01T00:00:00Z"}]}',
        {"records": "limits"},
    ),
    "a line end in quotes": (
        "z.csv", b'id,most,since,"a\nb"\na,1010.5,2024-01-01T00:00:00Z,"x\n\n"\nb,,2024-01-01T00:00:00Z,\n', {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_TEXT)
def test_a_table_of_text_is_written_as_its_options_say(tmp_path: Path, case: str) -> None:
    name, data, options = OF_TEXT[case]
    (tmp_path / name).write_bytes(data)
    table = Table("z", str(tmp_path / name), finished_after="0s", schema=LIMITS, **options)
    assert Table.from_facts(json.loads(json.dumps(table.to_facts()))) == table
    source = open_table(table)
    found = source.rows(str(source.newest(None)), LIMITS)
    assert [tuple(row.values()) for row in found.to_pylist()] == [FIRST, SECOND]
    kinds = open_table(Table("z", str(tmp_path / name), finished_after="0s", **options)).schema()
    if case != "no header":
        assert kinds.field("most").type == pa.float64()
    if options:  # read in another way it is another version
        other = open_table(Table("z", table.source, finished_after="0s", format=table.format, schema=LIMITS))
        assert other.newest(None) != source.newest(None)


@pytest.mark.parametrize("name", ["z.parquet", "zones"])
def test_what_is_no_text_has_none_of_its_options(tmp_path: Path, name: str) -> None:
    write_version(tmp_path, 0, name)
    with pytest.raises(ArgumentError, match="no file of text, so it cannot have delimiter"):
        open_table(Table("z", str(tmp_path / name), decimal=",", delimiter=";"))


class Clock:
    """A clock of the planner that only a test moves; a sleep moves it, and then does what the test asks."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * 10**9
        self.slept = 0
        self.then: dict[int, Callable[[], object]] = {}

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        self.slept += 1
        self.then.get(self.slept, lambda: None)()

    def write(self, path: Path, data: bytes, age_s: float = 0.0) -> None:
        """Write the file in place; by its time of change that was so long ago."""
        path.write_bytes(data)
        at = self.now_ns - int(age_s * 1e9)
        os.utime(path, ns=(at, at))


def _bytes_of(kind: str, rows: int) -> bytes:
    """Return a file's bytes: rows k = 0, 1, ..."""
    lines = {"csv": ["k,x", *(f"{n},{n / 4}" for n in range(rows))]}
    lines["jsonl"] = [json.dumps({"k": n, "x": n / 4}) for n in range(rows)]
    if kind == "parquet":
        pq.write_table(pa.table({"k": range(rows), "x": [n / 4 for n in range(rows)]}), sink := pa.BufferOutputStream())
        return sink.getvalue().to_pybytes()
    plain, _, packed = kind.partition(".")
    text = "".join(f"{line}\n" for line in lines[plain]).encode()
    return gzip.compress(text) if packed else text


KS = pa.schema([("k", pa.int64()), ("x", pa.float64())])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "csv.gz"])
def test_a_file_that_is_being_written_is_no_version(tmp_path: Path, kind: str) -> None:
    clock, path, whole = Clock(), tmp_path / f"z.{kind}", _bytes_of(kind, 500)
    source = FileVersions(str(path), kind.partition(".")[0], Table("z", finished_after="2s"), clock, clock.sleep)
    clock.write(path, _bytes_of(kind, 10), age_s=60)
    first = source.newest(None)
    assert first is not None
    assert clock.slept == 0
    assert source.rows(first, KS)["k"].to_pylist() == list(range(10))
    for size in (0, len(whole) // 3, len(whole) // 2, len(whole)):  # it is opened anew, and grows
        clock.now_ns += 1_500_000_000
        clock.write(path, whole[:size])
        assert source.newest(first) is None
    clock.now_ns += 1_999_999_999
    assert source.newest(first) is None
    clock.now_ns += 1
    second = str(source.newest(first))
    assert second not in (None, first)
    assert source.rows(second, KS)["k"].to_pylist() == list(range(500))
    assert source.newest(second) == second
    clock.write(path, b"")
    clock.now_ns += 3600 * 10**9
    assert source.newest(second) is None  # a file that was emptied is not there yet, however long


@pytest.mark.parametrize("value", ["894536", "1e-60"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_decimal_of_a_table_has_the_digits_of_its_type(tmp_path: Path, kind: str, value: str) -> None:
    clock, path = Clock(), tmp_path / f"z.{kind}"
    schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(6, 1))])
    for told, is_read in (("99999.9", True), (value, False)):
        text = f"k,d\n1,{told}\n" if kind == "csv" else f'{{"k":1,"d":{told}}}\n'
        clock.write(path, text.encode(), age_s=60)
        source = FileVersions(str(path), kind, Table("z", finished_after="2s"), clock, clock.sleep)
        version = source.newest(None)
        assert version is not None
        if is_read:
            assert str(source.rows(version, schema)["d"][0]) == told
        else:
            with pytest.raises(FileFormatError, match="table z cannot be read"):
                source.rows(version, schema)


def test_a_time_of_change_that_is_ahead_makes_a_file_wait_only_as_long_as_another(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "z.csv"
    source = FileVersions(str(path), "csv", Table("z", finished_after="2s"), clock, clock.sleep)
    clock.write(path, _bytes_of("csv", 3), age_s=-7200)  # another machine's clock, or a zone
    assert source.newest(None) is not None
    assert 2 <= clock.slept * 0.1 < 2.5


def test_who_has_no_version_waits_for_the_file_but_not_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = tmp_path / "z.csv", _bytes_of("csv", 100).replace(b"99,24.75", b"ninety-nine,24.75")
    for ask in ("schema", "newest"):
        clock = Clock()
        source = FileVersions(str(path), "csv", Table("z", finished_after="2s"), clock, clock.sleep)
        clock.write(path, b"")
        clock.then = {at: partial(clock.write, path, whole[:size]) for at, size in ((30, 200), (40, 500), (50, None))}
        found = source.schema() if ask == "schema" else source.newest(None)
        assert clock.slept == 70
        if ask == "schema":  # half of the file would say int64
            assert found.field("k").type == pa.string()  # type: ignore[union-attr]
    assert caplog.messages == ["table z: its file is empty: it is waited for"] * 2
    for data, told in ((b"k,x\n1,2.0\n", "changes all the time"), (b"", "is empty")):
        clock = Clock()
        source = FileVersions(str(path), "csv", Table("z", finished_after="2s"), clock, clock.sleep)
        clock.write(path, data)
        clock.then = dict.fromkeys(range(1, 1000), partial(clock.write, path, data))
        with pytest.raises(FileMissingError, match=f"table z is not finished: .*{told}") as refused:
            source.newest(None)
        assert clock.slept == 621
        assert ("finished_after=0s" in str(refused.value)) == bool(data)
    with pytest.raises(FileMissingError, match="is not there"):
        FileVersions(str(tmp_path / "no.csv"), "csv", Table("z")).newest(None)


def test_a_file_that_changes_while_it_is_read_is_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = Clock(), tmp_path / "z.csv"
    source = FileVersions(str(path), "csv", Table("z", finished_after="0s"), clock, clock.sleep)
    clock.write(path, _bytes_of("csv", 3), age_s=60)
    read = LocalFile.read_at

    def grows(file: LocalFile, offset: int, size: int) -> bytes:
        monkeypatch.undo()
        found = read(file, offset, size)
        clock.write(path, _bytes_of("csv", 9))
        return found

    monkeypatch.setattr(LocalFile, "read_at", grows)
    version = source.newest(None)
    assert version is not None
    assert source.rows(version, KS).num_rows == 9


def test_batches_join_the_version_before_until_the_file_is_finished(tmp_path: Path) -> None:
    """`refresh` is a minute: a look that finds half a file is none, so the next batch looks again."""
    write_streams(tmp_path, "e")
    clock, path = Clock(), tmp_path / "z.csv"
    clock.write(path, _bytes_of("csv", 4), age_s=60)
    table = Table("z", str(path), refresh="1m", schema=KS)
    join = StreamJoin([Stream("e", str(tmp_path / "e.csv"), schema=SCHEMA)], "e.x = z.k", "0s", tables=[table])
    seconds = [0.0]

    def versions() -> TableVersions:
        return TableVersions(bound_join(join), str(tmp_path / "c"), 3, clock=lambda: seconds[0], wall=clock)

    running = versions()
    first = running.decided({})
    assert first["z"].rows == 4
    clock.write(path, _bytes_of("csv", 8)[:20])
    seconds[0] = 61.0
    assert running.decided(first) == first
    assert versions().decided(first) == first  # a restart
    clock.write(path, _bytes_of("csv", 8))
    clock.now_ns += 2 * 10**9
    seconds[0] = 62.0
    second = running.decided(first)
    assert second["z"].rows == 8
    assert versions_from({"z": second["z"].to_facts()}) == second  # what the clock decided is in the offset


def test_a_restart_takes_the_recorded_columns_while_the_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_bytes(b"")
    table = Table("z", str(tmp_path / "z.csv"))
    assert table_schema(table, KS) == KS
    assert table_schema(Table("z", str(tmp_path / "z.csv"), schema=KS)) == KS
    (tmp_path / "z.csv").write_bytes(b"k,x,y\n1,2.0,a\n")
    os.utime(tmp_path / "z.csv", (1, 1))
    assert table_schema(table, KS).names == ["k", "x", "y"]
