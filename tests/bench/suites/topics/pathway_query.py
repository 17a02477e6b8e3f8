"""Pathway's own join over two topics of JSON, by its own Kafka reader, in a process of its own, as `topic_query` tells.

It is tuned as Spark's side is (`spark_query`): equal grid cells find pairs, an interval of event times bounds them. It
reads all that is there as one batch ("static") on every core, and writes the matches as lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from streamjoin_ds.engine.core_lease import usable_core_count
from tests.bench.suites.processes import answers
from tests.bench.suites.sides.sql import axes
from tests.bench.suites.topics.topic_load import TopicLoad

__all__ = ["main"]

_CELL_WIDTHS = 2  # of a grid cell, in units of eps


def main(text: str) -> None:
    """Run the query that `text` describes, to its end."""
    given = json.loads(text)
    answer = answers()
    os.environ["PATHWAY_THREADS"] = str(usable_core_count())  # it is read when the module is imported
    import pathway as pw

    load = TopicLoad(**given["load"])
    counts: Counter[str] = Counter()
    sides = [_stream(pw, load, side) for side in (0, 1)]
    joined = _joined(pw, load, *sides)
    pw.io.jsonlines.write(joined, Path(given["folder"]) / "matches.jsonl")
    for name, table in (("read", sides[0]), ("read", sides[1]), ("matches", joined)):
        _count(pw, table, name, counts)
    began_s = time.time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    answer({"at_s": began_s, "read": 0, "matches": 0})
    answer({"at_s": time.time(), **{name: counts[name] for name in ("read", "matches")}})


def _stream(pw: Any, load: TopicLoad, side: int) -> Any:
    schema = pw.schema_from_types(ts=int, number=int, x=int, y=int)
    settings = {"bootstrap.servers": load.servers, "group.id": f"{load.name}-{side}", "auto.offset.reset": "earliest"}
    return pw.io.kafka.read(settings, load.topics[side], schema=schema, format="json", mode="static")


def _joined(pw: Any, load: TopicLoad, left: Any, right: Any) -> Any:
    grid, window_us = axes(load.join(), _CELL_WIDTHS), load.join().window.extent(0)
    for number, axis in enumerate(grid):
        size, reach = int(axis.width), int(axis.eps)
        left = left.with_columns(**{f"cell_{number}": pw.this[axis.left] // size})
        right = right.with_columns(**{f"cells_{number}": pw.apply(_reached, pw.this[axis.right], reach, size)})
        right = right.flatten(pw.this[f"cells_{number}"]).rename({f"cells_{number}": f"cell_{number}"})
    on = [left[f"cell_{number}"] == right[f"cell_{number}"] for number in range(len(grid))]
    found = pw.temporal.interval_join(left, right, left.ts, right.ts, pw.temporal.interval(-window_us, window_us), *on)
    columns = {f"r_{name}": left[name] for name in ("ts", "number", "x", "y")}
    columns |= {f"s_{name}": right[name] for name in ("ts", "number", "x", "y")}
    rows = found.select(**columns)
    for axis in grid:
        apart = rows[f"r_{axis.left}"] - rows[f"s_{axis.right}"]
        rows = rows.filter((apart <= int(axis.eps)) & (-apart <= int(axis.eps)))
    return rows


def _reached(value: int, eps: int, size: int) -> tuple[int, ...]:
    return tuple(range((value - eps) // size, (value + eps) // size + 1))


def _count(pw: Any, table: Any, name: str, counts: Counter[str]) -> None:
    """Have the number of a table's rows added to `counts` when they are all there."""

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        del key, time
        counts[name] += row["rows"] if is_addition else -row["rows"]

    pw.io.subscribe(table.reduce(rows=pw.reducers.count()), on_change=changed)


if __name__ == "__main__":
    main(sys.argv[1])
