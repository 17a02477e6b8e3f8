from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from streamjoin_ds.errors import BlockCorruptError
from streamjoin_ds.exchange.frame_packing import pack_foreign
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA, CellBatch, open_block
from streamjoin_ds.plan import Layout, Plan, RangeLayout, attributes_of
from streamjoin_ds.plan.layout import group_of
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spark.admission import ReadAllAvailable, ReadMaxRows
from streamjoin_ds.spec import Generator, Join, Stream, bind
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.stream.sensors import SensorsDataSource, spark_struct
from tests.source.feeds import START_US, csv_text, iso, rows, write


def planned(tmp_path: Path, layout: str = "1x2", exchange: str = "reference", delay: str = "500ms") -> Plan:
    """Return the plan of a file with late and broken rows that is joined with a generated stream."""
    path = tmp_path / "in" / "e.csv"
    if not path.exists():
        path.parent.mkdir()
        path.write_text(csv_text(rows(50)) + "soon,a,1,2\n2024-01-01,a,wide,2\n")
    generated = Generator("band2d", {"rate": 2, "rows": 90, "side": "s", "low": 1, "high": 20})
    streams = [Stream("e", str(path), delay=delay), Stream("g", generated)]
    schemas = {stream.name: infer_schema(stream) for stream in streams}
    schemas["e"] = pa.schema(
        [("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string()), ("x", pa.float64()), ("n", pa.int64())]
    )
    bound = bind(Join(streams, "abs(e.x - g.b) <= 1", "10s"), schemas)
    return Plan(bound, Layout.parse(layout, 2), 2, exchange, str(tmp_path / "exchange"), str(tmp_path / "table"))


def batches(plan: Plan, size: int, **options: str) -> list[list[dict[str, Any]]]:
    """Return the exchange rows of each batch, with their blocks opened."""
    source = SensorsDataSource({"plan": plan.to_json(), **options})
    reader = source.streamReader(source.schema())
    at, found = reader.initialOffset(), []
    while True:
        end = json.loads(json.dumps(reader.latestOffset(at, ReadMaxRows(size))))
        if json.dumps(end) == json.dumps(at):
            return found
        rows_of_batch = []
        for partition in reader.partitions(at, end):
            for batch in reader.read(partition):
                assert batch.schema.equals(EXCHANGE_SCHEMA)
                rows_of_batch += batch.to_pylist()
        notes = [row for row in rows_of_batch if row["kind"] == "batch"]
        assert [row["cell"] for row in notes] == list(plan.labels), "each cell hears of the batch once"
        known = CellBatch.from_json(notes[0]["payload"], 2)
        assert known.backlog_rows is not None
        assert CellBatch.from_json(known.to_json(), 2) == known
        rows_of_batch = [row for row in rows_of_batch if row["kind"] != "batch"]
        for row in rows_of_batch:
            row["table"] = open_block(plan, row["block"], row["payload"])
        found.append(rows_of_batch)
        at = end


@pytest.mark.parametrize("exchange", ["reference", "packed"])
@pytest.mark.parametrize("layout", ["1x1", "1x2", "2x1", "2x2", "3x2"])
def test_every_cell_gets_its_groups_and_every_heartbeat(tmp_path: Path, layout: str, exchange: str) -> None:
    plan = planned(tmp_path, layout, exchange)
    grid = plan.layout
    got: dict[tuple[int, int], list[int]] = defaultdict(list)
    sums = {stream: {"read": 0, "late": 0, "rejected": 0, "filtered": 0} for stream in range(2)}
    kinds: dict[str, int] = defaultdict(int)
    for batch in batches(plan, 17, parts="2"):
        beats = defaultdict(set)
        for row in batch:
            cell = plan.labels.index(row["cell"])
            for name in sums[row["stream"]]:
                sums[row["stream"]][name] += row[name]
            if row["kind"] != "tuples":
                assert cell == 0
                kinds[row["kind"]] += row["table"].num_rows
                continue
            beats[row["stream"], row["part"]].add((cell, row["largest_ts"]))
            assert (row["table"] is None) == (row["rows"] == 0)
            if row["table"] is not None:
                seqs = row["table"]["_seq"].to_numpy()
                assert row["table"].schema.remove_metadata().equals(plan.bound.tuple_schema(row["stream"]))
                assert (np.diff(seqs) > 0).all()
                assert row["first_seq"] == seqs[0]
                assert set(group_of(seqs, grid.counts[row["stream"]])) == {grid.group_in_cell(cell, row["stream"])}
                got[row["stream"], cell] += seqs.tolist()
        assert beats
        for heard in beats.values():
            assert {cell for cell, _ in heard} == set(range(grid.cells))
            assert len({largest for _, largest in heard}) == 1
    assert sums[1] == {"read": 90, "late": 0, "rejected": 0, "filtered": 0}
    assert sums[0]["read"] == 52
    assert sums[0]["rejected"] == kinds["rejects"] == 2
    assert sums[0]["late"] == kinds["late"] > 0
    for stream, total in ((0, 50 - sums[0]["late"]), (1, 90)):
        homes = [seq for (s, cell), seqs in got.items() if s == stream and grid.is_home(cell, s) for seq in seqs]
        assert len(homes) == len(set(homes)) == total


@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_ranges_give_each_tuple_to_its_cells_and_each_cell_a_heartbeat(tmp_path: Path, exchange: str) -> None:
    plan = planned(tmp_path, "1x2", exchange)
    (reach,) = attributes_of(plan.bound)
    grids = (Layout((1, 1)), Layout((2, 2)), Layout((1, 1)))
    ranges = RangeLayout(7, reach, 0, (4.0, 8.0), grids)
    plan = replace(plan, layout=ranges)
    homes: dict[int, list[int]] = {0: [], 1: []}
    copies: dict[int, int] = {0: 0, 1: 0}
    late = 0
    for batch in batches(plan, 17, parts="2"):
        late += sum(row["late"] for row in batch)
        heard = defaultdict(list)
        for row in batch:
            if row["kind"] != "tuples":
                continue
            cell, stream = plan.cell_of(row["cell"]), row["stream"]
            heard[stream, row["part"]].append((cell, row["largest_ts"]))
            if row["table"] is None:
                continue
            column = row["table"].column(("x", "b")[stream])
            assert row["table"].column("_seq").to_pylist() == sorted(row["table"].column("_seq").to_pylist())
            if stream == 0 and not column.null_count:
                assert {sum(end <= key for end in (4.0, 8.0)) for key in column.to_pylist()} == {
                    0 if cell == 0 else 2 if cell == 5 else 1
                }
            received = ranges.received(plan.bound, cell, stream, row["table"])
            homes[stream] += np.array(row["table"]["_seq"])[received.is_counted].tolist()
            copies[stream] += row["rows"]
        for cells in heard.values():
            assert {cell for cell, _ in cells} == set(range(7))
            assert len({largest for _, largest in cells}) == 1
        assert sum(row["read"] for row in batch) in (17, 142 % 17)
    assert len(homes[0]) == len(set(homes[0])) == 50 - late > 30
    assert sorted(homes[1]) == list(range(90))
    assert copies[1] > 90, "some are in two ranges, or in both rows of the grid"


def test_a_sample_of_keys_goes_to_the_first_cell_where_ranges_may_be_chosen(tmp_path: Path) -> None:
    for layout, kind, is_sampled in (("2x4", "auto", True), ("1x2", "ranges", True), ("1x2", "auto", False)):
        plan = replace(planned(tmp_path, layout), layout_kind=kind)
        found = [row for batch in batches(plan, 40) for row in batch if row["kind"] == "keys"]
        assert bool(found) == is_sampled
        assert {plan.cell_of(row["cell"]) for row in found} <= {0}
        tuples = [number for row in found if row["stream"] == 1 for number in row["table"]["seq"].to_pylist()]
        assert sorted(tuples) == (list(range(90)) if is_sampled else [])
        assert {row["rows"] + row["read"] for row in found} <= {0}


def test_lateness_within_a_part_is_exact(tmp_path: Path) -> None:
    plan = planned(tmp_path, "1x1", delay="500ms")
    (batch,) = batches(plan, 10_000)
    late = [row["table"] for row in batch if row["kind"] == "late"]
    largest, wanted = NO_TIME, []
    for seq, (ts, *_) in enumerate(rows(50)):
        if ts < largest - 500_000:
            wanted.append((ts, seq, largest))
        largest = max(largest, ts)
    assert [(r["_ts"], r["_seq"], r["_largest_ts"]) for r in late[0].to_pylist()] == wanted
    assert wanted
    calm = planned(tmp_path, "1x1", delay="3s")
    assert not [row for row in batches(calm, 10_000)[0] if row["kind"] == "late"]


def test_the_ways_of_the_exchange_carry_the_same(tmp_path: Path) -> None:
    said = []
    for exchange in ("reference", "packed"):
        found = []
        for batch in batches(planned(tmp_path, "2x2", exchange), 31, parts="3"):
            plain = [{k: v for k, v in row.items() if k not in ("block", "payload", "table")} for row in batch]
            tables = [None if row["table"] is None else row["table"].to_pylist() for row in batch]
            found.append(sorted(zip(plain, tables, strict=True), key=lambda p: json.dumps(p[0])))
        said.append(found)
    assert said[0] == said[1]


def test_packed_blocks_are_of_bounded_size(tmp_path: Path) -> None:
    plan = planned(tmp_path, "1x1", "packed")
    (batch,) = batches(plan, 10_000, max_block_rows="8")
    sizes = [row["rows"] for row in batch if row["kind"] == "tuples" and row["stream"] == 1]
    assert max(sizes) == 8
    assert sum(sizes) == 90
    assert sum(row["read"] for row in batch) == 142


def test_blocks_are_written_once_and_removed_when_committed(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    source = SensorsDataSource({"plan": plan.to_json()})
    reader = source.streamReader(source.schema())
    offsets = [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], ReadMaxRows(30)))
        for partition in reader.partitions(offsets[-2], offsets[-1]):
            list(reader.read(partition))
    folder = Path(plan.block_root, "exchange")
    names = {path.name for path in folder.iterdir()}
    for partition in reader.partitions(offsets[1], offsets[2]):  # a second attempt
        list(source.streamReader(source.schema()).read(partition))
    assert {path.name for path in folder.iterdir()} == names
    (folder / "note.arrow").write_bytes(b"not ours")
    reader.commit(offsets[1])
    left = {path.name for path in folder.iterdir()}
    assert left < names | {"note.arrow"}
    for partition in reader.partitions(offsets[1], offsets[3]):
        assert partition is not None
    other = source.streamReader(source.schema())  # another process
    other.commit(json.loads(json.dumps(offsets[3])))
    assert [path.name for path in folder.iterdir()] == ["note.arrow"]


def test_a_damaged_payload_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, "1x1", "packed")
    row = next(row for row in batches(plan, 99)[0] if row["rows"])
    payload = bytearray(row["payload"])
    payload[len(payload) // 2] ^= 1
    with pytest.raises(BlockCorruptError):
        open_block(plan, "", bytes(payload))


def test_spark_agrees_on_the_types() -> None:
    assert to_arrow_schema(spark_struct(EXCHANGE_SCHEMA), timezone="UTC").equals(EXCHANGE_SCHEMA)
    assert not any(field.nullable for field in EXCHANGE_SCHEMA)


def test_foreign_frames_are_dealt_by_content(tmp_path: Path) -> None:
    plan = planned(tmp_path, "3x2", "packed")
    ts = pa.array([START_US + k for k in range(40)], pa.timestamp("us", tz="UTC"))
    ts = pa.concat_arrays([ts, pa.nulls(2, ts.type)])
    columns = [
        ts,
        pa.array([f"n{k % 5}" for k in range(42)]),
        pa.array([k / 2 for k in range(42)]),
        pa.array(range(42)),
    ]
    frame = pa.RecordBatch.from_arrays(columns, schema=plan.bound.schemas[0])

    def sent(pieces: list[pa.RecordBatch]) -> dict[int, list[dict[str, Any]]]:
        cells: dict[int, list[dict[str, Any]]] = defaultdict(list)
        counted = {"read": 0, "rejected": 0}
        for batch in pack_foreign(lambda: plan, 0)(iter(pieces)):
            for row in batch.to_pylist():
                counted = {name: counted[name] + row[name] for name in counted}
                table = open_block(plan, row["block"], row["payload"])
                cells[row["cell"]] += [] if table is None else table.to_pylist()
                assert row["largest_ts"] == START_US + 39
        assert counted == {"read": 42, "rejected": 2}
        return {cell: sorted(found, key=lambda r: r["_ts"]) for cell, found in cells.items()}

    whole, turned = sent([frame]), sent([frame.slice(25), frame.slice(0, 25)])
    assert whole == turned
    assert sum(len(found) for found in whole.values()) == 40 * plan.layout.copies(0)
    assert len({r["_seq"] for found in whole.values() for r in found}) == 40


def test_limits_of_a_batch(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    sizes = [sum(row["read"] for row in batch) for batch in batches(plan, 25)]
    assert sizes == [25, 25, 25, 25, 25, 17]
    source = SensorsDataSource({"plan": plan.to_json(), "max_rows_per_batch": "11"})
    reader = source.streamReader(source.schema())
    assert reader.getDefaultReadLimit() == ReadMaxRows(11)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert [end["streams"][name]["seq"] for name in ("e", "g")] == [52, 90]


def test_a_cell_hears_of_streams_that_are_silent(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    rows_of_last = batches(plan, 60)[-1]
    write(tmp_path / "unused.csv", rows(1))
    silent = [row for row in rows_of_last if row["largest_ts"] == NO_TIME]
    assert all((row["kind"], row["rows"], row["part"]) == ("tuples", 0, 0) for row in silent)
    assert iso(START_US).startswith("2024-01-01T00:00:00")
