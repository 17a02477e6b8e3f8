"""DuckDB in micro-batches of event time: windows are tables, new rows join them by grid cells, old rows are deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset
from sqlglot.expressions import Literal

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.spec import Join, duration_text
from tests.bench.suites.paths.inputs import SlicedInput
from tests.bench.suites.sides.side import Outcome, SideTask
from tests.bench.suites.sides.sql import CellAxis, axes, band_condition
from tests.bench.suites.workloads import Workload

__all__ = ["DuckDBSide", "LargeDuckDBSide"]


class DuckDBSide:
    """A database in memory with a thread for each core; each micro-batch that has results writes one Parquet file."""

    def run(self, task: SideTask) -> Outcome:
        """Do a task, as `Side.run`; stop at the first micro-batch that ends after the limit."""
        workload, given = task.load()
        results = Path(task.folder) / "matches"
        results.mkdir(parents=True)
        began = time.perf_counter()
        batches, rows = 0, 0
        tables = [given.table(stream.name, task.slices) for stream in workload.join.streams]
        names = [stream.time for stream in workload.join.streams]
        times = [table[name].cast(pa.int64()).to_numpy() for table, name in zip(tables, names, strict=True)]
        end_us = given.ends_us[task.slices - 1]
        until_us = min(int(ts[0]) for ts in times)
        step_us = self._step_us(workload, given, until_us)
        with duckdb.connect(config={"threads": usable_core_count()}) as database:
            windows = _Windows(database, workload.join, workload.cell_widths, tables)
            while until_us < end_us and time.perf_counter() - began < task.limit_s:
                since_us, until_us = until_us, _next_end(times, until_us, step_us, end_us)
                new = []
                for table, ts in zip(tables, times, strict=True):
                    first, last = np.searchsorted(ts, (since_us, until_us))
                    new.append(table.slice(int(first), int(last - first)))
                windows.take_in(new, until_us, results / f"batch-{batches:08d}.parquet")
                rows += sum(table.num_rows for table in new)
                batches += 1
        seconds = time.perf_counter() - began
        matches = pyarrow.dataset.dataset(str(results), format="parquet").count_rows()
        note = f"micro-batches of {duration_text(step_us)} of event time, grid cells, results as Parquet"
        return Outcome(rows, matches, seconds, batches, until_us, note)

    def close(self) -> None:
        """Do nothing: each run closes its own database."""

    def _step_us(self, workload: Workload, given: SlicedInput, begin_us: int) -> int:
        """Return the length of a micro-batch in event time."""
        return workload.micro_batch_us


class LargeDuckDBSide(DuckDBSide):
    """The same in as many batches as ours."""

    def _step_us(self, workload: Workload, given: SlicedInput, begin_us: int) -> int:
        return -(-(given.ends_us[-1] - begin_us) // len(given.ends_us))


def _next_end(times: list[np.ndarray], since_us: int, step_us: int, end_us: int) -> int:
    """Return the end of the next step that holds a tuple: steps without tuples are left out."""
    ahead = [int(ts[place]) for ts in times if (place := np.searchsorted(ts, since_us)) < len(ts)]
    if not ahead:
        return end_us
    steps = max((min(ahead) - since_us) // step_us, 0)
    return min(since_us + (steps + 1) * step_us, end_us)


class _Windows:
    """The two windows as tables, and the statements of a micro-batch."""

    def __init__(self, database: Any, join: Join, cell_widths: int, tables: list[pa.Table]) -> None:
        self._database, self._join = database, join
        self._axes = axes(join, cell_widths)
        self._columns = [table.column_names for table in tables]
        for number, table in enumerate(tables):
            database.register("shape", table.slice(0, 0))
            database.execute(f"CREATE TABLE window_{number} AS SELECT *, {self._cells(number)} FROM shape")
            database.unregister("shape")

    def take_in(self, new: list[pa.Table], until_us: int, file: Path) -> None:
        """Join new rows with the windows and with each other, write the matches, keep the new rows, delete old ones.

        Parameters
        ----------
        new : list of pyarrow.Table
            For each stream its new rows, all before `until_us`.
        until_us : int
            No later row is older than this event time, in microseconds.
        file : Path
            File for the matches; it is not written if there are none.
        """
        database = self._database
        for number, table in enumerate(new):
            database.register(f"arrived_{number}", table)
            with_cells = f"SELECT *, {self._cells(number)} FROM arrived_{number}"
            database.execute(f"CREATE OR REPLACE TEMP TABLE new_{number} AS {with_cells}")
        # New rows of the left side meet the right window and new rows; new rows of the right meet the left window.
        database.execute("INSERT INTO window_1 SELECT * FROM new_1")
        query = f"{self._matches('new_0', 'window_1')} UNION ALL {self._matches('window_0', 'new_1')}"
        database.execute(f"CREATE OR REPLACE TEMP TABLE matches AS {query}")
        database.execute("INSERT INTO window_0 SELECT * FROM new_0")
        if database.execute("SELECT count(*) FROM matches").fetchone()[0]:
            path = Literal.string(str(file)).sql(dialect="duckdb")
            database.execute(f"COPY matches TO {path} (FORMAT parquet)")
        for number, stream in enumerate(self._join.streams):
            oldest_us = until_us - self._join.window.extent(number)
            database.execute(f'DELETE FROM window_{number} WHERE epoch_us("{stream.time}") < {oldest_us}')
            database.unregister(f"arrived_{number}")

    def _cells(self, number: int) -> str:
        """Return each axis' cell columns as SQL: the left side's cell, or the right side's first and last cell."""
        parts = []
        for place, axis in enumerate(self._axes):
            if number == 0:
                parts.append(f"CAST({axis.left_cell(_quoted(axis.left))} AS INTEGER) AS cell_{place}")
            else:
                first, last = axis.right_cells(_quoted(axis.right))
                parts.append(f"CAST({first} AS INTEGER) AS first_{place}, CAST({last} AS INTEGER) AS last_{place}")
        return ", ".join(parts)

    def _matches(self, left: str, right: str) -> str:
        streams, names = self._join.streams, self._join.names
        selected = [
            f"{alias}.{_quoted(column)} AS {_quoted(f'{name}_{column}')}"
            for alias, name, columns in zip("lr", names, self._columns, strict=True)
            for column in columns
        ]
        conditions = [f"l.cell_{place} = r.cell_{place}" for place in range(len(self._axes))]
        conditions += [band_condition(axis, _column_of("l"), _column_of("r")) for axis in self._axes]
        behind, ahead = (self._join.window.extent(number) for number in range(2))
        times = [f"epoch_us({alias}.{_quoted(stream.time)})" for alias, stream in zip("lr", streams, strict=True)]
        conditions.append(f"{times[0]} - {times[1]} BETWEEN {-behind} AND {ahead}")
        spread = _spread(right, self._axes)
        return f"SELECT {', '.join(selected)} FROM {left} l JOIN {spread} r ON {' AND '.join(conditions)}"


def _spread(table: str, grid: tuple[CellAxis, ...]) -> str:
    """Return a right table as SQL, with one row for each cell in which a partner can lie."""
    for place in range(len(grid)):
        table = f"(SELECT *, unnest(generate_series(first_{place}, last_{place})) AS cell_{place} FROM {table})"
    return table


def _column_of(alias: str) -> Callable[[str], str]:
    return lambda name: f"{alias}.{_quoted(name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
