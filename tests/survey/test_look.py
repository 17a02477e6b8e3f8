"""`look` proposes what works, with the right times, for inputs as people have them; what it cannot know is a guess."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from datetime import datetime, timedelta, timezone
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import DeltaRows, JoinEngine, Stream, look
from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.request.join_keys import read_join_file
from streamjoin_ds.request.request import described_streams, request_of, source_of
from streamjoin_ds.script.reader import statements
from streamjoin_ds.script.script import Script
from streamjoin_ds.script.sql_options import stream_facts
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.spool.writer import SpoolWriter
from streamjoin_ds.survey.dialect import dialect_of, text_kind
from streamjoin_ds.survey.survey import Survey, survey_of
from tests.source.delta.test_results_feed import SOME, commit
from tests.support.examples import examples
from tests.support.topics import fake_topics
from tests.survey.inputs import INPUTS, NINE, Input


@pytest.mark.parametrize("one", INPUTS, ids=lambda one: one.name)
def test_the_proposal_gives_the_right_times(one: Input, tmp_path: Path) -> None:
    found = look(str(one.write(tmp_path))).surveys[0]
    assert found.stream is not None, found.remarks
    times = [row["event time"] for row in found.first]
    assert times[: len(one.times)] == list(one.times[: len(times)])
    assert found.guesses or not one.guessed


@pytest.mark.parametrize("one", [one for one in INPUTS if isinstance(one.content, bytes)], ids=lambda one: one.name)
def test_each_form_of_the_stanza_is_the_proposal(one: Input, tmp_path: Path) -> None:
    found = look(Stream("e", str(one.write(tmp_path)))).surveys[0]
    _same_in_each_form(found, tmp_path)


@pytest.mark.parametrize(
    ("texts", "values", "options"),
    [
        (("1.234,56", "2.345,67"), [1234.56, 2345.67], {"decimal": ",", "thousands": "."}),
        (("1.234,56", "987,65"), [1234.56, 987.65], {"decimal": ",", "thousands": "."}),
        (("-0,5", "12.345.678,9"), [-0.5, 12345678.9], {"decimal": ",", "thousands": "."}),
        (("1.234.567", "12.345"), [1234567, 12345], {"decimal": ",", "thousands": "."}),
        (("1,234,567", "12,345"), [1234567, 12345], {"thousands": ","}),
        (("1,234.5", "987.6"), [1234.5, 987.6], {"thousands": ","}),
        (("1'234.5", "987.6"), [1234.5, 987.6], {"thousands": "'"}),
        (("1 234,5", "987,6"), [1234.5, 987.6], {"decimal": ",", "thousands": "space"}),
        (("1234,5", "987,6"), [1234.5, 987.6], {"decimal": ","}),
        (("1.5", "2.25"), [1.5, 2.25], {}),
    ],
)
def test_signs_of_numbers_are_told_by_all_values_of_a_column(
    tmp_path: Path, texts: tuple[str, str], values: list[float], options: dict[str, str]
) -> None:
    lines = [f"2024-03-05T09:00:{second:02}Z;{texts[second % 2]}" for second in range(20)]
    (tmp_path / "e.csv").write_text("\n".join(["ts;x", *lines, ""]))
    found = look(str(tmp_path / "e.csv")).surveys[0]
    assert [row["x"] for row in found.first[:2]] == values
    assert {name: found.options.get(name) for name in ("decimal", "thousands")} == {
        "decimal": None,
        "thousands": None,
    } | options


def test_a_point_that_groups_digits_beside_decimal_commas_is_a_guess(tmp_path: Path) -> None:
    lines = [f"2024-03-05T09:00:{second:02}Z;1.{second:03};{second},5" for second in range(20)]
    (tmp_path / "e.csv").write_text("\n".join(["ts;x;y", *lines, ""]))
    found = look(str(tmp_path / "e.csv")).surveys[0]
    assert [(row["x"], row["y"]) for row in found.first[:2]] == [(1000, 0.5), (1001, 1.5)]
    assert any("groups digits" in guess for guess in found.guesses)


def test_texts_without_a_year_take_the_last_one_that_is_not_to_come(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("ts,x\nDec 30 09:00:07,1\nDec 31 09:00:07,2\nJan  1 09:00:07,3\n")
    now_us = int(datetime(2025, 6, 1, tzinfo=timezone.utc).timestamp() * 1e6)
    found = survey_of(Stream("e", str(tmp_path / "e.csv")), {}, now_us=now_us)
    assert [row["event time"] for row in found.first][2] == "2024-01-01T09:00:07Z"
    assert any("says no year" in guess for guess in found.guesses)
    assert any("New Year's Eve" in guess for guess in found.guesses)


def test_a_value_above_twelve_decides_and_none_is_a_guess(tmp_path: Path) -> None:
    sure, unsure = tmp_path / "sure.csv", tmp_path / "unsure.csv"
    sure.write_text("at,x\n05/03/2024 09:00:07 +0000,1\n25/03/2024 09:00:07 +0000,1\n")
    unsure.write_text("at,x\n05/03/2024 09:00:07 +0000,1\n06/03/2024 09:00:07 +0000,1\n")
    one, other = look(str(sure), str(unsure)).surveys
    assert not one.guesses
    assert "%m/%d/%Y" in str(other.guesses)


def test_delays_are_told_by_the_share_of_late_records(tmp_path: Path) -> None:
    times = [f"2024-03-05T09:{minute:02}:{second:02}Z" for minute in range(30) for second in (20, 0, 40)]
    path = tmp_path / "late.csv"
    path.write_text("ts,x\n" + "".join(f"{time},1\n" for time in times))
    found = look(str(path)).surveys[0]
    late = dict(found.order.late)
    assert late[0] == pytest.approx(1 / 3)
    assert late[60_000_000] == 0
    assert found.options["delay"] == "20s"


def test_json_holds_what_the_text_does(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,x\n2024-03-05T09:00:07Z,1\n2024-03-05T09:00:17Z,2\n")
    done = CliRunner().invoke(group, ["look", str(path), "--format", "json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["sources"]
    assert found["works"]
    assert found["times"]["rate"] == pytest.approx(0.1)
    text = CliRunner().invoke(group, ["look", str(path)]).stdout
    assert f'source = "{path}"' in text
    assert "x: int64, 1 .. 2" in text


def test_what_is_known_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("made,read,x\n2024-03-05T09:00:07Z,2024-03-05T09:01:07Z,1\n")
    done = CliRunner().invoke(group, ["look", f"r={path}?time=read"])
    assert "[streams.r]" in done.stdout
    assert 'time = "read"' in done.stdout
    assert "tuples      2024-03-05T09:01:07Z  made=2024-03-05T09:00:07Z, x=1" in done.stdout


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["look", str(tmp_path / "none.csv")])
    assert done.exit_code == 2
    assert "is not there" in done.stderr


@pytest.mark.parametrize("one", [one for one in INPUTS if isinstance(one.content, bytes)], ids=lambda one: one.name)
def test_delimiters_are_those_that_duckdb_finds(one: Input, tmp_path: Path) -> None:
    """Where DuckDB's sniffer finds several columns, they are cut at the same places."""
    text = one.content.decode("utf-8", "replace")
    if text_kind(text) != "csv" or one.name in NOT_OF_DUCKDB:
        pytest.skip("no lines of fields, or DuckDB takes it for something else")
    path = str(one.write(tmp_path))
    (delimiter, columns) = (
        duckdb.connect().execute("SELECT Delimiter, len(Columns) FROM sniff_csv(?)", [path]).fetchone()
    )
    found = dialect_of(text)
    if columns > 1:
        assert found.options.get("delimiter", ",").replace("tab", "\t").replace("space", " ") == delimiter


