"""Streams whose devices have clocks of their own: late, watermark and silence of each, whatever the batches."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.checkpoint.batch_end import Ends
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source import device_clocks
from streamjoin_ds.source.repeats import kept_keys, kept_partitions
from streamjoin_ds.spec import Join, Stream, band, bind
from streamjoin_ds.stream import dataframe
from streamjoin_ds.stream.dataframe import check_frames
from tests.support.examples import examples
from tests.support.microbatch import MicroBatches
from tests.support.partitioned import Partitioned
from tests.support.topics import FakeTopic, fake_topics

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("device", pa.string())])
Row = Mapping[str, Any]


def row_of(device: str | None, second: float, x: int = 1) -> dict[str, Any]:
    return {"ts": START_US + int(second * 1_000_000), "x": x, "device": device}


class Sensors(Partitioned):
    """Stream `l` has records of many devices in one file, stream `r` is a file; a test writes both."""

    def __init__(
        self, folder: Path, window: Any = "10s", layout: str = "1x2", most: int = 1_000_000, **facts: Any
    ) -> None:
        self.folder = folder
        self.rows: dict[str, dict[str, list[dict[str, Any]]]] = {"l": {"": []}, "r": {"": []}}
        for name in self.rows:
            (folder / f"{name}.json").write_text("")
        left = Stream("l", folder / "l.json", schema=SCHEMA, **{"partition_by": ["device"], **facts})
        join = Join([left, Stream("r", folder / "r.json", schema=SCHEMA)], [band("l.x", "r.x", 1)], window)
        bound, grid = bind(join, dict.fromkeys(join.names, SCHEMA)), Layout.parse(layout, 2)
        super().__init__(join, MicroBatches(bound, folder, grid, max_rows_per_batch=most))

    def put(self, stream: str, *rows: dict[str, Any], text: str = "") -> None:
        """Append records to a stream, and a text that is none."""
        with (self.folder / f"{stream}.json").open("a") as file:
            file.write("".join(f"{json.dumps(row)}\n" for row in rows) + text)
        self.rows[stream][""] += rows

    @property
    def punctuation_s(self) -> float | None:
        """The newest punctuation, in seconds after the start."""
        rows = self.micro.companion("punctuations").sort_by("batch_id")["punctuation"].cast(pa.int64()).to_pylist()
        return None if rows[-1] is None else (rows[-1] - START_US) / 1e6

    @property
    def devices(self) -> dict[str, Any]:
        return dict(self.micro.offset["streams"]["l"].get("devices", {}))

    def late(self) -> list[tuple[int, float]]:
        """Return the late records' numbers, and the second by which each was judged."""
        rows = self.micro.companion("late").sort_by("seq").to_pylist()
        return [(row["seq"], row["largest_ts"].timestamp() - START_US / 1e6) for row in rows if row["stream"] == "l"]


def test_a_slow_device_is_not_late_against_a_fast_one_and_holds_the_watermark(tmp_path: Path) -> None:
    run = Sensors(tmp_path)
    run.put("l", row_of("slow", 0), row_of("fast", 100), row_of("slow", 1), row_of("fast", 99), row_of("slow", 0.5))
    run.put("r", row_of(None, 0), row_of(None, 100))
    assert run.step()
    assert run.late() == [(3, 100), (4, 1)]  # each by its own clock
    assert run.punctuation_s == 1
    run.put("l", row_of("slow", 60))
    assert run.step()
    assert run.punctuation_s == 60
    run.check(run.rows)


def test_a_device_that_joins_soon_is_not_late_whatever_the_batches(tmp_path: Path) -> None:
    rows = [row_of("a", 0), row_of("a", 50), row_of("b", 9), row_of("b", 8), row_of("a", 52), row_of("c", 1)]
    for most in (1, 2, 100):
        folder = tmp_path / str(most)
        folder.mkdir()
        run = Sensors(folder, most=most)
        run.put("l", *rows)
        run.put("r", row_of(None, 50))
        while run.step():
            pass
        assert run.late() == [(3, 9)]
        run.check(run.rows)


