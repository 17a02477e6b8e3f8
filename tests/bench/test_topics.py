"""The benchmark over topics: its messages are its tuples, and one real run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.errors import DependencyMissingError
from tests.bench.results import bench
from tests.bench.suites.processes import BenchError
from tests.bench.suites.topics.suite import FORMATS, PEERS, TopicSettings, measure_topics
from tests.bench.suites.topics.topic_load import TopicLoad

if TYPE_CHECKING:
    from tests.support.kafka import KafkaBroker


@pytest.mark.parametrize("side", [0, 1])
def test_messages_hold_the_tuples(side: int) -> None:
    load = TopicLoad("nowhere:1", "t", "json", 50)
    columns = load.columns(side)
    rows = [json.loads(value) for value in load.values(side)]
    assert rows == pa.table(columns).to_pylist()
    packed = b"".join(TopicLoad("nowhere:1", "t", "fixed", 50).values(side))
    records = np.frombuffer(packed, np.dtype([("ts", "<i8"), ("number", "<i8"), ("x", "<i4"), ("y", "<i4")]))
    assert all((records[name] == values).all() for name, values in columns.items())


def test_the_count_is_that_of_every_pair() -> None:
    load = TopicLoad("nowhere:1", "t", "json", 20_000)  # all of them are in one window
    left, right = (load.columns(side) for side in (0, 1))
    found = 0
    for at in range(0, 20_000, 1_000):
        near = [abs(left[name][at : at + 1_000, None] - right[name][None, :]) <= 10 for name in ("x", "y")]
        found += np.count_nonzero(near[0] & near[1])
    assert load.matches() == found > 0


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    done = bench("kafka", "xml", "--servers", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode != 0
    assert "xml" in done.stderr
    assert "json, fixed" in done.stderr


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.delta
def test_a_quick_run(broker: KafkaBroker, tmp_path: Path) -> None:
    done = bench("kafka", "--servers", broker.servers, "--quick", "--json", "--messages", "9000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [row["workload"] for row in found[::2]] == [f"kafka, {kind}, 4 partitions a topic" for kind in FORMATS]
    assert all(row["value"] > 0 for row in found)
    assert not any("at_least" in row for row in found), "a quick look has no bounds"
    from confluent_kafka.admin import AdminClient

    left = AdminClient({"bootstrap.servers": broker.servers}).list_topics(timeout=10).topics
    assert not [name for name in left if name.startswith("streamjoin-bench")]


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.parametrize("name", list(PEERS))
def test_a_peers_own_reader_and_join_give_as_many_matches(broker: KafkaBroker, tmp_path: Path, name: str) -> None:
    """The suite compares the peer's matches with the independent count, too."""
    if name != "spark":
        pytest.importorskip(name)
    done = bench("kafka", "json", "--servers", broker.servers, "--quick", "--json", "--peer", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    *_, peer = json.loads(done.stdout)
    assert peer["workload"] == f"kafka, json, 4 partitions a topic: {name}"
    assert peer["value"] > 0


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    with pytest.raises(DependencyMissingError, match="pathway"):
        next(measure_topics(TopicSettings("nowhere:1", peers=("pathway",)), str))


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.delta
def test_a_wrong_count_is_no_measurement(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicLoad, "matches", lambda load: 7)
    settings = TopicSettings(broker.servers, ("fixed",), messages=1_000, batch_rows=1_000, runs=1, quick=True)
    with pytest.raises(BenchError, match="gave 0 matches, but an independent count 7"):
        list(measure_topics(settings, lambda line: None))
