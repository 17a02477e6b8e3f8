"""What the tests of tables share: tables written by delta-rs, and readers that cut them anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.columns import result_type
from tests.source.feeds import SCHEMA, Row, rows, tuples

__all__ = ["SCHEMA", "append", "feed", "optimize", "read_all", "rows", "steps", "stream_of", "table_of"]


def table_of(items: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = zip(*items, strict=True) if items else [[] for _ in schema]
    return pa.table([pa.array(values, one.type) for values, one in zip(columns, schema, strict=True)], schema=schema)


def append(path: Path, items: Sequence[Row] | pa.Table, **more: Any) -> None:
    """Append rows as one version."""
    write_deltalake(str(path), items if isinstance(items, pa.Table) else table_of(items), mode="append", **more)


def optimize(path: Path) -> None:
    """Rewrite the table's files as one."""
    DeltaTable(str(path)).optimize.compact()


def stream_of(path: Path, **more: Any) -> Stream:
    return Stream("e", str(path), **more)


def feed(path: Path, **more: Any) -> Feed[Any]:
    """Return a new feed of all columns that the table has."""
    stream = stream_of(path, **more)
    fields = [
        pa.field(one.name, pa.timestamp("us", tz="UTC") if one.name == stream.time else result_type(one.type, one.name))
        for one in infer_schema(stream)
    ]
    return open_feed(stream, pa.schema(fields))


def steps(reader: Feed[Any], start: Any, size: int) -> list[Any]:
    """Return positions from `start` to the end of what is there, `size` records apart."""
    found = [start]
    while count := reader.frontier(found[-1], size).rows:
        found.append(reader.position(json.loads(json.dumps(reader.advance(found[-1], count).to_facts()))))
    return found


def read_all(path: Path, size: int, **more: Any) -> list[tuple[Any, ...]]:
    """Return all tuples, read in batches of `size`, each by a feed of its own, as tasks read them."""
    reader = feed(path, **more)
    found = []
    for low, high in pairwise(steps(reader, reader.initial(), size)):
        found += tuples(feed(path, **more).read(low, high, files=reader.files_between(low, high)))
    return found
