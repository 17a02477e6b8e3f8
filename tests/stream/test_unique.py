"""Duplicates (`Stream.unique`) through source, exchange, cells and commit (`MicroBatches`), beside the contract."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.errors import ArgumentError, FileMissingError, FingerprintMismatchError, OffsetError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source import repeats
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.position import Waypoint, first_needed, next_waypoints
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.stream.dataframe import check_frames
from streamjoin_ds.testing.arrivals import duplicate_rows, filtered_rows, late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.examples import examples
from tests.support.microbatch import MicroBatches

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
SCHEMA = {"ts": "timestamp[us, tz=UTC]", "x": "int64", "device": "string", "counter": "double"}
COUNTS = ("read", "stored", "late", "rejected", "filtered", "duplicates")


def row(second: int, x: int = 0, device: str | None = "a", counter: float | None = 1.0) -> dict[str, Any]:
    return {"ts": START + datetime.timedelta(seconds=second), "x": x, "device": device, "counter": counter}


def line(one: dict[str, Any]) -> str:
    if one["ts"] is None:
        return "soon,0,a,1"
    if one["x"] is None:
        return f"{one['ts'].isoformat()},wide,a,1"
    return ",".join("" if value is None else str(value) for value in (one["ts"].isoformat(), *list(one.values())[1:]))


def written(folder: Path, name: str, records: list[dict[str, Any]]) -> str:
    path = folder / f"{name}.csv"
    path.write_text("ts,x,device,counter\n" + "".join(f"{line(one)}\n" for one in records))
    return str(path)


def tuples_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records for the oracle: one that is broken in any column is no tuple."""
    return [one if one["x"] is not None else {**one, "ts": None} for one in records]


def broken_column(one: dict[str, Any]) -> str | None:
    """Return the column that makes a record no tuple."""
    return next((name for name in ("ts", "x") if one[name] is None), None)


@st.composite
def streams_of_records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return records. At least one is a tuple, or they break in two columns: all else is another type, and refused."""
    second, records = 0, []
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from("nnnnnnrrrbtj"))
        if kind == "r" and records:  # delivered again, a little later
            records.append(records[-draw(st.integers(1, min(len(records), 12)))])
            continue
        second += draw(st.sampled_from((0, 1, 1, 4)))
        if kind == "t":
            records.append({**row(second), "ts": None})
            continue
        value = draw(st.sampled_from((1.0, 2.0, 0.0, -0.0, None, float("nan"))))
        one = row(second - draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.sampled_from("abc")), value)
        if (
            kind == "b"
        ):  # broken in another column, with a time of its own: it is no tuple, and moves no clock of tuples
            one = {**one, "x": None, "ts": one["ts"] + datetime.timedelta(seconds=draw(st.sampled_from((0, 5, 40))))}
        if kind == "j":
            second += 10
        records.append(one)
    # A file whose first records are all broken in one column is refused, whichever of them a batch takes.
    if len(columns := {broken_column(one) for one in records[:3]}) == 1 and None not in columns:
        records.insert(0, row(0))
    return records


@pytest.mark.slow
@given(
    st.tuples(streams_of_records(), streams_of_records()),
    st.sampled_from(("1x1", "2x1", "1x2")),
    st.sampled_from((1, 3, 7, 1_000)),
    st.sampled_from(("0s", "1s", "3s")),
    st.sampled_from((None, "x < 2")),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
@examples(24)
def test_batches_layouts_and_restarts_change_no_row(
    records: tuple[list[dict[str, Any]], ...],
    layout: str,
    batch_rows: int,
    delay: str,
    where: str | None,
    forgets: list[bool],
) -> None:
    """`forgets` says after which batches the worker is a new one, which has no keys."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        streams = [
            Stream(n, written(folder, n, own), delay=delay, schema=SCHEMA, where=where, unique=unique)
            for n, own, unique in zip("ew", records, ("device,counter", ["counter"]), strict=True)
        ]
        join = Join(streams, "abs(e.x - w.x) <= 1", "2s", ["e.x", "w.x"])
        schemas = {stream.name: stream.schema for stream in streams}
        run = MicroBatches(bind(join, schemas), folder, Layout.parse(layout, 2), "packed", batch_rows)
        run.reader.prepareForTriggerAvailableNow()
        repeats.kept_keys.clear()
        for step in range(1_000):
            if not run.step():
                break
            if forgets[step % len(forgets)]:
                repeats.kept_keys.clear()
        rows = {n: tuples_of(own) for n, own in zip("ew", records, strict=True)}
        expected = Counter((one["e_seq"], one["w_seq"]) for one in oracle_join(join, rows))
        if not any(records):
            return
        found = run.matches()
        assert Counter(zip(found["e_seq"].to_pylist(), found["w_seq"].to_pylist(), strict=True)) == expected
        ledger = run.companion("ledger").to_pylist()
        for n, own in rows.items():
            sums = {what: sum(one[what] for one in ledger if one["stream"] == n) for what in COUNTS}
            assert sums["duplicates"] == len(duplicate_rows(join, n, own))
            assert sums["late"] == len(late_rows(join, n, own))
            assert sums["filtered"] == len(filtered_rows(join, n, own))
            assert sums["read"] == len(own) == sum(sums[what] for what in COUNTS[1:])


