"""Real processes killed again and again: ``python -m tests.faults.campaign --drivers 50 --workers 100 --seed 1``.

Each round is one checkpoint, of one kind of join after the other (`tests.support.kinds`). Its driver and JVM are killed
with SIGKILL at points drawn for the batches, some of them again while the batch is done anew. Or its Python workers are
killed in every batch, until the input ends. Or something happens to its window server in every batch. Or its driver
sleeps in a batch drawn for it, between the commits of its tables, while another takes the checkpoint over; it wakes up
when that one has finished. In every second round each life has a layout of its own, with more or fewer cells. Then
every table is compared, row for row, with those of an undisturbed run, whose results are the oracle's. A round is a
function of the seed and its number. Each is a line of the log, with its kills and its outcome; started again with the
same log, the campaign goes on after the rounds in it.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from tests.faults.driver import HOOKED, POINTS
from tests.faults.test_driver_kill import BATCHES, assert_as_undisturbed, pairs, rows, run_driver, sleep_through
from tests.support.kinds import EVERY, facts_of

EXACT = "exact"
_AGAIN = (*HOOKED[:3], "batch_logged", HOOKED[3])  # points that a batch comes to when it is done anew
_AGAIN_SHARE = 0.3
_TIMEOUT_S = 900  # long, since other work may have the machine
# Spark gives a Python process ten seconds to start. On a machine that is too busy for that the query ends by itself,
# like a driver that dies at its start, and is started again.
_STARVED = "Python worker failed to connect back"
_MOST_STARVED = 20
_LAYOUTS = ("1x2", "2x1", "2x2", "ranges", "1x1", "3x1", "1x4")
_TEXT = 3_000  # characters of an error that are kept


@dataclass
class Round:
    """One checkpoint.

    Attributes
    ----------
    kills : list of (str, int)
        What was killed: the point and the batch of a driver, also of one that slept. For workers: how many were killed
        while they waited, and how many at work. For servers: what happened to them, and how often.
    outcome : str
        `EXACT`, or what differs.
    join : str
        Its kind of join; "": the flights' of old logs.
    local_share : float
        The share of its lives that run without Spark.
    starved : int
        Lives that ended by themselves because the machine was too busy for Spark to start its Python processes.
    """

    seed: int
    number: int
    kind: str
    kills: list[tuple[str, int]] = field(default_factory=list)
    outcome: str = ""
    starved: int = 0
    matches: int = 0
    seconds: float = 0.0
    join: str = ""
    local_share: float = 0.0

    @property
    def batches(self) -> int:
        """Return how many batches the input takes."""
        return EVERY[self.join].batches if self.join else BATCHES

    def counts(self) -> Counter[str]:
        """Return the number of kills by their place."""
        if self.kind in ("workers", "servers"):
            return Counter(dict(self.kills))
        return Counter(point for point, _ in self.kills)


def places(chooser: random.Random, batches: int = BATCHES) -> Iterator[tuple[str, int]]:
    """Yield the places where a round's driver is killed, one for each life: a point and a batch."""
    is_planned = True  # the first batch has none before it; a batch that has begun is planned
    for batch in range(batches):
        point = chooser.choice(POINTS[1:] if is_planned else POINTS)
        yield point, batch
        while chooser.random() < _AGAIN_SHARE:
            point = chooser.choice(_AGAIN)
            yield point, batch
        is_planned = point == "after_batch"


def _is_relaid(this: Round) -> bool:
    return this.number > 0 and this.number % 2 == 0  # number 0 is the undisturbed run


def layout_of(this: Round) -> str:
    """Return the layout of the round's next life."""
    layouts = EVERY[this.join].layouts if this.join else _LAYOUTS
    if not _is_relaid(this):
        return layouts[0]
    return random.Random(f"layout {this.seed} {this.number} {len(this.kills)}").choice(layouts)


