"""The key of unique rows: what it may be, how far apart copies are, and which tuples repeat one before them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, ColumnError, StreamJoinError, WindowError
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.duplicates import SeenKeys, UniqueKey, unique_key
from streamjoin_ds.spec.member.unique_key import span_us
from tests.support.examples import examples

SCHEMA = {"ts": "timestamp[us, tz=UTC]", "x": "int64", "device": "string", "counter": "int64"}
INSIDE = pa.schema([("_ts", pa.int64()), ("device", pa.string()), ("part", pa.float64())])
Tuple = tuple[int, str | None, float | None]


def join_of(window: Any = "10s", **options: Any) -> Join:
    return Join([Stream("e", schema=SCHEMA, **options), Stream("w", schema=SCHEMA)], "abs(e.x - w.x) <= 1", window)


def repeated(rows: list[Tuple], span: int, delay: int) -> list[bool]:
    found = []
    for number, (ts, name, part) in enumerate(rows):
        oldest = max(ts, max((row[0] for row in rows[:number]), default=ts) - delay) - span
        is_known = name is not None and part is not None and not math.isnan(part)
        same = [row[0] for row in rows[:number] if is_known and row[1:] == (name, part)]
        found.append(any(oldest <= when <= ts + span for when in same))
    return found


@given(
    st.lists(
        st.tuples(
            st.integers(-4, 12),
            st.sampled_from(["a", "b", None]),
            st.sampled_from([0.0, -0.0, math.inf, float("nan"), None]),
        ),
        max_size=40,
    ),
    st.lists(st.integers(1, 15), min_size=1, max_size=8),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([0, 3]),
    st.integers(0, 3),
)
@examples(100)
def test_a_tuple_repeats_one_before_it_wherever_batches_end(
    drawn: list[Tuple], sizes: list[int], span: int, delay: int, pace: int
) -> None:
    rows = [(ts + number * pace // 2, name, part) for number, (ts, name, part) in enumerate(drawn)]
    seen = SeenKeys(UniqueKey(("device", "part"), span, delay))
    found: list[bool] = []
    for number in range(len(rows)):
        if len(found) >= len(rows):
            break
        some = rows[len(found) : len(found) + sizes[number % len(sizes)]]
        columns = [
            pa.array(list(values), kind) for values, kind in zip(zip(*some, strict=True), INSIDE.types, strict=True)
        ]
        mask, seen = seen.judged(pa.RecordBatch.from_arrays(columns, schema=INSIDE))
        found += mask.tolist()
        if number % 2:
            seen = SeenKeys.restored(seen.key, seen.saved(), seen.largest_us)
    assert found == repeated(rows, span, delay)


def test_keys_that_are_too_old_are_forgotten() -> None:
    seen = SeenKeys(UniqueKey(("device",), 50, 10))
    for begin in range(0, 20_000, 100):
        batch = pa.record_batch({"_ts": pa.array(range(begin, begin + 100)), "device": [str(n) for n in range(100)]})
        mask, seen = seen.judged(batch)
        assert not mask.any()
    assert seen.rows < 2_000
    assert not seen.is_complete(20_000)
    assert seen.is_complete(19_000)


def test_a_key_is_columns_of_the_stream() -> None:
    for written in ("device,counter", " device , counter", ["device", "counter"], ("device", "counter")):
        stream = Stream("e", schema=SCHEMA, unique=written)
        assert stream.unique_key == ("device", "counter")
        assert Stream.from_facts(stream.to_facts()) == stream
    assert "unique" not in Stream("e", schema=SCHEMA).to_facts()
    join = join_of({"e": "2s", "w": "5s"}, unique="counter", delay="1s")
    bound = bind(join, {stream.name: stream.schema for stream in join.streams})
    assert unique_key(bound, 0) == UniqueKey(("counter",), 7_000_000, 1_000_000)
    assert unique_key(bound, 1) is None


def test_the_span_is_how_far_apart_the_partners_of_a_tuple_may_be() -> None:
    streams = [Stream(name, schema=SCHEMA) for name in "abc"]
    join = Join(streams, "a.x = b.x AND b.x = c.x", {"a": "1s", "b": "3s", "c": "7s"})
    assert [span_us(join.window, stream) // 1_000_000 for stream in range(3)] == [8, 10, 10]


def test_the_key_is_in_the_fingerprint_in_any_order() -> None:
    def fingerprint(**options: Any) -> str:
        join = join_of(**options)
        return bind(join, {stream.name: stream.schema for stream in join.streams}).fingerprint

    assert fingerprint(unique="device,counter") == fingerprint(unique=["counter", "device"])
    assert len({fingerprint(), fingerprint(unique="device"), fingerprint(unique="counter")}) == 3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"unique": ""}, ArgumentError, "no list of different columns"),
        ({"unique": []}, ArgumentError, "no list of different columns"),
        ({"unique": ["device", "device"]}, ArgumentError, "no list of different columns"),
        ({"unique": 3}, ArgumentError, "no list of different columns"),
        ({"unique": "devise"}, ColumnError, "no column 'devise', which unique names"),
        ({"unique": "device", "source": "e", "format": "delta"}, ArgumentError, "reads a table"),
        ({"unique": "device", "max_ahead": "1h"}, ArgumentError, "cannot have max_ahead yet"),
        (
            {"unique": "device", "source": "e", "on_bad_file": "quarantine"},
            ArgumentError,
            "cannot have on_bad_file yet",
        ),
        ({"unique": "device", "window": "last 5"}, WindowError, "a count window is none"),
    ],
)
def test_what_does_not_go_with_a_key_is_refused_by_name(
    options: dict[str, Any], error: type[StreamJoinError], words: str
) -> None:
    with pytest.raises(error, match=words):
        join_of(**options)


def test_a_nested_column_is_no_key() -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("device", pa.list_(pa.string()))])
    with pytest.raises(ColumnError, match="is nested"):
        Join([Stream(name, schema=schema, unique="device") for name in "ew"], "abs(e.x - w.x) <= 1", "1s")


def test_keys_of_a_fast_device_go_while_a_slow_one_holds_the_stream() -> None:
    """Span and delay are 10 s: of a record a second some ten count, and few more are kept."""
    seen, most = SeenKeys(UniqueKey(("part",), 9, 1, ("device",))), 0

    def judged(*rows: Tuple) -> list[bool]:
        nonlocal seen
        batch = pa.RecordBatch.from_pylist([dict(zip(INSIDE.names, row, strict=True)) for row in rows], INSIDE)
        is_repeat, seen = seen.judged(batch, batch.column("_ts").to_numpy(), 0)
        return is_repeat.tolist()  # type: ignore[no-any-return]

    for second in range(0, 2_000, 5):
        judged(*((second + number, "fast", float(number)) for number in range(5)), (0, None, float(second % 50)))
        most = max(most, seen.rows)
    assert most < 1_000
    assert judged((1_999, "fast", 4.0), (0, None, 45.0), (0, None, 46.0), (0, "slow", 45.0)) == [
        True,
        True,
        False,
        False,
    ]
