"""The identity of a checkpoint: it is kept, another join's is refused by name, and damage is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from streamjoin_ds.blocks.place import local_path
from streamjoin_ds.checkpoint.identity import VERSION, CheckpointIdentity
from streamjoin_ds.errors import (
    FingerprintMismatchError,
    ForeignCheckpointError,
    StateCorruptError,
    StateVersionError,
    StreamJoinError,
)
from streamjoin_ds.plan import Layout, RangeLayout, attributes_of
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind

COLUMNS = {"x": pa.float64(), "id": pa.string()}
LAYOUT = Layout((1, 2))


def made(
    *,
    streams: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
    on: str = "abs(e.x - w.x) <= 0.1 AND e.id <> w.id",
    window: Any = "15s",
    columns: dict[str, pa.DataType] = COLUMNS,
    **arguments: Any,
) -> BoundJoin:
    sides = [Stream(**{"name": n, "source": f"{n}.csv", **facts}) for n, facts in zip(("e", "w"), streams, strict=True)]
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("at", pa.timestamp("us", tz="UTC")), *columns.items()])
    return bind(Join(sides, on, window, **arguments), {stream.name: schema for stream in sides})


CHANGES: dict[str, tuple[Callable[[], BoundJoin], str]] = {
    "window": (lambda: made(window="30s"), "window"),
    "one window": (lambda: made(window="e=15s,w=1h"), "window"),
    "eps": (lambda: made(on="abs(e.x - w.x) <= 0.2 AND e.id <> w.id"), "predicates"),
    "predicate gone": (lambda: made(on="abs(e.x - w.x) <= 0.1"), "predicates"),
    "predicate more": (lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.id <> w.id AND e.ts = w.ts"), "predicates"),
    "delay": (lambda: made(streams=({}, {"delay": "1s"})), "delay of w"),
    "time column": (lambda: made(streams=({"time": "at"}, {})), "time column of e"),
    "time unit": (lambda: made(streams=({"time_unit": "s"}, {})), "time column of e"),
    "types": (lambda: made(columns={**COLUMNS, "x": pa.float32()}), "columns of e, columns of w"),
    "select": (lambda: made(select=["e.*", "w.x"]), "columns of w, select"),
    "only select": (lambda: made(select=["e.id", "e.x", "e.at", "e.ts", "w.*"]), "select"),
    "streams": (lambda: made(streams=({}, {"name": "v"}), on="abs(e.x - v.x) <= 0.1"), "streams"),
    "computed": (
        lambda: made(streams=({"columns": {"x": "x * 2"}}, {})),
        "computed columns of e, columns of e, select",
    ),
    "generator": (lambda: made(streams=({"source": Generator("sensor")}, {})), "generator of e"),
    "self-pairs": (lambda: made(include_self_pairs=True), "self-pairs"),
    "one input": (lambda: made(streams=({"source": "a.csv"}, {"source": "a.csv"})), "self-pairs"),
    "two things": (lambda: made(window="30s", on="e.id = w.id"), "window, predicates"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_join_is_refused_by_name(tmp_path: Path, what: str) -> None:
    make, changed = CHANGES[what]
    identity = CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2)
    with pytest.raises(FingerprintMismatchError) as caught:
        identity.check(make())
    assert caught.value.name == changed
    assert changed in caught.value.message
    assert "new checkpoint" in caught.value.hint
    assert ".csv" not in str(caught.value)


@pytest.mark.parametrize(
    "same",
    [
        lambda: made(streams=({"source": "/moved/e.csv"}, {"format": "csv"})),
        lambda: made(on="w.id <> e.id AND e.x BETWEEN w.x - .1 AND w.x + .1"),
        lambda: made(window={"e": "15000 ms", "w": "15s"}),
    ],
)
def test_another_spelling_is_the_same_join(tmp_path: Path, same: Callable[[], BoundJoin]) -> None:
    CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2).check(same())


def test_other_computed_columns_are_refused_by_name_and_unused_ones_are_not(tmp_path: Path) -> None:
    def computed(**columns: str) -> BoundJoin:
        return made(streams=({"columns": columns}, {}), on="abs(e.y - w.x) <= 1", select="e.y, w.x")

    identity = CheckpointIdentity.create(tmp_path, computed(y="x * 2"), LAYOUT, 2)
    assert CheckpointIdentity.load(tmp_path) == identity
    identity.check(computed(y="e.x*2", z="id || '!'"))
    with pytest.raises(FingerprintMismatchError, match="changed: computed columns of e"):
        identity.check(computed(y="x * 3"))


def test_an_identity_comes_back(tmp_path: Path) -> None:
    checkpoint = tmp_path / "made" / "when" / "needed"
    assert CheckpointIdentity.load(checkpoint) is None
    identity = CheckpointIdentity.create(checkpoint, made(), LAYOUT, 5)
    assert CheckpointIdentity.load(checkpoint) == identity
    assert [path.name for path in checkpoint.iterdir()] == ["join.json"]
    assert CheckpointIdentity.create(tmp_path / "other", made(), LAYOUT, 5).join_id != identity.join_id


def test_a_second_start_gets_the_firsts_identity(tmp_path: Path) -> None:
    first = CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2)
    assert CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2) == first
    with pytest.raises(FingerprintMismatchError):
        CheckpointIdentity.create(tmp_path, made(window="1h"), LAYOUT, 2)
    assert CheckpointIdentity.create(tmp_path, made(), Layout((3, 1)), 3) == first
    assert [path.name for path in tmp_path.iterdir()] == ["join.json"]


def test_of_starts_at_once_one_wins(tmp_path: Path) -> None:
    bound = made()
    found: list[CheckpointIdentity] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        found.append(CheckpointIdentity.create(tmp_path, bound, LAYOUT, 2))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({identity.join_id for identity in found}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["join.json"]


@pytest.mark.parametrize("name", ["metadata", "offsets", "commits", "state"])
def test_a_checkpoint_of_another_query(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ForeignCheckpointError) as caught:
        CheckpointIdentity.load(tmp_path)
    assert caught.value.name == "checkpoint"


def test_other_files_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "blocks").mkdir()
    (tmp_path / ".join.json.left-over").write_text("{")
    assert CheckpointIdentity.load(tmp_path) is None


def test_a_file_in_the_checkpoints_place(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(ForeignCheckpointError, match="is a file"):
        CheckpointIdentity.load(tmp_path / "checkpoint")


def test_a_folder_in_the_files_place(tmp_path: Path) -> None:
    (tmp_path / "join.json").mkdir()
    with pytest.raises(StateCorruptError, match="cannot be opened"):
        CheckpointIdentity.load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"3", b"null", b'"x"', b"{}", b"\xff\xfe", b'{"version": 1}', b'{"version": "1"}', b"\0" * 100],
)
def test_what_cannot_be_read(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "join.json").write_bytes(text)
    with pytest.raises(StateCorruptError) as caught:
        CheckpointIdentity.load(tmp_path)
    assert caught.value.name == "join.json"


def test_every_flipped_byte_is_named_or_without_meaning(tmp_path: Path) -> None:
    identity = CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2)
    path = tmp_path / "join.json"
    data = bytearray(path.read_bytes())

    def found() -> CheckpointIdentity | str | None:
        try:
            return CheckpointIdentity.load(tmp_path)
        except StreamJoinError as error:
            return error.code

    outcomes = []
    for place in range(0, len(data), 7):
        data[place] ^= 0x01
        path.write_bytes(data)
        outcomes.append(found())
        data[place] ^= 0x01
    # A flip between two values may mean nothing. One in the version's only digit may make the version a newer one.
    assert all(outcome in (identity, "STATE_CORRUPT", "STATE_VERSION") for outcome in outcomes)
    assert outcomes.count("STATE_CORRUPT") > len(outcomes) * 0.8


@pytest.mark.parametrize("change", ["layout", "partitions", "join_id", "fingerprint", "bound"])
def test_an_edited_file_is_named(tmp_path: Path, change: str) -> None:
    CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2)
    path = tmp_path / "join.json"
    facts = json.loads(path.read_text())
    other = {
        "layout": [2, 1],
        "partitions": 3,
        "join_id": "0" * 32,
        "fingerprint": "0" * 32,
        "bound": made(window="1h").to_facts(),
    }
    path.write_text(json.dumps({**facts, change: other[change]}))
    with pytest.raises(StateCorruptError):
        CheckpointIdentity.load(tmp_path)


def test_a_newer_version(tmp_path: Path) -> None:
    CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2)
    path = tmp_path / "join.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": VERSION + 1, "more": 1}))
    with pytest.raises(StateVersionError, match="newer") as caught:
        CheckpointIdentity.load(tmp_path)
    assert "update" in caught.value.hint


def test_a_layout_of_ranges_comes_back_and_is_of_a_newer_version(tmp_path: Path) -> None:
    bound = made()
    ranges = RangeLayout(4, attributes_of(bound)[0], 1, (0.5, 2.0), (Layout((1, 1)), Layout((1, 2)), Layout((1, 1))))
    CheckpointIdentity.create(tmp_path, bound, ranges, 4)
    found = CheckpointIdentity.load(tmp_path)
    assert found is not None
    assert found.layout == ranges
    text = (tmp_path / "join.json").read_text()
    assert json.loads(text)["version"] == 3, "versions before there were ranges refuse it"
    assert text == found.to_json()
    for damage in ({"boundaries": [2.0, 0.5]}, {"keys": []}, {"grids": [[9, 1, 1]]}, {"cells": "4"}, {"anchor": None}):
        facts = json.loads(text)
        del facts["checksum"]
        facts["layout"] |= damage
        (tmp_path / "join.json").write_text(json.dumps({**facts, "checksum": checksum_of(facts)}))
        with pytest.raises(StateCorruptError):
            CheckpointIdentity.load(tmp_path)


@pytest.mark.parametrize(
    ("fact", "odd"),
    [
        *((fact, odd) for fact in ("partitions", "generation") for odd in (1.5, 2.0, "2", None, True, -1)),
        *(("version", odd) for odd in (1.5, 1.0, True)),
        *(("join_id", odd) for odd in (1.5, None, [])),
        *(("in_order", odd) for odd in (1.5, 1, "yes", None)),
        ("partitions", 0),
        ("order_by", [[1.5], ["x"]]),
    ],
)
def test_a_fact_of_another_form_is_named_although_the_checksum_is_right(tmp_path: Path, fact: str, odd: object) -> None:
    facts = json.loads(CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2).to_json())
    del facts["checksum"]
    facts[fact] = odd
    (tmp_path / "join.json").write_text(json.dumps({**facts, "checksum": checksum_of(facts)}))
    with pytest.raises(StateCorruptError):
        CheckpointIdentity.load(tmp_path)


def checksum_of(facts: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())


def test_another_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointIdentity.create(tmp_path, made(), LAYOUT, 2)
    monkeypatch.setattr("streamjoin_ds.spec.bound.bound_join.CONTRACT_VERSION", 2)
    with pytest.raises(FingerprintMismatchError) as caught:
        CheckpointIdentity.load(tmp_path)
    assert caught.value.name == "contract"


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", Path("/a/b")),
        ("a/b", Path("a/b")),
        ("file:/a/b", Path("/a/b")),
        ("file:///a/b", Path("/a/b")),
        ("s3://bucket/a", None),
        ("hdfs://host/a", None),
        ("dbfs:/a", None),
        ("file://host/a", None),
        ("a:b", Path("a:b")),
        ("c:/a", Path("c:/a")),
        ("", Path()),
        ("file:///a%20b", Path("/a%20b")),
        ("/a%20b", Path("/a%20b")),
    ],
)
def test_local_paths(location: str, path: Path | None) -> None:
    assert local_path(location) == path
