"""The peers' input: a workload's tuples as Parquet files, cut at the same event times for both streams."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from streamjoin_ds.source.generator import GeneratorFeed
from streamjoin_ds.spec import BoundJoin, Generator
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.stream.source_facts import bound_join
from tests.bench.suites.workloads import Workload

__all__ = ["SlicedInput", "first_tuples", "slice_input"]

_OLD_S = 1_700_000_000  # modification time of the first slice's file, in seconds since 1970: any time in the past


@dataclass(frozen=True, slots=True)
class SlicedInput:
    """Parquet files ``<folder>/<stream>/part-00000.parquet``, in event time order; a file is one slice of one stream.

    Attributes
    ----------
    folder : str
        The folder of the files.
    streams : tuple of str
        Names of the streams.
    ends_us : tuple of int
        For each slice the event time at which it ends, not included, in microseconds.
    rows : tuple of tuple of int
        For each stream the numbers of rows of its slices.
    whole : bool
        Whether this is all of the workload's input.
    window_rows : int
        Most tuples that are inside the windows at once, all streams together.
    """

    folder: str
    streams: tuple[str, ...]
    ends_us: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    whole: bool
    window_rows: int

    @classmethod
    def load(cls, folder: str) -> SlicedInput:
        """Return the input that `slice_input` wrote to a folder."""
        facts = json.loads((Path(folder) / "input.json").read_text())
        rows = tuple(tuple(counts) for counts in facts["rows"])
        streams, ends_us = tuple(facts["streams"]), tuple(facts["ends_us"])
        return cls(folder, streams, ends_us, rows, facts["whole"], facts["window_rows"])

    def files(self, stream: str, slices: int) -> list[str]:
        """Return the paths of the first `slices` files of a stream."""
        return [str(Path(self.folder) / stream / f"part-{number:05d}.parquet") for number in range(slices)]

    def table(self, stream: str, slices: int) -> pa.Table:
        """Return the rows of the first `slices` slices of a stream, in event time order."""
        return pa.concat_tables(pyarrow.parquet.read_table(file) for file in self.files(stream, slices))

    def row_count(self, slices: int) -> int:
        """Return the number of rows in the first `slices` slices of all streams."""
        return sum(sum(counts[:slices]) for counts in self.rows)


def slice_input(workload: Workload, folder: Path) -> SlicedInput:
    """Write a workload's tuples to `folder`: the columns that its join needs, with their types in the join."""
    bound = bound_join(workload.join)
    tables = [first_tuples(bound, number, workload.peer_rows) for number in range(len(bound.names))]
    times = [_times(table, stream.time) for table, stream in zip(tables, workload.join.streams, strict=True)]
    first, last = min(int(ts[0]) for ts in times), max(int(ts[-1]) for ts in times)
    # The ends are whole microseconds; the last slice ends just after the last tuple.
    ends = [first + (last + 1 - first) * (number + 1) // workload.slices for number in range(workload.slices)]
    rows = []
    for name, table, ts in zip(bound.names, tables, times, strict=True):
        cuts = [0, *(int(cut) for cut in np.searchsorted(ts, ends))]
        _write(table, cuts, folder / name)
        rows.append(tuple(int(count) for count in np.diff(cuts)))
    window_rows = sum(_window_rows(ts, bound.join.window.extent(number)) for number, ts in enumerate(times))
    whole = workload.peer_rows is None
    written = SlicedInput(str(folder), bound.names, tuple(ends), tuple(rows), whole, window_rows)
    (folder / "input.json").write_text(json.dumps(asdict(written)))
    return written


def first_tuples(bound: BoundJoin, number: int, most: int | None) -> pa.Table:
    """Return the columns of one stream that its join needs, in the stream's order.

    `most` is for generated streams only: just their first `most` tuples; None: all.
    """
    stream, schema = bound.join.streams[number], bound.schemas[number]
    if isinstance(stream.source, Generator):
        feed = GeneratorFeed(stream, schema)
        end = None if most is None else feed.advance(feed.initial(), most)
        chunks = [chunk.tuples for chunk in feed.read(feed.initial(), end)]
        table = pa.Table.from_batches(chunks)
        table = table.append_column(stream.time, table[TS].cast(pa.timestamp("us", tz="UTC"))).drop_columns([TS, SEQ])
        return table.select(schema.names)
    options = pyarrow.csv.ConvertOptions(include_columns=schema.names, column_types=schema, strings_can_be_null=True)
    assert most is None, "recorded data are taken whole"
    table = pyarrow.csv.read_csv(stream.source, convert_options=options)
    return table.sort_by(stream.time)


def _times(table: pa.Table, time: str) -> np.ndarray:
    times: np.ndarray = table[time].cast(pa.int64()).to_numpy()
    return times


def _window_rows(ts: np.ndarray, window_us: int) -> int:
    """Return the most tuples of one stream that lie within its window, both ends included."""
    return int((np.arange(1, len(ts) + 1) - np.searchsorted(ts, ts - window_us)).max())


def _write(table: pa.Table, cuts: Sequence[int], folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        path = folder / f"part-{number:05d}.parquet"
        pyarrow.parquet.write_table(table.slice(begin, end - begin), path)
        # Spark takes files in the order of their times.
        os.utime(path, (_OLD_S + number, _OLD_S + number))
