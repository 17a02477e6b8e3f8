"""What the tests of spools share: small folders, written by the real writer, and readers of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from streamjoin_ds.spool.segment import HEADER_BYTES, header_facts, segment_paths, walk
from streamjoin_ds.spool.writer import SpoolLimits, SpoolWriter
from tests.source.feeds import Row, iso


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def payload(row: Row) -> bytes:
    ts, name, x, n = row
    return json.dumps({"ts": iso(ts), "name": name, "x": x, "n": n}).encode()


def spooled(
    folder: Path, groups: Iterable[Iterable[bytes]], *, topic: bytes = b"t/a", segment_bytes: int = 1 << 20
) -> Path:
    """Write groups of payloads into a folder, and return it."""
    with SpoolWriter(folder, SpoolLimits(segment_bytes=segment_bytes), clock=Clock(), salts=lambda: 7) as writer:
        for group in groups:
            writer.append([(topic, each) for each in group])
    return folder


def held(folder: Path) -> list[tuple[int, bytes, bytes]]:
    """Return number, topic and payload of each record in a folder; no byte may be damaged or torn."""
    found = []
    for path in segment_paths(folder):
        data = path.read_bytes()
        facts = header_facts(data)
        assert facts is not None
        frames = walk(data[HEADER_BYTES:], facts[0], HEADER_BYTES, ended=True)
        assert not frames.damaged
        assert HEADER_BYTES + frames.marked_end == len(data)
        found += list(zip(frames.numbers(), frames.topics(), frames.payloads, strict=True))
    return found


def certificate_of(folder: Path) -> tuple[str, str]:
    """Return the paths of a certificate for localhost and its key; skip the test without the program openssl."""
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return certificate, key
