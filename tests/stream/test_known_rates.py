"""Whose word counts for a rate: explain's, the stream's, the input's; and that no result is needed to look it up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamjoin_ds import Generator, JoinEngine, Stream, StreamJoin, band
from streamjoin_ds.errors import ArgumentError, KafkaUnreachableError
from streamjoin_ds.spec import BoundJoin, bind
from streamjoin_ds.stream.query import first_layout
from streamjoin_ds.stream.source_facts import bound_join, known_rates

SCHEMA = {"ts": "timestamp[us]", "x": "double"}


def generated(name: str, per_s: int, rate: float | None = None) -> Stream:
    side = "r" if name == "r" else "s"
    return Stream(name, Generator("band2d", {"side": side, "rate": per_s}), rate=rate)


def join_of(*streams: Stream) -> StreamJoin:
    return StreamJoin(list(streams), on=band("r.x", "s.a", 1), window="10s")


def handed_over(**rates: float | None) -> BoundJoin:
    streams = [Stream(name, schema=SCHEMA, rate=rate) for name, rate in rates.items()]
    predicates = [band(f"{streams[0].name}.x", f"{stream.name}.x", 1) for stream in streams[1:]]
    join = StreamJoin(streams, on=predicates, window="10s")
    return bind(join, {stream.name: stream.schema for stream in join.streams})


def test_what_is_given_wins_over_the_stream_and_that_over_the_input() -> None:
    bound = bound_join(join_of(generated("r", 100, rate=300), generated("s", 2000)))
    known = known_rates(bound)
    assert known.per_s == pytest.approx((300, 2000), rel=0.01)
    assert known.origins == ("said", "found")
    known = known_rates(bound, {"r": 7})
    assert known.per_s[0] == 7
    assert known.origins == ("said", "found")


def test_noise_is_no_difference() -> None:
    known = known_rates(bound_join(join_of(generated("r", 1000), generated("s", 1100))))
    assert known.per_s[0] == known.per_s[1] == pytest.approx(1050, rel=0.01)
    said = known_rates(bound_join(join_of(generated("r", 1000, rate=1000), generated("s", 1100, rate=1100))))
    assert said.per_s == (1000, 1100)


def test_of_unknown_streams() -> None:
    assert known_rates(handed_over(a=None, b=None)).per_s == (1, 1)
    assert not known_rates(handed_over(a=None, b=None)).are_known
    known = known_rates(handed_over(a=10, b=None, c=30))
    assert known.per_s == (10, 20, 30)
    assert known.origins == ("said", "unknown", "said")


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan"), True, "fast"])
def test_a_rate_is_checked(rate: object) -> None:
    with pytest.raises(ArgumentError, match="the rate of r must be a number greater than 0") as caught:
        Stream("r", rate=rate)  # type: ignore[arg-type]
    assert caught.value.name == "rate"
    with pytest.raises(ArgumentError, match="must be a number greater than 0"):
        known_rates(handed_over(r=None, s=None), {"r": rate})  # type: ignore[dict-item]


def test_a_name_is_checked() -> None:
    with pytest.raises(ArgumentError, match="which is not a stream of the join") as caught:
        known_rates(handed_over(r=None, s=None), {"t": 1})
    assert "r, s" in caught.value.hint


def test_it_travels_and_changes_no_fingerprint() -> None:
    stream = Stream("r", schema=SCHEMA, rate=20)
    assert Stream.from_facts(stream.to_facts()).rate == 20
    assert "rate" not in Stream("r", schema=SCHEMA).to_facts()
    assert handed_over(r=20, s=None).fingerprint == handed_over(r=None, s=None).fingerprint


def test_explain_shows_the_three_best_for_these_rates() -> None:
    text = join_of(generated("r", 100), generated("s", 100)).explain(cells=16, rates={"r": 1000, "s": 20_000})
    assert "layout      1x16 = 16 cells" in text
    assert "rates       r 1,000/s (as given), s 20,000/s (as given)" in text
    _, _, choices = text.partition("by the rows that a tuple meets\n")
    assert [line.split(":")[0].strip() for line in choices.splitlines()[:3]] == ["1x16", "2x8", "4x4"]
    assert "layout      4x4 = 16 cells" in join_of(generated("r", 100), generated("s", 100)).explain(cells=16)


def test_where_no_layout_is_chosen_a_rate_is_refused() -> None:
    streams = [Stream("r", schema=SCHEMA, rate=3), Stream("s", schema=SCHEMA)]
    with pytest.raises(ArgumentError, match="has a rate") as caught:
        JoinEngine(StreamJoin(streams, on=band("r.x", "s.x", 1), window="1s"))
    assert caught.value.name == "rate"


def test_a_source_that_does_not_answer_is_told_and_no_other_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def silent(stream: Stream, schema: pa.Schema) -> float:
        asked.append(stream.name)
        msg = "no broker answers"
        raise KafkaUnreachableError(msg, name="t", hint="start it")

    monkeypatch.setattr("streamjoin_ds.stream.source_facts.sampled_rate", silent)
    join = join_of(generated("r", 1000), generated("s", 1000))
    known = known_rates(bound_join(join))
    assert ([*known.unanswered], asked, known.are_known) == (["r"], ["r"], False)
    assert "not read    the source of r: KAFKA_UNREACHABLE. So its rate" in join.explain(cells=2)
    assert "not read" not in join.explain(cells=2, rates={"r": 1, "s": 2})
    with pytest.raises(KafkaUnreachableError):
        first_layout(bound_join(join), 2, "grid")
