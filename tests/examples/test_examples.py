"""The examples as a user starts them: by `spark-submit`, and by plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.stream.java import find_java
from tests.support.real_data import BY_NAME, FILES, needs_data

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 300


def environment() -> dict[str, str]:
    """This Python for driver and workers, the Java that this package finds, the package importable."""
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


@pytest.mark.spark
@pytest.mark.shared
@needs_data
@pytest.mark.parametrize(
    ("name", "streams", "command"), [("flights", ("e", "w"), None), ("air", ("u", "s"), [sys.executable])]
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


def test_messages_are_joined_in_a_loop_and_a_second_run_goes_on(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        command = [sys.executable, str(EXAMPLES / "mqtt.py"), "state"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stderr == ""
        found += [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    # What the player plays: a reading a tenth of a second (so at most 20 numbers apart) of 20 + n * step % 50 / 10.
    hall, yard = ([20 + number * step % 50 / 10 for number in range(1000)] for step in (7, 11))
    near = [(h, y) for h in range(1000) for y in range(max(0, h - 20), min(1000, h + 21))]
    expected = [(h, y) for h, y in near if abs(hall[h] - yard[y]) <= 0.1]
    assert len(expected) > 500
    assert sorted(found) == expected
    assert any(h < 500 <= y for h, y in found)  # across the two runs: the windows were kept


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60
