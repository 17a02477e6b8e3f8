"""The examples as a user starts them: with `spark-submit`, with plain Python, and beside a real MQTT broker."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.java import find_java
from tests.support.real_data import BY_NAME, FILES, needs_data

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 300


def environment() -> dict[str, str]:
    """Return an environment with this Python for driver and workers, the Java that is found here, and the package."""
    import pyspark

    root = str(EXAMPLES.parent)
    return os.environ | {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def start(command: list[str], name: str, streams: tuple[str, str], folder: Path) -> str:
    arguments = [str(EXAMPLES / f"{name}.py"), *(str(FILES[stream]) for stream in streams), "matches", "checkpoint"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return done.stdout


def spark_submit() -> list[str]:
    import pyspark

    return [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.shared
@needs_data
@pytest.mark.parametrize(
    ("name", "streams", "command"),
    [
        ("flights", ("e", "w"), None),
        pytest.param("air", ("u", "s"), [sys.executable], marks=pytest.mark.campaign),
    ],
)
def test_an_example_finds_the_known_matches(
    name: str, streams: tuple[str, str], command: list[str] | None, tmp_path: Path
) -> None:
    out = start(command or spark_submit(), name, streams, tmp_path)
    assert "matches" in out
    table = scanned(DeltaTable(str(tmp_path / "matches"))).to_table()
    assert table.num_rows == BY_NAME[name].matches
    ledger = scanned(DeltaTable(str(tmp_path / "matches_ledger"))).to_table()
    assert set(ledger["stream"].to_pylist()) == set(streams)
    assert len(set(ledger["batch_id"].to_pylist())) > 1


READINGS = 400


def reading(topic: str, number: int) -> str:
    """Return a reading. Numbers are 0.1 s of event time apart, so readings at most 20 numbers apart share a window."""
    step = {"hall": 7, "yard": 11}[topic]
    return json.dumps({"number": number, "ts": number * 100_000, "temperature": 20 + number * step % 50 / 10})


def expected_pairs() -> set[tuple[int, int]]:
    hall, yard = ([20 + number * step % 50 / 10 for number in range(READINGS + 1)] for step in (7, 11))
    near = ((h, y) for h in range(1, READINGS + 1) for y in range(max(1, h - 20), min(READINGS + 1, h + 21)))
    return {(h, y) for h, y in near if abs(hall[h] - yard[y]) <= 0.1}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    """The port of a Mosquitto that serves this test alone."""
    path = shutil.which("mosquitto", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if path is None:
        pytest.skip("no MQTT broker here: apt-get install mosquitto")
    port = free_port()
    (tmp_path / "broker.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    with subprocess.Popen([path, "-c", str(tmp_path / "broker.conf")], stderr=subprocess.DEVNULL) as process:
        yield port
        process.terminate()


class Player:
    """A sensor: it publishes readings, and waits until the broker has acknowledged one before it sends the next."""

    def __init__(self, port: int) -> None:
        mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed: extra `test`")
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "player")
        for attempt in itertools.count():
            try:
                self.client.connect("127.0.0.1", port)
                break
            except OSError:  # the broker is still starting
                assert attempt < 100
                threading.Event().wait(0.1)
        self.client.loop_start()

    def play(self, first: int, last: int, *more: tuple[str, str]) -> None:
        messages = [(topic, reading(topic, number)) for number in range(first, last + 1) for topic in ("hall", "yard")]
        for topic, payload in [*messages, *more]:
            self.client.publish(topic, payload, qos=1).wait_for_publish(30)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def joining(port: int, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / "mqtt.py"), "127.0.0.1", str(port), "state"]
    with (folder / "out").open("a") as out, (folder / "err").open("a") as err:
        return subprocess.Popen(command, cwd=folder, env=environment(), stdout=out, stderr=err, text=True)


def await_numbers(folder: Path, number: int, process: subprocess.Popen[str]) -> None:
    """Wait until the saved state has the readings of both topics up to this number."""
    state = folder / "state"
    for _ in range(TIMEOUT_S * 10):
        assert process.poll() is None, (folder / "err").read_text()
        if state.exists():
            last = json.loads(state.read_bytes().partition(b"\n")[0])
            if min(last.values()) >= number:
                return
        threading.Event().wait(0.1)
    raise AssertionError(number)


def test_mqtt_messages_are_joined_whatever_breaks_off(tmp_path: Path, broker: int) -> None:
    player = Player(broker)
    first = joining(broker, tmp_path)
    # The session begins when the example has subscribed. Readings before that reach nobody.
    player.play(1, 1)
    while not (tmp_path / "state").exists():
        assert first.poll() is None, (tmp_path / "err").read_text()
        player.play(1, 1)
    player.play(2, 100, ("hall", "no reading"), ("yard", "{}"))
    await_numbers(tmp_path, 100, first)
    player.play(101, 150)
    first.kill()  # while it takes in these readings
    first.wait()
    player.play(151, 250)  # while no example runs
    second = joining(broker, tmp_path)
    await_numbers(tmp_path, 250, second)
    second.terminate()
    assert second.wait(TIMEOUT_S) == 0
    player.play(251, READINGS)
    third = joining(broker, tmp_path)
    await_numbers(tmp_path, READINGS, third)
    third.terminate()
    assert third.wait(TIMEOUT_S) == 0
    player.close()
    found = [tuple(map(int, line.split())) for line in (tmp_path / "out").read_text().splitlines()]
    expected = expected_pairs()
    assert len(expected) > 200
    assert set(found) == expected
    twice = {pair for pair in found if found.count(pair) > 1}
    assert all(80 <= max(pair) <= 250 for pair in twice)  # pairs that the kill left unsaved are found again
    errors = (tmp_path / "err").read_text()
    assert "no reading on hall" in errors
    assert "no reading on yard" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 90
