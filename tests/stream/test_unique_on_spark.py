"""Duplicates on Spark: a spool with messages that came twice, and a join over it that is killed (kill -9)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from tests.source.feeds import START_US, iso
from tests.spool.spools import spooled

pytestmark = [pytest.mark.spark, pytest.mark.delta, pytest.mark.slow, pytest.mark.long]

TIMEOUT_S = 240
MESSAGES, GROUP, BATCH_ROWS, STEP_US = 3_000, 250, 600, 20_000


def delivered(dice: random.Random) -> list[list[bytes]]:
    """Return groups of messages; after some of them the intake was killed, and the next group begins in the one before.

    The device `b` sends the numbers that `a` sends.
    """
    groups, at = [], 0
    while at < MESSAGES:
        groups.append([message(number) for number in range(at, min(at + GROUP, MESSAGES))])
        at += GROUP - (dice.randint(1, 80) if dice.random() < 0.6 and at + GROUP < MESSAGES else 0)
    return groups


def message(number: int) -> bytes:
    facts = {
        "ts": iso(START_US + number * STEP_US),
        "device": "ab"[number % 2],
        "counter": number // 2,
        "x": number % 97,
    }
    return json.dumps(facts).encode()


def run(folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "streamjoin_ds.cli.main", "run", "--stream", f"e={folder / 'spool'}", "--stream",
        f"w={folder / 'w.csv'}", "--unique", "e=device,counter", "--on", "abs(e.x - w.x) <= 3", "--window", "5s",
        "--select", "e.counter,w.x", "--to", str(folder / "matches"), "--checkpoint", str(folder / "checkpoint"),
        "--max-rows-per-batch", str(BATCH_ROWS), "--master", "local[2]", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.sql.shuffle.partitions=2", *flags,
    ]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def ledger(folder: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = scanned(DeltaTable(f"{folder / 'matches'}_ledger")).to_table().to_pylist()
    except Exception:  # not there yet
        return []
    return rows


def test_messages_that_came_twice_match_once_though_the_join_is_killed(tmp_path: Path) -> None:
    groups = delivered(random.Random(7))
    spooled(tmp_path / "spool", groups, segment_bytes=40_000)
    times = [START_US + number * 1_000_000 for number in range(60)]
    (tmp_path / "w.csv").write_text("ts,x\n" + "".join(f"{iso(ts)},{number % 97}\n" for number, ts in enumerate(times)))
    process = run(tmp_path, "--trigger", "300ms")
    until_s = time.monotonic() + TIMEOUT_S
    while len(ledger(tmp_path)) < 4:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until_s
        threading.Event().wait(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = len(ledger(tmp_path))
    out = run(tmp_path, "--available-now").communicate(timeout=TIMEOUT_S)[0]
    rows = ledger(tmp_path)
    read = sum(map(len, groups))
    sums = {name: sum(row[name] for row in rows if row["stream"] == "e") for name in ("read", "duplicates", "stored")}
    assert sums == {"read": read, "duplicates": read - MESSAGES, "stored": MESSAGES}, out
    assert read - MESSAGES > 100
    assert len(rows) > before + 2  # the second run had batches of its own
    expected = Counter(
        (number // 2, other % 97)
        for number in range(MESSAGES)
        for other, ts in enumerate(times)
        if abs(START_US + number * STEP_US - ts) <= 5_000_000 and abs(number % 97 - other % 97) <= 3
    )
    matches = scanned(DeltaTable(str(tmp_path / "matches"))).to_table()
    assert Counter(zip(matches["e_counter"].to_pylist(), matches["w_x"].to_pylist(), strict=True)) == expected
