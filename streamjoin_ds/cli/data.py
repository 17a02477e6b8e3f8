"""``streamjoin data``: a small recorded data set that comes with the package, to try joins on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import click

from streamjoin_ds.errors import ArgumentError

__all__ = ["DATA_SETS", "DataSet", "command", "put_files"]


@dataclass(frozen=True)
class DataSet:
    """A data set: files under ``streamjoin_ds/_data/<name>``, where a README says where they come from."""

    summary: str
    files: tuple[str, ...]


DATA_SETS: Mapping[str, DataSet] = {
    "flights": DataSet(
        "departures from New York's airports Kennedy and Newark, January 2013 (US Department of Transportation, CC0)",
        ("kennedy.csv.gz", "newark.csv.gz"),
    ),
    "vessels": DataSet(
        "ten minutes of ships and yachts near Helsinki, 2014, by AIS channel (a sample of Signal K Server, Apache 2.0)",
        ("channel_a.csv.gz", "channel_b.csv.gz"),
    ),
}


@click.command("data", short_help="Put a small recorded data set into a folder, to try joins on.")
@click.argument("name", type=click.Choice(list(DATA_SETS)))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(name: str, folder: Path) -> None:
    """Put the files of a recorded data set into FOLDER. A file with other content is not replaced: it is an error."""
    for file in put_files(name, folder):
        click.echo(file)
    click.echo(f"{name}: {DATA_SETS[name].summary}")


def put_files(name: str, folder: Path) -> list[Path]:
    """Put the files of a data set into a folder, which is made where it is not there, and return them.

    Raises
    ------
    ArgumentError
        A file is there with other content.
    """
    root = files("streamjoin_ds") / "_data" / name
    contents = {file: (root / file).read_bytes() for file in DATA_SETS[name].files}
    for file, content in contents.items():
        target = folder / file
        if target.exists() and (not target.is_file() or target.read_bytes() != content):
            msg = f"the file {target} is there already, with other content"
            raise ArgumentError(msg, name=file, hint="give another folder, or move that file away")
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    return [folder / file for file in contents]