def run_over(folder: Path, source: str, batch_rows: int, window: str = "2s") -> MicroBatches:
    """Return a run of a stream with a key beside a stream with one tuple."""
    streams = [
        Stream("e", source, schema=SCHEMA, unique="device,counter", delay="1s"),
        Stream("w", written(folder, "w", [row(0)]), schema=SCHEMA),
    ]
    bound = bind(Join(streams, "abs(e.x - w.x) <= 1", window), {stream.name: stream.schema for stream in streams})
    repeats.kept_keys.clear()
    run = MicroBatches(bound, folder, Layout.parse("1x1", 2), "packed", batch_rows)
    run.reader.prepareForTriggerAvailableNow()
    return run


def test_a_restart_reads_back_no_further_than_it_must(tmp_path: Path) -> None:
    """The span is 4 s and the delay 1 s: of 60 records, one a second, some ten still count."""
    run = run_over(tmp_path, written(tmp_path, "e", [row(second, counter=float(second)) for second in range(60)]), 4)
    while run.step():
        pass
    waypoints, none = BatchPlan.from_offset(run.offset, ["e", "w"]).waypoints
    assert not none
    assert 45 < waypoints[0].position["seq"] < 55
    assert len(waypoints) <= 10
    assert run.offset["version"] == 11  # 10, but that its blocks are of another size than usual


def test_a_file_that_is_gone_while_its_keys_still_count_is_missed_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    folder.mkdir()
    for number in range(3):
        written(folder, f"{number}", [row(3 * number + second, counter=float(number)) for second in range(3)])
    run = run_over(tmp_path, str(folder), 4, "1m")
    assert run.step()
    assert run.step()
    repeats.kept_keys.clear()
    (folder / "0.csv").unlink()
    with pytest.raises(FileMissingError, match=r"0\.csv"):
        run.step()


def test_waypoints_are_few_and_early_enough() -> None:
    waypoints: tuple[Waypoint, ...] = ()
    for batch in range(1_000):
        waypoints = next_waypoints(waypoints, {"seq": batch}, batch or None, batch + 1, 80)
        first = first_needed(waypoints, batch + 1, 80)
        assert len(waypoints) <= 10
        if batch > 100:
            assert first is not None
            assert batch + 1 - 80 - 15 < first.time_us < batch + 1 - 80
    assert first_needed((), 5, 1) is None
    assert next_waypoints((), {"seq": 0}, None, None, 1) == ()


@pytest.mark.parametrize("broken", [3, {"e": 3}, {"e": [[1]]}, {"e": [["1", {}]]}, {"x": []}])
def test_malformed_waypoints_are_refused_by_name(broken: object) -> None:
    planned = BatchPlan(("e",), ({"seq": 3},), waypoints=((Waypoint(7, {"seq": 1}),),))
    assert BatchPlan.from_offset(planned.to_offset(), ["e"]) == planned
    with pytest.raises(OffsetError, match="waypoints"):
        BatchPlan.from_offset({**planned.to_offset(), "waypoints": broken}, ["e"])


def test_what_a_start_refuses_is_named(tmp_path: Path) -> None:
    streams = [Stream(name, schema=SCHEMA, unique=unique) for name, unique in (("e", "device"), ("w", None))]
    join = Join(streams, "abs(e.x - w.x) <= 1", "2s")
    schemas = {stream.name: stream.schema for stream in streams}
    bound = bind(join, schemas)
    other = bind(join.with_streams([Stream("e", schema=SCHEMA, unique="counter"), streams[1]]), schemas)
    identity = CheckpointIdentity.create(tmp_path / "checkpoint", bound, Layout.parse("1x1", 2), 1)
    identity.check(bound)
    with pytest.raises(FingerprintMismatchError, match="unique of e"):
        identity.check(other)
    with pytest.raises(ArgumentError, match="has unique, which needs an order"):
        check_frames(join, {})
