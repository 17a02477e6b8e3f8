"""Line protocol and annotated CSV of InfluxDB, and Prometheus' text: records, rejects, numbers of lines, any cut."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, band
from streamjoin_ds.source.files.metric_lines import Influx, Prometheus
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Join, bind
from tests.source.feeds import pack, steps
from tests.support.examples import examples

AT = 1_709_629_207_120_000_000
GOOD: list[tuple[str, dict[str, Any]]] = [
    (
        f"weather,station=a temp=19.18,hum=40i {AT}",
        {"measurement": "weather", "station": "a", "temp": 19.18, "hum": 40, "time": AT},
    ),
    (f"weather temp=20 {AT}", {"measurement": "weather", "temp": 20.0, "time": AT}),
    (
        rf'my\ weather\,x,the\ tag=a\=b\,c f\ 1="a \"b\" \\ c, d=e",ok=t,no=FALSE,u=7u {AT}',
        {"measurement": "my weather,x", "the tag": "a=b,c", "f 1": 'a "b" \\ c, d=e', "ok": True, "no": False, "u": 7}
        | {"time": AT},
    ),
    (f"m x=-1.5e3,y=.5,z=2.,w=+3 {AT}", {"measurement": "m", "x": -1500.0, "y": 0.5, "z": 2.0, "w": 3.0, "time": AT}),
    ("m x=1i -7", {"measurement": "m", "x": 1, "time": -7}),
    ("m x=1i", {"measurement": "m", "x": 1}),
    (f"wetter,ort=Köln grad=1i {AT}", {"measurement": "wetter", "ort": "Köln", "grad": 1, "time": AT}),
]
BAD = ["m", "m x", f"m x= {AT}", f"m x=1.2.3 {AT}", f"m,a x=1 {AT}", "m x=1 soon", f'm x="open {AT}', f"m,x=a x=1 {AT}"]
SAMPLES: list[tuple[str, dict[str, Any]]] = [
    (
        'http_requests{code="200",path="/a b\\"c\\\\d"} 10 1709629207120',
        {"metric": "http_requests", "code": "200", "path": '/a b"c\\d', "value": 10.0, "time": 1709629207120},
    ),
    ("up 1", {"metric": "up", "value": 1.0}),
    ("node:cpu { } 1.5e-3 7", {"metric": "node:cpu", "value": 0.0015, "time": 7}),
    ('a{b="c",} 1 1709629207.5 # {x="y"} 2', {"metric": "a", "b": "c", "value": 1.0, "time": 1709629207.5}),
]


def canonical(decoding: Any, data: bytes, cuts: list[int]) -> bytes:
    decoder = decoding.decoder(data[:64], "f")
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    text = b""
    for low, high in pairwise(places):
        text += decoder.copy().feed(data[low:high])
        decoder.feed(data[low:high])
    return text + decoder.finish()


@pytest.mark.parametrize(("line", "wanted"), GOOD)
def test_line_protocol(line: str, wanted: dict[str, Any]) -> None:
    text = canonical(Influx(), f"{line}\r\n# note\n\n{line}".encode(), [])
    lines = text.split(b"\n")
    assert [json.loads(one) for one in (lines[0], lines[3])] == [wanted, wanted]
    assert lines[1:3] == [b"", b""]
    kinds = {name: type(value) for name, value in json.loads(lines[0]).items()}
    assert kinds == {name: type(value) for name, value in wanted.items()}


@pytest.mark.parametrize("line", BAD)
def test_what_is_no_line_stays_as_it_is(line: str) -> None:
    assert canonical(Influx(), f"{line}\n".encode(), []) == f"{line}\n".encode()


@pytest.mark.parametrize(("line", "wanted"), SAMPLES)
def test_prometheus(line: str, wanted: dict[str, Any]) -> None:
    assert json.loads(canonical(Prometheus(), f"# HELP x\n{line}\n".encode(), []).split(b"\n")[1]) == wanted


def test_prometheus_has_numbers_that_are_none() -> None:
    text = canonical(Prometheus(), b"a NaN 1\na +Inf 1\na -Inf 1\na x 1\n", [])
    assert [one.rpartition(b'"value":')[2].split(b",")[0] for one in text.split(b"\n")[:3]] == [
        b"NaN",
        b"Infinity",
        b"-Infinity",
    ]
    assert text.endswith(b"\na x 1\n")


TABLES = """#group,false,false,true,false,true
#datatype,string,long,dateTime:RFC3339,double,string
#default,mean,,,,
,result,table,_time,_value,host
,,0,2024-03-05T09:00:07Z,19,a
,,0,2024-03-05T09:00:17Z,,"b, ""c"" d"

