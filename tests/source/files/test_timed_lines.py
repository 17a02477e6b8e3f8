"""Files whose lines say no time: each line gets its start and so many steps, wherever the file is cut or grows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.source.files.timed_lines import Timed
from streamjoin_ds.source.stream_source import first_records, infer_schema
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.time_start import TimeStart
from tests.support.examples import examples

RATE = {"skip_lines": 2, "header": 0, "time_start": "line 1", "time_step": "line 2", "time_unit": "s"}
AT = datetime(2024, 3, 5, 9, 0, 8, tzinfo=timezone.utc)  # 1709629208


def read(path: Path, **options: Any) -> tuple[list[datetime], list[tuple[int, str]], list[str]]:
    """Return the times of a file's records, the lines and texts of its rejects, and its columns."""
    stream = Stream("e", str(path), **options)
    schema = infer_schema(stream)
    chunks = first_records(stream, schema, 1000)
    times = [ts for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
    moments = [AT + timedelta(microseconds=ts - 1_709_629_208_000_000) for ts in times]
    return moments, [(one.line, one.text) for chunk in chunks for one in chunk.rejects], schema.names


def test_a_file_says_its_start_and_its_rate_and_each_file_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1709629208.0\n4.0\n23.5\n23.6\n\nx\n24\n")
    (tmp_path / "b.csv").write_text("1709629308.0, 1709629308.0\r\n3.0, 3.0\r\n1\r\n2\r\n3")
    times, rejects, names = read(tmp_path, **RATE, schema={"v": "double"})
    quarters = [AT + timedelta(milliseconds=250 * n) for n in (0, 1, 4)]
    thirds = [AT + timedelta(seconds=100, microseconds=us) for us in (0, 333_333)]
    assert times == [*quarters, *thirds]  # the last line of the last file may still grow
    assert rejects == [(6, "2024-03-05T09:00:08.750000Z,x")]
    assert names == ["ts", "v"]


@pytest.mark.parametrize(
    ("head", "options", "step_us"),
    [
        ("", {"time_start": "2024-03-05T09:00:08Z", "time_step": "250ms", "header": 0}, 250_000),
        ("", {"time_start": "2024-03-05 10:00:08", "timezone": "Europe/Berlin", "time_step": "2 Hz", "header": 0},
         500_000),
        ("v\n", {"time_start": "1709629208", "time_unit": "s", "time_step": "1s"}, 1_000_000),
        ("# c\nv\nm/s\n",
         {"time_start": "1709629208", "time_unit": "s", "time_step": "1s", "header": 2, "comment": "#"},
         1_000_000),
        ("05/03/2024 09:00:08\n0,5;x\n", RATE | {"time_format": "%d/%m/%Y %H:%M:%S", "time_step": "line 2 s",
                                               "delimiter": ";"}, 500_000),
    ],
)  # fmt: skip
def test_a_start_and_a_step_in_any_form(tmp_path: Path, head: str, options: dict[str, Any], step_us: int) -> None:
    path = tmp_path / "e.csv"
    path.write_text(head + "".join(f"{n}\n" for n in range(5)))
    times, rejects, names = read(path, time="at", **options)
    assert times == [AT + n * timedelta(microseconds=step_us) for n in range(5)]
    assert (rejects, names[0]) == ([], "at")


@examples(60)
@given(
    st.lists(st.sampled_from(["1", "2.5", "", "# c", "x,y"]), max_size=12),
    st.fractions(min_value=Fraction(1, 1000), max_value=5000, max_denominator=1000),
    st.integers(0, 2),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.lists(st.integers(1, 9), max_size=40),
)  # fmt: skip
def test_the_text_is_that_of_the_whole_file_wherever_it_is_cut(
    lines: list[str], rate: Fraction, header: int, end: str, ends: bool, cuts: list[int]
) -> None:
    shown = f"{float(rate)!r}"
    head = ["1709629208", shown, *["v"] * header]
    data = (end.join([*head, *lines]) + end * ends).encode()
    files = Files("e.csv", skip_lines=2, header=header, comment="#")
    start = TimeStart("line 1", "line 2", lambda text: int(text) * 1_000_000)
    decoder, found, place = Timed("ts", start, files).decoder(b"", "e.csv"), b"", 0
    for cut in [*cuts, len(data)]:
        piece = data[place : place + cut]
        found += decoder.feed(piece) if piece else b""
        place += cut
    found += decoder.copy().finish()
    wanted, number = [*head[:2], *(["ts,v", *head[3:]] if header else [])], 0
    for line in lines:
        at = AT + timedelta(microseconds=int(number * Fraction(1_000_000) / Fraction(shown)))
        told = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}Z,{line}"
        wanted.append(line if not line or line.startswith("#") else told)
        number += not line.startswith("#")
    whole = end.join(wanted) + end * ends if data.count(b"\n") >= 2 else ""  # nothing before the rate's line has ended
    assert found.decode() == whole


