"""A join of every kind over small inputs of every type, and what must come out: the contract's answer by the oracle.

Campaigns kill the processes of each, the soak feeds each without end, and golden checkpoints are made of each: so one
that is here stays as it is.
Records carry an id, and results are compared by their ids: no tuple is late, so results depend neither on batches nor
on the order of partitions.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from streamjoin_ds import CountWindow, Nearest, PeriodicWindow, Stream, StreamJoin, Table
from streamjoin_ds.testing.oracle import oracle_join, oracle_table_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "EVERY",
    "KINDS",
    "MAX_ROWS",
    "ROWS",
    "SCHEMA",
    "Kind",
    "Record",
    "csv_line",
    "fact_of",
    "facts_of",
    "is_repeated",
    "json_line",
    "micros",
    "record_of",
    "told",
]

ROWS = 160  # of a stream
MAX_ROWS = 70  # of a batch, of all streams
_FILE_ROWS = 60
DELAY = timedelta(seconds=2)
_START = datetime(2024, 3, 5, tzinfo=timezone.utc)
_START_US = 1_709_596_800_000_000
_STEPS = {"l": 3, "r": 7, "s": 5}
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("x", pa.int64()),
        ("y", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("flag", pa.bool_()),
    ]
)
_ZONES = pa.schema([("lo", pa.int64()), ("hi", pa.int64()), ("zone", pa.string())])

Record = dict[str, Any]


def records(side: str, *, twice: bool = False) -> list[Record]:
    """Return a stream's records: some as far behind as they may be, some with nulls; with `twice` some come again."""
    found = []
    for n in range(ROWS):
        behind = DELAY if n % 11 == 5 else timedelta(milliseconds=250 * (n * _STEPS[side] % 3))
        record = record_of(side, n, _START + timedelta(milliseconds=250 * n) + DELAY - behind)
        found += [record] * (2 if twice and is_repeated(n) else 1)
    return found


def is_repeated(n: int) -> bool:
    """Whether a record comes twice, in a kind of which some do."""
    return n % 5 == 2


def record_of(side: str, n: int, when: datetime) -> Record:
    """Return a stream's record with this id and event time; the soak's streams have no end."""
    step = n * _STEPS[side]
    record = {
        "ts": when,
        "id": n,
        "x": step % 31,
        "y": step % 23 / 4,
        "d": Decimal(step % 400).scaleb(-2) + 20,
        "name": f"{'abc'[step % 3]}, {step % 4}",
        "at": _START + timedelta(milliseconds=250 * (step % 9)),
        "flag": step % 4 > 1,
    }
    for column, period in {"x": 29, "y": 31, "d": 37, "name": 41}.items():
        if n % period == period - 1:
            record[column] = None
    return record


def zones(version: int) -> list[Record]:
    """Return a version of the table: all have the same keys."""
    return [{"lo": low, "hi": low + 6, "zone": f"{low} of {version}"} for low in range(0, 31, 5)]


