"""Rows copied out of several runs, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from streamjoin_ds.engine.kernels.objects import Column, Int32
from streamjoin_ds.engine.kernels.twins.arguments import check_array, refuse
from streamjoin_ds.engine.kernels.twins.threads import Task

__all__ = ["RunColumns"]


class RunColumns:
    """The same columns of several runs, to be gathered from.

    Parameters
    ----------
    runs : sequence of sequence of ndarray
        Run by run, column by column; items of 1, 2, 4, 8 or 16 bytes.
    """

    def __init__(self, runs: Sequence[Sequence[Column]]) -> None:
        if not runs or any(len(columns) != len(runs[0]) for columns in runs):
            refuse("runs differ in their number of columns", "runs")
        for columns in runs:
            for column, first in zip(columns, runs[0], strict=True):
                check_array(column, "runs", first.dtype)
                if len(column) != len(columns[0]):
                    refuse("columns of a run differ in length", "runs")
                if column.dtype.itemsize not in (1, 2, 4, 8, 16) or column.dtype.hasobject:
                    refuse("column items must have 1, 2, 4, 8 or 16 bytes", "runs")
        self._runs = [list(columns) for columns in runs]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The dtype of each column."""
        return [column.dtype for column in self._runs[0]]

    @property
    def item_bytes(self) -> list[int]:
        """Bytes of an item of each column."""
        return [column.dtype.itemsize for column in self._runs[0]]

    @property
    def run_rows(self) -> list[int]:
        """How many rows each run has."""
        return [len(columns[0]) if columns else 0 for columns in self._runs]

    def gathering(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> Task[None]:
        """`gather` as a task for a pool."""
        return Task(partial(self.gather, run_numbers, rows, outs))

    def gather(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> None:
        """Write row ``rows[i]`` of run ``run_numbers[i]`` to item i of each column's out, if it has one.

        Parameters
        ----------
        run_numbers : ndarray, shape (n,), int32, or int, or None
            The number of each row's run. An int: the run of all rows. None: all rows are of run 0.
        """
        check_array(rows, "rows", np.dtype(np.int32))
        if len(outs) != len(self._runs[0]):
            refuse("there must be an out for each column", "outs")
        if run_numbers is None or isinstance(run_numbers, int):
            run_numbers = np.full(len(rows), run_numbers or 0, np.int32)
        if len(run_numbers) != len(rows):
            refuse("run_numbers and rows differ in length", "run_numbers")
        lengths = np.array([len(columns[0]) if columns else 0 for columns in self._runs], dtype=np.int64)
        inside = (run_numbers >= 0) & (run_numbers < len(self._runs)) & (rows >= 0)
        if not np.all(inside) or not np.all(rows < lengths[run_numbers]):
            refuse("rows or run_numbers point outside the runs", "rows")
        for column, out in enumerate(outs):
            if out is None:
                continue
            if len(out) != len(rows) or out.dtype.itemsize != self._runs[0][column].dtype.itemsize:
                refuse("out and rows differ in length", "outs")
            for run_number in np.unique(run_numbers):
                chosen = run_numbers == run_number
                out.view(self._runs[run_number][column].dtype)[chosen] = self._runs[run_number][column][rows[chosen]]
