"""A Mosquitto that serves one test alone, and who publishes to it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    """Return a port of loopback that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def mosquitto(folder: Path, *settings: str, access: str = "allow_anonymous true") -> Iterator[int]:
    """Yield the port of a broker on loopback; skip the test where none is installed."""
    path = shutil.which("mosquitto", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if path is None:
        pytest.skip("no MQTT broker here: apt-get install mosquitto")
    port = free_port()
    lines = [f"listener {port} 127.0.0.1", access, "max_queued_messages 0", *settings]
    (folder / "broker.conf").write_text("\n".join(lines) + "\n")
    with subprocess.Popen([path, "-c", str(folder / "broker.conf")], stderr=subprocess.DEVNULL) as process:
        try:
            for attempt in itertools.count():
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert attempt < 200
                threading.Event().wait(0.05)
            yield port
        finally:
            process.terminate()


def publisher(port: int, **options: Any) -> Any:
    """Return a connected client of paho-mqtt whose thread runs; skip the test where it is not installed."""
    mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed: extra `test`")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "publisher", **options)
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client
