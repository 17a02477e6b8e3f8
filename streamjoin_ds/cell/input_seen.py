"""What a cell sees of its batch's inputs that a user may want to know at once; the driver puts it into words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.exchange.outbox import LARGEST_TS
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.input_warnings import LateSeen, TimesSeen

__all__ = ["InputSeen"]


class InputSeen:
    """The facts of one batch: see `streamjoin_ds.spec.input_warnings`.

    Parameters
    ----------
    names : sequence of str
        The streams.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._times: dict[str, Any] = {}
        self._late: dict[str, LateSeen] = {}
        self._rejects: dict[str, tuple[str | None, str]] = {}

    def begin(
        self,
        clocks: Sequence[StreamClock],
        tuples: Sequence[Sequence[pa.Table]],
        late: Iterable[tuple[int, int, pa.Table | None]],
    ) -> None:
        """Note the event times of the streams whose clocks knew no tuple before this batch."""
        aside = list(late)
        for stream, (name, clock) in enumerate(zip(self._names, clocks, strict=True)):
            if clock.largest is None:
                tables = [*tuples[stream], *(table for other, _, table in aside if other == stream and table)]
                seen = TimesSeen.together(TimesSeen.of(_numbers(table, TS), _numbers(table, SEQ)) for table in tables)
                self._times |= {} if seen is None else {name: seen.to_facts()}

    def late(self, tables: Iterable[tuple[int, pa.Table]]) -> None:
        """Note how late late tuples are, by stream, which have `LARGEST_TS`."""
        for stream, table in tables:
            seen = self._late.setdefault(self._names[stream], LateSeen())
            seen.add(_numbers(table, LARGEST_TS) - _numbers(table, TS))

    def rejects(self, tables: Iterable[pa.Table]) -> None:
        """Note the column and the reason of a reject of each stream, of rows of the rejects table."""
        firsts = [row for table in tables for row in table.slice(0, 1).to_pylist()]
        self._rejects = {row["stream"]: (row["column"], row["reason"]) for row in firsts}

    def facts(self) -> dict[str, Any]:
        """Return what was noted as plain JSON values."""
        late = {name: seen.to_facts() for name, seen in self._late.items()}
        return {"rejects_for": self._rejects, "times": self._times, "late_by": late}


def _numbers(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = table[column].to_numpy()
    return numbers
