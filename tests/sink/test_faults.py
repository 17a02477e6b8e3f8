"""Drivers that die by kill -9, and two drivers at once: real processes, spawned (delta-rs does not survive a fork)."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.maintenance import vacuum
from streamjoin_ds.sink.reader import scanned

from .conftest import MATCH_SCHEMA, ROWS

DRIVER = """
import sys
from tests.sink.conftest import Join
join = Join(sys.argv[1])
committer = join.committer()
print("ready", flush=True)
for batch_id in range(int(sys.argv[2]), int(sys.argv[3])):
    outcome = join.commit(committer, batch_id)
    print(batch_id, outcome.committed, flush=True)
"""
REPOSITORY = Path(__file__).resolve().parents[2]


def driver(root, first, stop):
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, root, str(first), str(stop)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kill_9_at_random_moments(join):
    """A killed driver replays its last batch, as Spark does; every table ends with every batch once."""
    chance = random.Random(20261120)
    batches, last, kills = 40, -1, 0
    for _ in itertools.count():
        process = driver(join.root, max(last, 0), batches)
        budget = chance.randrange(2, 14)
        for line in process.stdout:
            if line != "ready\n":
                last = int(line.split()[0])
                budget -= 1
            if budget == 0:
                # The next batch is under way. The wait lets the kill come at any of its steps.
                for _ in range(chance.randrange(20_000)):
                    pass
                os.kill(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), errors
        if process.returncode == 0:
            break
    assert kills >= 2
    join.assert_each_once(range(batches))
    assert scanned(DeltaTable(join.tables.matches)).to_table().cast(MATCH_SCHEMA).num_rows == batches * ROWS
    assert vacuum(join.tables.matches) == []  # orphans are younger than a week


@pytest.mark.slow
def test_two_drivers_on_one_checkpoint(join):
    """Both drivers commit the same batches as fast as they can: each batch is there once, whoever wins."""
    join.committer()
    processes = [driver(join.root, 0, 30) for _ in range(2)]
    ends = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode == 0 or "COMMIT_CONFLICT" in errors, errors
    # Each may have lost a race to the other, so that both have ended. A third one goes on, as Spark would.
    done = max([int(out.split()[-2]) for out, _ in ends if out.split()[-1] != "ready"], default=0)
    third = driver(join.root, done, 30)
    _, errors = third.communicate()
    assert third.returncode == 0, errors
    join.assert_each_once(range(30))