#group,false,false,true,false
#datatype,string,long,dateTime:RFC3339,long
#default,,,,
,result,table,_time,n
,x,1,2024-03-05T09:00:27Z,7
,x,1,broken
"""


_WORDS = st.text("ab%{}[]()*?^$|/é1.", min_size=1, max_size=5)
_TEXTS = st.one_of(_WORDS, st.sampled_from([r"a\ b", r"q\"", "\u00a0", r"x\n", "%s", "\t", "#"]))
_NUMBERS = st.one_of(
    st.integers(-50, 50).map(str),
    st.floats(-9, 9).map(repr),
    st.sampled_from(["-0", "00.5", "5.", ".5", "1e5", "1234567890123456", "12345678901234567890.5", "nan", "+Inf"]),
)


@st.composite
def _like_lines(draw: st.DrawFn, kind: str) -> bytes:
    """Lines of a few shapes, whose values now and then are odd."""
    shapes = st.tuples(_WORDS, st.lists(_WORDS, max_size=2), st.lists(_WORDS, min_size=1, max_size=2), st.booleans())
    known, lines = draw(st.lists(shapes, min_size=1, max_size=3)), []
    usual = ["1.5", "-7", *(["3i", "2u", "true", "t", '"a, b=c"', "007i", "-0i"] if kind == "influx" else [])]
    values = st.one_of(st.sampled_from(usual), _NUMBERS)
    for name, tags, fields, is_timed in draw(st.lists(st.sampled_from(known), min_size=1, max_size=12)):
        if kind == "influx":
            line = name + "".join([f",{tag}={draw(_TEXTS)}" for tag in tags])
            line += " " + ",".join([f"{field}={draw(values)}" for field in fields])
        else:
            labels = ",".join([f'l{number}="{draw(_TEXTS)}"' for number in range(len(tags))])
            line = f"m{len(tags)}" + (f"{{{labels}}}" if tags else "") + f" {draw(values)}"
        line += f" {draw(st.integers(-5, AT))}" if is_timed else ""
        lines.append(
            draw(st.sampled_from(["{}"] * 9 + ["{}\r", " {}", "{} ", "# {}", ""])).replace("{}", line).encode()
        )
    return b"\n".join(lines) + draw(st.sampled_from([b"", b"\n", b"\xff\n"]))


@pytest.mark.parametrize(("kind", "decoding"), [("influx", Influx()), ("prometheus", Prometheus())])
@given(st.data())
def test_a_line_is_read_beside_others_as_it_is_alone(kind: str, decoding: Any, data: st.DataObject) -> None:
    text = data.draw(_like_lines(kind))
    alone = [canonical(decoding, line, []) if line else b"" for line in text.split(b"\n")]
    assert decoding.decoder(b"", "f").feed(text + b"\n") == b"\n".join([*alone, b""])


def test_annotated_csv() -> None:
    lines = canonical(Influx(), TABLES.encode(), []).split(b"\n")
    first = {"result": "mean", "table": 0, "_time": "2024-03-05T09:00:07Z"}
    assert json.loads(lines[4]) == {**first, "_value": 19.0, "host": "a"}
    assert json.loads(lines[5]) == {**first, "_time": "2024-03-05T09:00:17Z", "host": 'b, "c" d'}
    assert json.loads(lines[11]) == {"result": "x", "table": 1, "_time": "2024-03-05T09:00:27Z", "n": 7}
    assert lines[12] == b",x,1,broken"
    assert [n for n, line in enumerate(lines) if line] == [4, 5, 11, 12]


@examples(40)
@given(
    st.lists(st.sampled_from([line for line, _ in GOOD] + BAD), max_size=5), st.lists(st.integers(0, 300), max_size=8)
)
def test_where_the_bytes_are_cut_changes_nothing(lines: list[str], cuts: list[int]) -> None:
    for decoding, data in ((Influx(), "\n".join(lines).encode()), (Influx(), TABLES.encode())):
        if data:
            assert canonical(decoding, data, cuts) == canonical(decoding, data, [])


@pytest.mark.parametrize("name", ["a.lp", "a.lp.gz", "a.lp.zip", "a.txt"])
@pytest.mark.parametrize("size", [1, 100])
def test_a_stream_of_line_protocol(tmp_path: Path, name: str, size: int) -> None:
    lines = [f"weather,station=s{k % 2} temp={20 + k / 4:g},hum={k}i {AT + k * 10**9}" for k in range(12)]
    lines[3], lines[5] = "weather temp=oops 1", "weather,station=a temp=1"
    data = ("# all\n" + "\n".join(lines) + "\n").encode()
    path = tmp_path / name
    if name.endswith(".zip"):
        pack(path, ".zip", {"0.lp": data})
    else:
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    options = {"time": "time", "time_unit": "ns"} | ({"format": "influx"} if name == "a.txt" else {})
    streams = [Stream(one, str(path), **options) for one in "er"]
    join = Join(streams, [band("e.temp", "r.temp", 1)], "1s")
    schema = bind(join, {stream.name: infer_schema(stream) for stream in streams}).read_schemas[0]
    positions = steps(open_feed(streams[0], schema), FilePosition(), size)
    chunks = [c for low, high in pairwise(positions) for c in open_feed(streams[0], schema).read(low, high)]
    found = [row for chunk in chunks for row in chunk.tuples.to_pylist()]
    assert [(row["temp"], row["station"], row["hum"]) for row in found] == [
        (20 + k / 4, f"s{k % 2}", k) for k in range(12) if k not in (3, 5)
    ]
    assert found[0]["_ts"] == AT // 1000
    assert [(r.line, r.column, r.reason) for c in chunks for r in c.rejects] == [
        (5, "", "no line of InfluxDB's"),
        (7, "time", "no event time"),
    ]
