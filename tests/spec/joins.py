"""Small joins and schemas that the tests of this room share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamjoin_ds.spec import BoundJoin, Join, Stream, bind

TIME = pa.field("ts", pa.timestamp("us", tz="UTC"))


def two(on: Any = (), window: Any = "15s", **arguments: Any) -> Join:
    """Return a join of the streams e and w."""
    return Join([Stream("e", "e.csv"), Stream("w", "w.csv")], on, window, **arguments)


def schema(**columns: pa.DataType) -> pa.Schema:
    """Return a schema with an event time and these columns."""
    return pa.schema([TIME, *(pa.field(name, kind) for name, kind in columns.items())])


def bound_pair(on: Any, left: pa.DataType, right: pa.DataType, **arguments: Any) -> BoundJoin:
    """Return the bound join of ``e.x`` and ``w.x`` of these types."""
    return bind(two(on, **arguments), {"e": schema(x=left), "w": schema(x=right)})
