"""A join from a bucket into a table in it: killed, cut off in the middle, restarted; the rows are the oracle's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from tests.support.s3 import BUCKET, S3, SECRET, needs_s3, served

pytestmark = [pytest.mark.spark, pytest.mark.delta, pytest.mark.long, needs_s3]

ROWS, FILES, STEP_US, WINDOW_US = 2_000, 5, 1_000, 50_000
BATCH_ROWS = 300  # so that a kill after the first batch comes before the last one
_TRIES, _POLL_S = 4_000, 0.05


def tuples(side: str) -> list[tuple[int, int]]:
    """Return time and key of each tuple of a side, in order."""
    factor = {"r": 7, "s": 11}[side]
    return [(1_700_000_000_000_000 + n * STEP_US, n * factor % 97) for n in range(ROWS)]


def expected() -> Counter[tuple[int, int, int, int]]:
    found: Counter[tuple[int, int, int, int]] = Counter()
    reach = WINDOW_US // STEP_US
    right = tuples("s")
    for n, (ts, x) in enumerate(tuples("r")):
        for other_ts, other in right[max(0, n - reach) : n + reach + 1]:
            if abs(x - other) <= 1:
                found[ts, x, other_ts, other] += 1
    return found


def fill(s3: S3, files: range) -> None:
    each = ROWS // FILES
    for side in "rs":
        items = tuples(side)
        for number in files:
            rows = items[number * each : (number + 1) * each]
            s3.put(f"{side}/{number}.csv", ("ts,x\n" + "".join(f"{ts},{x}\n" for ts, x in rows)).encode())


def command(checkpoint: Path) -> list[str]:
    return [
        sys.executable, "-m", "streamjoin_ds.cli.main", "run", "--stream", f"r=s3://{BUCKET}/r", "--stream",
        f"s=s3://{BUCKET}/s", "--on", "abs(r.x - s.x) <= 1", "--window", f"{WINDOW_US}us", "--to",
        f"s3://{BUCKET}/tables/m", "--checkpoint", str(checkpoint), "--max-rows-per-batch", str(BATCH_ROWS),
        "--available-now", "--cells", "2",
    ]  # fmt: skip


def committed(checkpoint: Path) -> int:
    folder = checkpoint / "commits"
    return len([path for path in folder.iterdir() if path.name.isdigit()]) if folder.is_dir() else 0


@pytest.mark.campaign
def test_killed_cut_off_and_restarted(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with served(tmp_path) as s3:
        environment = os.environ | s3.environment()
        fill(s3, range(FILES))

        def begun() -> subprocess.Popen[str]:
            return subprocess.Popen(
                command(checkpoint), env=environment, text=True, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip

        def reaches(process: subprocess.Popen[str], batches: int) -> None:
            for _ in range(_TRIES):
                if committed(checkpoint) >= batches or process.poll() is not None:
                    return
                time.sleep(_POLL_S)

        killed = begun()
        reaches(killed, 1)
        assert killed.poll() is None, killed.communicate()[0][-2000:]
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        assert killed.returncode == -signal.SIGKILL

        cut = begun()
        reaches(cut, committed(checkpoint) + 1)
        s3.line.left_bytes = 3_000  # somewhere in a read or a commit
        told = cut.communicate(timeout=300)[0]
        if cut.returncode == 0:  # it had ended by then
            pytest.skip("the machine was too quick for the cut")
        assert "STORE_UNREACHABLE" in told or "TABLE_WRITE" in told, told[-2000:]
        assert SECRET not in told
        s3.line.left_bytes = None

        last = begun()
        told = last.communicate(timeout=300)[0]
        assert last.returncode == 0, told[-2000:]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in s3.environment().items():
                patch.setenv(name, value)
            table = scanned(DeltaTable(f"s3://{BUCKET}/tables/m")).to_table()
        names = ("r_ts", "r_x", "s_ts", "s_x")
        columns = [table.column(name).cast("int64").to_pylist() for name in names]
        assert Counter(zip(*columns, strict=True)) == expected()
        for path in checkpoint.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
