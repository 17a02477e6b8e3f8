"""A worker process of the soak's driver: tasks come through a pipe, and are those of Spark's Python workers."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.plan import Plan
from streamjoin_ds.stream.sensors import SensorsDataSource
from tests.faults.soak.power import write_down

__all__ = ["work"]

# At most so many newest rows of a window are in no block: batches are small here, and blocks are wanted.
_TUNING = Tuning(tail=TailTuning(most_arrived_rows=20))


def work(pipe: Connection, root: str, plan_text: str, options: dict[str, str]) -> None:
    """Do tasks until the driver is gone."""
    write_down(Path(root))
    CellWindows.tuning = _TUNING
    plan = Plan.from_json(plan_text)
    source = SensorsDataSource(options)
    reader = source.streamReader(source.schema())
    while True:
        try:
            kind, *arguments = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            done: Any = _read(reader, *arguments) if kind == "read" else _cell(plan, *arguments)
        except Exception as error:  # the driver judges it
            done = error
        try:
            pipe.send(done)
        except (BrokenPipeError, ConnectionResetError):
            return


def _read(reader: Any, partition: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]


def _cell(
    plan: Plan, number: int, state: bytes | None, task: TaskFacts, rows: list[dict[str, Any]]
) -> tuple[list[str], str, bytes]:
    files, report, state = Cell(plan, number, state, task).run([SimpleNamespace(**row) for row in rows])
    return [file.to_json() for file in files], report.to_json(), state
