"""The doctor and the command group: what they find and say, and their exit status."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from streamjoin_ds import __version__
from streamjoin_ds.cli import doctor as checks
from streamjoin_ds.cli import main
from streamjoin_ds.cli.doctor import Check, in_range
from streamjoin_ds.errors import JavaMissingError, PredicateError

versions = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
clauses = st.tuples(st.sampled_from([">=", "<=", "==", "!=", "<", ">"]), versions).map("".join)


@given(versions, st.lists(clauses, max_size=3).map(",".join))
def test_ranges_mean_what_pip_means(found: str, specification: str) -> None:
    assert in_range(found, specification) == SpecifierSet(specification).contains(found)


@pytest.mark.parametrize("found", ["2.2.0rc1", "2.3.1.post1", "2.2+local"])
def test_suffixes_are_passed_over(found: str) -> None:
    assert in_range(found, ">=2.2,<3")


def test_ranges_are_those_of_this_distribution() -> None:
    ranges = checks._required_ranges()
    assert ranges["pyspark"].startswith("<=4.2.0")  # of the extra for Spark
    assert set(checks._PACKAGES) <= set(ranges)
    assert "pytest" not in ranges


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main.group, ["doctor", *arguments])
    return result.exit_code, result.output


def test_all_is_there_on_this_machine() -> None:
    status, output = doctor("--json")
    report = json.loads(output)
    by_name = {check["name"]: check for check in report["checks"]}
    assert (status, report["ok"]) == (0, True), output
    assert by_name["pyspark"]["value"].startswith(importlib.metadata.version("pyspark"))
    assert by_name["streamjoin-ds"]["value"].startswith(__version__)
    assert by_name["kernels"]["value"].partition(" ")[0] in by_name["kernels"]["value"].partition("chosen of ")[2]


def test_what_lacks_is_one_line_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        message = "Spark needs Java 17 or newer and none was found."
        raise JavaMissingError(message, name="java", hint="apt-get install openjdk-17-jre-headless")

    monkeypatch.setattr("streamjoin_ds.spark.java.find_java", no_java)
    status, output = doctor()
    lines = [line for line in output.splitlines() if line.startswith("missing")]
    assert status == 1
    assert lines == [
        "missing Java: Spark needs Java 17 or newer and none was found. Hint: apt-get install openjdk-17-jre-headless"
    ]
    assert output.splitlines()[-1].startswith("1 missing, ")


def test_a_package_without_bytecode_is_told_with_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "streamjoin_ds" / "cli" / "doctor.py"
    monkeypatch.setattr("streamjoin_ds.cli.doctor.__file__", str(path))
    (line,) = [line for line in doctor()[1].splitlines() if line.startswith("warning bytecode")]
    assert f"python -m compileall -q {tmp_path / 'streamjoin_ds'}" in line


def test_a_report_that_nobody_reads_ends_without_a_word() -> None:
    code = "from streamjoin_ds.cli.main import main; main()"
    command = [sys.executable, "-c", code, "doctor"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_package_out_of_range_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks._package("numpy", {"numpy": ">=1.0"}).state == "ok"
    assert checks._package("numpy", {"numpy": ">=1.0,<1.1"}) == Check(
        "numpy",
        f"{importlib.metadata.version('numpy')} (supported: >=1.0,<1.1)",
        "missing",
        "pip install 'numpy>=1.0,<1.1'",
    )
    assert checks._package("no-such-package", {}).value == "not installed"


def test_kernels_that_do_not_load_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_load_kernels", lambda: importlib.import_module("streamjoin_ds.no_such_module"))
    (check,) = checks._kernels()
    assert (check.state, check.hint.startswith("make setup")) == ("missing", True)


def test_what_becomes_of_kernel_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamjoin_ds.engine import core_lease

    monkeypatch.setattr(core_lease, "cores_to_lease", lambda: (0, 1, 2))
    monkeypatch.setattr(core_lease, "free_cores", lambda: (2,))
    assert checks._pinning() == "3 cores to lease for kernel threads, 1 of them free"
    monkeypatch.setattr(core_lease, "cores_to_lease", lambda: ())
    monkeypatch.setattr(core_lease, "control_group_cores", lambda: 1.5)
    assert checks._pinning() == "kernel threads run unpinned: the control group allows 1.5 cores' worth of time"
    monkeypatch.setattr(core_lease, "control_group_cores", lambda: None)
    assert checks._pinning() == "kernel threads run unpinned: this system cannot pin threads"


@pytest.mark.spark
@pytest.mark.delta
def test_inside_a_worker(spark: object) -> None:
    found = {check.name: check for check in checks.spark_checks(lambda: spark)}
    assert {check.state for check in found.values()} == {"ok"}, found
    assert found["worker's executable"].value == sys.executable
    assert found["worker's streamjoin-ds"].value == __version__
    assert found["Delta round trip"].value == "3 of 3 rows"
    assert "cores to lease" in found["worker's pinning"].value or "unpinned" in found["worker's pinning"].value


def test_a_worker_that_differs_is_missing() -> None:
    here = {"python": "3.11.2", "kernels": "avx2"}
    states = [check.state for check in checks._compare(here, {"python": "3.11.2", "kernels": "not importable: x"})]
    assert states == ["ok", "missing"]


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from streamjoin_ds.cli.main import group; group.main(['--help'], standalone_mode=False); "
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'rich'} & set(sys.modules); assert not heavy, heavy"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert all(name in finished.stdout for name in main._COMMANDS)


@pytest.mark.parametrize("name", list(main._COMMANDS))
def test_every_command_is_there(name: str) -> None:
    result = CliRunner().invoke(main.group, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """A list; every command of the group raises the list's first error."""
    errors: list[Exception] = []

    @click.command("run")
    def command() -> None:
        raise errors[0]

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: command)
    return errors


WORKER_TEXT = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
Traceback (most recent call last):
  File "worker.py", line 1, in process
streamjoin_ds.errors.BlockMissingError: BLOCK_MISSING: The block is gone. Hint: restore it.
\tat org.apache.spark.sql.Something"""


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (PredicateError("Bad.", name="a", hint="do this."), 2, "streamjoin: PREDICATE: Bad. Hint: do this."),
        (RuntimeError(WORKER_TEXT), 2, "streamjoin: BLOCK_MISSING: The block is gone. Hint: restore it."),
        (ModuleNotFoundError("x", name="duckdb.sub"), 2, "streamjoin: DEPENDENCY_MISSING: The package duckdb is not"),
        (ZeroDivisionError("first\nsecond"), 3, "streamjoin: ZeroDivisionError: first (streamjoin --traceback"),
    ],
)
def test_errors_are_one_line(failing: list[Exception], error: Exception, status: int, line: str) -> None:
    failing.append(error)
    result = CliRunner().invoke(main.group, ["run"])
    assert result.exit_code == status
    assert result.output.startswith(line)
    assert result.output.count("\n") == 1
    shown = CliRunner().invoke(main.group, ["--traceback", "run"])
    assert shown.exception is error


def test_an_optional_package_is_named_with_its_extra() -> None:
    assert main._install_hint("duckdb").startswith("pip install 'streamjoin-ds[")
    assert main._install_hint("pyspark") == "pip install 'streamjoin-ds[spark]'"
    assert main._install_hint("no_such_package") == "pip install no_such_package"


def test_traceback_may_stand_anywhere(tmp_path: Path) -> None:
    for place in (["--traceback", "doctor"], ["doctor", "--traceback"]):
        finished = subprocess.run(
            [sys.executable, "-m", "streamjoin_ds.cli.main", *place, "--help"],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert finished.returncode == 0, finished.stderr