# DuckDB cuts these at the comma of a fraction, takes a delimiter at the end for none, or does not know their encoding.
NOT_OF_DUCKDB = {"german.csv", "trailing.csv", "wide.csv", "latin.csv"}


# How times are written, one way in a file; and what other columns hold, a value drawn for each line.
TIMES = [
    "2024-03-05 09:00:{:02}",
    "2024-03-05T09:00:{:02}Z",
    "05/03/2024 09:00:{:02}",
    "05.03.2024 09:00:{:02},120",
    "Mar 5, 2024 09:00:{:02}",
    "Tue, 05 Mar 2024 09:00:{:02} GMT",
    "20240305T0900{:02}",
    "1709629207{:02}.5",
]
FIELDS = {
    "temp (C)": st.floats(-50, 50).map("{:.2f}".format),
    "count": st.integers(0, 999).map(str),
    "tmpf": st.sampled_from(["M", "T", "41.0", "7.5"]),  # with words for what is missing
    "station": st.sampled_from(["JFK", "LGA", "pump 2 on"]),
    "alarm": st.sampled_from(["", "3"]),
}


@examples(300)
@given(st.data(), st.sampled_from(",;\t|"), st.sampled_from(TIMES), st.booleans())
def test_any_delimiter_and_header_is_told(data: st.DataObject, delimiter: str, time: str, has_names: bool) -> None:
    names = data.draw(st.lists(st.sampled_from([*FIELDS]), min_size=1, unique=True))
    names.insert(data.draw(st.integers(0, len(names))), "time")
    rows = [
        [time.format(second) if name == "time" else data.draw(FIELDS[name]) for name in names]
        for second in range(data.draw(st.integers(2, 6)))
    ]
    written = io.StringIO()
    csv.writer(written, delimiter=delimiter).writerows([names, *rows] if has_names else rows)
    found = dialect_of(written.getvalue())
    assert found.options.get("delimiter", ",").replace("tab", "\t") == delimiter
    assert [*found.columns][: len(names)] == names if has_names else found.options["header"] == 0


