"""Bad files that are set aside, beside all else that a source decides: the rows are the oracle's in any mixture."""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.plan import Layout
from streamjoin_ds.spec import Join, Stream, band, bind
from tests.support.clocked import Clocked
from tests.support.further import further
from tests.support.microbatch import MicroBatches

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
BAD = {"ts": None, "x": None}  # one record that has no time
READING: tuple[dict[str, str], ...] = (
    {},
    {"sub_folders": "read"},
    {"file_order": "modified", "finished_after": "0s"},
    {"sub_folders": "read", "file_order": "modified", "finished_after": "0s"},
)


class Folders(Clocked):
    """A join over folders of files, some of them bad; the test knows record by record what the source gives."""

    def __init__(self, join: Join, home: Path, layout: str, exchange: str) -> None:
        self.home = home
        for name in join.names:
            (home / name).mkdir()
        self.records: dict[str, list[dict[str, Any]]] = {name: [] for name in join.names}
        self.bad: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.newest: Counter[str] = Counter()
        bound = bind(join, dict.fromkeys(join.names, SCHEMA))
        layout_of = Layout.parse(layout, len(join.names))
        super().__init__(join, MicroBatches(bound, home, layout_of, exchange, max_rows_per_batch=5))

    def put(self, name: str, kind: str, *rows: tuple[int, int]) -> None:
        """Write a file: `good`, `cut` after its rows, `foreign`, or `late`, which sorts before one that was read."""
        facts, number = self.join.streams[self.join.names.index(name)], self.files[name]
        if kind == "late":
            number = self.newest[name]
        by_time = facts.source.file_order == "modified"
        folder = self.home / name
        if facts.source.sub_folders == "read":  # numbers of one digit and of two
            folder = folder / f"part={99 - number if by_time else number + 5}"
            folder.mkdir(exist_ok=True)
        path = folder / (f"{9999 - self.files[name]:04d}.csv" if by_time else f"{self.files[name]:04d}.csv")
        found = [{"ts": START_US + second * 1_000_000, "x": x} for second, x in rows]
        text = "ts,x\n" + "".join(f"{row['ts']},{row['x']}\n" for row in found)
        if kind == "cut":
            packed = bytearray(gzip.compress(text.encode(), mtime=0))
            packed[-6] ^= 0xFF
            path = path.with_suffix(".csv.gz")
            path.write_bytes(packed)
            found = [*found[:-1], BAD]  # zlib does not give the last byte
        elif kind == "foreign":
            path.write_text("what,is,this\n" + text)
            found = [BAD]
        elif kind == "late":
            path = path if by_time else path.with_name(f"{number:04d}-{path.name}")  # "-" sorts before "."
            path.write_text(text)
            found = [BAD]
        else:
            path.write_text(text)
        if by_time:
            changed_s = 1000 * (number + 1) - (1000 - self.files[name] if kind == "late" else 0)
            os.utime(path, (changed_s, changed_s))
        if kind != "late":
            self.newest[name] = self.files[name]
        self.files[name] += 1
        self.bad[name] += kind != "good"
        self.records[name] += found

    def is_begun(self, name: str) -> bool:
        """Whether a file can come late: some of the stream has been read."""
        return bool(self.micro.offset["streams"][name]["seq"])

    def check(self) -> None:
        assert self.ends[-1] == {name: len(rows) for name, rows in self.records.items()}
        ahead = self.check_results(self.records)
        rejects = self.micro.companion("rejects").to_pylist()
        assert Counter(row["stream"] for row in rejects) == Counter({n: len(k) for n, k in ahead.items()}) + self.bad
        ledger = self.micro.companion("ledger").to_pylist()
        aside = Counter({name: 0 for name in self.join.names})
        for row in ledger:
            aside[row["stream"]] += row["files_set_aside"]
        assert +aside == +self.bad
        metrics = self.micro.companion("metrics").to_pylist()
        assert max(row["files_set_aside"] for row in metrics) == self.bad.total()
        self.micro.reader.latestOffset(self.micro.offset, self.micro.reader.getDefaultReadLimit())
        assert self.micro.reader.reportLatestOffset()["files_set_aside"] == {n: self.bad[n] for n in self.join.names}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 23, *further(2, 5, 9)])
def test_any_schedule_of_bad_files_silence_and_futures(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    kind = dice.choice(("time", "count", "count", "periodic"))
    window = {"time": "6s", "count": "last 4", "periodic": "every 2s for 4s"}[kind]
    names = ("l", "r", "t")[: dice.choice((2, 2, 3))]
    streams = [
        Stream(
            name,
            tmp_path / name,
            schema=SCHEMA,
            format="csv",
            on_bad_file="quarantine",
            delay=dice.choice(("0s", "2s")),
            idle_timeout=dice.choice((None, "3s", "7s")),
            max_ahead=dice.choice((None, "9s")),
            **READING[seed % 4],  # type: ignore[arg-type]
        )
        for name in names
    ]
    join = Join(streams, [band("l.x", f"{name}.x", 1) for name in names[1:]], window)
    layout = dice.choice(("1x1", "1x2", "2x1")) + "x1" * (len(names) - 2)
    run = Folders(join, tmp_path, layout, dice.choice(("reference", "packed")))
    silent_until = dict.fromkeys(names, 0)
    for second in range(24):
        run.now_s = second
        for name in names:
            if dice.random() < 0.1:
                silent_until[name] = second + dice.choice((4, 9))
            count = dice.choice((0, 1, 2, 3)) * (silent_until[name] <= second)
            if not count:
                continue
            rows = [
                (second - dice.choice((0, 0, 1, 3)) + 1000 * (dice.random() < 0.06), dice.randrange(3))
                for _ in range(count)
            ]
            what = dice.choice(("good", "good", "good", "cut", "foreign", "late"))
            run.put(name, "good" if what == "late" and not run.is_begun(name) else what, *rows)
        while run.step():
            pass
        if dice.random() < 0.15:
            run.restart()
    run.check()