@dataclass(frozen=True)
class Kind:
    """A join of one kind.

    Parameters
    ----------
    on : str
    options : mapping
        Of `StreamJoin`.
    window : str or WindowKind
    names : str
        The streams, a letter each.
    of_streams : mapping
        Options of each `Stream`.
    form : {"csv", "json", "unfolded", "folder", "delta", "frames"}
        How the input lies: a file, a folder of JSON lines, one whose lines hold arrays of records, a folder for each
        partition, a Delta table, or a folder of Parquet, which Spark reads as a streaming DataFrame.
    layouts : tuple of str
        Those that a life may ask for, the first one first.
    is_twice : bool
        Whether some records come twice.
    """

    on: str
    options: Mapping[str, Any] = field(default_factory=dict)
    window: Any = "5s"
    names: str = "lr"
    of_streams: Mapping[str, Any] = field(default_factory=dict)
    form: str = "csv"
    layouts: tuple[str, ...] = ("1x2", "2x1", "2x2", "1x1")
    is_twice: bool = False
    has_table: bool = False

    def join(self, folder: str | Path, **of_streams: Any) -> StreamJoin:
        """Return the join over the input in a folder (`give_input`), which may be a relative path.

        With options of its streams that differ, each is a folder or a table: CSV too is then a folder of files.
        """
        end = ".csv" if self.form == "csv" and not of_streams else ""
        given = {"delay": DELAY, **self._schema(), **self.of_streams, **of_streams}
        streams = [
            Stream(name, f"{folder}/{name}{end}", **given) if self.form != "frames" else Stream(name, delay=DELAY)
            for name in self.names
        ]
        options = dict(self.options)
        if self.has_table:
            options["tables"] = [Table("z", f"{folder}/zones", refresh="0s")]
        return StreamJoin(streams, self.on, self.window, **{"select": self.select, **options})

    def _schema(self) -> dict[str, Any]:
        return {} if self.form == "delta" else {"schema": SCHEMA}

    @property
    def select(self) -> list[str] | None:
        """Return the columns that results show; None: those that the kind's options say."""
        is_one = self.options.get("how") in ("semi", "anti") or "reduce" in self.options
        shown = self.names[:1] if is_one else self.names
        table = ["z.lo", "z.zone"] if self.has_table else []
        return [f"{name}.{column}" for name in shown for column in ("id", "d", "name", "at", "flag")] + table

    @property
    def batches(self) -> int:
        """Return how many batches the input takes."""
        rows = sum(len(self.rows(name)) for name in self.names)
        return -(-rows // MAX_ROWS) if self.form != "frames" else -(-ROWS // _FILE_ROWS)

    def frames(self, spark: SparkSession, folder: str | Path) -> dict[str, DataFrame]:
        """Return the streaming DataFrames of the input, a file of each in a batch."""
        schema = spark.read.parquet(f"{folder}/{self.names[0]}").schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return {name: reader.parquet(f"{folder}/{name}") for name in self.names}

    @property
    def by_device(self) -> bool:
        """Whether devices have clocks of their own, which their names tell."""
        return self.of_streams.get("partition_by") == ["name"]

    @property
    def ending(self) -> str:
        """The ending of the names of files of text."""
        return "json" if self.form in ("json", "unfolded") else "csv"

    def text(self, rows: Sequence[Record]) -> str:
        """Return records as they stand in a file of text."""
        if self.form == "unfolded":
            return "".join(map(_unfolded_line, (rows[n : n + _IN_ARRAY] for n in range(0, len(rows), _IN_ARRAY))))
        return "".join(map(json_line if self.form == "json" else csv_line, rows))

    def rows(self, name: str) -> list[Record]:
        """Return a stream's records, in their order."""
        return records(name, twice=self.is_twice)

    def give_input(self, folder: Path) -> None:
        """Write the input into a folder, which is made."""
        folder.mkdir(parents=True)
        for name in self.names:
            _WRITERS[self.form](folder / name, self.rows(name))
        if self.has_table:
            self.change_table(folder, 0)

    def change_table(self, folder: Path, version: int) -> None:
        """Give the table another version."""
        write_deltalake(str(folder / "zones"), pa.Table.from_pylist(zones(version), _ZONES), mode="overwrite")

    def expected(self, folder: str | Path) -> Counter[tuple[str, ...]]:
        """Return the facts of all results, as `facts_of` gives those of a table."""
        rows = {name: self.rows(name) for name in self.names}
        until = min(max(row["ts"] for row in listed) for listed in rows.values()) - DELAY
        return facts_of(self.results(self.join(folder), rows, until_us=micros(until)))

    def results(self, join: StreamJoin, rows: Mapping[str, Sequence[Record]], **known: Any) -> list[Record]:
        """Return the contract's results of the kind's join over some records; `known` as for `oracle_join`."""
        if self.has_table:
            return oracle_table_join(join, rows, {"z": zones(0)}, **known)
        return oracle_join(join, rows, **known)


def micros(when: datetime) -> int:
    """Return microseconds since 1970."""
    return (when - _START) // timedelta(microseconds=1) + _START_US


def facts_of(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, ...]]:
    """Return results as counts of their facts, without their numbers, which go by partitions, and a table's version."""
    names = told(rows[0]) if rows else []
    return Counter(fact_of(row, names) for row in rows)


