"""The command `streamjoin intake` as a process: what it keeps, says and refuses, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.main import group
from streamjoin_ds.spool.writer import STATUS_FILE, Counts, write_status
from tests.source.feeds import expected, read_all, rows
from tests.spool.spools import held, payload
from tests.support.broker import free_port, mosquitto, publisher

TIMEOUT_S = 120


class Process:
    """An intake that runs, and what it says."""

    def __init__(self, folder: Path, address: str, *options: str, **environment: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "streamjoin_ds.cli.main", "intake", address, "--to", str(folder), *options]
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def status(self) -> dict[str, object]:
        try:
            facts: dict[str, object] = json.loads((self.folder / STATUS_FILE).read_text())
        except FileNotFoundError:
            return {}
        return facts if facts["pid"] == self.process.pid else {}

    def wait_for(self, is_there: Callable[[dict[str, object]], bool]) -> dict[str, object]:
        until_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until_s:
            assert self.process.poll() is None, self.process.communicate()[0]
            if is_there(status := self.status()):
                return status
            threading.Event().wait(0.02)
        raise AssertionError(self.status())

    def end(self) -> str:
        self.process.terminate()
        out = self.process.communicate(timeout=TIMEOUT_S)[0]
        assert self.process.returncode == 0, out
        return out


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(group, ["intake", *arguments], prog_name="streamjoin")
    assert done.exit_code == 2, done.output
    return done.stderr


def test_posted_messages_are_kept_and_read_as_a_stream(tmp_path: Path) -> None:
    folder, port = tmp_path / "spool", free_port()
    intake = Process(folder, f"http://127.0.0.1:{port}/in", "--every", "50ms", STREAMJOIN_INTAKE_TOKEN="sEcReT")
    intake.wait_for(lambda status: status.get("state") == "running")
    again = refused(f"http://127.0.0.1:{free_port()}/in", "--to", str(folder))
    assert f"SPOOL_IN_USE: the spool {folder} is in use by process {intake.process.pid}" in again
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    for attempt in range(200):
        try:
            connection.connect()
            break
        except ConnectionRefusedError:
            assert attempt < 199
            threading.Event().wait(0.05)
    body = b"\n".join(payload(row) for row in rows(30))
    connection.request("POST", "/in", body, {"Authorization": "Bearer sEcReT"})
    assert connection.getresponse().status == 200
    connection.close()
    intake.wait_for(lambda status: status["messages"] == 30)
    out = intake.end()
    assert "30 messages" in out
    status = json.loads((folder / STATUS_FILE).read_text())
    assert (status["state"], status["next_number"], status["messages"]) == ("ended", 30, 30)
    assert read_all(folder, 7) == expected(rows(30))
    texts = out + "".join(path.read_text() for path in folder.iterdir() if path.suffix != ".spool")
    assert "sEcReT" not in texts
    assert "takes in another topic or path" in refused("http://127.0.0.1:1/other", "--to", str(folder))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("kafka://me:sEcReT@b/t",), "holds a user or password"),
        (("kafka://b/t?password=sEcReT",), "a parameter that is not known"),
        (("kafka://b/t?settings=/none",), "file of Kafka settings cannot be read"),
        (("mqtt://me:sEcReT@b/t",), "holds a user or password"),
        (("mqtt://b/t", "--segment-size", "0"), "--segment-size is no size"),
        (("mqtt://b/t", "--keep-size", "5 bananas"), "--keep-size is no size"),
        (("mqtt://b/t", "--keep", "0s"), "--keep must be longer than 0"),
        (("mqtt://127.0.0.1:1/t",), "cannot be reached"),
        (("mqtt://127.0.0.1:1/t", "--accept", "anything"), "--accept is of http://"),
        (("kafka://b/t", "--open"), "--open is of http://"),
        (("http://0.0.0.0:0/in",), "others can reach 0.0.0.0"),
        (("mqtt://b/t", "--secrets", "/none"), "file of secrets cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    said = refused(*arguments, "--to", str(tmp_path / "spool"))
    assert words in said
    assert len(said.splitlines()) == 1
    assert "sEcReT" not in said


def test_an_address_that_gave_nothing_does_not_claim_the_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "spool")
    assert "cannot be reached" in refused("mqtt://127.0.0.1:1/t", "--to", folder)
    assert "cannot be reached" in refused("mqtt://127.0.0.1:1/other", "--to", folder)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        assert "cannot be listened at" in refused(f"http://127.0.0.1:{other.getsockname()[1]}/in", "--to", folder)


def test_signals_that_interrupt_the_wait_do_not_make_it_endless(tmp_path: Path) -> None:
    """A signal at the end of its time made `SimpleQueue.get(timeout=...)` wait for ever (CPython 3.11)."""
    intake = Process(tmp_path / "spool", f"http://127.0.0.1:{free_port()}/in", "--every", "20ms")
    intake.wait_for(lambda status: status.get("state") == "running")
    for _ in range(500):
        intake.process.send_signal(signal.SIGTERM)
        threading.Event().wait(0.0002)
        if intake.process.poll() is not None:
            break
    intake.process.communicate(timeout=TIMEOUT_S)
    assert json.loads((tmp_path / "spool" / STATUS_FILE).read_text())["state"] == "ended"


def test_a_status_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_status(tmp_path / "gone", "running", Counts())
    assert "_status.json cannot be written" in caplog.text


MESSAGES = 30_000
KILLS = 3


@pytest.mark.long
@pytest.mark.slow
def test_an_intake_that_is_killed_three_times_loses_nothing(tmp_path: Path) -> None:
    """30 000 messages at QoS 1 through a real broker; the intake is killed while they come."""
    folder = tmp_path / "spool"
    with mosquitto(tmp_path) as port:
        address = f"mqtt://127.0.0.1:{port}/site/#"
        intake = Process(folder, address, "--every", "20ms", "--segment-size", "256KiB")
        intake.wait_for(lambda status: status.get("connects") == 1)
        sender = publisher(port)
        sent = []

        def publish() -> None:
            for number in range(MESSAGES):
                body = json.dumps({"number": number, "ts": 1_700_000_000_000_000 + number})
                sent.append(sender.publish(f"site/{number % 4}", body, qos=1))
                if number % 100 == 0:
                    threading.Event().wait(0.01)

        publishing = threading.Thread(target=publish)
        publishing.start()
        for kill in range(1, KILLS + 1):
            intake.wait_for(lambda status, least=kill * MESSAGES // 5: int(str(status.get("next_number", 0))) >= least)
            intake.process.send_signal(signal.SIGKILL)
            intake.process.communicate()
            intake = Process(folder, address, "--every", "20ms", "--segment-size", "256KiB")
        publishing.join()
        sent[-1].wait_for_publish(TIMEOUT_S)
        # Once the broker has nothing more to send, nothing comes for a while.
        last = [-1]

        def is_still(status: dict[str, object]) -> bool:
            threading.Event().wait(0.5)
            last.append(int(str(status.get("next_number", 0))))
            return last[-1] == last[-2] >= MESSAGES

        intake.wait_for(is_still)
        intake.end()
        sender.disconnect()
    found = held(folder)
    assert [number for number, _, _ in found] == [*range(len(found))]
    counted = Counter(json.loads(data)["number"] for _, _, data in found)
    lost, twice = MESSAGES - len(counted), len(found) - len(counted)
    print(f"{MESSAGES} messages, {KILLS} kills: {lost} lost, {twice} twice")
    assert lost == 0
    assert twice < MESSAGES // 2
    assert all(topic == b"site/%d" % (json.loads(data)["number"] % 4) for _, topic, data in found[::97])


RATE_MESSAGES = 200_000


@pytest.mark.bench
def test_the_rate_of_durable_messages_a_core(tmp_path: Path) -> None:
    """Messages that wait at the broker are taken in: 20 000 durable ones a CPU second at least."""
    folder = tmp_path / "spool"
    with mosquitto(tmp_path) as port:
        address = f"mqtt://127.0.0.1:{port}/site/#"
        first = Process(folder, address, "--every", "20ms")
        first.wait_for(lambda status: status.get("connects") == 1)
        first.end()
        sender = publisher(port)
        for number in range(RATE_MESSAGES):
            sent = sender.publish("site/1", json.dumps({"number": number, "ts": number, "x": 20.5}), qos=1)
            if number % 20_000 == 0 or number == RATE_MESSAGES - 1:
                sent.wait_for_publish(TIMEOUT_S)
        sender.disconnect()
        intake = Process(folder, address, "--every", "100ms")
        intake.wait_for(lambda status: status.get("next_number") == RATE_MESSAGES)
        intake.process.terminate()
        _, state, used = os.wait4(intake.process.pid, 0)
        assert state == 0
        status = json.loads((folder / STATUS_FILE).read_text())
    cpu_s = used.ru_utime + used.ru_stime
    print(f"{RATE_MESSAGES / cpu_s:,.0f} durable messages a CPU second, start included; {status['syncs']} syncs")
    assert RATE_MESSAGES / cpu_s > 20_000


def test_an_intake_takes_no_memory_for_what_reads_tables() -> None:
    program = (
        "import sys, streamjoin_ds.cli.intake; "
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