def test_a_device_that_joins_later_is_judged_by_the_clock_of_the_stream(tmp_path: Path) -> None:
    run = Sensors(tmp_path)
    run.put("l", row_of("a", 0), row_of("a", 50))
    assert run.step()
    run.put("l", row_of("b", 49), row_of("b", 51), row_of("c", 50.5))
    assert run.step()
    assert run.late() == [(2, 50)]
    run.check(run.rows)


def test_a_silent_device_is_idle_then_forgotten_and_comes_back(tmp_path: Path) -> None:
    run = Sensors(tmp_path, idle_timeout="30s")
    run.put("l", row_of("a", 0), row_of("b", 1), row_of("ahead", 90))
    run.put("r", row_of(None, 0), row_of(None, 100))
    assert run.step()
    for now_s in (20, 29, 31):
        run.now_s = now_s
        run.put("l", row_of("b", now_s))
        assert run.step()
    assert run.punctuation_s == 31
    assert run.devices["names"] == [["b"], ["ahead"]]  # a is behind the clock of the stream
    assert run.devices["idle"] == [1]
    run.restart()
    run.put("l", row_of("a", 31), row_of("a", 30), row_of("ahead", 89), row_of("ahead", 91))
    assert run.step()
    assert run.late() == [(6, 31), (7, 31), (8, 90)][1:]
    assert "idle" not in run.devices
    run.check(run.rows)


def test_a_device_that_falls_silent_lets_time_go_on_without_a_record(tmp_path: Path) -> None:
    run = Sensors(tmp_path, idle_timeout="30s")
    run.put("l", row_of("a", 0), row_of("b", 70))
    run.put("r", row_of(None, 80))
    assert run.step()
    run.now_s = 20
    run.put("l", row_of("b", 71))
    assert run.step()
    run.now_s = 31
    assert run.step()  # a batch without a record
    assert run.punctuation_s == 71
    assert not run.step()
    run.check(run.rows)


def test_no_device_is_idle_while_records_wait_that_may_be_its_own(tmp_path: Path) -> None:
    run = Sensors(tmp_path, most=2, idle_timeout="30s")
    run.put("l", row_of("a", 0), *(row_of("b", second) for second in range(1, 9)), row_of("a", 1))
    for now_s in range(0, 1000, 100):
        run.now_s = now_s
        run.step()
    assert run.late() == []
    run.check(run.rows)


def test_a_device_holds_the_watermark_for_ever_without_a_timeout(tmp_path: Path) -> None:
    run = Sensors(tmp_path)
    run.put("l", row_of("a", 0), row_of("b", 1))
    run.put("r", row_of(None, 100))
    assert run.step()
    for now_s in (1e3, 1e6):
        run.now_s = now_s
        run.put("l", row_of("b", now_s))
        assert run.step()
    assert run.punctuation_s == 0
    held = run.micro.companion("metrics").sort_by("batch_id").to_pylist()[-1]
    assert (held["held_by"], held["devices"], held["idle_devices"]) == ("l/a", 2, 0)


def test_a_record_that_is_broken_elsewhere_tells_the_time_of_its_device(tmp_path: Path) -> None:
    run = Sensors(tmp_path)
    run.put("l", row_of("a", 0), {**row_of("a", 50), "x": "no number"}, row_of("a", 10), row_of("b", 5))
    run.put("r", row_of(None, 10))
    assert run.step()
    assert run.late() == [(2, 50)]
    assert run.devices["names"] == [["a"], ["b"]]


def test_a_null_is_a_device(tmp_path: Path) -> None:
    run = Sensors(tmp_path)
    run.put("l", row_of(None, 10), row_of("a", 50), row_of(None, 9), row_of("a", 49))
    run.put("r", row_of(None, 10))
    assert run.step()
    assert run.late() == [(2, 10), (3, 50)]
    run.check(run.rows)


def test_too_many_devices_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_clocks, "MOST_DEVICES", 3)
    run = Sensors(tmp_path)
    run.put("l", *(row_of(str(number), number) for number in range(4)))
    with pytest.raises(ArgumentError, match="more than 3 devices") as caught:
        run.step()
    assert caught.value.name == "partition_by"


