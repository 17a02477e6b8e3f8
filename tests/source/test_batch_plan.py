from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.plan import BlockSizing, Epochs, Layout
from streamjoin_ds.source.batch_plan import OFFSET_VERSION, BatchPlan, TableVersion
from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.source.feed import LIMITS, Backlog, BacklogFacts
from streamjoin_ds.source.idleness import ClockFacts
from streamjoin_ds.source.kafka.topic_scan import KafkaPosition
from streamjoin_ds.source.layout_rule import LayoutFacts
from streamjoin_ds.source.partitioned_position import Forgotten, PartitionAt, PartitionedPosition
from streamjoin_ds.source.position import FilePosition, RowPosition, Waypoint
from tests.source.feeds import feed, rows, steps, write
from tests.support.documents import follow_recipe

PLAIN = BatchPlan(("e",), ({"seq": 1},))
GOOD = FilePosition(file="a.csv", offset=9, seq=1, line=2, time=-5).to_facts()


def test_there_and_back_and_the_same_text(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", rows(9))
    positions = steps(feed(tmp_path), FilePosition(), 4)
    assert [position.seq for position in positions] == [0, 4, 8, 9]
    for position in positions:
        text = json.dumps(BatchPlan(("e", "w"), (position.to_facts(), RowPosition(7).to_facts())).to_offset())
        planned = BatchPlan.from_offset(json.loads(text), ["e", "w"])
        assert FilePosition.from_facts(planned.positions[0], "e") == position
        assert RowPosition.from_facts(planned.positions[1], "w") == RowPosition(7)
        assert json.dumps(planned.to_offset()) == text
        assert len(text) < 500


def test_its_size_does_not_grow_with_the_files(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"{number:03d}.csv", rows(2, 2 * number))
    sizes = {len(json.dumps(p.to_facts())) for p in steps(feed(tmp_path), FilePosition(), 2)[11:]}
    assert max(sizes) - min(sizes) < 10


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(values)
def test_hostile_offsets_are_refused_by_name(value: Any) -> None:
    for offset in (value, {"version": 1, "streams": value}, {"version": value, "streams": {"e": GOOD}}):
        if offset == {"version": 1, "streams": {"e": GOOD}}:
            continue
        with pytest.raises(OffsetError):
            FilePosition.from_facts(BatchPlan.from_offset(offset, ["e"]).positions[0], "e")


@given(st.sampled_from(sorted(GOOD)), values)
def test_hostile_positions_are_refused_or_are_positions(name: str, value: Any) -> None:
    facts = {**GOOD, name: value}
    try:
        position = FilePosition.from_facts(facts, "e")
    except OffsetError:
        return
    assert position.to_facts() == facts


@given(st.sampled_from(["aside", "closed", "kept", "open_line"]), values)
def test_so_are_facts_that_came_later(name: str, value: Any) -> None:
    try:
        position = FilePosition.from_facts({**GOOD, name: value}, "e")
    except OffsetError:
        return
    assert FilePosition.from_facts(json.loads(json.dumps(position.to_facts())), "e") == position


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kept", [["../a", 1, "0" * 16]]),
        ("kept", [["a", -1, "0" * 16]]),
        ("kept", [["a", 1, "no"]]),
        ("kept", ["a"]),
        ("aside", [[1, "a", 1, 1, "../a", "late", "", ""]]),
        ("aside", [[1, "a", 1, 1, "a", "what", "", ""]]),
        ("aside", [[-1, "a", 1, 1, "a", "late", "", ""]]),
        ("aside", [[]]),
        ("open_line", 1),
    ],
)
def test_so_are_facts_that_came_later_and_are_not_theirs(name: str, value: Any) -> None:
    with pytest.raises(OffsetError):
        FilePosition.from_facts({**GOOD, name: value}, "e")


@pytest.mark.parametrize("file", ["../../etc/passwd", "a//b", "..", ".", "a\0b"])
def test_a_file_name_leads_nowhere_else(file: str) -> None:
    with pytest.raises(OffsetError):
        FilePosition.from_facts({**GOOD, "file": file}, "e")


