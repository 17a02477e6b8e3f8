"""Places: a location as a path of this machine or of an object store, and small files there.

A location is a text that a user gives. It is a path of this machine or of another file system, and has one spelling for
all processes. A `Place` is such a path. It has what a checkpoint's small files need of `pathlib.Path`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Protocol

from pyarrow import fs

from streamjoin_ds.blocks.object_store import asked, open_remote

__all__ = [
    "Place",
    "StorePath",
    "absolute_location",
    "below",
    "folders_above",
    "is_local",
    "local_path",
    "loggable",
    "place_of",
]

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


class Place(Protocol):
    """What `pathlib.Path` and `StorePath` have in common; see there."""

    @property
    def name(self) -> str:
        """See `pathlib.Path`."""

    @property
    def suffix(self) -> str:
        """See `pathlib.Path`."""

    @property
    def parent(self) -> Place:
        """See `pathlib.Path`."""

    def __truediv__(self, key: Any, /) -> Place:
        """See `pathlib.Path`."""

    def with_name(self, name: str) -> Place:
        """See `pathlib.Path`."""

    def with_suffix(self, suffix: str) -> Place:
        """See `pathlib.Path`."""

    def relative_to(self, other: Any, /) -> PurePath:
        """See `pathlib.Path`."""

    def resolve(self) -> Place:
        """See `pathlib.Path`."""

    def exists(self) -> bool:
        """See `pathlib.Path`."""

    def is_dir(self) -> bool:
        """See `pathlib.Path`."""

    def is_file(self) -> bool:
        """See `pathlib.Path`."""

    def iterdir(self) -> Iterator[Place]:
        """See `pathlib.Path`."""

    def read_bytes(self) -> bytes:
        """See `pathlib.Path`."""

    def read_text(self, encoding: str | None = None) -> str:
        """See `pathlib.Path`."""

    def write_bytes(self, data: bytes, /) -> int:
        """See `pathlib.Path`."""

    def write_text(self, data: str, /) -> int:
        """See `pathlib.Path`."""

    def unlink(self, missing_ok: bool = False) -> None:
        """See `pathlib.Path`."""

    def replace(self, target: Any) -> Any:
        """See `pathlib.Path`."""

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """See `pathlib.Path`."""

    def __lt__(self, other: Any, /) -> bool:
        """See `pathlib.Path`."""


class StorePath:
    """A location in an object store, with the methods of `pathlib.Path` that a checkpoint needs.

    An object is there as a whole or not at all, and is on a device once it is there. A folder is no object: it is there
    while something lies in it.

    Parameters
    ----------
    location : str
        ``s3a://bucket/folder``, without credentials.

    Notes
    -----
    Methods raise FileNotFoundError as those of `Path` do, and StoreUnreachableError or StoreAccessError where the store
    does not do what is asked.
    """

    def __init__(self, location: str) -> None:
        self._location = location.rstrip("/")

    def __truediv__(self, key: str | PurePath) -> StorePath:
        return StorePath(f"{self._location}/{key}")

    def __str__(self) -> str:
        return self._location

    def __repr__(self) -> str:
        return f"StorePath({self._location!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and other._location == self._location

    def __lt__(self, other: StorePath) -> bool:
        return self._location < other._location

    def __hash__(self) -> int:
        return hash(self._location)

    @property
    def name(self) -> str:
        """The last part."""
        return self._location.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last ending of the name, with its point."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        """The folder that it lies in."""
        return StorePath(self._location.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        """Return the path of this name in the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> StorePath:
        """Return the path with another ending."""
        return self.with_name(str(PurePosixPath(self.name).with_suffix(suffix)))

    def relative_to(self, other: StorePath) -> PurePath:
        """Return the path as it is below a folder."""
        return PurePosixPath(self._location.removeprefix(f"{other}/"))

    def resolve(self) -> StorePath:
        """Return the path: there are no links."""
        return self

    def exists(self) -> bool:
        """Whether an object or a folder is there."""
        return bool(self._type() != fs.FileType.NotFound)

    def is_dir(self) -> bool:
        """Whether something lies below it."""
        return bool(self._type() == fs.FileType.Directory)

    def is_file(self) -> bool:
        """Whether an object is there."""
        return bool(self._type() == fs.FileType.File)

    def iterdir(self) -> Iterator[StorePath]:
        """Yield what lies in the folder."""
        files, inside = open_remote(self._location)
        with asked(self._location, "cannot be listed"):
            found = files.get_file_info(fs.FileSelector(inside, allow_not_found=True))
        return (self / one.base_name for one in found if one.base_name)

    def read_bytes(self) -> bytes:
        """Return what the object holds."""
        files, inside = open_remote(self._location)
        with asked(self._location, "cannot be read"), files.open_input_file(inside) as file:
            data: bytes = file.read()
            return data

    def read_text(self, encoding: str | None = None) -> str:
        """Return the text that the object holds."""
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, data: bytes) -> int:
        """Put the object, in place of another one too; return its bytes."""
        files, inside = open_remote(self._location)
        with asked(self._location, "cannot be written"), files.open_output_stream(inside, compression=None) as file:
            file.write(data)
        return len(data)

    def write_text(self, data: str) -> int:
        """Put a text as the object; return its bytes."""
        return self.write_bytes(data.encode())

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        files, inside = open_remote(self._location)
        try:
            with asked(self._location, "cannot be removed"):
                files.delete_file(inside)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def replace(self, target: StorePath) -> None:
        """Give the object another name: it is copied, then removed."""
        target.write_bytes(self.read_bytes())
        self.unlink()

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders need not be made."""

    def _type(self) -> fs.FileType:
        files, inside = open_remote(self._location)
        with asked(self._location, "cannot be looked at"):
            return files.get_file_info(inside).type


def place_of(location: str) -> Place:
    """Return the path of a location, here or elsewhere."""
    path = local_path(location)
    return StorePath(location) if path is None else path


def below(location: object, name: str) -> str:
    """Return the location of a name in a folder, here or elsewhere."""
    text = str(location)
    return str(Path(text) / name) if is_local(text) else f"{text.rstrip('/')}/{name}"
