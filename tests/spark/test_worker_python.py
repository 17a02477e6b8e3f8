"""The workers' Python: this one, with the same PySpark as a package instead of a zip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamjoin_ds.spark import session as module
from streamjoin_ds.spark.java import spark_home
from streamjoin_ds.spark.session import worker_python


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ca che"))
    return tmp_path / "ca che" / "streamjoin_ds"


def said(python: str, program: str, path: str) -> str:
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [python, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_zips_are_out_of_the_way_and_nothing_else_is() -> None:
    python = worker_python(spark_home())
    assert python != sys.executable
    zips = sorted((spark_home() / "python" / "lib").glob("*.zip"))
    assert zips, "the package brings them"
    path = ":".join(map(str, (zips[0], "/somewhere else", zips[1], "/*")))
    assert said(python, "import os; print(os.environ['PYTHONPATH'])", path) == "/somewhere else:/*"
    assert said(python, "import pyspark; print(pyspark.__path__[0])", path) == str(spark_home())
    assert ".zip" in said(sys.executable, "import pyspark; print(pyspark.__path__[0])", path)
    assert said(python, "import sys; print(sys.executable, sys.prefix)", path) == f"{sys.executable} {sys.prefix}"


def test_it_is_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = worker_python(spark_home())
    written = Path(python).stat().st_mtime_ns
    monkeypatch.setattr(module, "_finds_itself", lambda home: pytest.fail("asked again"))
    assert worker_python(spark_home()) == python
    assert Path(python).stat().st_mtime_ns == written
    assert list(cache.iterdir()) == [Path(python)]


def test_a_torn_one_is_replaced() -> None:
    python = Path(worker_python(spark_home()))
    whole = python.read_text()
    python.write_text(whole[:20])
    assert Path(worker_python(spark_home())).read_text() == whole


def test_anothers_spark_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "opt" / "spark"
    (home / "python" / "lib").mkdir(parents=True)
    (home / "python" / "lib" / "pyspark.zip").write_bytes(b"")
    assert worker_python(home) == sys.executable


def test_one_that_does_not_answer_in_time_is_left_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIND_WITHIN_S", 1e-6)
    assert worker_python(spark_home()) == sys.executable
    assert not list(cache.iterdir())


def test_odd_names_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "it's a $HOME *"
    (home / "python" / "lib").mkdir(parents=True)
    zipped = home / "python" / "lib" / "pyspark.zip"
    zipped.write_bytes(b"")
    monkeypatch.setattr(module, "_finds_itself", lambda home: True)
    python = worker_python(home)
    assert said(python, "import os; print(os.environ['PYTHONPATH'])", f"/a:{zipped}:/b") == "/a:/b"


def test_without_a_cache_it_is_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert worker_python(spark_home()) == sys.executable