def test_newer_versions_and_other_streams() -> None:
    offset = PLAIN.to_offset()
    for wrong, name in (
        ({**offset, "version": OFFSET_VERSION + 1}, "version"),
        ({**offset, "version": True}, "version"),
    ):
        with pytest.raises(OffsetError) as caught:
            BatchPlan.from_offset(wrong, ["e"])
        assert caught.value.name == name
    with pytest.raises(OffsetError):
        BatchPlan.from_offset(offset, ["w"])
    with pytest.raises(OffsetError):
        RowPosition.from_facts({"seq": 1 << 63}, "e")


def test_settings_of_blocks_travel_where_they_are_not_the_usual_ones() -> None:
    assert PLAIN.to_offset() == {"version": 1, "streams": {"e": {"seq": 1}}}
    for sizing in (BlockSizing(0), BlockSizing(merge_runs=4), BlockSizing(1500, 2)):
        planned = replace(PLAIN, sizing=sizing)
        offset = json.loads(json.dumps(planned.to_offset()))
        assert offset["version"] == 11
        assert BatchPlan.from_offset(offset, ["e"]) == planned


@pytest.mark.parametrize("facts", [[], None, {"merge_runs": None}, {"block_bytes": True}, {"x": 1}, {"merge_runs": -1}])
def test_hostile_settings_of_blocks_are_refused(facts: Any) -> None:
    with pytest.raises(OffsetError, match="blocks"):
        BatchPlan.from_offset({**PLAIN.to_offset(), "blocks": facts}, ["e"])


def test_what_is_known_of_delays_travels_and_needs_a_newer_version() -> None:
    for facts in (DelayFacts(500_000), DelayFacts(500_000, 0, 12), DelayFacts(1, 2, 3)):
        planned = replace(PLAIN, delay=facts)
        offset = json.loads(json.dumps(planned.to_offset()))
        assert OFFSET_VERSION > offset["version"] == 5
        assert BatchPlan.from_offset(offset, ["e"]) == planned


@given(values, st.sampled_from(["delay_us", "waiting_rows", "max_delay_us", "more"]))
def test_hostile_facts_of_delays_are_refused_or_are_facts(value: Any, name: str) -> None:
    facts = {"max_delay_us": 5, "waiting_rows": 0, name: value}
    is_right = name != "more" and type(value) is int and 0 <= value < 1 << 63
    with contextlib.nullcontext() if is_right else pytest.raises(OffsetError, match="delay"):
        assert DelayFacts.from_facts(facts).to_facts() == facts
    with pytest.raises(OffsetError, match="delay"):
        DelayFacts.from_facts(value)


CLOCK = ClockFacts(idle=True, seen_s=5, max_ahead_us=6, unmeasured=True)
IN_TOPICS = PartitionedPosition(
    5,
    {"0": PartitionAt(1, KafkaPosition(2, 3, 1, 4, "id", 5), 4, CLOCK, (Waypoint(5, {"seq": 1}),))},
    Forgotten((("l/1-a.arrow", 3),), 1, 7),
)
EPOCHS = Epochs.first(Layout((2, 2))).entered(Layout((4, 1)), (5, 6), 5).heard_by(9)
# Each part with each of its facts. Its text is that of version 12, to the last byte.
WHOLE = BatchPlan(
    ("e", "w"),
    (IN_TOPICS.to_facts(), GOOD),
    (CLOCK, ClockFacts()),
    (0, 8),
    LayoutFacts(EPOCHS, ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0),) * 2),
    DelayFacts(500_000, 400_000, 7),
    BacklogFacts({"e": Backlog(5, 6, 7, {"0": Backlog(3)})}, LIMITS[0]),
    {"z": TableVersion("v", "z-b.arrow", 3)},
    ((), (Waypoint(5, {"seq": 1}),)),
    BlockSizing(5, 6),
)
TEXT = (
    '{"version":12,"streams":{"e":{"seq":5,"partitions":{"0":{"number":1,"at":{"epoch":5,"first":1,"offset":3,'
    '"seq":2,"time":4,"topic":"id"},"time":4,"clock":{"idle":true,"max_ahead_us":6,"seen_s":5,"unmeasured":true},'
    '"waypoints":[[5,{"seq":1}]]}},"forgotten":{"blocks":[["l/1-a.arrow",3]],"numbers":1,"time":7}},'
    '"w":{"digest":"0000000000000000.0000000000000000.2d06800538d394c2","file":"a.csv","files":0,"line":2,'
    '"names":"0000000000000000","offset":9,"seq":1,"sizes":"0000000000000000","time":-5,"whole":false}},'
    '"clocks":{"e":{"idle":true,"max_ahead_us":6,"seen_s":5,"unmeasured":true}},"held_back_bytes":{"w":8},'
    '"layout":{"epochs":{"cells":9,"live":[{"first":[0,0],"layout":[2,2],"number":0},{"first":[5,6],"layout":[4,'
    '1],"number":1,"since_us":5}]},"rates":[[1.0,2.0,3.0,4.0,5.0,6.0],[1.0,2.0,3.0,4.0,5.0,6.0]]},'
    '"delay":{"max_delay_us":500000,"delay_us":400000,"waiting_rows":7},"backlog":{"streams":{"e":{"bytes":6,'
    '"partitions":{"0":{"rows":3}},"rows":5,"us":7}},"limited_by":"bytes"},"tables":{"z":{"block":"z-b.arrow",'
    '"rows":3,"version":"v"}},"waypoints":{"w":[[5,{"seq":1}]]},"blocks":{"block_bytes":5,"merge_runs":6}}'
)


