"""The example `examples/pipelines`: a join is a table of a declarative pipeline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import dataset

from streamjoin_ds.cli.main import group
from tests.examples.test_examples import environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
PAIRS = 240
TIMEOUT_S = 600


@pytest.mark.campaign
@pytest.mark.spark
def test_a_pipeline_has_the_pairs(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="pip install 'pyspark[pipelines]'")
    pytest.importorskip("yaml", reason="pip install 'pyspark[pipelines]'")
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/streamjoin-pipeline", str(tmp_path / "storage")))
    assert CliRunner().invoke(group, ("data", "flights", str(folder))).exit_code == 0
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run"]
    known = environment()
    known["PYTHONPATH"] = os.pathsep.join([known["PYTHONPATH"], *filter(None, sys.path)])
    done = subprocess.run(
        command, cwd=folder, env=known, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    table = dataset.dataset(folder / "spark-warehouse" / "alike", exclude_invalid_files=True)
    assert table.count_rows() == PAIRS