def test_a_third_of_a_second_does_not_drift() -> None:
    start = TimeStart("line 1", "line 2", lambda text: 0)
    decoder = Timed("ts", start, Files("e.csv", skip_lines=2, header=0)).decoder(b"", "e.csv")
    text = decoder.feed(b"0\n3\n" + b"1\n" * 300_001)
    assert text.splitlines()[-1] == b"1970-01-02T03:46:40.000000Z,1"


@pytest.mark.parametrize("head", ["hello\n4\n", "1709629208\n0\n", "1709629208\nfast\n"])
def test_a_head_that_says_no_start_or_no_rate_is_refused_by_its_line(tmp_path: Path, head: str) -> None:
    (tmp_path / "e.csv").write_text(head + "1\n2\n")
    with pytest.raises(FileFormatError, match=r"line [12] is no .* e\.csv|line [12] is no") as caught:
        read(tmp_path / "e.csv", **RATE)
    assert "time_start='line 1'" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "options", "name"),
    [
        ("a.csv", {"time_step": "1s"}, "time_start"),
        ("a.csv", {"time_start": "line 1"}, "time_start"),
        ("a.csv", RATE | {"skip_lines": 1}, "time_step"),
        ("a.csv", {"time_start": "2024-01-01", "time_step": "0s"}, "time_step"),
        ("a.csv", {"time_start": "2024-01-01", "time_step": "soon"}, "time_step"),
        ("a.csv", {"time_start": ""}, "time_start"),
        ("kafka://b/t?format=json", {"time_start": "2024-01-01", "time_step": "1s"}, "time_step"),
        (None, {"time_start": "2024-01-01", "time_step": "1s"}, "time_step"),
        ("gen:sensor", {"time_start": "2024-01-01"}, "time_start"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(source: str | None, options: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("e", source, **options)
    assert caught.value.name == name


def test_numbers_count_from_a_start_in_files_and_pushes(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("t,x\n0.5,1\n1.25,2\nx,3\n-1,4\n")
    about = {"time": "t", "time_unit": "s", "time_start": "2024-03-05T09:00:08Z"}
    times, rejects, _ = read(tmp_path / "e.csv", **about)
    assert times == [AT + timedelta(seconds=s) for s in (0.5, 1.25, -1)]
    assert [line for line, _ in rejects] == [4]
    streams = [Stream("e", schema={"t": "double"}, **about), Stream("w", schema={"ts": "timestamp[us, tz=UTC]"})]
    other = pa.table({"ts": pa.array([AT + timedelta(seconds=0.5)], pa.timestamp("us", tz="UTC"))})
    for rows in ([{"t": 0.5}], pa.table({"t": [0.5]})):
        assert JoinEngine(Join(streams, [], "0s")).push({"e": rows, "w": other}).num_rows == 1
    whole = Stream("e", schema={"t": "int64"}, **about)
    assert JoinEngine(Join([whole, streams[1]], [], "1s")).push({"e": {"t": 1}, "w": other}).num_rows == 1


def test_facts_keep_the_start_and_the_step() -> None:
    stream = Stream("e", "a.csv", **RATE, schema={"v": "double"})
    assert Stream.from_facts(stream.to_facts()) == stream
    assert not {"time_start", "time_step"} & Stream("e", "a.csv").to_facts().keys()
