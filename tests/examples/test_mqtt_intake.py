"""The example `examples/mqtt_intake` from a real broker to matches, by the commands that its README names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.cli.intake import command as intake
from streamjoin_ds.request.request import request_of
from streamjoin_ds.sink.reader import scanned
from tests.examples.test_examples import READINGS, expected_pairs, reading
from tests.spool.test_intake import Process
from tests.support.broker import mosquitto, publisher

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "mqtt_intake"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)
LINES = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]
TIMEOUT_S = 300


def test_its_commands_and_its_join_are_understood() -> None:
    intakes = [line for line in LINES if line[:2] == ["streamjoin", "intake"]]
    given = [intake.make_context("intake", line[2:]).params for line in intakes]
    request = request_of(FOLDER / "readings.toml", {})
    assert [each["folder"] for each in given] == [stream.location for stream in request.join.streams]
    assert [each["address"].rpartition("/")[2] for each in given] == list(request.join.names)
    assert ["streamjoin", "run", "--config", "readings.toml"] in LINES


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.delta
def test_readings_of_a_broker_are_joined(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "readings.toml", tmp_path)
    with mosquitto(tmp_path) as port:
        intakes = {
            topic: Process(tmp_path / "spool" / topic, f"mqtt://127.0.0.1:{port}/{topic}", "--every", "50ms")
            for topic in ("hall", "yard")
        }
        for process in intakes.values():
            process.wait_for(lambda status: status.get("connects") == 1)
        sender = publisher(port)
        for number in range(1, READINGS + 1):
            for topic in intakes:
                sent = sender.publish(topic, reading(topic, number), qos=1)
        sender.publish("hall", "no reading", qos=1).wait_for_publish(TIMEOUT_S)
        sent.wait_for_publish(TIMEOUT_S)
        sender.disconnect()
        for process in intakes.values():
            process.wait_for(lambda status: int(str(status["next_number"])) >= READINGS)
            process.end()
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "run", "--config", "readings.toml", "--available-now"]
    search = os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = scanned(DeltaTable(str(tmp_path / "matches"))).to_table().to_pylist()
    assert {(row["hall_number"], row["yard_number"]) for row in found} == expected_pairs()
    assert len(found) == len(expected_pairs()) == json.loads(done.stdout)["matches"]
    assert {row["hall_spool_number"] + 1 - row["hall_number"] for row in found} == {0}
    rejects = scanned(DeltaTable(str(tmp_path / "matches_rejects"))).to_table().to_pylist()
    assert [row["text"] for row in rejects] == ["no reading"]
    assert rejects[0]["file"].endswith(".spool")
