"""Two files of text, joined by one command, beside DuckDB: ``.venv/bin/python -m tests.bench.text_files``.

DuckDB reads the same files, has the same grid in x, y and time, and writes one Parquet file. Each run is a process of
its own, and its start counts. Runs take turns.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from deltalake import DeltaTable

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.sink.reader import scanned

_BEGIN_US, _STEP_US = 1_700_000_000_000_000, 2_000
_BAND, _WINDOW_S = 10, 60
# For each form of the times: how a file has them, the option that says so, and DuckDB's microseconds of them.
_TIMES = {
    "local": (pa.timestamp("us"), "", "epoch_us(ts)"),
    "ms": (pa.int64(), "?time_unit=ms", "ts * 1000"),
}
# By measurement the best of cells of 20, 40 and 80 with and without time cells of one to five minutes.
_CELL, _CELL_S = 20, 120


def write_files(folder: Path, records: int, times: str) -> None:
    """Write r.csv and s.csv: a time (500 a second), one of 5 000 names, x and y uniform below 10 000, a word."""
    names, words = pa.array([f"device-{n:05d}" for n in range(5_000)]), pa.array(["ok", "warn", "fail"])
    for seed, side in enumerate("rs"):
        dice = np.random.default_rng(seed)
        at_us = np.arange(records) * _STEP_US + seed + _BEGIN_US
        columns = {
            "ts": pa.array(at_us // (1 if times == "local" else 1_000)).cast(_TIMES[times][0]),
            "name": names.take(pa.array(dice.integers(0, len(names), records))),
            **{axis: np.round(dice.uniform(0, 1e4, records), 3) for axis in "xy"},
            "status": words.take(pa.array(dice.integers(0, len(words), records))),
        }
        options = pyarrow.csv.WriteOptions(quoting_style="none")
        pyarrow.csv.write_csv(pa.table(columns), folder / f"{side}.csv", options)


def ours(folder: Path, times: str) -> list[str]:
    """Return the command of our side."""
    streams = [option for side in "rs" for option in ("--stream", f"{side}={folder / side}.csv{_TIMES[times][1]}")]
    on = f"abs(r.x - s.x) <= {_BAND} AND abs(r.y - s.y) <= {_BAND}"
    to = ["--to", str(folder / "out"), "--checkpoint", str(folder / "checkpoint")]
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "run", "--local", "--available-now", *streams]
    return [*command, "--on", on, "--window", f"{_WINDOW_S}s", *to]


def duckdb(folder: Path, times: str) -> list[str]:
    """Return the command of DuckDB's side."""
    us, band, window_us = _TIMES[times][2], _BAND, _WINDOW_S * 10**6
    axes = (("x", "x", band, _CELL), ("y", "y", band, _CELL), ("t", us, window_us, _CELL_S * 10**6))
    cells = ", ".join(f"CAST(floor({of} / {width}) AS INT) c{axis}" for axis, of, _, width in axes)
    spread = "s"
    for axis, of, reach, width in axes:
        first, last = (f"CAST(floor(({of} {sign} {reach}) / {width}) AS INT)" for sign in "-+")
        spread = f"(SELECT *, unnest(generate_series({first}, {last})) c{axis} FROM {spread})"
    same = " AND ".join(f"r.c{axis} = p.c{axis}" for axis, *_ in axes)
    near = " AND ".join(f"abs(r.{axis} - p.{axis}) <= {band}" for axis in "xy")
    sql = f"""COPY (
        WITH r AS (SELECT *, {us} us, {cells} FROM read_csv('{folder}/r.csv')),
            s AS (SELECT *, {us} us FROM read_csv('{folder}/s.csv'))
        SELECT r.ts r_ts, r.name r_name, r.x r_x, r.y r_y, r.status r_status,
            p.ts s_ts, p.name s_name, p.x s_x, p.y s_y, p.status s_status
        FROM r JOIN {spread} p ON {same} AND {near} AND abs(r.us - p.us) <= {window_us}
    ) TO '{folder}/matches.parquet' (FORMAT parquet)"""
    work = "import duckdb, sys; duckdb.connect(config={'threads': int(sys.argv[2])}).execute(sys.argv[1])"
    return [sys.executable, "-c", work, sql, str(usable_core_count())]


_SIDES: dict[str, Callable[[Path, str], list[str]]] = {"streamjoin run --local": ours, "DuckDB": duckdb}


def matches(folder: Path, side: str) -> int:
    """Return how many matches a side has left; they are removed."""
    if side == "DuckDB":
        return int(pyarrow.parquet.read_metadata(folder / "matches.parquet").num_rows)
    found = scanned(DeltaTable(str(folder / "out"))).count_rows()
    for left in (*folder.glob("out*"), folder / "checkpoint"):
        shutil.rmtree(left)
    return int(found)


def run(command: list[str]) -> tuple[float, float]:
    """Return the seconds of a command, and its CPU seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--records", type=click.IntRange(min=1), default=1_500_000, show_default=True, help="Of each file.")
@click.option("--times", type=click.Choice(list(_TIMES)), default="local", show_default=True)
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True)
def main(records: int, times: str, runs: int) -> None:
    """Print the medians of the seconds and CPU seconds of each side."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, records, times)
        took: dict[str, list[tuple[float, float]]] = {side: [] for side in _SIDES}
        found = set()
        for _ in range(runs):
            for side, command in _SIDES.items():
                took[side].append(run(command(folder, times)))
                found.add(matches(folder, side))
    if len(found) > 1:
        msg = f"the sides have found {sorted(found)} matches"
        raise click.ClickException(msg)
    click.echo(f"2 files of {records:,} records, {found.pop():,} matches")
    for side, seconds in took.items():
        wall_s, cpu_s = (statistics.median(values) for values in zip(*seconds, strict=True))
        click.echo(f"{side}: {wall_s:.2f} s, {cpu_s:.2f} CPU s")


if __name__ == "__main__":
    main()
