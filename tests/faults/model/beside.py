"""The table beside the streams of a run: its versions, which come one after the other, and the rows of each."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from streamjoin_ds.spec import Join, Table
from streamjoin_ds.testing.oracle import beside_tables

__all__ = ["COLUMNS", "TableFile", "asked_table", "table_path", "with_versions"]

COLUMNS = {"k": pa.int64(), "lo": pa.int64(), "hi": pa.int64(), "zone": pa.string()}
# Each text has a place for a stream's name. Beside it are the stream's columns whose null keeps a tuple out.
_CONDITIONS = (
    ("{0}.x = z.k", "x"),
    ("{0}.x BETWEEN z.lo AND z.hi", "x"),
    ("abs({0}.x - z.k) <= 1 AND z.lo < z.hi", "x"),
    ("({0}.y IS NULL OR z.lo <= 1)", ""),
)


def asked_table(seed: int, names: Sequence[str]) -> tuple[Table, tuple[str, str], str]:
    """Return the table of a seed, its condition with the stream's columns whose null matters, and the stream."""
    dice = random.Random(f"table {seed}")
    where = dice.choice((None, None, "k <> 1"))
    schema = pa.schema(list(COLUMNS.items()))
    text, columns = dice.choice(_CONDITIONS)
    name = dice.choice(list(names))
    return Table("z", None, "0s", schema, where, finished_after="0s"), (text.format(name), columns), name


def _rows(seed: int, number: int) -> list[dict[str, Any]]:
    """Return the rows of a version; its number is in each, so that a result tells which one it has."""
    dice = random.Random(f"version {number} {seed}")
    rows = []
    for place in range(dice.choice((0, 2, 3, 4))):
        low = dice.randrange(4)
        keys = {"k": None if dice.random() < 0.1 else dice.randrange(4), "lo": low, "hi": low + dice.randrange(3)}
        rows.append({**keys, "zone": f"{number}-{place}"})
    return rows


def _text(rows: Sequence[Mapping[str, Any]]) -> bytes:
    lines = [",".join("" if row[name] is None else str(row[name]) for name in COLUMNS) for row in rows]
    return "\n".join([",".join(COLUMNS), *lines, ""]).encode()


class TableFile:
    """The file of the table, beside the run's folder: another process owns it, and no power cut takes it back.

    Parameters
    ----------
    seed : int
    folder : Path
        The run's folder.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self._seed, self._dice = seed, random.Random(f"table file {seed}")
        self.path, self._number = table_path(folder), -1
        self.rows: dict[str, list[dict[str, Any]]] = {}  # by the name of the version, which is the digest of the file
        self.numbers: dict[str, int] = {}
        self.change()

    def change(self, *, sometimes: bool = False) -> None:
        """Write the next version; with `sometimes` mostly not."""
        if sometimes and self._dice.random() < 0.5:
            return
        self._number += 1
        rows = _rows(self._seed, self._number)
        data = _text(rows) + b"\n" * self._number  # blank lines: no two versions have the same bytes
        version = xxhash.xxh3_64_hexdigest(data)
        self.rows[version], self.numbers[version] = rows, self._number
        self.path.parent.mkdir(exist_ok=True)
        aside = self.path.with_suffix(".new")
        aside.write_bytes(data)
        os.rename(aside, self.path)


def table_path(folder: Path) -> Path:
    """Return the path of the table's file of the run in a folder."""
    return folder.with_name(f"{folder.name}.beside") / "z.csv"


def with_versions(
    join: Join,
    results: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Any],
    versions: Sequence[Sequence[Mapping[str, Any]]],
    ends: Sequence[Mapping[str, int]],
) -> list[dict[str, Any]]:
    """Return results of the streams with the rows of the version of each one's batch."""
    return beside_tables(join, results, rows, [{"z": version} for version in versions], ends=ends)
