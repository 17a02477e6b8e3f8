"""Files of a checkpoint and entries of a log that somebody changed: read as they were, or refused by name.

No other exception comes of them, and no hang. What is sealed (`join.json`) never means something else.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from deltalake import DeltaTable

from streamjoin_ds import Stream, Table
from streamjoin_ds.blocks import BlockStore, pack
from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.cell.partition_clocks import PartitionClocks
from streamjoin_ds.checkpoint import inspection, lease, lock
from streamjoin_ds.checkpoint.batch_end import Ends, logged_plan
from streamjoin_ds.checkpoint.identity import CheckpointIdentity, facts_checksum
from streamjoin_ds.checkpoint.layout_notes import epochs_over, key_hint, note_epochs_over, note_key_hint
from streamjoin_ds.checkpoint.location import note_table, noted_table
from streamjoin_ds.checkpoint.move import dealt_states, states_of_cells
from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.errors import OffsetError, StreamJoinError
from streamjoin_ds.machine import process_facts, process_told
from streamjoin_ds.plan import EpochsOver, KeyHint, Layout, SampledRows, attributes_of, best_ranges
from streamjoin_ds.sink.log import read_commit
from streamjoin_ds.sink.reader import Follower, last_punctuation, scanned
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TableSet, same_records
from streamjoin_ds.sink.tail import tail_of
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Generator, Join, Nearest, bind
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.stream.frame_tables import given_before
from tests.sink.conftest import Join as Tables
from tests.stream.test_catching_up import CASES, Operated
from tests.support.microbatch import MicroBatches
from tests.support.mutations import changed, torn


def outcomes(read: Callable[[], object], rounds: range, spoil: Callable[[random.Random], None]) -> Counter[str]:
    """Spoil and read so often; count what came of it. Any error but a named one is raised, with its round."""
    seen = Counter[str]()
    for number in rounds:
        spoil(random.Random(number))
        try:
            read()
            seen["read"] += 1
        except StreamJoinError as error:
            seen[error.code if error.hint else "without a hint"] += 1
        except Exception as error:
            pytest.fail(f"round {number}: {type(error).__name__}: {error}")
    assert "without a hint" not in seen
    return seen


DECIMAL = pa.schema(
    [
        ("ts", pa.timestamp("us")), ("x", pa.decimal128(6, 2)), ("y", pa.decimal128(9, 4)), ("n", pa.string()),
        ("f", pa.float32()), ("l", pa.list_(pa.int32())),
    ]
)  # fmt: skip
JOINS = {
    "band": ({"on": "abs(e.f - w.f) <= 1 AND e.n = w.n", "window": "15s"}, {}),
    "decimal": ({"on": "abs(e.x - w.x) <= 1.25 AND e.x + w.y < 7 AND abs(e.y - w.y) <= 0.5", "window": "1s"}, {}),
    "unique": ({"on": "e.l = w.l", "window": "5s"}, {"unique": "n", "where": "e.x > 1.5", "delay": "1s"}),
    "reduce": (
        {"on": "e.n = w.n", "window": "e=1s,w=2s", "how": "left", "reduce": {"s": "sum(w.x)", "m": "max_by(w.n, w.x)"}},
        {},
    ),
    "nearest": (
        {"on": "e.n = w.n", "window": "1s", "nearest": Nearest(2), "select": "e.x, w.y AS b"},
        {},
    ),
    "table": (
        {"on": "e.n = w.n AND e.x = t.x", "window": "every 9s for 60s", "tables": [Table("t", "t.csv")]},
        {},
    ),
}


@pytest.mark.parametrize("kind", JOINS)
def test_join_json(tmp_path: Path, kind: str) -> None:
    given, of_stream = JOINS[kind]
    streams = [Stream("e", "e.parquet", time="ts", **of_stream), Stream("w", "w.parquet", time="ts")]
    join = Join(streams, **given)
    schemas = {name: DECIMAL for name in ("e", "w", *("t" for _ in join.tables))}
    bound = bind(join, schemas)
    CheckpointIdentity.create(tmp_path, bound, Layout((1, 2)), 2)
    path = tmp_path / "join.json"
    text = path.read_bytes()
    facts = json.loads(text)

    def read() -> None:
        found = CheckpointIdentity.load(tmp_path)
        assert found is not None
        assert found.bound.fingerprint == bound.fingerprint, "another join, and nobody says so"

    read()

    def sealed(draw: random.Random) -> None:
        spoilt = changed({name: value for name, value in facts.items() if name != "checksum"}, draw)
        if isinstance(spoilt, dict):
            spoilt["checksum"] = facts_checksum(spoilt)
        path.write_text(json.dumps(spoilt))

    seen = outcomes(read, range(300), sealed)
    assert seen["STATE_CORRUPT"] > 100
    seen = outcomes(read, range(100), lambda draw: path.write_bytes(torn(text, draw)) and None)
    assert seen["STATE_CORRUPT"] > 90


def test_the_facts_of_who_holds_a_lock_or_a_lease() -> None:
    facts = {**process_facts(), "briefly": True, "mark": "m", "count": 3, "ended": False}
    text = json.dumps(facts).encode()
    assert process_told(text) == f"process {facts['pid']} on {facts['host']}, since {facts['since']}"
    assert (lock._is_brief(text), lease._Seen(text, "tag").facts["mark"]) == (True, "m")
    others = 0
    for number in range(600):
        draw = random.Random(number)
        data = json.dumps(changed(facts, draw)).encode() if number % 2 else torn(text, draw)
        told, seen = process_told(data), lease._Seen(data, "tag")
        assert told == "another process" or told.startswith("process ")
        others += told == "another process"
        assert told.isprintable()
        assert len(told) < 500
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):  # the second where the text that is torn is long enough, as of a pid
            said = None
        said = said if isinstance(said, dict) else {}
        assert (lock._is_brief(data), seen.is_free) == (said.get("briefly") is True, said.get("ended") is True)
    assert 200 < others < 500


def test_small_notes(tmp_path: Path) -> None:
    note_epochs_over(tmp_path, [5, 6], EpochsOver((0,), 1, 2))
    note_table(tmp_path, "/tables/m")
    readers: dict[str, Callable[[], object]] = {
        "epochs_over.json": lambda: epochs_over(tmp_path, [7, 7]),
        "table.json": lambda: _known(lambda: noted_table(tmp_path)),
    }
    for name, read in readers.items():
        path, whole, told = tmp_path / name, read(), list[object]()
        text = path.read_bytes()

        def write(draw: random.Random, path: Path = path, text: bytes = text) -> None:
            path.write_bytes(
                json.dumps(changed(json.loads(text), draw)).encode() if draw.random() < 0.5 else torn(text, draw)
            )

        outcomes(lambda read=read, told=told: told.append(read()), range(400), write)  # type: ignore[misc]
        if name == "epochs_over.json":  # what is over by mistake loses rows; what is not known to be over costs copies
            assert [one for one in told if one not in (whole, EpochsOver())] == []
        assert told.count(whole) < 100
        path.write_bytes(text)
        assert read() == whole


def _known(read: Callable[[], object]) -> object:
    try:
        return read()
    except (OSError, ValueError):  # as it says: the caller asks for --to
        return None


OFFSET = {
    "version": 9,
    "streams": {
        "e": {"seq": 30, "file": "a.csv", "line": 3, "set_aside": 1, "aside": [], "version": 4},
        "w": {"seq": 31, "partitions": {"a.csv": {"at": {"seq": 3}, "number": 0}}},
    },
    "clocks": {"e": {"idle": True}},
    "held_back_bytes": {"w": 12},
    "layout": {},
    "delay": {"max_delay_us": 500_000, "delay_us": 3, "waiting_rows": 5},
    "backlog": {"limited_by": "pace"},
}


def test_offsets(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    path = tmp_path / "offsets" / "3"
    streams = [Stream("e", "e", time="ts", format="csv"), Stream("w", "w", time="ts", format="csv")]

    def read() -> None:
        assert logged_plan(tmp_path, 3, streams) is not None

    def spoil(draw: random.Random) -> None:
        path.write_text("v1\n{}\n" + json.dumps(changed(OFFSET, draw)))

    seen = outcomes(read, range(600), spoil)
    assert seen["OFFSET"] > 200
    text = b"v1\n{}\n" + json.dumps(OFFSET).encode()
    outcomes(read, range(200), lambda draw: path.write_bytes(torn(text, draw)) and None)


def test_entries_of_a_table_s_log(tmp_path: Path) -> None:
    tables = Tables(f"{tmp_path}/matches")
    committer = tables.committer()
    for batch_id in range(2):
        tables.commit(committer, batch_id)
    path = tmp_path / "matches" / "_delta_log" / f"{2:020d}.json"
    text = path.read_bytes()
    actions = [json.loads(line) for line in text.splitlines()]

    def read() -> None:
        read_commit(str(tmp_path / "matches"), 2)
        LogSnapshot(str(tmp_path / "matches"))

    read()
    seen = outcomes(
        read,
        range(400),
        lambda draw: path.write_text("\n".join(map(json.dumps, _listed(changed(actions, draw))))) and None,
    )
    assert seen["TABLE"] > 50
    outcomes(read, range(200), lambda draw: path.write_bytes(torn(text, draw)) and None)


def _listed(facts: Any) -> list[Any]:
    return facts if isinstance(facts, list) else [facts]


def test_entries_of_every_table_as_a_restart_looks_at_them(tmp_path: Path) -> None:
    """A restart looks at the newest entries, the one who waits for results at the table of punctuations."""
    tables = Tables(f"{tmp_path}/matches")
    committer = tables.committer()
    for batch_id in range(2):
        tables.commit(committer, batch_id)
    for name in TableSet.names():
        path = Path(tables.tables.path_of(name)) / "_delta_log" / f"{2:020d}.json"
        text = path.read_bytes()
        actions = [json.loads(line) for line in text.splitlines()]

        def read() -> None:
            tail = tail_of(tables.tables.path_of(name))  # noqa: B023
            assert tail is not None
            assert tail.last_batch is None or type(tail.last_batch) is int
            assert set(tail.torn) | set(tail.batches) or tail.version == 2
            read_commit(tail.path, 2)
            if name in ("punctuations", "matches"):  # noqa: B023
                last_punctuation(tables.root)
                list(Follower(tables.root).poll())

        read()
        outcomes(
            read,
            range(60),
            lambda draw: path.write_text("\n".join(map(json.dumps, _listed(changed(actions, draw))))) and None,  # noqa: B023
        )
        outcomes(read, range(60), lambda draw: path.write_bytes(torn(text, draw)) and None)  # noqa: B023
        path.write_bytes(text)


SEALED = {
    "epochs": ({}, {}),
    "how": ({"how": "full"}, {}),
    "nearest": ({"nearest": Nearest(2)}, {}),
    "blocks": ({}, {"blocks": True}),
    "unique": ({}, {}),
}


@pytest.mark.parametrize("kind", SEALED)
def test_what_a_cell_keeps(tmp_path: Path, kind: str) -> None:
    """Sealed again after a change, as one who has the code could: read as it is, or refused by name.

    A task opens it, `inspect` describes it, and a restart with other cells deals it out.
    """
    more, options = SEALED[kind]
    unique = ("temperature",) if kind == "unique" else None
    streams = [
        Stream(name, Generator("sensor", {"rows": 120, "rate": 40, "seed": n}), time="ts", unique=unique)
        for n, name in enumerate("lr")
    ]
    join = Join(streams, "abs(l.temperature - r.temperature) <= 5", "1s", **more)
    bound = bind(join, {stream.name: infer_schema(stream) for stream in streams})
    run = MicroBatches(bound, tmp_path / "c", Layout((1, 1)), max_rows_per_batch=60, **{"blocks": False, **options})
    run.reader.prepareForTriggerAvailableNow()
    run.step()
    if kind == "epochs":
        run.restart(Layout((1, 2)))
    while run.step():
        pass
    blob = run.states[0]
    whole = CellState.decode(blob)
    assert (whole.epochs is not None) == (kind == "epochs")
    spoilt = [blob]

    def read() -> None:
        cell = Cell(run.plan, 0, spoilt[0], TaskFacts(run.batch_id, "q", 0))
        CellWindows(run.plan, 0, cell.state).saved(run.batch_id, cell.state.largest_us, cell.state.watermark_us)
        inspection._cell(inspection._Sizes(BlockStore(run.plan.state_root or "x")), bound.names, spoilt[0], 0, 0)
        states_of_cells(dict.fromkeys(run.states, spoilt[0]), len(run.states), len(run.states) + 1)
        if bound.decided:
            dealt_states(bound, {0: spoilt[0]}, Layout((1, 1)), Layout((1, 2)), run.batch_id)

    read()

    def of_the_cell(draw: random.Random) -> None:
        end = 28 + int.from_bytes(blob[24:28], "little")
        spoilt[0] = as_sealed(blob[7], changed(json.loads(blob[28:end]), draw), whole.windows)

    seen = outcomes(read, range(200), of_the_cell)
    assert seen["STATE_CORRUPT"] > 80

    def of_the_engine(draw: random.Random) -> None:
        told, body = state_blob.opened(bound.fingerprint, whole.engine_blobs()[-1])
        parts = state_blob.parts_of(told, body) if told["sizes"] else []
        facts = changed({name: value for name, value in told.items() if name != "sizes"}, draw)
        if draw.random() < 0.3 and parts:
            parts = [pa.py_buffer(torn(part.to_pybytes(), draw)) for part in parts]
        last = state_blob.sealed(bound.fingerprint, facts if isinstance(facts, dict) else {}, parts)
        windows = b"".join([*whole.engine_blobs()[:-1], last])
        epochs = whole.epochs and [*whole.epochs[:-1], replace(whole.epochs[-1], window_bytes=len(last))]
        spoilt[0] = replace(whole, windows=windows, epochs=epochs).encode()

    seen = outcomes(read, range(200), of_the_engine)
    assert seen["STATE_CORRUPT"] > 80


def test_the_clocks_of_a_frame_s_partitions() -> None:
    facts = {
        "numbers": [1, 4, 9], "largest_us": [50, 70, NO_TIME], "silent_ms": [-1, 5, 6], "idle": [0, 1, 0],
        "stream_silent_ms": -1, "stream_idle": False, "timeout_us": 3000,
    }  # fmt: skip
    spoilt: list[Any] = [facts]

    def read() -> None:
        state = CellState("print", [5, None], partitions=[spoilt[0], None])
        (kept, _) = CellState.decode(state.encode()).partitions or ()
        clocks = PartitionClocks(2, 1, kept)
        clocks.hear(pa.table({"seq": pa.array([4, 16, 24], pa.int64()), "largest_us": pa.array([60] * 3, pa.int64())}))
        clocks.advance(StreamClock(5), 7)
        clocks.forget(60, 5)
        clocks.told()
        json.dumps(clocks.to_facts())

    read()
    seen = outcomes(read, range(1000), lambda draw: spoilt.__setitem__(0, changed(facts, draw)))
    assert seen["STATE_CORRUPT"] > 500


def as_sealed(version: int, facts: Any, windows: bytes) -> bytes:
    """Return a cell's state that passes its checksum, whatever it says."""
    text = json.dumps(facts).encode()
    rest = len(text).to_bytes(4, "little") + text + windows
    return b"SJCELL\0" + bytes([version]) + xxhash.xxh3_128_digest(rest) + rest


