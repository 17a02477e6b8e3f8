"""The runs of one window as a set: probed and gathered from in one call, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import bytes_of
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import Int32, RunColumns, RunIndex
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run import Probed, Run
from streamjoin_ds.spec.key_values import key_dtype

__all__ = ["RunSet", "RunSetView"]


class _ProbedRuns:
    """Runs, or views of some of them, as probes meet them; their indexes are made once for the same conditions."""

    runs: Sequence[Probed]

    def __init__(self) -> None:
        self._indexes: dict[tuple[ProbeCondition, ...], list[RunIndex]] = {}

    def indexes(self, conditions: tuple[ProbeCondition, ...]) -> list[RunIndex]:
        """Return the runs as `RunsProbe` reads them for these conditions."""
        found = self._indexes.get(conditions)
        if found is None:
            found = self._indexes[conditions] = [run.index(conditions) for run in self.runs]
        return found


class RunSet(_ProbedRuns):
    """Runs of one window. The last of them may be a tail that grows; what is made here stays valid while it does.

    Parameters
    ----------
    runs : sequence of Run
    """

    runs: tuple[Run, ...]

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs = tuple(runs)
        self.kinds: dict[str, pa.DataType] = runs[0].form.kinds if runs else {}
        self._last = runs[-1].stays if runs else None
        self._columns: dict[tuple[str, ...], RunColumns] = {}
        self._plain: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._keys: dict[int, RunColumns] = {}
        self._seen: dict[tuple[ProbeCondition, ...], RunSetView | None] = {}

    def seen_by(self, conditions: tuple[ProbeCondition, ...]) -> RunSet | RunSetView:
        """Return the set as probes with these conditions are to see it: this set, or one with views of some runs."""
        if not self.runs or self.runs[0].is_grid:
            return self
        chooser = self.runs[0].form.chooser
        if not (chooser.has_rival_keys or chooser.has_intervals):
            return self
        if conditions not in self._seen:
            parts = [run.seen_by(conditions) for run in self.runs]
            is_same = all(len(seen) == 1 and mine is seen[0] for mine, seen in zip(self.runs, parts, strict=True))
            self._seen[conditions] = None if is_same else RunSetView(parts, self)
        return self._seen[conditions] or self

    def fits(self, runs: Sequence[Run]) -> bool:
        """Whether these are the same runs, but for the length of the tail."""
        if len(runs) != len(self.runs):
            return False
        same = not runs or runs[-1].stays is self._last
        return same and all(mine is theirs for mine, theirs in zip(self.runs[:-1], runs, strict=False))

    def resolved(self, places: Int32, rows: Int32) -> tuple[RunSet, Int32, Int32]:
        """Return the set to gather pairs from, and their rows and runs there; pair i is row ``rows[i]`` of a run."""
        return self, rows, places

    def columns(self, names: tuple[str, ...]) -> RunColumns:
        """Return columns to gather from (`RunColumns`); all must be `plain`: of a fixed width, without nulls."""
        found = self._columns.get(names)
        if found is None:
            arrays = [[run.values(name) for name in names] for run in self.runs]
            # A plain column has items in every run.
            plain = cast("list[list[npt.NDArray[Any]]]", arrays)
            found = self._columns[names] = self.module.RunColumns(plain)
        return found

    def plain(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the columns that have items of a fixed width and no nulls in every run."""
        found = self._plain.get(names)
        if found is None:
            found = self._plain[names] = tuple(
                name for name in names if all(run.values(name) is not None for run in self.runs)
            )
        return found

    def column(self, place: int, name: str) -> pa.Array:
        """Return a column of one run; of a tail, all that is in its buffer."""
        return self.runs[place].column(name)

    def taken(self, place: int, name: str, rows: Int32) -> pa.Array:
        """Return a column of some rows of one run; any type, nulls kept."""
        return self.runs[place].taken(name, rows)

    def taken_bytes(self, name: str, places: Int32 | int, rows: Int32) -> pa.Array:
        """Return a column of strings or binary values; value i is that of row ``rows[i]`` of run ``places[i]``."""
        first = self.runs[0]
        columns = first.byte_parts(name)
        if first.is_grid:
            told = np.full(len(rows), places, np.int32) if isinstance(places, int) else places
            within = np.flatnonzero(told == 0)
            moved, rows = told + np.int32(len(columns) - 1), rows.copy()
            moved[within], rows[within] = first.located(rows[within])
            places = moved
        for run in self.runs[1:]:
            columns = columns + run.byte_parts(name)
        return bytes_of(columns, places, rows, self.kinds[name], first.form.kernels)

    def key(self, place: int, number: int) -> npt.NDArray[Any]:
        """Return a key of one run; of a tail, with the free room behind its rows."""
        return self.runs[place].room_key(number)

    def key_dtype(self, number: int) -> np.dtype[Any]:
        """Return the dtype of a key: float64 or int64."""
        return key_dtype(self.runs[0].form.keys[number].kind)

    def narrow_key(self, number: int) -> tuple[str, np.dtype[Any]] | None:
        """Return `Run.narrow_key` of the first run, so that a whole grid need not be widened for a few rows."""
        return self.runs[0].narrow_key(number)

    def keys(self, number: int) -> RunColumns:
        """Return a key to gather from (`RunColumns`)."""
        found = self._keys.get(number)
        if found is None:
            arrays = [[run.room_key(number)] for run in self.runs]
            found = self._keys[number] = self.module.RunColumns(arrays)
        return found

    @property
    def module(self) -> KernelModule:
        """The kernels."""
        return self.runs[0].form.kernels.module


class RunSetView(_ProbedRuns):
    """The runs of a set, some of them as views or in parts: probed, but not gathered from.

    Parameters
    ----------
    parts : sequence of sequence of Probed
        For each run of the set what is probed instead of it.
    of : RunSet
        The runs themselves.
    """

    def __init__(self, parts: Sequence[Sequence[Probed]], of: RunSet) -> None:
        super().__init__()
        self.runs = tuple(part for of_run in parts for part in of_run)
        self._of = of
        self._orders = of.module.RunColumns([[run.row_numbers()] for run in self.runs])
        self._numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [len(of_run) for of_run in parts])

    def resolved(self, places: Int32, rows: Int32) -> tuple[RunSet, Int32, Int32]:
        """Return the set of the runs themselves, and these rows as rows of the runs and not of what was probed."""
        found = np.empty(len(rows), dtype=np.int32)
        self._orders.gather(places, rows, [found])
        return self._of, found, self._of.module.gather(self._numbers, places)