def test_copies_are_told_in_each_device_by_its_own_clock(tmp_path: Path) -> None:
    """The span is 20 s. A null is a device, and a worker that knows nothing reads back what the slow one may repeat."""
    found = []
    for most, forgets in ((1, False), (1, True), (100, False)):
        folder = tmp_path / f"{most}-{forgets}"
        folder.mkdir()
        run = Sensors(folder, most=most, unique="x", delay="1s")
        run.put("l", row_of("slow", 0, 7), row_of("fast", 1000, 7), row_of(None, 500, 7), row_of("slow", 1, 7))
        run.put("l", *(row_of("fast", second, 8) for second in range(1021, 1100, 21)))
        run.put("l", row_of("slow", 21, 7), row_of("slow", 43, 7), row_of("fast", 1084, 8), row_of(None, 520, 7))
        run.put("l", row_of("slow", 22, 7), row_of("fast", 1000, 7))
        run.put("r", row_of(None, 0), row_of(None, 1100))
        while run.step():
            if forgets:
                kept_keys.clear()
        run.check(run.rows)
        ledger = [row for row in run.micro.companion("ledger").to_pylist() if row["stream"] == "l"]
        found.append([sum(row[what] or 0 for row in ledger) for what in ("duplicates", "late", "stored")])
        assert len(run.micro.offset.get("waypoints", {}).get("l", [])) in ((0,) if most > 1 else (1, 2, 3))
    assert found == [[4, 2, 8]] * 3


DEVICES = st.sampled_from(["a", "b", "c", None])


@given(
    st.lists(st.tuples(st.sampled_from("lllr"), DEVICES, st.integers(0, 40)), max_size=40),
    st.integers(1, 12),
    st.integers(0, 1 << 30),
)
@examples(20)
def test_any_stream_gives_the_rows_of_the_oracle_whatever_the_batches(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str | None, int]], most: int, seed: int
) -> None:
    dice, folder = random.Random(seed), tmp_path_factory.mktemp("devices")
    timeout = dice.choice([None, "5s", "60s"])
    unique = dice.choice([None, "x", "device,x", "x,ts"])
    run = Sensors(
        folder,
        window=dice.choice(["10s", "3s", *["last 5"] * (unique is None)]),
        most=most,
        delay=dice.choice(["0s", "4s"]),
        idle_timeout=timeout,
        unique=unique,
    )
    for stream, device, second in records:
        run.put(stream, row_of(device, second, dice.randrange(3)))
        if dice.random() < 0.3:
            run.now_s += dice.choice([0, 3, 20])
            run.step()
        if dice.random() < 0.1:
            run.restart()
        if dice.random() < 0.1:
            kept_keys.clear()
    while run.step():
        pass
    run.check(run.rows)


class DeviceTopic(Partitioned):
    """Stream `l` is a topic of two partitions, `r` one of one."""

    def __init__(self, folder: Path, topics: type[FakeTopic], most: int = 1_000_000, **facts: Any) -> None:
        self.topics = topics
        self.rows: dict[str, dict[str, list[dict[str, Any]]]] = {"l": {}, "r": {}}
        left = Stream("l", "kafka://broker/l?format=json", schema=SCHEMA, partition_by="device", **facts)
        join = Join([left, Stream("r", "kafka://broker/r?format=json", schema=SCHEMA)], [band("l.x", "r.x", 1)], "10s")
        bound = bind(join, dict.fromkeys(join.names, SCHEMA))
        super().__init__(join, MicroBatches(bound, folder, Layout.parse("1x2", 2), max_rows_per_batch=most))

    def send(self, stream: str, partition: int, row: dict[str, Any]) -> None:
        self.topics.logs[stream][partition].append(json.dumps(row).encode())
        self.rows[stream].setdefault(str(partition), []).append(row)


@given(
    st.lists(st.tuples(st.sampled_from(["l0", "l1", "l0", "r0"]), DEVICES, st.integers(0, 40)), max_size=40),
    st.integers(1, 12),
    st.integers(0, 1 << 30),
)
@examples(20)
def test_a_topic_has_devices_in_each_partition(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str | None, int]], most: int, seed: int
) -> None:
    dice, folder = random.Random(seed), tmp_path_factory.mktemp("devices")
    with pytest.MonkeyPatch.context() as patch:
        unique = dice.choice([None, "x", "device,x"])
        run = DeviceTopic(folder, fake_topics(patch, l=2, r=1), most, delay=dice.choice(["0s", "4s"]), unique=unique)
        for place, device, second in records:
            run.send(place[0], int(place[1]), row_of(device, second, dice.randrange(3)))
            if dice.random() < 0.2:
                run.step()
            if dice.random() < 0.1:
                kept_partitions.clear()
        while run.step():
            pass
        run.check(run.rows)


