"""Delta's per-file statistics, gathered while the rows are written.

They cover only the columns by which readers skip files: times and the batch id. Statistics of every column cost the
writer a third of its speed (ARCHITECTURE.md, "Matches as files"), and float bounds would need care with NaN.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from streamjoin_ds.sink.tables import BATCH_ID, EVENT_TIME

__all__ = ["FileStatistics"]

_COLUMNS = (EVENT_TIME, "ts", BATCH_ID)
_YEAR_1_US = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_YEAR_10000_US = int(np.datetime64("10000-01-01", "us").astype(np.int64))


class FileStatistics:
    """The statistics of one file: number of rows; bounds and nulls of ``event_time``, ``ts`` and ``batch_id``.

    Bounds include both ends. They are exact, times in microseconds. A time outside the years 1 to 9999 has no text in
    Delta's JSON: the bounds of its column are then left out, which readers take as "unknown".
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._columns = [name for name in _COLUMNS if schema.get_field_index(name) >= 0]
        self._bounds: dict[str, tuple[int, int]] = {}
        self._nulls = dict.fromkeys(self._columns, 0)
        self._timestamps = {name for name in self._columns if pa.types.is_timestamp(schema.field(name).type)}

    def add(self, table: pa.Table) -> None:
        """Take in the rows of one table (or of a record batch)."""
        self.rows += table.num_rows
        for name in self._columns:
            column = table.column(name)
            self._nulls[name] += column.null_count
            if name in self._timestamps:
                column = column.cast(pa.int64())
            bounds = compute.min_max(column)
            smallest, largest = bounds["min"].as_py(), bounds["max"].as_py()
            if smallest is None:
                continue
            known = self._bounds.get(name)
            self._bounds[name] = (
                (smallest, largest) if known is None else (min(known[0], smallest), max(known[1], largest))
            )

    def to_json(self) -> str:
        """Return the statistics as the JSON text of an add action."""
        smallest: dict[str, Any] = {}
        largest: dict[str, Any] = {}
        for name, bounds in self._bounds.items():
            texts = [self._text(name, value) for value in bounds]
            if None not in texts:
                smallest[name], largest[name] = texts
        value = {"numRecords": self.rows, "minValues": smallest, "maxValues": largest, "nullCount": self._nulls}
        return json.dumps(value, separators=(",", ":"))

    def _text(self, name: str, value: int) -> str | int | None:
        if name not in self._timestamps:
            return value
        if not _YEAR_1_US <= value < _YEAR_10000_US:
            return None
        return f"{np.datetime_as_string(np.datetime64(value, 'us'), unit='us')}Z"
