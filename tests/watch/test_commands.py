"""The commands of the page about watching do what it says, as its reader types them: only ports are others."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.documents import ROOT, page
from tests.watch.conftest import Joined

pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytestmark = pytest.mark.slow
BLOCKS = page("docs/watching.md").of("console")
LINES = [line.partition("#")[0].strip() for block in BLOCKS for line in block.body.splitlines()]
# `test_measures` gives the configuration to a Prometheus, where there is one.
COMMANDS = [line for line in LINES if not re.match("pip install|cd monitoring && prometheus", line)]
JOIN = """
on = "abs(a.lat - b.lat) <= 0.02 AND abs(a.lon - b.lon) <= 0.02"
window = "10s"
to = "matches"
checkpoint = "matches.ckpt"
local = true
available_now = true
[streams.a]
source = "a.csv"
time = "ts"
time_unit = "us"
[streams.b]
source = "b.csv"
time = "ts"
time_unit = "us"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Joined(tmp_path)  # it makes the files
    (tmp_path / "join.toml").write_text(JOIN)
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "streamjoin"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m streamjoin_ds.cli.main "$@"\n')
    tool.chmod(0o755)
    return tmp_path


def begun(command: str, folder: Path) -> subprocess.Popen[str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    command = re.sub(r"--(page|metrics)(?= |$)(?! 0)", r"--\1 0", command)
    command = re.sub(r"--metrics 0 0\.0\.0\.0:\d+", "--metrics 0.0.0.0:0", command)
    command = command if "--metrics" in command or " watch " not in command else f"{command} --page 0"
    return subprocess.Popen(
        ["bash", "-c", f"exec env {command}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_commands_run(folder: Path) -> None:
    sent: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    assert len(COMMANDS) == 7
    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    for command in sorted(COMMANDS, key=lambda line: " watch " in line):
        command = command.replace("collector:4318", f"127.0.0.1:{collector.server_port}")
        process = begun(command, folder)
        assert process.stderr is not None
        if " watch " in command:
            what, url = process.stderr.readline().split(": ")
            url = re.sub(r"//[^:]+:", "//127.0.0.1:", url.strip())
            with urllib.request.urlopen(f"{url}facts" if what == "page" else url, timeout=120) as answer:
                text = answer.read().decode()
            assert '"name":"matches"' in text if what == "page" else 'streamjoin_matches_total{join="matches"}' in text
            process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
        if "--page" in command and " run " in command:
            assert re.search(r"^page: http://127\.0\.0\.1:\d+/$", told, re.MULTILINE)
        if "json" in command:
            assert all({"time", "level", "message"} <= json.loads(line).keys() for line in told.splitlines())
    collector.shutdown()
    collector.server_close()
    assert any(b"streamjoin.matches" in body for body in sent)
