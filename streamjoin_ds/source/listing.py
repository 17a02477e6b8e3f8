"""What lies in a stream's file or folder: entries in name order, and what one is by its name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.errors import FileFormatError, FileMissingError

__all__ = ["EXTENSIONS", "FileEntry", "Location", "format_of", "is_gzip"]

EXTENSIONS = {
    "csv": (".csv", ".txt"),
    "json": (".json", ".jsonl", ".ndjson"),
    "parquet": (".parquet",),
}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the directory shows it; `stamp` changes when it is written to or replaced."""

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time of the last change and inode."""
        return self.size, self.mtime_ns, self.inode


def is_gzip(name: str) -> bool:
    """Whether a file of this name is compressed."""
    return name.endswith(".gz")


def format_of(name: str, declared: str) -> str | None:
    """``"csv"``, ``"json"`` or ``"parquet"`` by the name's extension; the declared format where it is not "auto"."""
    if declared != "auto":
        return declared
    plain = name.removesuffix(".gz")
    return next((kind for kind, ends in EXTENSIONS.items() if plain.endswith(ends)), None)


class Location:
    """A file, a folder, or a folder and an extension (``/data/*.csv.gz``).

    Parameters
    ----------
    path : str
        In a folder, files whose names begin with ``.`` or ``_`` are not seen (being written, or notes of a writer), nor
        are sub-folders, nor files of another format than the one asked for.
    format : {"auto", "csv", "json", "parquet"}
        Of the files.
    stream : str
        To name in errors.
    """

    def __init__(self, path: str, format: str, stream: str) -> None:
        if path.startswith("file://"):
            path = path.removeprefix("file://")
        folder, last = os.path.split(path)
        self._ending = last[1:] if last.startswith("*.") and "*" not in last[1:] else ""
        self.path = folder or "." if self._ending else path
        self.format = format
        self.stream = stream
        if not self._ending and "*" in last:
            msg = f"the path of stream {stream} holds a pattern that is not understood"
            raise FileFormatError(msg, name=last, hint="a file, a folder, or /folder/*.extension")

    def entries(self) -> tuple[FileEntry, ...]:
        """The files there are now, in the order of their names (code points).

        Raises
        ------
        FileMissingError
            Neither a file nor a folder is there.
        """
        try:
            found = os.stat(self.path)
        except OSError:
            msg = f"the input of stream {self.stream} is not there: {self.path}"
            raise FileMissingError(msg, name=self.path, hint="a file or a folder that exists and may be read") from None
        if not stat.S_ISDIR(found.st_mode):
            return (self._entry(Path(self.path), found),)
        return tuple(sorted(self._in_folder(), key=lambda entry: entry.name))

    def _in_folder(self) -> Iterator[FileEntry]:
        with os.scandir(self.path) as files:
            for file in files:
                if not self._wanted(file.name):
                    continue
                try:
                    found = file.stat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(found.st_mode):
                    yield self._entry(Path(file.path), found)

    def _wanted(self, name: str) -> bool:
        if name.startswith((".", "_")) or not name.endswith(self._ending):
            return False
        if self._ending and self.format != "auto":
            return True
        kind = format_of(name, "auto")
        return kind is not None and self.format in ("auto", kind)

    def _entry(self, path: Path, found: os.stat_result) -> FileEntry:
        return FileEntry(path.name, str(path), found.st_size, found.st_mtime_ns, found.st_ino)

    def format_of(self, entry: FileEntry) -> str:
        """The format of one file.

        Raises
        ------
        FileFormatError
            The name does not tell, and nothing was declared.
        """
        kind = format_of(entry.name, self.format)
        if kind is None:
            endings = ", ".join(end for ends in EXTENSIONS.values() for end in ends)
            msg = f"the format of {entry.path} cannot be told by its name"
            hint = f"say format='csv', or name it with one of {endings} (and .gz)"
            raise FileFormatError(msg, name=entry.path, hint=hint)
        return kind