def _csv(path: Path, rows: Sequence[Row]) -> None:
    lines = (f"{row['ts']},{row['x']},{row['device']}\n" for row in rows)
    with gzip.open(path / "1.csv.gz", "wt") as file:
        file.write("ts,x,device\n" + "".join(lines))


def _parquet(path: Path, rows: Sequence[Row]) -> None:
    for number, piece in enumerate((rows[:3], rows[3:])):
        pq.write_table(pa.Table.from_pylist(list(piece), schema=SCHEMA), path / f"{number}.parquet")


def _delta(path: Path, rows: Sequence[Row]) -> None:
    for piece in (rows[:3], rows[3:]):
        write_deltalake(str(path), pa.Table.from_pylist(list(piece), schema=SCHEMA), mode="append")


@pytest.mark.parametrize("write", [_csv, _parquet, _delta])
def test_files_and_tables_have_devices(tmp_path: Path, write: Callable[[Path, Sequence[Row]], None]) -> None:
    rows = [row_of("a", 0), row_of("b", 100), row_of("a", 1), row_of("b", 99), row_of("a", 0.5), row_of("a", 70)]
    (tmp_path / "l").mkdir()
    write(tmp_path / "l", rows)
    (tmp_path / "r.csv").write_text(f"ts,x,device\n{START_US},1,r\n")
    streams = [
        Stream("l", tmp_path / "l", schema=SCHEMA, partition_by=["device"]),
        Stream("r", tmp_path / "r.csv", schema=SCHEMA),
    ]
    join = Join(streams, [band("l.x", "r.x", 1)], "10s")
    found = []
    for most in (1, 100):
        folder = tmp_path / str(most)
        folder.mkdir()
        micro = MicroBatches(bind(join, dict.fromkeys(join.names, SCHEMA)), folder, Layout.parse("1x1", 2))
        micro.max_rows_per_batch = most
        micro.run()
        found.append(micro.companion("late").sort_by("seq")["seq"].to_pylist())
    assert found == [[3, 4]] * 2


def test_what_columns_cannot_be_had_is_refused_by_name(tmp_path: Path) -> None:
    def bound(**facts: Any) -> object:
        stream = Stream("l", **{"source": str(tmp_path / "l.csv"), "schema": SCHEMA, **facts})
        return bind(Join([stream, Stream("r", tmp_path / "r.csv", schema=SCHEMA)], [band("l.x", "r.x", 1)], "10s"),
                    {"l": stream.schema, "r": SCHEMA})  # fmt: skip

    for wrong, name in (
        ({"partition_by": "files"}, "files"),
        ({"partition_by": ["ts"]}, "ts"),
        ({"partition_by": "b", "schema": SCHEMA.append(pa.field("b", pa.binary()))}, "b"),
    ):
        with pytest.raises(ColumnError) as caught:
            bound(**wrong)
        assert caught.value.name == name
        assert "partition_by" in str(caught.value)
    for wrong in (
        {"partition_by": []},
        {"partition_by": ["device", "device"]},
        {"partition_by": "device", "source": "gen:band2d?side=r&rate=100&rows=10"},
        {"partition_by": "file", "source": "kafka://broker/l?format=json"},
        {"partition_by": "folder", "format": "delta"},
    ):
        with pytest.raises(ArgumentError) as refused:
            bound(**wrong)
        assert refused.value.name == "partition_by"
    columns = Stream("l", tmp_path, partition_by="column:file, device").device_columns
    assert columns == ("file", "device")
    assert Stream.from_facts(Stream("l", tmp_path, partition_by=["file"]).to_facts()).device_columns == ("file",)
    assert Stream("l", tmp_path, partition_by="file").device_columns == ()