def fact_of(row: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Return some columns of a result as texts."""
    return tuple(f"{name}={_text(row[name])}" for name in names)


def told(columns: Iterable[str]) -> list[str]:
    """Return those columns of results that are facts, sorted."""
    return sorted(name for name in columns if name.endswith(_TOLD) or name in {*_AGGREGATES, "rank"})


_TOLD = ("l_id", "r_id", "s_id", "window_id", "_d", "_name", "_at", "_flag", "z_lo")
_AGGREGATES = {
    "n": "count(*)",
    "amount": "sum(r.d)",
    "mean": "avg(r.y)",
    "spread": "stddev(r.y)",
    "first_name": "min(r.name)",
    "latest": "max(r.at)",
    "closest": "arg_min(r.id, abs(l.x - r.x))",
    "some": "collect(r.id, 3)",
}


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        value = micros(value)
    if isinstance(value, list):
        return str([_text(each) for each in value])
    # The oracle's exact numbers are fractions, and times are microseconds.
    return str(float(value)) if hasattr(value, "numerator") or isinstance(value, Decimal) else str(value)


def _plain(record: Record) -> Record:
    return {
        name: None if value is None else value.isoformat() if isinstance(value, datetime) else value
        for name, value in record.items()
    }


def _write_csv(path: Path, rows: Sequence[Record]) -> None:
    with path.with_suffix(".csv").open("w", newline="") as file:
        file.write(",".join(SCHEMA.names) + "\n" + "".join(map(csv_line, rows)))


def csv_line(row: Record) -> str:
    """Return a record as a line of CSV."""
    text = io.StringIO()
    plain = _plain(row) | {"flag": str(row["flag"]).lower()}
    csv.DictWriter(text, SCHEMA.names, lineterminator="\n").writerow(plain)
    return text.getvalue()


def json_line(row: Record) -> str:
    """Return a record as a line of JSON."""
    return json.dumps(_plain(row) | {"d": _json_decimal(row["d"])}) + "\n"


def _write_json(path: Path, rows: Sequence[Record], form: str = "json") -> None:
    path.mkdir()
    for part in range(0, len(rows), _FILE_ROWS):
        (path / f"{part:06d}.json").write_text(Kind("", form=form).text(rows[part : part + _FILE_ROWS]))


def _write_unfolded(path: Path, rows: Sequence[Record]) -> None:
    _write_json(path, rows, "unfolded")


def _unfolded_line(rows: Sequence[Record]) -> str:
    """Return records as an array within a line of JSON, whose columns stand deeper (`_FOUND`)."""
    elements = []
    for plain in map(_plain, rows):
        deep = {
            "times": {name: plain.pop(name) for name in ("ts", "at")},
            "p": {"x": plain.pop("x"), "y": [plain.pop("y")]},
        }
        elements.append({**plain, **deep, "d": _json_decimal(plain["d"])})
    return json.dumps({"gateway": "g", "values": elements}) + "\n"


def _json_decimal(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


def _write_folders(path: Path, rows: Sequence[Record]) -> None:
    for number in range(3):
        folder = path / f"device-{number}"
        folder.mkdir(parents=True)
        own = [row for row in rows if row["id"] % 3 == number]
        for part in range(0, len(own), 30):
            _write_csv(folder / f"{part:06d}", own[part : part + 30])


def _write_delta(path: Path, rows: Sequence[Record]) -> None:
    for part in range(0, len(rows), _FILE_ROWS):
        write_deltalake(str(path), pa.Table.from_pylist(rows[part : part + _FILE_ROWS], SCHEMA), mode="append")


def _write_parquet(path: Path, rows: Sequence[Record]) -> None:
    path.mkdir()
    for part in range(0, len(rows), _FILE_ROWS):
        file = path / f"{part:06d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[part : part + _FILE_ROWS], SCHEMA), file)
        os.utime(file, (part, part))  # Spark takes the oldest first


_WRITERS: dict[str, Callable[[Path, Sequence[Record]], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "unfolded": _write_unfolded,
    "folder": _write_folders,
    "delta": _write_delta,
    "frames": _write_parquet,
}
_IN_ARRAY = 3  # records in a line of those that are unfolded
# Where the columns of such records are, and the types of what is written.
_FOUND = {"ts": "CAST(times.ts AS TIMESTAMP)", "at": "CAST(times.at AS TIMESTAMP)", "x": "p.x", "y": "p.y[0]"}
_WRITTEN = pa.schema(
    [
        *(field for field in SCHEMA if field.name not in _FOUND),
        ("times", pa.struct([("ts", pa.string()), ("at", pa.string())])),
        ("p", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64()))])),
    ]
)
_ENVELOPE = {"schema": _WRITTEN, "columns": _FOUND, "records": "values"}
_ON = "abs(l.x - r.x) <= 1 AND abs(l.d - r.d) <= 2"
_THREE = "abs(l.x - r.x) <= 1 AND abs(l.y - s.y) <= 0.25"
_OF_THREE = ("1x2x1", "2x1x1", "1x1x1", "1x2x2")
KINDS: Mapping[str, Kind] = {
    "inner": Kind("abs(l.y - r.y) <= 0.25 AND l.name = r.name"),
    "left": Kind(_ON, {"how": "left"}),
    "right": Kind(_ON, {"how": "right"}),
    "full": Kind(_ON, {"how": "full"}),
    "semi": Kind(_ON, {"how": "semi"}),
    "anti": Kind(_ON, {"how": "anti"}),
    "semi of each": Kind(_THREE, {"how": "semi"}, names="lrs", layouts=_OF_THREE),
    "anti of each": Kind(
        "l.name = r.name AND abs(l.d - r.d) <= 0.5 AND abs(l.d - s.d) <= 0.2",
        {"how": "anti"},
        names="lrs",
        layouts=_OF_THREE,
    ),
    "nearest": Kind("l.flag = r.flag", {"how": "left", "nearest": Nearest(2, "abs(l.d - r.d)")}),
    "reduce": Kind(_ON, {"how": "left", "reduce": _AGGREGATES}),
    "table": Kind("abs(l.x - r.x) <= 1 AND l.x BETWEEN z.lo AND z.hi", has_table=True),
    "unique": Kind(_ON, of_streams={"unique": "id"}, form="json", is_twice=True),
    "partitions": Kind(_ON, of_streams={"partition_by": "folder"}, form="folder"),
    "devices": Kind(_ON, of_streams={"partition_by": ["name"]}, form="json"),
    "envelopes": Kind("abs(l.x - r.x) <= 1 AND abs(l.y - r.y) <= 2", of_streams=_ENVELOPE, form="unfolded"),
    "three": Kind(_THREE, names="lrs", layouts=_OF_THREE),
    "ranges": Kind("abs(l.x - r.x) <= 1", layouts=("ranges", "1x2", "2x2")),
    "count": Kind("abs(l.x - r.x) <= 2", window=CountWindow((25, 30))),
    "periodic": Kind(_ON, window=PeriodicWindow(2_000_000, (4_000_000, 6_000_000), (0, 1))),
    "delta": Kind("abs(l.d - r.y) <= 18 AND l.at = r.at", form="delta"),
}
EVERY: Mapping[str, Kind] = {**KINDS, "frames": Kind(_ON, form="frames", layouts=("1x2",))}
"""Those of `KINDS`, and one that only Spark runs."""