FORMS = [
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M:%S+00:00",
    "%Y/%m/%d %H:%M:%S",
    "%Y-%m-%d %I:%M:%S %p",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%m-%d-%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%H:%M:%S %d/%m/%Y",
    "%d-%b-%Y %H:%M:%S",
    "%d %B %Y %H:%M:%S",
    "%b %d, %Y %H:%M:%S",
    "%A, %B %d, %Y %H:%M:%S",
    "%d/%b/%Y:%H:%M:%S +0000",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a %b %d %H:%M:%S UTC %Y",
    "%Y%m%d%H%M%S",
    "%Y%m%dT%H%M%S",
    "%Y-%j %H:%M:%S",
    "%s",
]
# Numbers that may pass for times, or for parts of them.
BESIDE = {"id": 10_000, "serial": 1_650_399_948, "count": 0, "hour": 16, "year": 2024}


@examples(80)
@given(
    form=st.sampled_from(FORMS),
    begin=st.datetimes(datetime(2005, 1, 1), datetime(2026, 6, 1)),
    step_s=st.sampled_from([1, 10, 60, 3600, 432_000]),
    rows=st.integers(3, 9),
    beside=st.lists(st.sampled_from([*BESIDE]), min_size=1, unique=True),
)
def test_any_form_of_a_time_is_told_or_is_a_guess(
    form: str, begin: datetime, step_s: int, rows: int, beside: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = sorted(["Time", *beside])
    times = [begin.replace(microsecond=0, tzinfo=timezone.utc) + timedelta(seconds=step_s * n) for n in range(rows)]
    shown = [str(int(time.timestamp())) if form == "%s" else time.strftime(form) for time in times]
    path = tmp_path_factory.mktemp("look") / "a.csv"
    with path.open("w", newline="") as file:
        fields = [[shown[n] if name == "Time" else BESIDE[name] + n for name in names] for n in range(rows)]
        csv.writer(file).writerows([names, *fields])
    found = look(str(path)).surveys[0]
    assert found.stream is not None, found.remarks
    right = [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in times]
    told = [row["event time"] for row in found.first]
    assert told == right[: len(told)] or found.guesses
    assert "Time" in str(found.stream.time)


def test_the_report_has_no_password() -> None:
    found = look("gen:band2d?side=r&rate=100").surveys[0]
    assert found.stream is not None
    assert re.search(r"\[streams\.e\]", str(look(found.stream)))


def _written(path: Path, names: str, rows: list[tuple[object, ...]]) -> Path:
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_two_sources_are_compared_by_like_names_in_like_units(tmp_path: Path) -> None:
    at = [f"2024-03-05T09:{minute:02}:00Z" for minute in range(30)]
    one = _written(tmp_path / "one.csv", "ts,alt_ft,dev", [(t, 1000 + 10 * n, f"d{n % 3}") for n, t in enumerate(at)])
    other = _written(
        tmp_path / "two.csv", "ts,altitude_m,device", [(t, 305 + 3 * n, f"d{n % 3}") for n, t in enumerate(at)]
    )
    found = look(str(one), str(other))
    (pair,) = found.pairs
    conditions = [condition for condition, _ in pair.compared]
    assert "abs((e.alt_ft * 0.3048) - w.altitude_m) <= 1" in conditions
    assert "e.dev = w.device" in conditions
    assert "overlap for 29m" in pair.times
    toml = tmp_path / "join.toml"
    toml.write_text(pair.stanza["TOML"])
    request = request_of(toml, {})
    (asked,) = Script(pair.stanza["SQL"]).checked(Script(pair.stanza["SQL"]).steps, None)
    assert asked.request.join.predicates == request.join.predicates
    assert request.join.window == asked.request.join.window
    assert JoinEngine(request.join) is not None


def test_numbers_that_tell_things_apart_are_equal_and_never_near(tmp_path: Path) -> None:
    at = [f"2024-03-05T09:{minute:02}:00Z" for minute in range(30)]
    one = _written(tmp_path / "one.csv", "ts,machineID,speed", [(t, n % 4, n / 7) for n, t in enumerate(at)])
    two = _written(tmp_path / "two.csv", "ts,machine,velocity", [(t, n % 5, n / 9) for n, t in enumerate(at)])
    (pair,) = look(str(one), str(two)).pairs
    assert {condition for condition, _ in pair.compared} == {
        "e.machineID = w.machine",
        "abs(e.speed - w.velocity) <= 0.05",
    }
    assert "e.machineID = w.machine" in pair.stanza["SQL"]


def test_times_whole_hours_apart_are_told(tmp_path: Path) -> None:
    utc = _written(tmp_path / "utc.csv", "ts,x", [(f"2024-03-05T08:{n:02}:00Z", n) for n in range(30)])
    local = _written(tmp_path / "local.csv", "ts,x", [(f"2024-03-05 09:{n:02}:00", n) for n in range(30)])
    (pair,) = look(str(utc), str(local)).pairs
    assert "local times" in pair.times


def test_messages_are_told_by_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = fake_topics(monkeypatch, j=1, c=1, a=1)
    for second in range(30):
        topics.logs["j"][0].append(json.dumps({"at": f"2024-03-05T09:00:{second:02}Z", "x": second}).encode())
        topics.logs["c"][0].append(f"2024-03-05T09:00:{second:02}Z;{second}".encode())
        topics.logs["a"][0].append(b"\0\0\0\0\x07" + bytes([second]))
    of_json, of_csv, of_avro = look(*(f"kafka://broker:9092/{name}" for name in "jca")).surveys
    assert of_json.location.endswith("?format=json")
    assert of_json.options["time"] == "at"
    assert of_csv.location.endswith("?format=csv")
    assert of_csv.options["delimiter"] == ";"
    for found in (of_json, of_csv):
        assert found.first[0]["event time"] == "2024-03-05T09:00:00Z"
        assert found.tuples == 30
    assert of_avro.stream is None
    assert "registry=URL" in str(of_avro.remarks)


def test_records_within_messages_are_found_in_topics_and_spools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is proposed for messages is what is proposed for a file of them."""
    topics = fake_topics(monkeypatch, values=1, packs=1, lines=1)
    at = 1709629207
    sent = {
        "values": [json.dumps({"s": 1, "values": [{"t": at + n, "v": n}, {"t": at + n, "v": 1.5}]}) for n in range(5)],
        "packs": [json.dumps([{"bn": "d", "bt": at + n, "v": 1.5}, {"n": "x", "v": n}]) for n in range(5)],
        "lines": [f"m,a=b x={n} {at + n}000000000\nm x=1i {at + n}000000000" for n in range(5)],
    }
    wanted = {"values": {"records": "values"}, "packs": {"records": "senml"}, "lines": {}}
    for name, messages in sent.items():
        with SpoolWriter(tmp_path / name) as writer:
            writer.append([(b"t", one.encode()) for one in messages])
        for one in messages:
            topics.logs[name][0].append(one.encode())
        for source, records in (
            (f"kafka://broker:9092/{name}", wanted[name]),
            (str(tmp_path / name), wanted[name] or {"records": "influx"}),
        ):
            found = look(source).surveys[0]
            assert found.stream is not None, found.remarks
            assert records.items() <= found.options.items()
            assert (found.first[0]["event time"], found.tuples) == (NINE, 10)


def test_a_spool_is_read_as_its_messages_are_laid_out(tmp_path: Path) -> None:
    messages = [{"params": {"v": [n]}, "ts": 1709629207 + n} for n in range(5)]
    with SpoolWriter(tmp_path / "spool") as writer:
        writer.append([(b"t", json.dumps(one).encode()) for one in messages])
    found = look(str(tmp_path / "spool")).surveys[0]
    assert found.options == {"time_unit": "s"}
    assert found.first[0]["event time"] == NINE


def test_rows_in_memory_are_looked_at_too() -> None:
    table = pa.table({"when": ["25/03/2024 09:00:07", "26/03/2024 09:00:07"], "x": [1.5, 2.5]})
    for rows in (table, table.to_pandas()):
        found = look(rows).surveys[0]
        assert [row["event time"] for row in found.first] == ["2024-03-25T09:00:07Z", "2024-03-26T09:00:07Z"]
        assert found.options == {"time": "when", "time_format": "%d/%m/%Y %H:%M:%S"}


def _same_in_each_form(found: Survey, folder: Path) -> None:
    """Check that each form of the stanza is the proposal."""
    stanza = look(found.stream).to_facts()["sources"][0]["stanza"]
    toml = folder / "join.toml"
    toml.write_text(stanza["TOML"])
    (of_toml,) = described_streams(read_join_file(toml)["streams"], {}, {})
    name, keys = source_of(shlex.split(stanza["command line"])[1], STREAM_KEYS, "stream")
    (of_flag,) = described_streams({name: keys}, {}, {})
    of_python = eval(stanza["Python"], {"Stream": Stream})
    text = SqlText(stanza["SQL"])
    (made,) = statements(text)
    (of_sql,) = described_streams({made.name: stream_facts(text, made)}, {}, {})
    assert of_toml == of_flag == of_python == of_sql == found.stream


def test_devices_and_files_have_orders_of_their_own(tmp_path: Path) -> None:
    rows = [
        (f"2024-03-05T09:{minute:02}:{second:02}Z", device, minute)
        for minute in range(20)
        for device, second in (("a", 50), ("b", 20))
    ]
    mixed = _written(tmp_path / "mixed.csv", "ts,device,x", rows)
    (tmp_path / "files").mkdir()
    for device in ("a", "b"):
        own = [row for row in rows if row[1] == device]
        _written(tmp_path / "files" / f"{device}.csv", "ts,device,x", own)
    by_device, by_file = look(str(mixed), str(tmp_path / "files")).surveys
    assert by_device.options == {"partition_by": "device"}
    assert by_file.options == {"partition_by": "file"}
    for found in (by_device, by_file):
        assert not found.order.late[0][1]
        assert found.tuples == 40


ODD = {
    "empty.csv": b"",
    "blank.csv": b"\n\n\n",
    "header.csv": b"ts,x\n",
    "word.csv": b"hello",
    "bytes.bin": bytes(range(256)) * 20,
    "zeros.csv": b"\0" * 3000,
    "quote.csv": b'ts,x\n"2024-03-05T09:00:07Z,1\n2024-03-05T09:00:08Z,2\n',
    "long.csv": b"ts,x\n" + b"a" * 200_000 + b"\n",
    "array.json": b"[]",
    "object.json": b"{}",
    "deep.json": b"[" * 5000,
    "numbers.json": b"1\n2\n3\n",
    "cut.parquet": b"PAR1 and no more",
    "plain.csv.gz": b"no gzip",
    "far.csv": b"ts,x\n9999999999999999999,1\n9999999999999999999,1\n",
    "words.csv": b"a,b\nx,y\nz,w\n",
    "years.csv": b"year,x\n2023,1\n2024,2\n",
}


@pytest.mark.parametrize("name", ODD)
def test_what_has_no_times_has_no_proposal(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ODD[name])
    done = CliRunner().invoke(group, ["look", str(tmp_path / name)])
    assert done.exit_code in (0, 2), done.exception
    assert "[streams" not in done.stdout
    assert done.exit_code == 2 or "no proposal" in done.stdout


FOREIGN = {
    "book.csv": b"PK\x03\x04\x14\0\x06\0[Content_Types].xml",
    "track.json": b'<?xml version="1.0"?>\n<gpx/>',
    "page.csv": b"<!DOCTYPE html><html>Sign in</html>",
    "x.csv": b"\x89HDF\r\n\x1a\n",
    "x.parquet.csv": b"SQLite format 3\0",
    "walk.json": b"\x0e\x10\xd9\x07\0\0\0\0.FIT",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_not_read_is_named_as_what_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FOREIGN[name])
    for read in (look, lambda path: infer_schema(Stream("e", path))):
        with pytest.raises(FileFormatError, match="which is not read") as caught:
            read(path)
        assert "start(frames=...)" in str(caught.value)


@pytest.mark.parametrize("name", ["a.xlsx", "a.GPX", "a.nc", "a.mf4"])
def test_a_name_that_no_format_has_says_what_makes_lines_of_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"?")
    with pytest.raises(FileFormatError, match="which is not read"):
        infer_schema(Stream("e", tmp_path / name))


def test_days_alone_are_a_guess(tmp_path: Path) -> None:
    path = _written(tmp_path / "days.csv", "date,x", [("2024-03-05", 1), ("2024-03-06", 2)])
    assert "days alone" in str(look(str(path)).surveys[0].guesses)


def test_delta_tables_are_looked_at_by_the_columns_that_they_have(tmp_path: Path) -> None:
    at = pa.array([1_709_629_207_000_000, 1_709_629_217_000_000], pa.timestamp("us", tz="UTC"))
    deltalake.write_deltalake(str(tmp_path / "plain"), pa.table({"read_at": at, "x": [1.5, 2.5]}))
    texts = pa.array(["25/03/2024 09:00:07", "26/03/2024 09:00:07"])
    deltalake.write_deltalake(str(tmp_path / "texts"), pa.table({"read_at": texts, "x": [1.5, 2.5]}))
    plain, written = look(str(tmp_path / "plain"), str(tmp_path / "texts")).surveys
    assert plain.options == {"time": "read_at"}
    assert plain.first[0]["event time"] == NINE
    assert written.options["time_format"] == "%d/%m/%Y %H:%M:%S"
    assert written.first[0]["event time"] == "2024-03-25T09:00:07Z"


def test_the_matches_of_a_join_are_told_apart_from_other_tables(tmp_path: Path) -> None:
    commit(tmp_path, SOME, 10, 0)
    assert look(str(tmp_path)).surveys[0].options == {"time": "event_time", "format": "results"}
    as_versions = look(DeltaRows(str(tmp_path))).surveys[0].options
    assert (as_versions["time"], as_versions["format"]) == ("event_time", "delta")


def test_json_in_the_frame_of_a_registry_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = fake_topics(monkeypatch, j=1)
    for second in range(3):
        topics.logs["j"][0].append(b"\0\0\0\0\x07" + json.dumps({"x": second}).encode())
    found = look("kafka://broker:9092/j").surveys[0]
    assert "give registry=URL, and format=json" in str(found.remarks)


def test_which_of_two_columns_of_times_is_meant_is_a_guess(tmp_path: Path) -> None:
    rows = [(f"2024-03-05T09:00:{n:02}Z", f"2024-03-05T09:01:{n:02}Z", -9999 if n == 3 else n) for n in range(9)]
    found = look(str(_written(tmp_path / "two.csv", "measured_at,sent_at,x", rows))).surveys[0]
    assert found.options == {"time": "measured_at"}
    assert "sent_at can be read as times too" in str(found.guesses)
    assert "-9999" in str(found.remarks)
