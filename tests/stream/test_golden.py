"""This version reads the checkpoints of earlier versions and goes on with them: what comes out is the oracle's."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.testing.oracle import oracle_join
from tests.golden.make import (
    FOLDER,
    FRAMES,
    KIND_BATCHES,
    MAX_ROWS,
    MOVED,
    SPARK,
    TOPICS,
    batches,
    frames_join,
    golden_join,
    gone_on,
    held,
    move_frames,
    of_kind,
    of_topics,
    spark_join,
)
from tests.support.further import further
from tests.support.kinds import EVERY, KINDS, Kind, facts_of
from tests.support.microbatch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSIONS = sorted(path.parent.name for path in FOLDER.glob(f"*/{SPARK.replace(' ', '-')}.tar.xz"))
NEWER = {"devices", "envelopes"}
"""Kinds of joins that the first release does not know."""


def archive_of(version: str, name: str) -> Path:
    return FOLDER / version / f"{name.replace(' ', '-')}.tar.xz"


def unpacked(version: str, name: str, folder: Path) -> None:
    with tarfile.open(archive_of(version, name)) as archive:
        archive.extractall(folder, filter="data")


def test_there_is_one_of_each_kind_of_the_first_release() -> None:
    assert VERSIONS[0] == "0.1.0"
    assert {name for name in KINDS if not archive_of("0.1.0", name).exists()} == NEWER


@pytest.mark.parametrize(
    ("version", "kind"), [(one, name) for one in VERSIONS for name in KINDS if archive_of(one, name).exists()]
)
def test_a_checkpoint_of_each_kind_goes_on(
    version: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state, blocks, offset and tables are read as they were written; the rest of the input is joined to them."""
    unpacked(version, kind, tmp_path)
    monkeypatch.chdir(tmp_path)  # the paths of the input are relative
    if KINDS[kind].has_table:
        KINDS[kind].change_table(tmp_path / "in", 1)
    goes_on(of_kind(KINDS[kind], tmp_path / "query"), KINDS[kind])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_of_topics_goes_on(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(version, TOPICS, tmp_path)
    goes_on(of_topics(monkeypatch, tmp_path / "query"), KINDS["inner"])


def goes_on(query: MicroBatches, kind: Kind) -> None:
    identity = CheckpointIdentity.load(query.folder)
    assert identity is not None
    identity.check(query.bound)
    cells = range(len(list(query.folder.glob("state-*.bin"))))
    query.states = {cell: (query.folder / f"state-{cell}.bin").read_bytes() for cell in cells}
    query.offset = json.loads((query.folder / "offset.json").read_text())
    query.batch_id = KIND_BATCHES
    before = facts_of(query.matches().to_pylist())
    found = facts_of(query.run().to_pylist())
    assert query.batch_id > KIND_BATCHES
    assert before < found == kind.expected("in")
    read = Counter[str]()
    for row in query.companion("ledger").to_pylist():
        read[row["stream"]] += row["read"]
    assert read == {name: len(kind.rows(name)) for name in kind.names}


@pytest.mark.parametrize("version", VERSIONS)
def test_spark_goes_on_with_a_checkpoint_over_frames(version: str, spark: SparkSession, tmp_path: Path) -> None:
    unpacked(version, FRAMES, tmp_path)
    move_frames(tmp_path, MOVED, str(tmp_path))
    table = tmp_path / "matches"
    before = facts_of(scanned(DeltaTable(str(table))).to_table().to_pylist())
    join, frames = frames_join(spark, tmp_path)
    options = {"available_now": True, "frames": frames}
    join.start(spark, table, tmp_path / "checkpoint", **options).awaitTermination()
    found = facts_of(scanned(DeltaTable(str(table))).to_table().to_pylist())
    assert before < found == EVERY[FRAMES].expected("in")


@pytest.mark.parametrize("version", [VERSIONS[0], *further(*VERSIONS[1:])])
def test_spark_goes_on_with_a_checkpoint(version: str, spark: SparkSession, tmp_path: Path) -> None:
    unpacked(version, SPARK, tmp_path)
    table, bound = tmp_path / "matches", golden_join()
    before = scanned(DeltaTable(str(table))).to_table().num_rows
    options = {"available_now": True, "max_rows_per_batch": MAX_ROWS}
    spark_join().start(spark, table, tmp_path / "checkpoint", **options).awaitTermination()
    rows = {}
    for stream, schema in zip(bound.join.streams, bound.schemas, strict=True):
        feed = open_feed(stream, schema)
        tuples = pa.Table.from_batches([chunk.tuples for chunk in feed.read(feed.initial(), None)])
        rows[stream.name] = tuples.rename_columns(["ts" if n == "_ts" else n for n in tuples.column_names]).to_pylist()
    until_us = min(listed[-1]["ts"] for listed in rows.values())
    expected = Counter((row["r_seq"], row["s_seq"]) for row in oracle_join(spark_join(), rows, until_us=until_us))
    matches = scanned(DeltaTable(str(table))).to_table()
    assert before < matches.num_rows
    assert Counter(zip(matches["r_seq"].to_pylist(), matches["s_seq"].to_pylist(), strict=True)) == expected


def test_a_checkpoint_of_the_first_form_goes_on(tmp_path: Path) -> None:
    """The windows hold the same tuples, in runs in blocks, runs inline, and tails."""
    kept = FOLDER / "v1"
    expected = json.loads((kept / "expected.json").read_text())
    query = batches(tmp_path / "checkpoint")
    shutil.copy(kept / "join.json", query.folder)
    shutil.copytree(kept / "blocks", query.plan.state_root)
    identity = CheckpointIdentity.load(query.folder)
    assert identity is not None
    identity.check(query.bound)
    assert identity.bound.fingerprint == query.bound.fingerprint
    query.states = {cell: (kept / f"state-{cell}.bin").read_bytes() for cell in range(query.layout.cells)}
    query.offset = json.loads((kept / "offset.json").read_text())
    query.batch_id = expected["batch_id"]
    assert held(query) == expected["held"]
    assert all(any(cell) for cell in expected["held"])
    results = gone_on(query)
    assert len(results) > 100
    assert results == expected["results"]