@pytest.mark.parametrize("first", [-1, 0, 3])
def test_the_ledger_tells_the_clocks_of_batches_whose_offsets_are_lost(tmp_path: Path, first: int) -> None:
    run = Sensors(tmp_path, most=3, idle_timeout="30s", max_ahead="1h")
    run.put("l", row_of("a", 0), row_of("b", 1), row_of("c", 2), row_of("d", 1), row_of("b", 9), row_of("e", 3))
    run.put("r", row_of(None, 100))
    while run.step():
        run.now_s += 20
    for now_s in (100, 140):
        run.now_s = now_s
        run.put("l", row_of("b", now_s))
        assert run.step()
    rows = {(row["batch_id"], row["stream"]): row for row in run.micro.companion("ledger").to_pylist()}
    ends = Ends(run.micro.bound, None if first < 0 else run.offsets[first])
    for batch in range(first + 1, len(run.offsets)):
        assert [ends.move(name, rows[batch, name]) for name in "lr"] == ["", ""]
        told, right = ({**offset["streams"]["l"]} for offset in (ends.offset(), run.offsets[batch]))
        for facts in (told["devices"], right["devices"]):
            facts.pop("seen", None)  # when a device had records last: of that silence counts anew
        assert told == right
    run.check(run.rows)


def test_a_computed_column_tells_devices_apart(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("topic", pa.string())])
    rows = [("a", 0), ("b", 100), ("a", 1), ("b", 99)]
    lines = (f"{START_US + second * 1_000_000},1,home/{device}/t\n" for device, second in rows)
    (tmp_path / "l.csv").write_text("ts,x,topic\n" + "".join(lines))
    (tmp_path / "r.csv").write_text(f"ts,x,topic\n{START_US},1,r\n")
    by = {"columns": {"device": "substr(topic, 6, 1)"}, "partition_by": "device"}
    streams = [Stream("l", tmp_path / "l.csv", schema=schema, **by), Stream("r", tmp_path / "r.csv", schema=schema)]
    join = Join(streams, [band("l.x", "r.x", 1)], "10s")
    micro = MicroBatches(bind(join, dict.fromkeys(join.names, schema)), tmp_path, Layout.parse("1x1", 2))
    micro.run()
    assert micro.companion("late")["seq"].to_pylist() == [3]


@pytest.mark.parametrize("by", ["device", "ids.device"])
def test_a_device_that_is_not_selected_is_read_for_its_clock_alone(tmp_path: Path, by: str) -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("device", pa.string())])
    rows = [("a", 0), ("b", 100), ("a", 1), ("b", 99)]
    lines = ({**row_of(one, second), "ids": {"device": one}} for one, second in rows)
    (tmp_path / "l.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "r.json").write_text(f"{json.dumps(row_of('r', 0))}\n")
    left = schema if by == "device" else schema.append(pa.field("ids", pa.struct([("device", pa.string())])))
    streams = [Stream("l", tmp_path / "l.json", schema=left, partition_by=by)]
    streams.append(Stream("r", tmp_path / "r.json", schema=schema))
    join = Join(streams, [band("l.x", "r.x", 1)], "10s", select=["l.x", "r.x"])
    micro = MicroBatches(bind(join, {"l": left, "r": schema}), tmp_path, Layout.parse("1x1", 2))
    assert micro.run().num_rows == 2
    assert micro.companion("late")["seq"].to_pylist() == [3]


class Frame:
    """A DataFrame, as far as a check asks."""

    def __init__(self, *, streaming: bool) -> None:
        self.isStreaming = streaming


def test_devices_of_static_frames_need_nothing_and_of_streaming_ones_an_order() -> None:
    streams = [Stream("l", schema=SCHEMA, partition_by=["device"]), Stream("r", schema=SCHEMA)]
    join = Join(streams, [band("l.x", "r.x", 1)], "10s")
    assert Join.from_facts(join.to_facts()).streams[0].device_columns == ("device",)
    static: Any = {name: Frame(streaming=False) for name in "lr"}
    check_frames(join, static)
    with patch.object(dataframe, "_is_same", lambda one, other: one is other):
        assert [stream.device_columns for stream in dataframe.over_frames(join, static).streams] == [(), ()]
    with pytest.raises(ArgumentError, match=r"its frame is streaming.*order_by of two columns") as caught:
        check_frames(join, {**static, "l": Frame(streaming=True)})
    assert caught.value.name == "partition_by"