def _of_kind(this: Round, folder: Path) -> dict[str, Any]:
    """Return what tells a driver of the kind of its join; the table beside the streams has another version then."""
    given = folder.parent / f"input of {this.join}"
    if this.join and EVERY[this.join].has_table:
        EVERY[this.join].change_table(given, len(this.kills))
    return {"kind": this.join, "given": given}


def is_local(this: Round) -> bool:
    """Whether the round's next life is one without Spark: of frames none is."""
    if this.kind != "drivers" or EVERY[this.join].form == "frames":
        return False
    return random.Random(f"local {this.seed} {this.number} {len(this.kills)}").random() < this.local_share


def life(this: Round, folder: Path, *armed: str) -> subprocess.CompletedProcess[str]:
    """Run a driver's life, again and again while the machine starves it; return its end."""
    table, checkpoint, layout = folder / "matches", folder / "checkpoint", layout_of(this)
    while True:
        given = {"layout": layout, "local": is_local(this), **_of_kind(this, folder)}
        done = run_driver(table, checkpoint, *armed, timeout_s=_TIMEOUT_S, **given)
        if _STARVED not in done.stderr or this.starved >= _MOST_STARVED:
            return done
        this.starved += 1


def drivers(this: Round, folder: Path, undisturbed: Path, most: int) -> None:
    """Kill the driver of one checkpoint again and again, at most `most` times, and then let it finish."""
    table, expected = folder / "matches", set(pairs(rows(undisturbed)))
    for point, batch in places(random.Random(f"{this.seed} {this.number}"), this.batches):
        if len(this.kills) == most:
            break
        killed = life(this, folder, point, str(batch))
        if killed.returncode == 0:
            break  # the last batch may pass its point before anyone sees it
        assert killed.returncode == -signal.SIGKILL, (point, batch, killed.stderr[-_TEXT:])
        this.kills.append((point, batch))
        so_far = pairs(rows(table)) if (table / "_delta_log").exists() else []
        assert len(set(so_far)) == len(so_far), (point, batch)
        assert set(so_far) <= expected, (point, batch)
    again = life(this, folder)
    assert again.returncode == 0, again.stderr[-_TEXT:]


def workers(this: Round, folder: Path) -> None:
    """Kill the Python workers of one checkpoint in every batch."""
    done = life(this, folder, "workers", "0")
    found = re.findall(r"killed (\d+) that waited and (\d+) at work", done.stdout)
    this.kills += [
        ("waiting worker", sum(int(waited) for waited, _ in found)),
        ("working worker", sum(int(busy) for _, busy in found)),
    ]
    assert done.returncode == 0, done.stderr[-_TEXT:]


def servers(this: Round, folder: Path) -> None:
    """Have something happen to the window server of one checkpoint in every batch."""
    done = life(this, folder, "servers", str(1_000 * this.seed + this.number))
    this.kills += sorted(Counter(re.findall(r"^server: (\w+)$", done.stdout, re.MULTILINE)).items())
    assert done.returncode == 0, done.stderr[-_TEXT:]


def sleeper(this: Round, folder: Path, undisturbed: Path) -> None:
    """Let the driver of one checkpoint sleep while another one takes it over."""
    batch = random.Random(f"{this.seed} {this.number}").randrange(this.batches)
    table, checkpoint = folder / "matches", folder / "checkpoint"
    of_kind = {"layout": layout_of(this), **_of_kind(this, folder)}
    sleep_through(table, checkpoint, undisturbed, batch, timeout_s=_TIMEOUT_S, **of_kind)
    this.kills.append(("asleep", batch))


