"""Input, table and checkpoint in one bucket: killed, cut off, asleep and taken over; the rows are the oracle's.

Spark's connector for S3 is fetched from Maven: 53 jars, 19 MB, without the bundle of Amazon's whole SDK (some 640 MB).
"""

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
from streamjoin_ds.spark.java import resolve_packages
from tests.stream.test_streams_on_s3 import BATCH_ROWS, FILES, WINDOW_US, expected, fill
from tests.support.s3 import BUCKET, S3, SECRET, needs_s3, served

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.delta, needs_s3]

PACKAGES = ["org.apache.hadoop:hadoop-aws:3.5.0"]
SDK = ("s3", "s3-transfer-manager", "sts", "url-connection-client", "apache-client")
PACKAGES += [f"software.amazon.awssdk:{name}:2.35.4" for name in SDK]
WITHOUT = "software.amazon.awssdk:bundle,org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
CHECKPOINT = f"{BUCKET}/checkpoint"
_TRIES, _POLL_S, _LONG_S = 4_000, 0.1, 900


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ivy")
    assert resolve_packages(",".join(PACKAGES), WITHOUT, folder, folder / "log")
    return ",".join(map(str, sorted((folder / "jars").glob("*.jar"))))


def begun(s3: S3, folder: Path, jars: str, *more: str) -> subprocess.Popen[str]:
    endpoint = s3.environment()["AWS_ENDPOINT_URL"]
    settings = {
        "spark.jars": jars,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.attempts.maximum": "2",
    }
    command = [
        sys.executable, "-m", "streamjoin_ds.cli.main", "run", "--stream", f"r=s3://{BUCKET}/r", "--stream",
        f"s=s3://{BUCKET}/s", "--on", "abs(r.x - s.x) <= 1", "--window", f"{WINDOW_US}us", "--to",
        f"s3://{BUCKET}/tables/m", "--checkpoint", f"s3a://{CHECKPOINT}", "--max-rows-per-batch", str(BATCH_ROWS),
        "--available-now", "--cells", "2", *more,
    ]  # fmt: skip
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = os.environ | s3.environment()
    return subprocess.Popen(
        command, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def committed(s3: S3) -> int:
    from pyarrow import fs

    found = s3.files().get_file_info(fs.FileSelector(f"{CHECKPOINT}/commits", allow_not_found=True))
    return len([one for one in found if one.base_name.isdigit()])


def reaches(s3: S3, process: subprocess.Popen[str], batches: int) -> None:
    for _ in range(_TRIES):
        if committed(s3) >= batches or process.poll() is not None:
            return
        time.sleep(_POLL_S)


def test_killed_cut_off_and_taken_over(tmp_path: Path, jars: str) -> None:
    with served(tmp_path) as s3:
        fill(s3, range(FILES))
        killed = begun(s3, tmp_path, jars)
        reaches(s3, killed, 1)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        second = begun(s3, tmp_path, jars)
        # The second waits until the lease stands still, then goes on. It loses its line on the way.
        reaches(s3, second, committed(s3) + 1)
        s3.line.left_bytes = 20_000
        told = second.communicate(timeout=_LONG_S)[0]
        s3.line.left_bytes = None
        assert SECRET not in told
        asleep = begun(s3, tmp_path, jars)
        reaches(s3, asleep, committed(s3) + 1)
        os.killpg(asleep.pid, signal.SIGSTOP)
        assert asleep.poll() is None, "it was done before it could sleep"
        last = begun(s3, tmp_path, jars, "--take-over")
        told = last.communicate(timeout=_LONG_S)[0]
        assert last.returncode == 0, told[-3000:]
        os.killpg(asleep.pid, signal.SIGCONT)
        told = asleep.communicate(timeout=_LONG_S)[0]
        assert asleep.returncode != 0, told[-3000:]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in s3.environment().items():
                patch.setenv(name, value)
            table = scanned(DeltaTable(f"s3://{BUCKET}/tables/m")).to_table()
            ledger = scanned(DeltaTable(f"s3://{BUCKET}/tables/m_ledger")).to_table()
        names = ("r_ts", "r_x", "s_ts", "s_x")
        columns = [table.column(name).cast("int64").to_pylist() for name in names]
        assert Counter(zip(*columns, strict=True)) == expected()
        assert len(ledger) == 2 * committed(s3)
        log = s3.log.read_text(errors="replace")
        assert SECRET not in log
