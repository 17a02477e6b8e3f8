"""The files of a stream's path: their names in order, the size and stamp of each, and its format by its name."""

from __future__ import annotations

import logging
import os
import stat
import time
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.blocks.location import is_local, local_path
from streamjoin_ds.errors import ArgumentError, FileFormatError, FileMissingError
from streamjoin_ds.spool.frame import SUFFIX

__all__ = ["COMPRESSIONS", "EXTENSIONS", "FileEntry", "Location", "compression_of", "format_of"]

_log = logging.getLogger(__name__)

EXTENSIONS = {
    "csv": (".csv", ".txt"),
    "json": (".json", ".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "spool": (SUFFIX,),
}

# Endings of compressed texts, with the compression's name.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4", ".bz2": "bz2"}

# Folders that mark a table's folder, with the table's kind and the format by which Spark reads it.
_TABLE_MARKS = {
    "_delta_log": ("a Delta", "delta"),
    "metadata": ("an Iceberg", "iceberg"),
    ".hoodie": ("a Hudi", "hudi"),
}

# A listing is kept while the folder's time of change stands still. It is kept only after so many seconds without a
# change, because file systems round their times.
_SETTLED_S = 3.0
# A listing is kept for so many seconds at most.
_KEPT_S = 10.0

# Up to so many new names are looked at one by one, more of them in one walk through the folder.
_FEW_NAMES = 64


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the folder shows it. `stamp` changes when the file is written to or replaced."""

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time of the last change and inode."""
        return self.size, self.mtime_ns, self.inode


def compression_of(name: str) -> str | None:
    """Return how a file of this name is compressed, one of `COMPRESSIONS`; None: not at all."""
    return COMPRESSIONS.get(os.path.splitext(name)[1])


def format_of(name: str, declared: str) -> str | None:
    """Return the declared format, or for "auto" the format by the name's extension; None where that does not tell."""
    if declared != "auto":
        return declared
    plain = name if compression_of(name) is None else os.path.splitext(name)[0]
    return next((kind for kind, ends in EXTENSIONS.items() if plain.endswith(ends)), None)


class Location:
    """A file, a folder, or a folder and an extension (``/data/*.csv.gz``).

    Parameters
    ----------
    path : str
        In a folder, files whose names begin with ``.`` or ``_`` are passed over: they are being written, or are notes
        of a writer. So are files of another format than the one asked for. Sub-folders are not read: a warning names
        one of them.
    format : {"auto", "csv", "json", "parquet", "spool"}
        The format of the files.
    stream : str
        The stream's name, for errors.
    clock : callable
        Returns seconds and never goes back. It says how old a listing is.
    """

    def __init__(self, path: str, format: str, stream: str, clock: Callable[[], float] = time.monotonic) -> None:
        if path.startswith("file:"):  # another text stays as it is: a position names files as they were listed
            path = str(local_path(path) or path)
        folder, last = os.path.split(path)
        self._ending = last[1:] if last.startswith("*.") and "*" not in last[1:] else ""
        self.path = folder or "." if self._ending else path
        self.format = format
        self.stream = stream
        if not self._ending and "*" in last:
            msg = f"the path of stream {stream} holds a pattern that is not supported"
            raise FileFormatError(msg, name=last, hint="a file, a folder, or /folder/*.extension")
        self._clock = clock
        self.names_listed: list[str] = []  # what `names` returned last
        self._all: set[str] = set()  # what the folder held, unwanted names included
        self._changed_ns: int | None = None  # the folder's time of change when it was listed last
        self._changed_seen_s = self._listed_s = 0.0
        self._settled = self._tells = False  # `_tells`: the time of change was seen to move with the names
        self.generation = 0  # goes up when the folder's names change
        self.folders: list[str] = []  # sub-folders, which are passed over

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """Return the names of the files that are there now, in the order of their code points.

        A folder is listed again where its time of change has moved. It is also listed again where that time cannot be
        trusted: it was never seen to move with the names, or it moved less than three seconds ago. And it is listed
        again where the listing is ten seconds old or must be `fresh`.

        Raises
        ------
        FileMissingError
            Neither a file nor a folder is there.
        ArgumentError
            It is no path, but a location that no file system of this machine has.
        """
        try:
            found = os.stat(self.path)
            if not stat.S_ISDIR(found.st_mode):
                self.names_listed = [Path(self.path).name]
                return self.names_listed
            now = self._clock()
            same = found.st_mtime_ns == self._changed_ns
            if fresh or not (same and self._settled and now - self._listed_s < _KEPT_S):
                self._settled = same and self._tells and now - self._changed_seen_s >= _SETTLED_S
                changed = self._list()
                if not same:
                    self._tells = self._tells or (changed and self._changed_ns is not None)
                    self._changed_ns, self._changed_seen_s = found.st_mtime_ns, now
                self._listed_s = now
        except OSError:
            if not is_local(self.path):  # the rest of it may hold a secret
                msg = f"the input of stream {self.stream} is a {self.path.partition(':')[0]} location, and not a path"
                hint = "give a file or a folder; what Spark can read, join.start(frames=...) takes as DataFrames"
                raise ArgumentError(msg, name="source", hint=hint) from None
            msg = f"the input of stream {self.stream} is not there: {self.path}"
            raise FileMissingError(
                msg, name=self.path, hint="give a file or a folder that exists and can be read"
            ) from None
        return self.names_listed

    def _list(self) -> bool:
        found = set(os.listdir(self.path))
        new, gone = found - self._all, self._all - found
        if not (new or gone):
            return False
        if gone:
            self.names_listed = [name for name in self.names_listed if name not in gone]
            self.folders = [name for name in self.folders if name not in gone]
        self._all = found
        files, folders = self._sorted_out(new)
        if len(files) > _FEW_NAMES:
            self.names_listed = sorted(self.names_listed + files)
        else:
            for name in files:
                insort(self.names_listed, name)
        if folders:
            self.folders = sorted(self.folders + folders)
            _log.warning(
                "stream %s: sub-folders are not read: %d in %s, for example %s",
                *(self.stream, len(self.folders), self.path, folders[0]),
            )
        self.generation += 1
        return True

    def _sorted_out(self, new: set[str]) -> tuple[list[str], list[str]]:
        """Return which of these names are files that are wanted, and which are sub-folders."""
        files, folders = [], []
        for name, mode in self._modes({name for name in new if not name.startswith((".", "_"))}):
            if mode is None:
                self._all.discard(name)  # gone again; if it comes back it is new
            elif stat.S_ISDIR(mode):
                folders.append(name)
            elif stat.S_ISREG(mode) and self._wanted(name):
                files.append(name)
        return files, folders

    def _modes(self, names: set[str]) -> Iterable[tuple[str, int | None]]:
        if len(names) > _FEW_NAMES:
            with os.scandir(self.path) as walk:
                for file in walk:
                    if file.name in names:
                        names.discard(file.name)
                        if file.is_file() or file.is_dir():
                            yield file.name, stat.S_IFREG if file.is_file() else stat.S_IFDIR
                        elif file.is_symlink():
                            yield file.name, None  # a link to nothing, as yet
        for name in names:
            yield name, _mode(self.path_of(name))

    def _wanted(self, name: str) -> bool:
        if not name.endswith(self._ending):
            return False
        if self._ending and self.format != "auto":
            return True
        kind = format_of(name, "auto")
        return kind is not None and self.format in ("auto", kind)

    def path_of(self, name: str) -> str:
        """Return the path of the file of this name."""
        path = self.path
        return path if os.path.basename(path) == name and not os.path.isdir(path) else os.path.join(path, name)

    def entry(self, name: str) -> FileEntry | None:
        """Return the file of this name as it looks now; None where it is not there, or is no file any more."""
        path = self.path_of(name)
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return FileEntry(name, path, found.st_size, found.st_mtime_ns, found.st_ino)

    def entries(self) -> tuple[FileEntry, ...]:
        """Return the files that are there now as they look now, in the order of their names; see `names`."""
        found = (self.entry(name) for name in self.names())
        return tuple(entry for entry in found if entry is not None)

    def refuse_table(self) -> None:
        """Refuse a path that is a table, or lies inside one: some of the files there may no longer be the table's.

        Raises
        ------
        FileFormatError
            The path is or lies in a Delta, Iceberg or Hudi table.
        """
        place = Path(os.path.abspath(self.path))
        for folder in (place, *place.parents):
            for mark, (kind, spark_format) in _TABLE_MARKS.items():
                if _is_marked(folder / mark):
                    where = "is" if folder == place else "lies in"
                    msg = f"the input of stream {self.stream} {where} {kind} table, not plain files: {folder}"
                    read = f"spark.readStream.format('{spark_format}').load(...)"
                    hint = f"read the table with StreamJoin.dataframe and {read}, or give a folder of plain files"
                    if spark_format == "delta":
                        hint = f"give the table's folder as it is, with format auto or delta; or {hint}"
                    raise FileFormatError(msg, name=str(folder), hint=hint)

    def format_of(self, entry: FileEntry) -> str:
        """Return the format of one file.

        Raises
        ------
        FileFormatError
            The file's name does not tell its format, and none was declared.
        """
        kind = format_of(entry.name, self.format)
        if kind is None:
            endings = ", ".join(end for ends in EXTENSIONS.values() for end in ends)
            compressed = ", ".join(COMPRESSIONS)
            msg = f"the name of {entry.path} does not tell its format"
            hint = f"set format, for example to csv, or end the name with one of {endings} (and {compressed})"
            raise FileFormatError(msg, name=entry.path, hint=hint)
        return kind


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError:
        return None


def _is_marked(mark: Path) -> bool:
    """Whether `mark` is a folder that marks a table. A folder ``metadata`` must also hold Iceberg's files."""
    if mark.name != "metadata":
        return mark.is_dir()
    try:
        return any(name.endswith(".metadata.json") or name == "version-hint.text" for name in os.listdir(mark))
    except OSError:
        return False
