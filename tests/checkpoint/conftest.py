"""A checkpoint as Spark leaves it, on a device whose power can go at each step that changes a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.spark_files import file_of, key_of, row_of
from streamjoin_ds.plan import cell_labels
from tests.faults.model.power import Device
from tests.faults.model.schedule import Schedule
from tests.faults.model.simulation import simulated

CELLS = 4
SCHEDULE = Schedule(11, layout="2x2", partitions=CELLS, source="listed", rows=12, batch_rows=8, retain=2)


class PowerCutError(BaseException):
    """The power goes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint of a query on four cells, as Spark leaves it after some batches."""
    root = tmp_path_factory.mktemp("moved")
    folder = root / "checkpoint"
    with simulated(SCHEDULE) as world:
        assert not world.violations
        plan, log = world.plan, world.checkpoint
        CheckpointIdentity.create(folder, plan.bound, plan.layout, CELLS)
        written = {"metadata": b'{"id":"6b0c7a5e"}'}
        conf = f'{{"conf":{{"spark.sql.shuffle.partitions":"{CELLS}"}}}}'
        written |= {f"offsets/{batch}": f"v1\n{conf}\n{text}".encode() for batch, text in log.offsets.items()}
        written |= {f"commits/{batch}": b'v1\n{"nextBatchWatermarkMs":0}' for batch in log.commits}
        labels = cell_labels(CELLS, CELLS)
        for (partition, version), state in log.states.items():
            rows = {key_of(labels[cell]): row_of(blob) for cell, blob in state.items()}
            written[f"state/0/{partition}/{version}.snapshot"] = file_of(rows)
    for name, data in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@dataclass
class Steps:
    """Counts what is done to files, and cuts the power before one of the steps."""

    device: Device
    cut_at: int = 0
    done: int = 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.cut_at:
            raise PowerCutError

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **options: Any) -> Any:
            self.step()
            return function(*arguments, **options)

        return stepping

    def fsync(self, descriptor: int) -> None:
        self.step()
        self.device.force(os.readlink(f"/proc/self/fd/{descriptor}"))


@pytest.fixture
def steps(made: Path, tmp_path: Path) -> Iterator[Steps]:
    """A copy of the checkpoint on a device whose power can go at each step."""
    root = tmp_path / "disk"
    shutil.copytree(made, root)
    found = Steps(Device(root, tmp_path / "attic"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", found.fsync)
        patch.setattr(os, "replace", found.before(os.replace))
        patch.setattr(shutil, "rmtree", found.before(shutil.rmtree))
        patch.setattr(Path, "write_bytes", found.before(Path.write_bytes))
        patch.setattr(Path, "write_text", found.before(Path.write_text))
        patch.setattr(Path, "open", found.before(Path.open))
        yield found
