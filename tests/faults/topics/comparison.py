"""Compares a join's tables with what is right: the topics as an ordinary consumer reads them, and `expected`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from tests.faults.topics.expected import NONE, Expected, PartitionRows, expected_of, matches_of
from tests.faults.topics.load import DELAY_US, NAMES, WINDOW_US

__all__ = ["Outcome", "compared", "held"]

_TOLD = 5  # rows of a difference


class Outcome:
    """What was compared, and what differs.

    Attributes
    ----------
    counts : dict
    violations : list of str
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.violations: list[str] = []

    def same(self, what: str, found: np.ndarray, right: np.ndarray) -> None:
        """Note how the rows of two arrays differ."""
        self.counts[what] = len(right)
        if found.shape == right.shape and np.array_equal(found, right):
            return
        rows, wanted = ({tuple(row) for row in side.tolist()} for side in (found, right))
        many, few = sorted(rows - wanted)[:_TOLD], sorted(wanted - rows)[:_TOLD]
        told = f"{len(found)} for {len(right)}; {len(rows - wanted)} too many: {many}; {len(wanted - rows)} lack: {few}"
        self.violations.append(f"{what}: {told}")


def held(servers: str, topic: str) -> dict[str, tuple[PartitionRows, list[bytes]]]:
    """Return what is committed in a topic's partitions, and the bytes of each message, read by a plain consumer."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "oracle", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    found = {}
    try:
        for partition in consumer.list_topics(topic, 30).topics[topic].partitions:
            at, (_, end) = 0, consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
            consumer.assign([TopicPartition(topic, partition, 0)])
            offsets: list[int] = []
            values: list[bytes] = []
            while at < end:
                for message in consumer.consume(10_000, 0.2):
                    assert not message.error(), message.error()
                    offsets.append(message.offset())
                    values.append(message.value() or b"")
                (position,) = consumer.position([TopicPartition(topic, partition)])
                at = max(at, position.offset)
            found[str(partition)] = _rows(offsets, values), values
    finally:
        consumer.close()
    return found


def _rows(offsets: Sequence[int], values: Sequence[bytes]) -> PartitionRows:
    times, keys = np.full(len(values), NONE, np.int64), np.zeros(len(values), np.int64)
    is_tuple = np.zeros(len(values), bool)
    for place, value in enumerate(values):
        try:
            row = json.loads(value)
        except ValueError:
            continue
        if isinstance(row, dict):
            times[place] = row["ts"]
            is_tuple[place] = isinstance(row["x"], int)
            keys[place] = row["x"] if is_tuple[place] else 0
    return PartitionRows(np.array(offsets, np.int64), times, keys, is_tuple)


def _text(value: bytes) -> str:
    """Return a message as the rejects have it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def compared(folder: Path, servers: str, topics: Sequence[str], offsets: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return how the tables of a join that has read all differ from what is right."""
    outcome = Outcome()
    messages = {name: held(servers, topic) for name, topic in zip(NAMES, topics, strict=True)}
    rows = {name: {partition: own for partition, (own, _) in of.items()} for name, of in messages.items()}
    right, watermarks = expected_of(offsets, rows, DELAY_US)
    for name in NAMES:
        unread = int((right[name].batches >= len(offsets)).sum())
        if unread:
            outcome.violations.append(f"{unread} messages of {name} were not read")
    outcome.counts["messages"] = sum(len(one.seqs) for one in right.values())
    matches = _table(folder, "")
    found = _sorted(matches, "l_seq", "r_seq")
    pairs = matches_of(right["l"], right["r"], WINDOW_US, 1)
    outcome.same("matches", np.stack([found["l_seq"], found["r_seq"]], axis=1), pairs)
    if not outcome.violations:
        _columns(outcome, found, right)
    late = _table(folder, "_late")
    rejects = _table(folder, "_rejects")
    for name, topic in zip(NAMES, topics, strict=True):
        own = right[name]
        outcome.same(f"late {name}", _seqs(late, name), np.sort(own.seqs[own.is_late]))
        of_stream = rejects.filter(pc.equal(rejects["stream"], name))
        told = sorted(zip(*(of_stream[column].to_pylist() for column in ("file", "line", "text")), strict=True))
        bad = [
            (f"kafka:{topic}/{partition}", int(of.offsets[place]), _text(values[place]))
            for partition, (of, values) in messages[name].items()
            for place in np.flatnonzero(~of.is_tuple).tolist()
        ]
        outcome.counts[f"rejects {name}"] = len(bad)
        if told != sorted(bad):
            outcome.violations.append(f"rejects {name}: {set(told) ^ set(bad)}"[:1000])
        outcome.same(f"ledger {name}", _ledger(folder, name), own.ledger(len(offsets)))
    marks = _sorted(_table(folder, "_punctuations"), "batch_id")["punctuation"]
    wanted = np.array([NONE if mark is None else mark for mark in watermarks], np.int64)
    outcome.same("punctuations", marks[:, None], wanted[:, None])
    return outcome


def _columns(outcome: Outcome, found: Mapping[str, np.ndarray], right: Mapping[str, Expected]) -> None:
    """Compare the columns of the matches: the keys, and the largest time."""
    times = []
    for name in NAMES:
        own = right[name]
        order = np.argsort(own.seqs)
        place = order[np.searchsorted(own.seqs[order], found[f"{name}_seq"])]
        outcome.same(f"keys {name}", found[f"{name}_x"][:, None], own.keys[place][:, None])
        times.append(own.times_us[place])
    outcome.same("event times", found["event_time"][:, None], np.maximum(*times)[:, None])


def _table(folder: Path, name: str) -> pa.Table:
    return scanned(DeltaTable(str(folder / f"matches{name}"))).to_table()


def _sorted(table: pa.Table, *names: str) -> dict[str, np.ndarray]:
    ordered = table.sort_by([(name, "ascending") for name in names])
    found = {}
    for name in ordered.column_names:
        column = ordered[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        if pa.types.is_integer(column.type):
            found[name] = column.fill_null(NONE if column.type == pa.int64() else 0).to_numpy()
    return found


def _seqs(table: pa.Table, name: str) -> np.ndarray:
    return np.sort(table.filter(pc.equal(table["stream"], name))["seq"].to_numpy())


def _ledger(folder: Path, name: str) -> np.ndarray:
    table = _table(folder, "_ledger")
    columns = _sorted(table.filter(pc.equal(table["stream"], name)), "batch_id")
    return np.stack([columns[column] for column in ("read", "stored", "late", "rejected")], axis=1)
