"""The example `examples/kafka` from a real broker to matches, by the commands that its README names."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from streamjoin_ds.request.request import request_of
from streamjoin_ds.sink.reader import scanned
from tests.support.kafka import KafkaBroker

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kafka"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)
LINES = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]
READINGS = 400
TIMEOUT_S = 300


def test_its_commands_and_its_join_are_understood() -> None:
    request = request_of(FOLDER / "readings.toml", {})
    assert [stream.partition_kind for stream in request.join.streams] == ["topic", "topic"]
    assert ["streamjoin", "run", "--config", "readings.toml", "--available-now"] in LINES
    assert ["streamjoin", "inspect", request.checkpoint] in LINES
    named = {word for line in LINES for word in line if (FOLDER / word).is_file()}
    assert named == {"server.properties", "send.py", "readings.toml", "session.py"}


@pytest.mark.campaign  # Maven fetches Delta
def test_a_session_of_ones_own_joins_them(broker: KafkaBroker, tmp_path: Path) -> None:
    send = [sys.executable, str(FOLDER / "send.py"), "--servers", broker.servers, "--readings", str(READINGS)]
    subprocess.run(send, check=True, timeout=TIMEOUT_S)
    (line,) = (line for line in LINES if line[0] == "spark-submit")
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    words = [str(FOLDER / word) if (FOLDER / word).is_file() else word for word in line[1:]]
    command = [submit, "--master", "local[2]", *words, "--servers", broker.servers]
    own = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "only showing top 5 rows" in done.stdout
    assert scanned(DeltaTable(str(tmp_path / "own_matches"))).to_table().num_rows > 50


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.delta
def test_readings_of_a_broker_are_joined(broker: KafkaBroker, tmp_path: Path) -> None:
    join = (FOLDER / "readings.toml").read_text().replace("127.0.0.1:9092", broker.servers)
    (tmp_path / "readings.toml").write_text(join)
    send = [sys.executable, str(FOLDER / "send.py"), "--servers", broker.servers, "--readings", str(READINGS)]
    subprocess.run(send, check=True, timeout=TIMEOUT_S)
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "run", "--config", "readings.toml", "--available-now"]
    search = os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sent = runpy.run_path(str(FOLDER / "send.py"))
    rows = {topic: [sent["reading"](topic, number) for number in range(READINGS)] for topic in ("hall", "yard")}
    right = Counter(
        (a["number"], b["number"])
        for a in rows["hall"]
        for b in rows["yard"]
        if abs(a["ts"] - b["ts"]) <= 2_000_000 and abs(a["temperature"] - b["temperature"]) <= 0.1
    )
    found = scanned(DeltaTable(str(tmp_path / "matches"))).to_table().to_pylist()
    assert Counter((row["hall_number"], row["yard_number"]) for row in found) == right
    assert len(right) > 50
    assert {(row["hall_kafka_partition"], row["hall_kafka_offset"]) for row in found} <= {
        (number % sent["PARTITIONS"], number // sent["PARTITIONS"]) for number in range(READINGS)
    }
    (reject,) = scanned(DeltaTable(str(tmp_path / "matches_rejects"))).to_table().to_pylist()
    assert (reject["file"], reject["line"], reject["text"]) == (
        "kafka:hall/0",
        READINGS // sent["PARTITIONS"],
        "no reading",
    )
