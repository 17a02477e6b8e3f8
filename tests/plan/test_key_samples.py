"""Samples of keys: the same tuples give the same sample, in whatever parts they come."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.plan import KeyHint, SampledRows, attributes_of, sample_rows
from streamjoin_ds.spec import BoundJoin, bind
from tests.support.examples import examples


def a_join(on: str = "abs(r.x - s.x) <= 1 AND r.n = s.n") -> BoundJoin:
    schema = {"ts": "timestamp[us]", "x": "double", "n": "int64", "name": "string"}
    streams = [Stream(name, schema=schema) for name in ("r", "s")]
    join = StreamJoin(streams, on=on, window="1s")
    return bind(join, {stream.name: stream.schema for stream in join.streams})


def three_streams() -> BoundJoin:
    schema = {"ts": "timestamp[us]", "x": "double", "n": "int64"}
    streams = [Stream(name, schema=schema) for name in ("r", "s", "t")]
    on = "r.n = s.n AND s.n = t.n AND r.x = s.x AND s.x = t.x"
    join = StreamJoin(streams, on=on, window="1s")
    return bind(join, {stream.name: stream.schema for stream in join.streams})


def tuples(bound: BoundJoin, first: int, last: int) -> pa.Table:
    numbers = np.arange(first, last)
    columns = {"_ts": numbers * 10, "_seq": numbers, "x": numbers / 4, "n": [None if n % 3 else n for n in numbers]}
    schema = bound.tuple_schema(0)
    columns = {**columns, "name": ["a"] * len(numbers)}
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def seqs_of(sample: SampledRows) -> list[int]:
    return sorted(sample.rows.column("seq").to_pylist())


@examples(60)
@given(st.lists(st.integers(0, 400), max_size=4), st.integers(1, 60), st.integers(1, 40))
def test_parts_give_the_sample_of_the_whole(cuts: list[int], most: int, thinner: int) -> None:
    bound = a_join()
    attributes = attributes_of(bound)
    whole = SampledRows.of(bound, attributes, 0, tuples(bound, 0, 400), most)
    ends = [0, *sorted(cuts), 400]
    parts = [
        SampledRows.of(bound, attributes, 0, tuples(bound, first, last), most)
        for first, last in itertools.pairwise(ends)
        if first < last
    ]
    joined = SampledRows.joined([*parts, parts[0]])
    assert set(seqs_of(whole)) <= set(seqs_of(joined)), "no part leaves out what the whole keeps"
    assert seqs_of(joined.thinned(most)) == seqs_of(whole)
    assert joined.thinned(most).threshold <= 1.0
    fewer = SampledRows.of(bound, attributes, 0, tuples(bound, 0, 400), min(most, thinner))
    assert seqs_of(whole.thinned(thinner)) == seqs_of(fewer)


def test_it_stands_for_all_rows_with_a_key() -> None:
    bound = a_join()
    sample = SampledRows.of(bound, attributes_of(bound), 0, tuples(bound, 0, 50_000), 2_000)
    assert sample.rows.num_rows == 2_000
    assert sample.key_sample(1).total == pytest.approx(50_000, rel=0.05)
    assert sample.key_sample(0).total == pytest.approx(50_000 / 3, rel=0.1), "nulls of n stand for nothing"
    assert attributes_of(bound)[0].keys[0].column == "n"


def test_strings_and_single_streams_have_no_ranges() -> None:
    assert attributes_of(a_join("r.name = s.name")) == []
    assert attributes_of(a_join("r.x <> s.x")) == []
    assert [[key.column for key in reach.keys] for reach in attributes_of(a_join("r.name = s.name AND r.n = s.n"))] == [
        ["n", "n"]
    ]


def test_a_hint_comes_back_from_its_table() -> None:
    bound = a_join()
    attributes = attributes_of(bound)
    streams = tuple(SampledRows.of(bound, attributes, 0, tuples(bound, 0, 300 * n), 200) for n in (1, 2))
    hint = KeyHint(streams)
    table, facts = hint.to_table()
    back = KeyHint.from_table(table, json.loads(json.dumps(facts)))
    assert back.seqs == hint.seqs
    assert back.seqs[1] > back.seqs[0] > 250
    for one, other in zip(hint.streams, back.streams, strict=True):
        assert one.threshold == other.threshold
        assert one.rows.equals(other.rows)
    assert back.fits(attributes)
    for others in ([], attributes[:1], attributes[::-1], attributes_of(three_streams())):
        assert not back.fits(others)


def test_halves_are_of_the_time_that_all_streams_share() -> None:
    bound = a_join()
    attributes = attributes_of(bound)
    ends = ((0, 300), (100, 500))
    hint = KeyHint(tuple(SampledRows.of(bound, attributes, 0, tuples(bound, *end), 400) for end in ends))
    older, newer = ((min(sample.times[0] for sample in half.streams), half.least_rows) for half in hint.halves())
    assert older == (1_000, 100)
    assert newer == (2_000, 100)
    assert hint.shared().least_rows == 200
    apart = KeyHint((hint.streams[0].within(0, 500), hint.streams[1]))
    for half in (*apart.halves(), apart.shared()):
        assert half.least_rows == 0


def test_more_cells_have_more_keys_within_bounds() -> None:
    assert [sample_rows(cells) for cells in (1, 32, 64, 4096)] == [2_048, 2_048, 4_096, 16_384]
