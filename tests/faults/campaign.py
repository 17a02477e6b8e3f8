"""Real processes killed again and again: ``python -m tests.faults.campaign --drivers 50 --workers 100 --seed 1``.

Each round is one checkpoint. Its driver and JVM are killed with SIGKILL at a point drawn for each batch, or its Python
workers are in every batch, until the input ends; then every table is compared, row for row, with an undisturbed run's.
"""

from __future__ import annotations

import random
import re
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from tests.faults.driver import POINTS
from tests.faults.test_driver_kill import BATCHES, assert_as_undisturbed, pairs, rows, run_driver


def drivers(folder: Path, undisturbed: Path, chooser: random.Random, left: int) -> Counter[str]:
    """One checkpoint whose driver is killed up to once a batch, at most `left` times."""
    table, checkpoint = folder / "matches", folder / "checkpoint"
    expected = set(pairs(rows(undisturbed)))
    done: Counter[str] = Counter()
    for batch in range(BATCHES):
        if sum(done.values()) == left:
            break
        point = chooser.choice(POINTS if batch else POINTS[1:])
        killed = run_driver(table, checkpoint, point, str(batch))
        if killed.returncode == 0:
            break  # a point of the last batch that is past before it can be seen
        assert killed.returncode == -signal.SIGKILL, (point, batch, killed.stderr[-2000:])
        so_far = pairs(rows(table)) if (table / "_delta_log").exists() else []
        assert len(set(so_far)) == len(so_far), (point, batch)
        assert set(so_far) <= expected, (point, batch)
        done[point] += 1
    again = run_driver(table, checkpoint)
    assert again.returncode == 0, again.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed)
    return done


def workers(folder: Path, undisturbed: Path) -> Counter[str]:
    """One checkpoint whose Python workers are killed in every batch."""
    table = folder / "matches"
    done = run_driver(table, folder / "checkpoint", "workers", "0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed)
    found = re.findall(r"killed (\d+) that waited and (\d+) at work", done.stdout)
    return Counter({"waiting worker": sum(int(a) for a, _ in found), "working worker": sum(int(b) for _, b in found)})


@click.command()
@click.option("--drivers", "driver_count", default=50, show_default=True, help="Kills of driver and JVM.")
@click.option("--workers", "worker_count", default=100, show_default=True, help="Kills of Python workers.")
@click.option("--seed", default=1, show_default=True)
def main(driver_count: int, worker_count: int, seed: int) -> None:
    """Kill and compare until so many kills are done; any difference ends it."""
    chooser, began = random.Random(seed), time.monotonic()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="streamjoin-campaign-") as name:
        undisturbed = Path(name) / "undisturbed" / "matches"
        undisturbed.parent.mkdir()
        assert run_driver(undisturbed, undisturbed.parent / "checkpoint").returncode == 0
        number = 0
        while (left := driver_count - sum(total[point] for point in POINTS)) > 0:
            number += 1
            (folder := Path(name) / f"drivers-{number}").mkdir()
            total += drivers(folder, undisturbed, chooser, left)
            click.echo(f"{time.monotonic() - began:6.0f} s  {sum(total.values())} kills, exact: {dict(total)}")
        while total["waiting worker"] + total["working worker"] < worker_count:
            number += 1
            (folder := Path(name) / f"workers-{number}").mkdir()
            total += workers(folder, undisturbed)
            click.echo(f"{time.monotonic() - began:6.0f} s  {sum(total.values())} kills, exact: {dict(total)}")
    click.echo(f"seed {seed}: {sum(total.values())} kills in {number} runs, every table exact: {dict(total)}")


if __name__ == "__main__":
    main()
