"""``streamjoin data``: files that come with the package: recorded data to try joins on, and what watches a join."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import click

from streamjoin_ds.errors import ArgumentError

__all__ = ["DATA_SETS", "DataSet", "command", "put_files"]


@dataclass(frozen=True)
class DataSet:
    """Files under ``streamjoin_ds/_data/<name>``; of recorded data a README says where they come from."""

    summary: str
    files: tuple[str, ...]


DATA_SETS: dict[str, DataSet] = {
    "flights": DataSet(
        "departures from New York's airports Kennedy and Newark, January 2013 (US Department of Transportation, CC0)",
        ("kennedy.csv.gz", "newark.csv.gz"),
    ),
    "vessels": DataSet(
        "ten minutes of ships and yachts near Helsinki, 2014, by AIS channel (a sample of Signal K Server, Apache 2.0)",
        ("channel_a.csv.gz", "channel_b.csv.gz"),
    ),
}

_SETS = DATA_SETS | {
    "monitoring": DataSet(
        "a configuration and alert rules for Prometheus, and a dashboard for Grafana (docs/watching.md)",
        ("prometheus.yml", "alerts.yml", "dashboard.json"),
    ),
}


@click.command("data", short_help="Put recorded data to try joins on, or what watches a join, into a folder.")
@click.argument("name", type=click.Choice(list(_SETS)))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(name: str, folder: Path) -> None:
    """Put files that come with the package into FOLDER. A file with other content is not replaced: it is an error."""
    for file in put_files(name, folder):
        click.echo(file)
    click.echo(f"{name}: {_SETS[name].summary}")


def put_files(name: str, folder: Path) -> list[Path]:
    """Put the files of a data set into a folder, which is made where it is not there, and return them.

    Raises
    ------
    ArgumentError
        A file is there with other content.
    """
    root = files("streamjoin_ds") / "_data" / name
    contents = {file: (root / file).read_bytes() for file in _SETS[name].files}
    for file, content in contents.items():
        target = folder / file
        if target.exists() and (not target.is_file() or target.read_bytes() != content):
            msg = f"the file {target} is there already, with other content"
            raise ArgumentError(msg, name=file, hint="give another folder, or move that file away")
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    return [folder / file for file in contents]
