"""Rows of the late table and of the rejects table, made of what a batch sets aside."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.exchange.outbox import LARGEST_TS
from streamjoin_ds.sink.tables import LATE_SCHEMA, REJECTS_SCHEMA
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.columns import SEQ, TS

__all__ = ["AsideRows"]


class AsideRows:
    """The maker of one batch's rows.

    Parameters
    ----------
    bound : BoundJoin
    batch_id : int
    """

    def __init__(self, bound: BoundJoin, batch_id: int) -> None:
        self._bound, self._batch_id = bound, batch_id

    def late(self, stream: int, table: pa.Table) -> pa.Table:
        """Return late tuples as rows of the late table. The tuple is JSON there, because streams differ in columns."""
        moments = pa.timestamp("us", tz="UTC")
        inside = (TS, SEQ, LARGEST_TS, *self._bound.stamps(stream))
        columns = [name for name in table.column_names if name not in inside]
        texts = [_json_text(row) for row in table.select(columns).to_pylist()]
        return self._fixed(
            LATE_SCHEMA,
            stream,
            table.num_rows,
            {
                "seq": table[SEQ],
                "ts": table[TS].cast(moments),
                "largest_ts": table[LARGEST_TS].cast(moments),
                "row": pa.array(texts, pa.string()),
            },
        )

    def rejected(self, stream: int, table: pa.Table) -> pa.Table:
        """Return rejects as rows of the rejects table."""
        return self._fixed(REJECTS_SCHEMA, stream, table.num_rows, {name: table[name] for name in table.column_names})

    def _fixed(self, schema: pa.Schema, stream: int, rows: int, columns: dict[str, Any]) -> pa.Table:
        columns |= {
            "stream": pa.array([self._bound.names[stream]] * rows, pa.string()),
            "batch_id": pa.array(np.full(rows, self._batch_id, np.int64)),
        }
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _json_text(row: dict[str, Any]) -> str:
    """Return a tuple as JSON. Values that are NaN or infinite, for which JSON has no number, become texts."""
    return json.dumps(_finite(row), default=str, ensure_ascii=False)


def _finite(value: Any) -> Any:
    """Return a value with texts in place of the numbers that JSON lacks, in lists and structs too."""
    if isinstance(value, dict):
        return {name: _finite(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
