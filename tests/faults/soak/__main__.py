"""``python -m tests.faults.soak --minutes 10``: see `tests.faults.soak`."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tests.faults.soak.bounds import BOUNDS
from tests.faults.soak.faults import FAULTS
from tests.faults.soak.run import Soak, Verdict
from tests.support.kinds import KINDS

_ROOM_BYTES = 4 << 30


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Put a file system of its own below a folder, which a soak can fill; yield whether that was allowed."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES}", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def tell(kind: str, verdict: Verdict) -> None:
    """Print what came of a kind: what was done, each bound beside what was measured, what is wrong."""
    per_second = verdict.batches / verdict.seconds
    click.echo(
        f"{kind}: {verdict.batches} batches in {verdict.seconds:.0f} s ({per_second:.1f} a second), {verdict.records} "
        f"records, {verdict.results} results followed, {verdict.faults.total()} faults; {verdict.poisoned} bad files, "
        f"{verdict.lost} lost or torn by power cuts; compared in {verdict.compared_s:.0f} s"
    )
    for fault, meaning in FAULTS.items():
        click.echo(f"  {verdict.faults[fault]:6d} {fault:8s} {meaning}")
    for measure, bound in BOUNDS.items():
        if measure in verdict.samples.largest:
            value, place = verdict.samples.largest[measure], verdict.samples.places[measure]
            click.echo(f"  {value:14.6g} {measure:15s} at most {bound:g} ({place})")
    click.echo("\n".join(verdict.violations) or "exact, and within all bounds")


def live(kind: str, *, keep: bool, breaks: tuple[str, ...], **options: Any) -> Verdict:
    """Run one kind from its first file to its verdict."""
    root = Path(tempfile.mkdtemp(prefix="streamjoin-soak-"))
    (work := root / "work").mkdir()
    with contextlib.ExitStack() as stack:
        if keep or not stack.enter_context(small_disk(work)):
            click.echo("the disk is never full: all files are kept, or no file system may be mounted here")
            breaks = tuple(fault for fault in breaks if fault != "full")
        verdict = Soak(work, root / "input", kind=kind, breaks=breaks, tell=click.echo, **options).run()
        if is_kept := keep or bool(verdict.violations):
            click.echo(f"kept: {root}")
            if work.is_mount():
                shutil.copytree(work, root / "kept", symlinks=True)
    if not is_kept:
        shutil.rmtree(root, ignore_errors=True)
    tell(kind, verdict)
    return verdict


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--each", "each_minutes", type=float, default=5.0, show_default=True, help="Minutes of a kind.")
@click.option("--fault-every", "fault_every_s", type=float, default=60.0, show_default=True, help="Seconds.")
@click.option("--seed", type=int, default=1, show_default=True, help="It says too which kind comes first.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*KINDS]), help="Of joins, if not all.")
@click.option("--fault", "breaks", multiple=True, type=click.Choice([*FAULTS]), help="If not all.")
@click.option("--local", is_flag=True, help="Each driver is a query without Spark.")
@click.option("--keep", is_flag=True, help="Keep the files, on the ordinary disk; the disk is then never full.")
def main(
    minutes: float,
    each_minutes: float,
    fault_every_s: float,
    seed: int,
    kinds: tuple[str, ...],
    breaks: tuple[str, ...],
    local: bool,
    keep: bool,
) -> None:
    """Run one kind of join after the other until the time is over; the status is 1 if one of them had a violation."""
    kinds, end = kinds or tuple(KINDS), time.monotonic() + minutes * 60
    total: Counter[str] = Counter()
    for number in itertools.count(seed):
        left_s = end - time.monotonic()
        # What is left is too little for one more: a kind takes as long as is asked for, and then is compared.
        if number > seed and left_s < each_minutes * 30:
            break
        kind = kinds[number % len(kinds)]
        verdict = live(
            kind,
            keep=keep,
            seconds=min(each_minutes * 60, left_s),
            fault_every_s=fault_every_s,
            seed=number,
            breaks=breaks or tuple(FAULTS),
            processes=2,
            local=local,
        )
        total.update(kinds=1, batches=verdict.batches, records=verdict.records, results=verdict.results)
        total["faults"] += verdict.faults.total()
        total["broken"] += bool(verdict.violations)
    click.echo(f"seed {seed}: {dict(total)}")
    sys.exit(bool(total["broken"]))


if __name__ == "__main__":
    main()
