"""A join over streams of many partitions, whose order of arrival is read off the offsets, compared with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.source.idleness import Idleness
from streamjoin_ds.source.partitioned_position import PartitionedPosition, first_seq_of
from streamjoin_ds.spec import Join
from streamjoin_ds.testing.arrivals import ahead_rows, batch_watermarks, duplicate_rows, late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.microbatch import MicroBatches

__all__ = ["Partitioned", "arrival"]

Rows = Mapping[str, Any]


def arrival(
    join: Join,
    offsets: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Mapping[str, Sequence[Rows]]],
    places: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    counts: Sequence[Mapping[str, Mapping[str, int]]] = (),
) -> tuple[dict[str, list[Rows]], dict[str, list[int]], dict[str, Any]]:
    """Return each stream's records in the order of the plans, their ``_seq``, and what the oracle must be told.

    Parameters
    ----------
    offsets : sequence of dict
        The ends of the batches.
    rows : mapping
        For each stream and partition the records in the partition's order. A stream of one order has the partition "".
    places : mapping, optional
        For each stream and partition what the records are called there: a topic's offsets. By default their numbers.
    counts : sequence of mapping
        For each batch how many records of each stream and partition were there when it was planned; by default all.
    """
    there: dict[str, list[int]] = {name: [] for name in join.names}

    def since(name: str, partition: str, first: int, last: int) -> list[int]:
        return [sum(count[name].get(partition, 0) <= number for count in counts) for number in range(first, last)]

    listed: dict[str, list[Rows]] = {name: [] for name in join.names}
    seqs: dict[str, list[int]] = {name: [] for name in join.names}
    of: dict[str, list[str]] = {stream.name: [] for stream in join.streams if stream.partition_kind}
    ends, idle = [], []
    read: dict[tuple[str, str], int] = {}
    for offset in offsets:
        asleep: list[Any] = [n for n in join.names if offset.get("clocks", {}).get(n, {}).get("idle")]
        for name in join.names:
            facts = dict(offset["streams"][name])
            asleep += [(name, tuple(one)) for one in facts.pop("devices", {}).get("silenced", ())]
            if name not in of:
                listed[name], seqs[name] = list(rows[name][""][: facts["seq"]]), list(range(facts["seq"]))
                there[name] = since(name, "", 0, facts["seq"])
                continue
            position = PartitionedPosition.from_facts(facts, name)
            for partition, at in position.partitions.items():
                first, read[name, partition] = read.get((name, partition), 0), at.at.seq
                found = rows[name].get(partition, ())[first : at.at.seq]
                listed[name] += found
                there[name] += since(name, partition, first, at.at.seq)
                of[name] += [partition] * len(found)
                called = range(at.at.seq) if places is None else places[name].get(partition, ())
                seqs[name] += [first_seq_of(at.number) + place for place in called[first : at.at.seq]]
                if at.clock.idle:
                    asleep.append((name, partition))
            asleep += [key for key in read if key[0] == name and key[1] not in position.partitions]  # forgotten
            assert position.seq == len(listed[name])
        ends.append({name: len(listed[name]) for name in join.names})
        idle.append(asleep)
    return listed, seqs, {"ends": ends, "idle": idle, "partitions": of, "there": there}


class Partitioned:
    """Runs the batches of a join, whose clock the test sets, and notes the offsets."""

    def __init__(self, join: Join, micro: MicroBatches) -> None:
        self.join, self.micro, self.now_s = join, micro, 0.0
        self.offsets: list[dict[str, Any]] = []
        self.counts: list[Mapping[str, Mapping[str, int]]] = []  # what was there when each batch was planned
        self.restart()

    def restart(self) -> None:
        """Make a new source over the same offsets and states."""
        self.micro.reader = self.micro.source.limited_reader(self.micro.source.schema())
        self.micro.reader.planner._idleness = Idleness(self.join.streams, lambda: self.now_s, lambda: self.now_s + 1e9)

    def step(self) -> bool:
        """Run a batch, if there is one; return whether there was one."""
        if not self.micro.step():
            return False
        self.offsets.append(self.micro.offset)
        if any(stream.device_columns for stream in self.join.streams):
            self.counts.append(self.there())
        return True

    def there(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many records of each stream and partition there are: a test with devices keeps them in `rows`."""
        rows: Mapping[str, Mapping[str, Sequence[Rows]]] = self.rows  # type: ignore[attr-defined]
        return {name: {one: len(own) for one, own in of.items()} for name, of in rows.items()}

    def check(
        self,
        rows: Mapping[str, Mapping[str, Sequence[Rows]]],
        places: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    ) -> None:
        """Assert that results, late tuples, punctuations and the ledger are the oracle's, and that all was read."""
        names = self.join.names
        listed, seqs, known = arrival(self.join, self.offsets, rows, places, self.counts)
        assert {n: len(listed[n]) for n in names} == {n: sum(map(len, rows[n].values())) for n in names}
        columns = [f"{name}_seq" for name in names] + ["window_id"] * (self.join.window.kind == "periodic")
        found = Counter(tuple(row[name] for name in columns) for row in self.micro.matches().to_pylist())
        right: Counter[Any] = Counter()
        for row in oracle_join(self.join, listed, seqs=seqs, **known):
            numbers = {f"{name}_seq": seqs[name][row[f"{name}_seq"]] for name in names}
            right[tuple(numbers.get(name, row.get(name)) for name in columns)] += 1
        assert found == right
        late = Counter((row["stream"], row["seq"]) for row in self.micro.companion("late").to_pylist())
        expected = {n: late_rows(self.join, n, listed, **known) for n in names}
        assert late == Counter((n, seqs[n][k]) for n in names for k in expected[n])
        given = self.micro.companion("punctuations").sort_by("batch_id")["punctuation"].cast(pa.int64()).to_pylist()
        assert given == batch_watermarks(self.join, listed, *known.values())
        twice = {n: duplicate_rows(self.join, n, listed[n], **known) for n in names}
        of_records = {name: facts for name, facts in known.items() if name != "there"}
        ahead = {n: ahead_rows(self.join, n, listed[n], **of_records) for n in names}
        timeless = {n: [k for k, row in enumerate(listed[n]) if row["ts"] is None] for n in names}
        rejected = {n: [*ahead[n], *timeless[n]] for n in names}
        self._ledger({"late": expected, "duplicates": twice, "rejected": rejected}, known["ends"])

    def _ledger(self, counted: Mapping[str, Mapping[str, Sequence[int]]], ends: Sequence[Mapping[str, int]]) -> None:
        rows = {(row["batch_id"], row["stream"]): row for row in self.micro.companion("ledger").to_pylist()}
        before = dict.fromkeys(self.join.names, 0)
        for batch, end in enumerate(ends):
            for name in self.join.names:
                row = rows[batch, name]
                assert row["read"] == end[name] - before[name]
                for what, found in counted.items():
                    assert (row[what] or 0) == sum(before[name] <= number < end[name] for number in found[name]), what
            before = dict(end)
