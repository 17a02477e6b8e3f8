"""A source is the same as an object and as options beside a location, and has no option but its own."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import DeltaRows, Files, Generator, Join, Spool, Stream, Topic
from streamjoin_ds.spec.member.source import KINDS, SOURCE_KEYS, numbering_of

URL = "kafka://broker:9092/topic?format=csv&columns=ts,x"
ALIKE: list[tuple[Any, str | Path, dict[str, Any]]] = [
    (Files("in/"), "in/", {}),
    (Files(Path("in"), "csv", ";"), Path("in"), {"format": "csv", "delimiter": ";"}),
    (Files("in/", delimiter="tab", sub_folders="read"), "in/", {"delimiter": "\t", "sub_folders": "read"}),
    (Files("in/", finished_after=timedelta(seconds=90)), "in/", {"finished_after": "90s"}),
    (Files("in/", file_order="modified"), "in/", {"file_order": "modified", "delimiter": ","}),
    (Files("in/", partition_by="folder"), "in/", {"partition_by": "folder", "format": "auto"}),
    (Spool("in/", on_bad_file="quarantine"), "in/", {"format": "spool", "on_bad_file": "quarantine"}),
    (DeltaRows("t/", starting_version="12"), "t/", {"format": "delta", "starting_version": 12}),
    (DeltaRows("t/", "auto", "ignore"), "t/", {"on_change": "ignore", "delimiter": ";"}),
    (DeltaRows("t/", "results"), "t/", {"format": "results"}),
    (Topic(URL, ";"), URL, {"delimiter": ";"}),
    (Generator("band2d", {"side": "r"}), "gen:band2d?side=r", {"format": "csv", "on_bad_file": "quarantine"}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "location", "options"), ALIKE)
def test_an_object_is_what_its_options_are_beside_a_location(
    source: Any, location: Any, options: dict[str, Any]
) -> None:
    stream = Stream("e", source, delay="5s")
    assert stream == Stream("e", location, delay="5s", **options)
    facts = json.loads(json.dumps(stream.to_facts()))
    assert Stream.from_facts(facts) == stream
    assert replace(stream, delay="6s").source == stream.source
    assert {"source", "format", "delimiter", "on_bad_file"} <= facts.keys()  # which older versions need
    assert stream.location == (source if isinstance(source, Generator) else str(source))


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_source_has_its_own_options_alone(kind: Any) -> None:
    location = {Topic: URL, Generator: "gen:band2d"}.get(kind, "in/")
    form = {Files: {"format": "csv"}, Spool: {"format": "spool"}, DeltaRows: {"format": "delta"}}.get(kind, {})
    # What may be given to all streams at once says nothing about some.
    idle = {Generator: {"delimiter", "on_bad_file"}, DeltaRows: {"delimiter"}}.get(kind, set())
    has = {each.name for each in fields(kind)} | idle
    for name in SOURCE_KEYS.keys() - {"format", *({"file_order"} if kind is Spool else ())}:
        apart = {"delimiter": ";"} if name == "decimal" and "delimiter" in has else {}
        asked = {**form, **apart, name: SOURCE_KEYS[name].example}
        if name in has:
            assert isinstance(Stream("e", location, **asked).source, kind)
            continue
        with pytest.raises(ArgumentError, match=f"cannot have {name}") as caught:
            Stream("e", location, **asked)
        assert caught.value.name == name


@pytest.mark.parametrize("name", sorted(SOURCE_KEYS.keys() - {"format", "delimiter", "partition_by"}))
def test_what_is_handed_over_has_no_options_of_a_source(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"has no source, so it cannot have {name}"):
        Stream("e", **{name: SOURCE_KEYS[name].example})


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (lambda: Stream("e", Files("in/", sub_folders="all")), "sub_folders", "unknown sub_folders"),
        (lambda: Stream("e", Files("in/", "delta")), "format", "DeltaRows"),
        (lambda: Stream("e", Files("in/", delimiter=",,")), "delimiter", "cannot be used in a CSV file"),
        (lambda: Stream("e", Files("in/"), delimiter=";"), "delimiter", r"Files\(\.\.\., delimiter=\.\.\.\)"),
        (lambda: Stream("e", Spool("in/", file_order="modified")), "file_order", "order of their own"),
        (lambda: Stream("e", DeltaRows("t/", starting_version=-1)), "starting_version", "neither a version nor latest"),
        (lambda: Stream("e", DeltaRows("t/", "results", "ignore")), "on_change", "results of a join in their order"),
        (lambda: Stream("e", Topic("kafka://me:sEcReT@broker/topic")), "url", "holds credentials"),
        (lambda: Stream("e", Files("s3://key:sEcReT@bucket/in")), "source", "holds credentials"),
        (lambda: Stream("e", "in/", sub_folder="read"), "sub_folder", "did you mean 'sub_folders'"),
        (lambda: Stream("e", "gen:band2d", format="xml"), "format", "unknown format"),
        (lambda: Stream("e", URL, format="csv"), "format", "its format stands in the URL"),
        (lambda: Stream("e", URL, partition_by="file"), "partition_by", "name columns, for example device"),
    ],
)
def test_what_a_source_cannot_have_is_refused_by_name(make: Any, name: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words) as caught:
        make()
    assert caught.value.name == name
    assert "sEcReT" not in str(caught.value)


def test_facts_of_an_older_version_may_have_options_of_other_sources() -> None:
    """They were taken once, and said nothing."""
    usual = Stream("e", DeltaRows("t/")).to_facts()
    assert Stream.from_facts({**usual, "delimiter": ";"}) == Stream("e", DeltaRows("t/"))
    made = Stream("e", Generator("band2d")).to_facts()
    assert Stream.from_facts({**made, "format": "csv", "delimiter": ";"}).source == Generator("band2d")
    handed = Stream("e").to_facts()
    assert Stream.from_facts({**handed, "format": "csv", "on_bad_file": "quarantine"}) == Stream("e")


def test_an_option_that_was_an_attribute_of_the_stream_is_one_and_warns() -> None:
    stream = Stream("e", Files("in/", delimiter=";"))
    for name, value in (("delimiter", ";"), ("on_change", "stop")):
        with pytest.warns(DeprecationWarning, match=f"read stream.source.{name}"):
            assert getattr(stream, name) == value
    with pytest.raises(AttributeError):
        _ = stream.unknown  # type: ignore[attr-defined]


def test_one_input_is_read_in_one_way() -> None:
    """The numbers of its tuples are those by which a self-join leaves pairs out."""
    first = Stream("e", Files("in/"))
    for other in (
        Files("in/", sub_folders="read"), Files("in/", file_order="modified"), Files("in/", partition_by="file"),
        DeltaRows("in/"), DeltaRows("in/", "auto", starting_version=3),
    ):  # fmt: skip
        assert numbering_of(other) != numbering_of(first.source)
        with pytest.raises(ArgumentError, match="is read twice, with another"):
            Join([first, Stream("w", other)], "e.x = w.x", "1s")
    for other in (Files("in/", "csv"), Files("in/", delimiter=";", finished_after="1s")):
        assert Join([first, Stream("w", other)], "e.x = w.x", "1s")


@pytest.mark.parametrize(
    ("source", "options", "clock"),
    [
        ("w.lp", {}, ("time", "ns")),
        ("in/weather.LP.gz", {}, ("time", "ns")),
        ("w.txt", {"format": "influx"}, ("time", "ns")),
        ("w.txt", {"format": "prometheus"}, ("time", "ms")),
        ("spool", {"format": "spool", "records": "influx"}, ("time", "ns")),
        ("w.json", {"records": "senml"}, ("t", "s")),
        ("kafka://b/t?format=influx", {}, ("time", "ns")),
        ("kafka://b/t?format=json", {"records": "senml"}, ("t", "s")),
        ("w.lp", {"time_unit": "ms"}, ("time", "ms")),
        ("w.lp", {"time": "time"}, ("time", "us")),  # whoever says the column says its unit
        ("w.lp", {"time": "at", "time_unit": "s"}, ("at", "s")),
        ("w.lp", {"schema": {"ts": "int64"}}, ("ts", "us")),
        ("w.lp", {"columns": {"ts": "time * 2"}}, ("ts", "us")),
        ("w.lp", {"time": "d || t"}, ("ts", "us")),
        ("w.json", {"records": "values"}, ("ts", "us")),
        ("w.lpx", {}, ("ts", "us")),
    ],
)
def test_a_format_that_fixes_its_times_says_the_column_and_the_unit(
    source: str, options: dict[str, Any], clock: tuple[str, str]
) -> None:
    stream = Stream("e", source, **options)
    assert (stream.time, stream.time_unit) == clock
    again = Stream.from_facts(json.loads(json.dumps(stream.to_facts())))
    assert (again.time, again.time_unit) == clock
