"""Locations: which of them are paths of this machine, and one spelling of each for all its processes."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["absolute_location", "folders_above", "is_local", "local_path", "loggable"]

# A location as Hadoop reads it: a scheme needs a slash after its colon, and a host may follow two slashes.
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]+):(?=/)(?://([^/]*))?)?(.*)", re.DOTALL)


def local_path(location: str) -> Path | None:
    """Return the path of a local or mounted folder (plain or ``file:``); None for other file systems and other hosts.

    Percent signs stay as they are, as in Hadoop's paths.
    """
    path = _local_text(location)
    return None if path is None else Path(path)


def is_local(location: str) -> bool:
    """Whether a location is a path of this machine, or of a file system that is mounted here."""
    # Called some dozen times in each commit, nearly always with a plain path: the first test spares the regex.
    return ":/" not in location or _local_text(location) is not None


def _local_text(location: str) -> str | None:
    """Return the path of `local_path` as a text, unchanged."""
    scheme, host, path = _LOCATION.fullmatch(location).groups()  # type: ignore[union-attr]  # it matches any text
    if scheme is None:
        return location
    return path if scheme == "file" and not host else None


def loggable(location: str) -> str:
    """Return what logs may show of a location: a path as it stands, of a URI the last part: it may hold a secret."""
    return location if is_local(location) else location.partition("?")[0].rstrip("/").rpartition("/")[2]


def absolute_location(location: str) -> str:
    """Return a location for all processes of this machine: an absolute path where it is local, else the URI."""
    path = local_path(location)
    return location if path is None else os.path.abspath(path)


def folders_above(location: str) -> list[str]:
    """Return a location and the folders that it lies in, the nearest first: up to the root, or to the bucket."""
    if is_local(location):
        place = Path(absolute_location(location))
        return [str(folder) for folder in (place, *place.parents)]
    scheme, _, rest = location.rstrip("/").partition("://")
    parts = rest.split("/")
    return [f"{scheme}://{'/'.join(parts[:count])}" for count in range(len(parts), 0, -1)]
