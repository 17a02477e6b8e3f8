"""A column that is declared in another zone than UTC: a time without an offset is no time of it, in whatever source."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from streamjoin_ds import Join, JoinEngine, Stream, StreamJoin, Table, band
from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.source.table_versions import TableVersions
from streamjoin_ds.spec import bind
from streamjoin_ds.stream.source_facts import bound_join
from tests.source.feeds import segment
from tests.source.kafka.formats.messages import messages_of

BERLIN = pa.timestamp("us", tz="Europe/Berlin")
UTC = pa.timestamp("us", tz="UTC")
LOCAL, WITH_OFFSET = "2024-03-05 10:00:07", "2024-03-05T10:00:07+01:00"
AT_US = 1_709_629_207_000_000
DECLARED = pa.schema([("ts", BERLIN), ("seen", BERLIN), ("x", pa.float64())])


def text_of(form: str, rows: list[dict[str, Any]]) -> bytes:
    if form == "csv":
        return b"".join(f"{row['ts']},{row['seen']},{row['x']}\n".encode() for row in rows)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def written(folder: Path, form: str, rows: list[dict[str, Any]]) -> Path:
    """Write rows of texts as a file."""
    path = folder / {"spool": "0.spool"}.get(form, f"e.{form}")
    head = b"ts,seen,x\n" if form == "csv" else b""
    payloads = [json.dumps(row).encode() for row in rows]
    path.write_bytes(segment(payloads) if form == "spool" else head + text_of(form, rows))
    return path


def joined(stream: Stream) -> StreamJoin:
    other = Stream("w", "gen:sensor")
    return StreamJoin(
        [stream, other], on="e.x <= w.temperature AND e.seen IS NOT NULL", window="1s", select="e.x, e.seen"
    )


def read(stream: Stream) -> tuple[list[int], list[datetime], list[tuple[str, str]]]:
    """Return the event times and the other times that a feed gives, and what it rejects: column and reason."""
    schema = bind(
        joined(stream), {"e": stream.schema, "w": pa.schema([("ts", UTC), ("temperature", pa.float64())])}
    ).read_schemas[0]
    feed = open_feed(stream, schema)
    end = feed.advance(feed.initial(), feed.frontier(feed.initial(), 100).rows)
    chunks = list(feed.read(feed.initial(), end))
    times = [ts for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
    known = [ts for ts in feed.running_max(feed.initial(), end).tolist() if ts > 0]
    assert set(known) >= set(times)  # the planner sees what the task sees
    seen = [moment for chunk in chunks for moment in chunk.tuples.column("seen").to_pylist()]
    return times, seen, [(one.column, one.reason) for chunk in chunks for one in chunk.rejects]


@pytest.mark.parametrize("form", ["csv", "jsonl", "spool"])
def test_texts_go_by_their_own_offset_or_are_rejects_that_name_the_zone(tmp_path: Path, form: str) -> None:
    good = {"ts": WITH_OFFSET, "seen": "2024-03-05 09:00:07Z", "x": 1.5}
    rows = [good, good | {"ts": LOCAL}, good | {"seen": LOCAL}, good | {"ts": "2024-03-05"}, good]
    times, seen, rejects = read(Stream("e", str(written(tmp_path, form, rows)), schema=DECLARED, format="auto"))
    assert times == [AT_US] * 2
    assert [moment.timestamp() for moment in seen] == [AT_US / 1e6] * 2
    assert [column for column, _ in rejects] == ["ts", "seen", "ts"]
    assert all("with an offset" in reason and "Europe/Berlin" in reason for _, reason in rejects)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "+00:00", None])
def test_utc_by_any_name_is_what_it_was(tmp_path: Path, zone: str | None) -> None:
    schema = pa.schema(
        [("ts", pa.timestamp("us", tz=zone)), ("seen", pa.timestamp("ms", tz=zone)), ("x", pa.float64())]
    )
    rows = [{"ts": "2024-03-05 09:00:07", "seen": "2024-03-05", "x": 1.0}]
    assert read(Stream("e", str(written(tmp_path, "csv", rows)), schema=schema))[::2] == ([AT_US], [])


@pytest.mark.parametrize("form", ["csv", "jsonl", "spool", "parquet", "delta"])
def test_a_start_and_explain_refuse_local_times_by_name(tmp_path: Path, form: str) -> None:
    rows = [{"ts": LOCAL, "seen": WITH_OFFSET, "x": 1.5}] * 40
    naive = pa.table(
        {"ts": pa.array([AT_US] * 40, pa.timestamp("us")), "seen": pa.array([AT_US] * 40, UTC), "x": [1.5] * 40}
    )
    path = tmp_path / f"e.{form}"
    if form == "parquet":
        pq.write_table(naive, path)
    elif form == "delta":
        write_deltalake(str(path), naive)
    else:
        path = written(tmp_path, form, rows)
    for refused in (
        joined(Stream("e", str(path), schema=DECLARED)).explain,
        lambda: bound_join(joined(Stream("e", str(path), schema=DECLARED))),
    ):
        with pytest.raises(SchemaDriftError, match=r"'ts' of (stream )?e .*Europe/Berlin") as caught:
            refused()
        assert "timestamp[us]" in caught.value.hint
    # The hint, followed: without a zone they are UTC.
    plain = pa.schema([field.with_type(pa.timestamp("us")) if field.name != "x" else field for field in DECLARED])
    assert "Join" in joined(Stream("e", str(path), schema=plain)).explain()


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_values_with_a_zone_of_their_own_are_read(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"e.{form}"
    table = pa.table({"ts": pa.array([AT_US], BERLIN), "seen": pa.array([AT_US], UTC), "x": [1.5]})
    (pq.write_table if form == "parquet" else lambda table, path: write_deltalake(str(path), table))(table, path)
    assert bound_join(joined(Stream("e", str(path), schema=DECLARED)))
    assert read(Stream("e", str(path), schema=DECLARED))[::2] == ([AT_US], [])


def test_a_later_file_without_a_zone_is_refused_by_name(tmp_path: Path) -> None:
    good = pa.table({"ts": pa.array([AT_US], BERLIN), "seen": pa.array([AT_US], UTC), "x": [1.5]})
    pq.write_table(good, tmp_path / "a.parquet")
    assert bound_join(joined(Stream("e", str(tmp_path), schema=DECLARED)))
    pq.write_table(good.set_column(1, "seen", pa.array([AT_US], pa.timestamp("us"))), tmp_path / "b.parquet")
    with pytest.raises(SchemaDriftError, match=r"'seen' of e in .*b\.parquet.*Europe/Berlin"):
        read(Stream("e", str(tmp_path), schema=DECLARED))


def test_lists_and_structs_of_times_need_offsets_too(tmp_path: Path) -> None:
    nested = pa.list_(pa.struct([("at", BERLIN)]))
    schema = pa.schema([("ts", UTC), ("seen", nested), ("x", pa.float64())])
    (tmp_path / "e.jsonl").write_text(
        "".join(json.dumps({"ts": LOCAL, "seen": [{"at": at}], "x": 1.0}) + "\n" for at in (WITH_OFFSET, LOCAL))
    )
    times, seen, rejects = read(Stream("e", str(tmp_path / "e.jsonl"), schema=schema))
    assert len(times) == 1
    assert seen[0][0]["at"].timestamp() == AT_US / 1e6
    assert [column for column, _ in rejects] == ["seen"]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_messages_are_as_lines_of_files(form: str) -> None:
    stream = Stream("e", "kafka://localhost:9092/t", schema=DECLARED)
    schema = pa.schema([("ts", UTC), ("seen", UTC), ("x", pa.float64())])
    good = {"ts": WITH_OFFSET, "seen": WITH_OFFSET, "x": 1.5}
    values = [text_of(form, [row]) for row in (good, good | {"ts": LOCAL}, good | {"seen": LOCAL})]
    chunk = MessageRecords(form, stream, schema, "t").chunk(messages_of(values), 0, 0)
    assert chunk.tuples.column("_ts").to_pylist() == [AT_US]
    assert [one.column for one in chunk.rejects] == ["ts", "seen"]
    assert all("with an offset" in one.reason for one in chunk.rejects)


def test_numbers_of_packed_messages_are_moments_in_any_zone() -> None:
    schema = pa.schema([("ts", BERLIN), ("x", pa.float64())])
    data = np.array([(AT_US, 1.5)], [("ts", "<i8"), ("x", "<f8")]).tobytes()
    stream = Stream("e", "kafka://localhost:9092/t?format=fixed", schema=schema)
    chunk = MessageRecords("fixed", stream, pa.schema([("ts", UTC), ("x", pa.float64())]), "t").chunk(
        messages_of([data]), 0, 0
    )
    assert chunk.tuples.column("_ts").to_pylist() == [AT_US]


@pytest.mark.parametrize(
    "local", [datetime(2024, 3, 5, 10), date(2024, 3, 5), np.datetime64("2024-03-05T10"), pd.Timestamp("2024-03-05")]
)
def test_what_is_handed_over_says_its_zone_or_is_refused(local: object) -> None:
    streams = [Stream("e", schema=DECLARED), Stream("w", schema={"ts": "timestamp", "x": "float64"})]
    at = datetime(2024, 3, 5, 9, 0, 7, tzinfo=timezone(timedelta(hours=1)))
    good = {"ts": at, "seen": at, "x": 1.0}
    for wrong in ({"ts": local}, {"seen": local}):
        engine = JoinEngine(Join(streams, [band("e.x", "w.x", 1)], "1s", select="e.seen"))
        with pytest.raises(SchemaDriftError, match="Europe/Berlin"):
            engine.push({"e": [good, good | wrong]})
        table = pa.table(
            {
                name: pa.array([value], None if name == "x" else pa.timestamp("us"))
                for name, value in {"ts": None, "seen": None, "x": 1.0}.items()
            }
        )
        with pytest.raises(SchemaDriftError, match="Europe/Berlin"):
            engine.push({"e": table})
        assert engine.push({"e": [good], "w": {"ts": datetime(2024, 3, 5, 8, 0, 7), "x": 1.0}}).num_rows == 1
        assert engine.counters["read_rows"] == {"e": 1, "w": 1}


def test_a_schema_that_is_handed_over_is_compared_with_the_declared_one() -> None:
    streams = [Stream("e", schema=DECLARED), Stream("w", schema=DECLARED)]
    there = pa.schema(
        [("ts", pa.timestamp("us")), ("seen", UTC), ("x", pa.float64())]
    )  # as of a DataFrame's TIMESTAMP_NTZ
    with pytest.raises(SchemaDriftError, match=r"'ts' of e .*Europe/Berlin"):
        bind(Join(streams, [band("e.x", "w.x", 1)], "1s"), {"e": there, "w": DECLARED})


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "delta", "handed over"])
def test_a_table_beside_streams_says_its_zone_or_is_refused(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"t.{form}"
    naive = pa.table({"since": pa.array([AT_US], pa.timestamp("us")), "x": [1.0]})
    texts = {"csv": f"since,x\n{LOCAL},1.0\n", "json": json.dumps({"since": LOCAL, "x": 1.0}) + "\n"}
    if form == "parquet":
        pq.write_table(naive, path)
    elif form == "delta":
        write_deltalake(str(path), naive)
    elif form in texts:
        path.write_text(texts[form])
    declared = {"since": "timestamp[us, tz=Europe/Berlin]", "x": "float64"}
    stream = Stream("e", "gen:sensor", schema=None if form != "handed over" else {"ts": "int64", "x": "float64"})
    table = Table("z", None if form == "handed over" else str(path), schema=declared)
    join = StreamJoin(
        [stream],
        "e.temperature = z.x" if form != "handed over" else "e.x = z.x",
        tables=[table],
        select="z.since",
    )
    if form == "handed over":
        for rows in (naive, naive.to_pylist()):
            with pytest.raises(SchemaDriftError, match=r"'since' of table z.*Europe/Berlin"):
                JoinEngine(join).use_table("z", rows)
        return
    with pytest.raises(SchemaDriftError, match=r"'since' of (table z|z in|file t\.\w+).*Europe/Berlin"):
        TableVersions(bound_join(join), str(tmp_path / "c"), 3).decided({})