def test_a_whole_offset_has_the_text_that_it_always_had() -> None:
    assert json.dumps(WHOLE.to_offset(), separators=(",", ":")) == TEXT
    planned = BatchPlan.from_offset(json.loads(TEXT), ["e", "w"])
    assert json.dumps(planned.to_offset(), separators=(",", ":")) == TEXT
    assert replace(planned, positions=WHOLE.positions) == WHOLE
    assert in_topics(planned) == IN_TOPICS


def in_topics(plan: BatchPlan) -> PartitionedPosition:
    return PartitionedPosition.from_facts(plan.positions[0], "e", lambda _, at: KafkaPosition.from_facts(at, "e"))


def test_whatever_stands_somewhere_in_an_offset_is_read_or_refused() -> None:
    """Anything else than OffsetError would come to the user as it is."""
    odd = [None, True, -1, 1 << 63, 0.5, "", "../a", [], [5], [None], {}, {"a": 1}, [["a", 1]], [["a"]]]
    wrong = [with_value(json.loads(TEXT), path, value) for path in places(json.loads(TEXT)) for value in odd]
    assert sum(map(is_refused, wrong)) > 500


def is_refused(offset: Any) -> bool:
    try:
        plan = BatchPlan.from_offset(offset, ["e", "w"])
        in_topics(plan), FilePosition.from_facts(plan.positions[1], "w")
    except OffsetError:
        return True
    return False


def places(facts: Any) -> list[tuple[Any, ...]]:
    inner = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    return [(), *((key, *path) for key, part in inner for path in places(part))]


def with_value(facts: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    facts[path[0]] = with_value(facts[path[0]], path[1:], value)
    return facts


IN_THE_METRICS = """
from pathlib import Path
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.spec import Join, Stream, band, bind
from streamjoin_ds.source.stream_source import infer_schema
from tests.support.microbatch import MicroBatches
streams = [Stream(side, f"gen:band2d?side={side}&rows=100") for side in "rs"]
bound = bind(Join(streams, band("r.x", "s.a", 10), "1s"), {one.name: infer_schema(one) for one in streams})
run = MicroBatches(bound, Path("run"), Layout.parse("1x1", 2), max_rows_per_batch=50)
run.run()
assert run.offset["version"] == 14
seen = run.companion("metrics").sort_by("batch_id")["seen_rows"].to_pylist()
assert seen == [100, 100, 100, 50], seen  # it looks at 50 records of each stream, at most
assert BatchPlan.from_offset(run.offset, "rs").seen_rows == 50
"""


@pytest.mark.slow
def test_a_fact_that_is_added_as_contributing_says_is_in_offset_and_metrics(tmp_path: Path) -> None:
    follow_recipe("A fact about a batch", tmp_path, IN_THE_METRICS)
