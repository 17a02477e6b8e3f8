"""``python -m tests.faults.soak --minutes 10``: see `tests.faults.soak`."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tests.faults.soak.bounds import BOUNDS
from tests.faults.soak.faults import FAULTS
from tests.faults.soak.rows import HOWS
from tests.faults.soak.run import Soak, Verdict

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


def tell(verdict: Verdict, seed: int) -> None:
    """Print a verdict: what was done, each bound beside what was measured, what is wrong."""
    per_second = verdict.batches / verdict.seconds
    click.echo(
        f"seed {seed}: {verdict.batches} batches in {verdict.seconds:.0f} s ({per_second:.1f} a second), "
        f"{verdict.results} results followed; {verdict.poisoned} bad files, {verdict.lost} lost or torn by power cuts"
    )
    for kind, meaning in FAULTS.items():
        click.echo(f"  {verdict.faults[kind]:6d} {kind:8s} {meaning}")
    for measure, bound in BOUNDS.items():
        if measure in verdict.samples.largest:
            value, place = verdict.samples.largest[measure], verdict.samples.places[measure]
            click.echo(f"  {value:14.6g} {measure:15s} at most {bound:g} ({place})")
    click.echo("\n".join(verdict.violations) or "exact, and within all bounds")


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--fault-every", "fault_every_s", type=float, default=60.0, show_default=True, help="Seconds.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(FAULTS)), help="Of faults, if not all.")
@click.option("--how", type=click.Choice(HOWS), help="The kind of join; by the seed, if it is not said.")
@click.option("--keep", is_flag=True, help="Keep the files, on the ordinary disk; the disk is then never full.")
def main(minutes: float, fault_every_s: float, seed: int, kinds: tuple[str, ...], how: str | None, keep: bool) -> None:
    """Run a soak; a violation ends it with status 1."""
    root = Path(tempfile.mkdtemp(prefix="streamjoin-soak-"))
    work, kinds = root / "work", kinds or tuple(FAULTS)
    work.mkdir()
    with contextlib.ExitStack() as stack:
        if keep or not stack.enter_context(small_disk(work)):
            click.echo("the disk is never full: all files are kept, or no file system may be mounted here")
            kinds = tuple(kind for kind in kinds if kind != "full")
        soak = Soak(
            work,
            root / "input",
            seconds=minutes * 60,
            fault_every_s=fault_every_s,
            seed=seed,
            kinds=kinds,
            how=how or HOWS[seed % len(HOWS)],
            tell=click.echo,
        )
        verdict = soak.run()
    if keep:
        click.echo(f"kept: {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)
    tell(verdict, seed)
    sys.exit(bool(verdict.violations))


if __name__ == "__main__":
    main()