TOLD = {"version": "7", "block": "tables/t-0123456789abcdef.arrow", "rows": 3}


def test_which_version_of_a_table_batches_join(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("")
    facts = [[0, {"t": TOLD}], [3, {"t": {**TOLD, "version": "8"}}]]
    path = tmp_path / "tables.json"

    def read() -> None:
        found = given_before(tmp_path)
        assert all(type(first) is int for first, _ in found)
        assert [first for first, _ in found] == sorted({first for first, _ in found})

    path.write_text(json.dumps(facts))
    read()
    seen = outcomes(read, range(300), lambda draw: path.write_text(json.dumps(changed(facts, draw))) and None)
    assert seen["STATE_CORRUPT"] > 200
    text = json.dumps(facts).encode()
    outcomes(read, range(200), lambda draw: path.write_bytes(torn(text, draw)) and None)


def test_the_sample_by_which_ranges_are_chosen(tmp_path: Path) -> None:
    """It is a hint: whatever the file has, there is a sample that fits or none, and ranges can be chosen of it."""
    rows = {"seq": [*range(300)], "ts": [*range(300)], "key0": [n % 17 / 2 for n in range(300)]}
    hint = KeyHint(tuple(SampledRows(pa.table(rows), 0.5) for _ in "ew"))
    table, facts = hint.to_table()
    schema = pa.schema([("ts", pa.int64()), ("x", pa.float64())])
    join = Join([Stream(name, schema=schema) for name in "ew"], "abs(e.x - w.x) <= 1", "1s")
    attributes = attributes_of(bind(join, {"e": schema, "w": schema}))
    path = tmp_path / "key_sample.arrow"

    def read() -> bool:
        found = key_hint(tmp_path, [300, 300])
        if found is None or not found.fits(attributes):
            return False
        return best_ranges(found, attributes, 4) is not None

    note_key_hint(tmp_path, hint)
    assert read()
    assert key_hint(tmp_path, [300, 300]) is not None
    data = path.read_bytes()
    outcomes(read, range(200), lambda draw: path.write_bytes(torn(data, draw)) and None)

    def sealed(draw: random.Random) -> None:
        spoilt = {name: table.column(name) for name in table.column_names}
        name = draw.choice(table.column_names)
        odd = draw.choice(([None], [7], [2**62], [float("nan")], [float("inf")], ["x"], [[1]], [True], [-1], None))
        spoilt[name] = pa.array(odd * table.num_rows) if odd else None
        path.write_bytes(
            pack(
                pa.table({key: column for key, column in spoilt.items() if column is not None}),
                {key: json.dumps(changed(json.loads(value), draw)) for key, value in facts.items()},
            )
        )

    outcomes(read, range(300), sealed)


KINDS = {name: CASES[name] for name in ("all of them", "a table")}


def partitions(run: Operated, batch: int) -> None:
    run.put("l", "a.csv", 9 * batch)
    run.put("r", f"p{batch % 2}.csv", 9 * batch, 9 * batch)


KINDS["partitions"] = (partitions, {}, {"partition_by": "file", "unique": "x"})


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_batches_after_a_copy_are_cut_by(tmp_path: Path, kind: str) -> None:
    """Offsets and the ledger's decisions: the same records again, or an error by name."""
    happens, options, of_stream = KINDS[kind]
    run = Operated(tmp_path, options, **of_stream)
    for batch in range(5):
        happens(run, batch)
        run.step()
    offset = json.loads((tmp_path / "offsets" / "3").read_text().splitlines()[2])
    ledger = scanned(DeltaTable(f"{tmp_path}/matches_ledger")).to_table().to_pylist()
    (row,) = [row for row in ledger if (row["batch_id"], row["stream"]) == (4, "r")]
    decided = json.loads(row["decided"])
    spoilt: dict[str, Any] = {"offset": offset, "row": row}

    def read() -> list[Any]:
        ends = Ends(run.bound, spoilt["offset"])
        feed, begin = ends._feeds["r"], ends._at["r"]
        same_records([spoilt["row"]], [row])
        if ends.move("r", spoilt["row"]):
            msg = "`repair` says what is wrong"
            raise OffsetError(msg, name="r", hint="and changes nothing")
        json.dumps(ends.offset())
        return [chunk.tuples.to_pylist() for chunk in feed.read(begin, ends._at["r"])]

    expected = read()
    assert sum(map(len, expected)) == row["read"] - row["rejected"]

    def of_offset(draw: random.Random) -> None:
        spoilt["offset"] = changed(offset, draw)

    def of_row(draw: random.Random) -> None:
        text = torn(row["decided"].encode(), draw).decode("utf-8", "replace")
        spoilt["row"] = {**row, "decided": json.dumps(changed(decided, draw)) if draw.random() < 0.7 else text}

    seen = outcomes(read, range(200), of_offset)
    assert seen["OFFSET"] > 100
    spoilt["offset"] = offset

    def read_the_same() -> None:
        found, told = read(), json.loads(spoilt["row"]["decided"])
        # Which files were bad is told there alone.
        aside = [facts.get("position", {}).get("aside") for facts in (told, decided)]
        assert found == expected or aside[0] != aside[1]
        assert {"position", "moved"} & {*told}, "the count does not tell what was decided"

    outcomes(read_the_same, range(300), of_row)