def run_round(this: Round, folder: Path, undisturbed: Path, most: int) -> None:
    """Run a round, and fill in what came of it."""
    began = time.monotonic()
    try:
        if this.kind == "drivers":
            drivers(this, folder, undisturbed, most)
        elif this.kind == "sleepers":
            sleeper(this, folder, undisturbed)
        elif this.kind == "servers":
            servers(this, folder)
        else:
            workers(this, folder)
        # A batch is decided otherwise in another layout, and with another version of a table.
        is_other = _is_relaid(this) or bool(this.join and EVERY[this.join].has_table)
        assert_as_undisturbed(folder / "matches", undisturbed, planned_anew=is_other)
        this.matches, this.outcome = len(rows(folder / "matches")), EXACT
    except Exception as error:
        this.outcome = f"{type(error).__name__}: {error}"[:_TEXT]
    this.seconds = round(time.monotonic() - began, 1)


def undisturbed_run(seed: int, join: str, root: Path) -> Path:
    """Return the matches of a run of a kind that nothing disturbs, with its input beside it; made when it is needed."""
    folder = root / f"undisturbed {join}"
    if not folder.exists():
        folder.mkdir()
        EVERY[join].give_input(root / f"input of {join}")
        done = life(Round(seed, 0, "undisturbed", join=join), folder)
        assert done.returncode == 0, done.stderr[-_TEXT:]
        assert facts_of(rows(folder / "matches")) == EVERY[join].expected(root / f"input of {join}"), join
    return folder / "matches"


def rounds_in(log: Path, seed: int) -> list[Round]:
    """Return the rounds of this seed that a log holds."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = [Round(**json.loads(line)) for line in lines]
    return [one for one in found if one.seed == seed]


@click.command()
@click.option("--drivers", "driver_count", default=50, show_default=True, help="Kills of driver and JVM.")
@click.option("--workers", "worker_count", default=100, show_default=True, help="Kills of Python workers.")
@click.option("--servers", "server_count", default=50, show_default=True, help="Faults of window servers.")
@click.option("--sleepers", "sleeper_count", default=8, show_default=True, help="Drivers that sleep meanwhile.")
@click.option("--seed", default=1, show_default=True)
@click.option("--local-share", default=0.0, show_default=True, help="Share of the drivers' lives without Spark.")
@click.option("--log", type=click.Path(path_type=Path), default="campaign.jsonl", show_default=True)
def main(
    driver_count: int,
    worker_count: int,
    server_count: int,
    sleeper_count: int,
    seed: int,
    local_share: float,
    log: Path,
) -> None:
    """Kill and compare until so many kills are done; a difference ends it, and its checkpoint stays."""
    done = rounds_in(log, seed)
    if any(one.outcome != EXACT for one in done):
        msg = f"{log} holds a round that was not exact"
        raise click.ClickException(msg)
    asked = {"drivers": driver_count, "workers": worker_count, "servers": server_count, "sleepers": sleeper_count}
    root = Path(tempfile.mkdtemp(prefix="streamjoin-campaign-"))
    for kind, count in asked.items():
        while (left := count - sum(sum(one.counts().values()) for one in done if one.kind == kind)) > 0:
            join = [*EVERY][len(done) % len(EVERY)]
            this = Round(seed, len(done) + 1, kind, join=join, local_share=local_share)
            undisturbed = undisturbed_run(seed, this.join, root)
            (folder := root / f"{kind}-{this.number}").mkdir()
            run_round(this, folder, undisturbed, left)
            done.append(this)
            with log.open("a") as file:
                file.write(json.dumps(asdict(this)) + "\n")
            click.echo(
                f"round {this.number} of {kind}, {this.join}, {this.seconds:.0f} s: {this.kills}: {this.outcome}"
            )
            if this.starved:
                click.echo(f"  {this.starved} lives starved at their start")
            if this.outcome != EXACT:
                click.echo(f"kept: {root}")
                sys.exit(1)
            shutil.rmtree(folder)
    shutil.rmtree(root)
    total: Counter[str] = sum((one.counts() for one in done), Counter())
    seconds = sum(one.seconds for one in done)
    click.echo(f"seed {seed}: {total.total()} kills in {len(done)} rounds, {seconds:.0f} s, all exact: {dict(total)}")


if __name__ == "__main__":
    main()
