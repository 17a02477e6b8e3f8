"""The core without the extra `spark`: engine and commands work where pyspark, delta-spark and pandas are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "delta", "pandas", "py4j"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
JOIN = """
import pyarrow as pa
from streamjoin_ds import Join, JoinEngine, Stream

schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])
join = Join([Stream(name, schema=schema) for name in "rs"], "abs(r.x - s.x) <= 1", "1 minute")
engine = JoinEngine(join)
engine.push({"r": [{"ts": 1_000_000, "x": 5}]})
print(engine.push({"s": [{"ts": 2_000_000, "x": 6}]}).num_rows)
"""
COMMAND = """
from streamjoin_ds.cli.main import main

sys.argv = ["streamjoin", *{arguments!r}]
main()
"""


def without_spark(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + program]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_the_engine_joins(tmp_path: Path) -> None:
    finished = without_spark(JOIN, tmp_path)
    assert (finished.stdout, finished.returncode) == ("1\n", 0), finished.stderr


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--version"], "streamjoin, version "),
        (["schema"], '"$schema": "https://json-schema.org/'),
        (["data", "flights", "flights"], "flights/newark.csv.gz"),
        (["explain", "--stream", "r=gen:band2d?side=r", "--stream", "s=gen:band2d?side=s", "--on", "|r.x - s.a| <= 10",
          "--window", "15 minutes"], "abs(r.x - s.a) <= 10"),
    ],
    ids=lambda arguments: arguments[0] if isinstance(arguments, list) else "",
)  # fmt: skip
def test_commands_that_start_no_spark(arguments: list[str], printed: str, tmp_path: Path) -> None:
    finished = without_spark(COMMAND.format(arguments=arguments), tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert printed in finished.stdout


def test_a_command_that_needs_spark_says_what_to_install(tmp_path: Path) -> None:
    finished = without_spark(COMMAND.format(arguments=["demo"]), tmp_path)
    assert finished.returncode == 2
    assert "DEPENDENCY_MISSING" in finished.stderr
    assert "pip install 'streamjoin-ds[spark]'" in finished.stderr


MODULES = "streamjoin_ds.cell.window_server, streamjoin_ds.stream.local_query, streamjoin_ds.stream.sensors"
SCRIPT = """
import atexit, os, sys
from streamjoin_ds.cli.main import script

assert "numpy" not in sys.modules  # it reads the number of its threads as it is imported
atexit.register(lambda: print("pandas" in sys.modules, os.environ["OPENBLAS_NUM_THREADS"]))
sys.argv = ["streamjoin", *{arguments!r}]
script()
"""


def test_no_module_brings_pandas() -> None:
    """Arrow imports it for the first array that is made, so a module may make none as it is imported."""
    program = f"import sys, {MODULES}; print('pandas' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["look", "r.csv"],
        ["run", "--local", "--stream", "r=r.csv", "--stream", "s=r.csv", "--time", "ts", "--on", "r.x = s.x",
         "--window", "1s", "--to", "matches", "--checkpoint", "checkpoint", "--available-now"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_commands_bring_neither_pandas_nor_threads_that_they_do_not_use(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("ts,x\n2024-01-01T00:00:00Z,1\n2024-01-01T00:00:01Z,1\n")
    command = [sys.executable, "-c", SCRIPT.format(arguments=arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (finished.returncode, finished.stdout.splitlines()[-1]) == (0, "False 1"), finished.stderr
