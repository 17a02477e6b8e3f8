"""The files of a stream's path: their names in order, and the size and stamp of each.

A folder is listed again where its names may have changed. Of many sub-folders only some are listed again at one look,
by turns. A folder that is a table is refused: some of the files in it may no longer be the table's.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streamjoin_ds.blocks.files import Files, files_at
from streamjoin_ds.blocks.place import folders_above, is_local, local_path
from streamjoin_ds.errors import ArgumentError, FileFormatError, FileMissingError
from streamjoin_ds.source.files.decoders import Decoding
from streamjoin_ds.source.files.file_names import (
    BY_NAME,
    NO_COLUMNS,
    ROW_FORMATS,
    FileOrder,
    FolderColumns,
    decodings_of,
    folder_values,
    format_of,
    format_told,
    near_names,
)
from streamjoin_ds.source.files.timed_lines import timed_decodings
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["FileEntry", "FolderNames", "FolderTurns", "Location", "TableMarks", "location_of", "upwards"]

_log = logging.getLogger(__name__)

# A listing is kept while the folder's time of change stands still. It is kept only after so many seconds without a
# change, because file systems round their times.
_SETTLED_S = 3.0
# A listing is kept for so many seconds at most.
_KEPT_S = 10.0
# Of many sub-folders the last ones are looked at each time, since new files come there, and some of the others by
# turns; all of them after so many seconds.
_LAST_FOLDERS = 64
_FOLDERS_A_TURN = 64
_ALL_FOLDERS_S = 10.0
# Folders that mark a table's folder, with the table's kind and the format by which Spark reads it.
_KINDS = {
    "_delta_log": ("a Delta", "delta"),
    "metadata": ("an Iceberg", "iceberg"),
    ".hoodie": ("a Hudi", "hudi"),
}
# Up to so many new names are looked at one by one, more of them in one walk through the folder.
_FEW_NAMES = 64
# Stands for a file of which no more is asked than that it is one.
_PLAIN_FILE = os.stat_result((stat.S_IFREG, *(0,) * 9))


class FolderNames:
    """What a folder held when it was listed last.

    Parameters
    ----------
    identity : (int, int)
        The folder's device and inode.
    """

    def __init__(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.names: set[str] = set()  # unwanted names included
        self.is_known = False  # whether it was listed
        self._changed_ns: int | None = None  # the folder's time of change when it was listed last
        self._changed_seen_s = self._listed_s = 0.0
        self._settled = False

    def may_be_old(self, changed_ns: int, now_s: float, *, fresh: bool) -> bool:
        """Whether the folder must be listed again, where it was changed last at `changed_ns`."""
        same = changed_ns == self._changed_ns
        return fresh or not (same and self._settled and now_s - self._listed_s < _KEPT_S)

    def listed(self, found: set[str], changed_ns: int, now_s: float, *, tells: bool) -> tuple[bool, set[str], set[str]]:
        """Note what the folder holds now. Return whether its time of change stood still, and which names came and went.

        Parameters
        ----------
        found : set of str
            All its names.
        changed_ns : int
            Its time of change before it was listed.
        now_s : float
            The clock.
        tells : bool
            Whether the time of change was seen to move with the names, here or in a folder beside it.
        """
        same = changed_ns == self._changed_ns
        self._settled = same and tells and now_s - self._changed_seen_s >= _SETTLED_S
        if not same:
            self._changed_ns, self._changed_seen_s = changed_ns, now_s
        self._listed_s = now_s
        new, gone = found - self.names, self.names - found
        self.names = found
        return same, new, gone


class FolderTurns:
    """The turns of sub-folders.

    Parameters
    ----------
    key : callable
        Returns by what a folder is sorted: those that sort last get new files.
    """

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self._sorted: list[str] = []
        self._seen_all_s = 0.0  # when all were looked at last
        self._turn = 0

    def change(self) -> None:
        """Take note that folders have come or gone."""
        self._sorted = []

    def due(self, folders: Collection[str], now_s: float, *, is_each: bool) -> Iterable[str]:
        """Return the folders that are to be looked at now.

        Parameters
        ----------
        folders : collection of str
            All sub-folders by their paths; the folder itself, "", may be among them.
        now_s : float
        is_each : bool
            Whether all of them are to be looked at anyway.
        """
        if len(folders) == 1:
            return ()
        if len(self._sorted) != len(folders) - 1:
            self._sorted = sorted(filter(None, folders), key=self._key)
        few = len(self._sorted) <= _LAST_FOLDERS + _FOLDERS_A_TURN
        if few or is_each or now_s - self._seen_all_s >= _ALL_FOLDERS_S:
            self._seen_all_s = now_s
            return tuple(self._sorted)
        last = {folder for known in self._sorted[-_LAST_FOLDERS:] for folder in upwards(known)}
        by_turns = self._sorted[self._turn : self._turn + _FOLDERS_A_TURN]
        self._turn = self._turn + _FOLDERS_A_TURN if self._turn + _FOLDERS_A_TURN < len(self._sorted) else 0
        return last.union(by_turns)


def upwards(folder: str) -> Iterator[str]:
    """Yield a folder's path, then those of the folders above it, without the last one."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


class TableMarks:
    """The refusal of folders that are tables.

    Parameters
    ----------
    disk : Files
        The file system.
    stream : str
        The stream's name, for errors.
    """

    def __init__(self, disk: Files, stream: str) -> None:
        self._disk = disk
        self._stream = stream

    def refuse_around(self, path: str) -> None:
        """Refuse a path that is a table, or lies inside one.

        Raises
        ------
        FileFormatError
            The path is or lies in a Delta, Iceberg or Hudi table.
        """
        place, *above = folders_above(path)
        for folder in (place, *above):
            self._refuse(folder, "is" if folder == place else "lies in", _KINDS)

    def refuse_below(self, folder: str, names: set[str]) -> None:
        """Refuse a sub-folder that is a table, by the names in it; see `refuse_around`."""
        self._refuse(folder, "has a sub-folder that is", [mark for mark in _KINDS if mark in names])

    def _refuse(self, folder: str, where: str, marks: Iterable[str]) -> None:
        for mark in marks:
            kind, spark_format = _KINDS[mark]
            if self._is_marked(f"{folder.rstrip('/')}/{mark}"):
                msg = f"the input of stream {self._stream} {where} {kind} table, not plain files: {folder}"
                read = f"spark.readStream.format('{spark_format}').load(...)"
                hint = f"read the table with StreamJoin.dataframe and {read}, or give a folder of plain files"
                if spark_format == "delta":
                    hint = f"give the table's folder as it is, with format auto or delta; or {hint}"
                raise FileFormatError(msg, name=folder, hint=hint)

    def _is_marked(self, mark: str) -> bool:
        """Whether `mark` is a folder that marks a table. A folder ``metadata`` must also hold Iceberg's files."""
        try:
            if not stat.S_ISDIR(self._disk.stat(mark).st_mode):
                return False
            if os.path.basename(mark) != "metadata":
                return True
            names = self._disk.names(mark)
        except OSError:
            return False
        return any(name.endswith(".metadata.json") or name == "version-hint.text" for name in names)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the folder shows it. `stamp` changes when the file is written to or replaced.

    `decodings` are what its bytes go through to be a text of lines.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int
    decodings: tuple[Decoding, ...] = ()

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time of the last change and inode."""
        return self.size, self.mtime_ns, self.inode


class Location:
    """A file, a folder, or the files of a folder with a pattern of one star (``/data/*.csv.gz``, ``/log/app.log-*``).

    Its files are known by labels (see `FileOrder`): the names, where nothing else is said.

    Parameters
    ----------
    path : str
        In a folder, files whose names begin with ``.`` or ``_`` are passed over: they are being written, or are notes
        of a writer. So are files of another format than the one asked for.
    format : {"auto", "csv", "json", "parquet", "orc", "avro", "arrow", "spool"}
        The format of the files.
    stream : str
        The stream's name, for errors.
    clock : callable
        Returns seconds and never goes back. It says how old a listing is.
    order : FileOrder
        How the files are sorted.
    sub_folders : bool
        Whether the files of sub-folders at any depth are files of the folder too. Otherwise sub-folders are passed
        over: a warning names one of them.
    root : str, optional
        The folder below which names of folders are columns; by default `path`, where it is a folder.
    new_names_last : bool
        Whether the names of new files sort after those that are there. Then an object store is asked for those alone,
        and for all of them now and then.
    decodings : callable
        Returns the decodings of a file of a format and a name; by default they have none.
    """

    def __init__(
        self,
        path: str,
        format: str,
        stream: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        order: FileOrder = BY_NAME,
        sub_folders: bool = False,
        root: str | None = None,
        new_names_last: bool = True,
        decodings: Callable[[str | None, str], tuple[Decoding, ...]] = lambda *_: (),
    ) -> None:
        if path.startswith("file:"):  # another text stays as it is: a position names files as they were listed
            path = str(local_path(path) or path)
        folder, last = os.path.split(path)
        self._pattern = last.partition("*")[::2] if last.count("*") == 1 else None  # what names begin and end with
        self.path = path if self._pattern is None else folder or "."
        self.format = format
        self.stream = stream
        self.order = order
        if self._pattern is None and "*" in last:
            msg = f"the path of stream {stream} holds a pattern that is not supported"
            raise FileFormatError(msg, name=last, hint="a file, a folder, /folder/*.extension or /folder/name*")
        try:
            self._disk = files_at(self.path)
        except ArgumentError:  # the rest of it may hold a secret
            msg = f"the input of stream {stream} is a {self.path.partition(':')[0]} location, and not a path"
            hint = (
                "give a file, a folder, s3://bucket/folder or kafka://broker:9092/topic?format=json; what Spark reads, "
                "join.start(frames=...) takes; of MQTT and HTTP, streamjoin intake makes a folder"
            )
            raise ArgumentError(msg, name="source", hint=hint) from None
        self._marks = TableMarks(self._disk, stream)
        self._new_names_last = new_names_last
        self._clock = clock
        self._reads_sub_folders = sub_folders
        self._root = root
        self._decodings = decodings
        self.names_listed: list[str] = []  # what `names` returned last
        self._labels: dict[str, str] = {}  # the label of each file, by its path in the folder
        self._names: dict[str, FolderNames] = {}  # what each folder holds, by its path in the folder; "" is the folder
        self._turns = FolderTurns(lambda folder: self.order.label(f"{folder}/", 0))
        self._tells = False  # whether a folder's time of change was seen to move with its names
        self._columns: dict[str, FolderColumns] = {}  # by folder
        self.generation = 0  # goes up when the folder's names change
        self.folders: list[str] = []  # sub-folders, which are passed over

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """Return the labels of the files that are there now, sorted: by default their names, by code points.

        A folder is listed again where its time of change has moved. It is also listed again where that time cannot be
        trusted: it was never seen to move with the names, or it moved less than three seconds ago. And it is listed
        again where the listing is ten seconds old or must be `fresh`.

        Raises
        ------
        FileMissingError
            Neither a file nor a folder is there.
        StoreUnreachableError, StoreAccessError
            The file system of another machine does not tell.
        FileFormatError
            A sub-folder is a table.
        """
        try:
            found = self._disk.stat(self.path)
            if not stat.S_ISDIR(found.st_mode):
                self.names_listed = [self.order.label(Path(self.path).name, found.st_mtime_ns)]
                return self.names_listed
            now_s = self._clock()
            known = self._names.setdefault("", FolderNames((found.st_dev, found.st_ino)))
            has_changed = self._look("", known, found.st_mtime_ns, now_s, fresh=fresh)
            for folder in self._turns.due(self._names, now_s, is_each=fresh or self.order.by_modification):
                has_changed |= self._look_again(folder, now_s, fresh=fresh)
            self.generation += has_changed
            if fresh and self.order.by_modification and not has_changed:
                self._look_at_times()
        except OSError:
            msg = f"the input of stream {self.stream} is not there: {self.path}"
            hint = f"{near_names(self.path)}give a file or a folder that exists and can be read"
            if self.path.startswith("~"):
                hint = f"a shell takes ~ at the beginning of a word alone: write $HOME{self.path[1:]}"
            raise FileMissingError(msg, name=self.path, hint=hint) from None
        return self.names_listed

    def _look_at_times(self) -> None:
        """Give each file that was changed its new label."""
        for label in tuple(self.names_listed):
            self.entry(label)

    def _look_again(self, folder: str, now_s: float, *, fresh: bool) -> bool:
        known = self._names.get(folder)
        if known is None:  # it went with a folder above it
            return False
        try:
            found = self._disk.stat(os.path.join(self.path, folder))
            return self._look(folder, known, found.st_mtime_ns, now_s, fresh=fresh)
        except OSError:
            return self._forget(folder)

    def _look(self, folder: str, known: FolderNames, changed_ns: int, now_s: float, *, fresh: bool) -> bool:
        """List one folder, if its listing may be old. Return whether its files have changed, or those below it."""
        if not known.may_be_old(changed_ns, now_s, fresh=fresh):
            return False
        path = os.path.join(self.path, folder) if folder else self.path
        found = set(self._disk.names(path, fresh=fresh, new_last=self._new_names_last))
        same, new, gone = known.listed(found, changed_ns, now_s, tells=self._tells)
        self._tells = self._tells or (not same and known.is_known and bool(new or gone))
        known.is_known = True
        if not (new or gone):
            return False
        if folder:
            self._marks.refuse_below(os.path.join(self.path, folder), new)
        for name in gone:
            if _below(folder, name) in self._names:
                self._forget(_below(folder, name))
        gone_files = [_below(folder, name) for name in gone]
        self._without(gone_files)
        if not folder and not self._reads_sub_folders:
            self.folders = [name for name in self.folders if name not in gone]
        files, folders = self._sorted_out(folder, known, new)
        self._with(files)
        if self._reads_sub_folders:
            for below, identity in folders:
                self._begin_folder(below, identity, now_s)
        elif folders:
            self._pass_over([name for name, _ in folders])
        return True

    def _pass_over(self, folders: Sequence[str]) -> None:
        self.folders = sorted([*self.folders, *folders])
        _log.warning(
            "stream %s: sub-folders are not read: %d in %s, for example %s (sub_folders=read reads them)",
            *(self.stream, len(self.folders), self.path, min(folders)),
        )

    def _begin_folder(self, folder: str, identity: tuple[int, int], now_s: float) -> None:
        above = [self._names[one].identity for one in ("", *upwards(folder)) if one in self._names]
        if identity in above:  # a link back to a folder above
            _log.warning("stream %s: a link leads back to a folder above it: %s", self.stream, folder)
            return
        self._names[folder] = FolderNames(identity)
        self._turns.change()
        self._look_again(folder, now_s, fresh=True)

    def _forget(self, folder: str) -> bool:
        """Forget a folder that is gone, and all below it."""
        gone = [one for one in self._names if one == folder or one.startswith(f"{folder}/")]
        self._turns.change()
        files = [_below(one, name) for one in gone for name in self._names.pop(one).names]
        self._without(files)
        return True

    def _without(self, files: Iterable[str]) -> None:
        labels = {self._labels.pop(file) for file in files if file in self._labels}
        if labels:
            self.names_listed = [label for label in self.names_listed if label not in labels]

    def _with(self, files: Sequence[tuple[str, int]]) -> None:
        labels = [self.order.label(file, mtime_ns) for file, mtime_ns in files]
        self._labels.update(zip((file for file, _ in files), labels, strict=True))
        if len(labels) > _FEW_NAMES:
            self.names_listed = sorted([*self.names_listed, *labels])
        else:
            for label in labels:
                insort(self.names_listed, label)

    def _sorted_out(
        self, folder: str, known: FolderNames, new: set[str]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, tuple[int, int]]]]:
        """Return which of a folder's new names are files that are wanted, and which are sub-folders.

        A file has the time of its last change, where the order asks for it; a folder has its device and inode.
        """
        files, folders = [], []
        for name, found in self._looked_at(folder, {name for name in new if not name.startswith((".", "_"))}):
            below = _below(folder, name)
            if found is None:
                known.names.discard(name)  # gone again; if it comes back it is new
            elif stat.S_ISDIR(found.st_mode):
                folders.append((below, (found.st_dev, found.st_ino)))
            elif stat.S_ISREG(found.st_mode) and self._wanted(name):
                files.append((below, found.st_mtime_ns if self.order.by_modification else 0))
        return files, folders

    def _looked_at(self, folder: str, names: set[str]) -> Iterator[tuple[str, os.stat_result | None]]:
        path = os.path.join(self.path, folder)
        if len(names) > _FEW_NAMES and is_local(path):
            with os.scandir(path) as walk:
                for file in walk:
                    if file.name in names:
                        names.discard(file.name)
                        if file.is_file() and not self.order.by_modification:
                            yield file.name, _PLAIN_FILE
                        elif file.is_file() or file.is_dir() or file.is_symlink():
                            yield file.name, self._found(os.path.join(path, file.name))
        for name in names:
            yield name, self._found(os.path.join(path, name) if folder else self._path_of(name))

    def _wanted(self, name: str) -> bool:
        if self._pattern is not None:
            begin, end = self._pattern
            if len(name) < len(begin) + len(end) or not (name.startswith(begin) and name.endswith(end)):
                return False
            if self.format != "auto":
                return True
        kind = format_of(name, "auto")
        return kind is not None and self.format in ("auto", kind)

    def path_of(self, label: str) -> str:
        """Return the path of the file of this label."""
        return self._path_of(self.order.path(label))

    def _path_of(self, name: str) -> str:
        path = self.path
        if os.path.basename(path) == name:
            found = self._found(path)
            if found is None or not stat.S_ISDIR(found.st_mode):
                return path
        return os.path.join(path, name)

    def _found(self, path: str) -> os.stat_result | None:
        try:
            return self._disk.stat(path)
        except OSError:
            return None

    def entry(self, label: str) -> FileEntry | None:
        """Return the file of this label as it looks now; None where it is not there, or is no file any more.

        By modification a file that was changed since has another label, by which `names` lists it from now on.
        """
        path = self.path_of(label)
        found = self._found(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        if self.order.by_modification and self.order.mtime_ns(label) != max(found.st_mtime_ns, 0):
            self._changed(label, found.st_mtime_ns)
            return None
        decodings = self._decodings(format_of(label, self.format), label)
        return FileEntry(label, path, found.st_size, found.st_mtime_ns, found.st_ino, decodings)

    def _changed(self, label: str, mtime_ns: int) -> None:
        file = self.order.path(label)
        if self._labels.get(file) == label:
            self._without([file])
            self._with([(file, mtime_ns)])
            self.generation += 1

    @property
    def appears_whole(self) -> bool:
        """Whether a file is complete when it appears, and does not grow, as in an object store."""
        return self._disk.appears_whole

    def entries(self) -> tuple[FileEntry, ...]:
        """Return the files that are there now as they look now, in the order of their labels; see `names`."""
        found = (self.entry(name) for name in tuple(self.names()))
        return tuple(entry for entry in found if entry is not None)

    def columns_of(self, path: str, time: str) -> FolderColumns:
        """Return the columns that the folders of a file name; none where sub-folders are not read.

        Parameters
        ----------
        path : str
            The file's path.
        time : str
            The column of the event time.
        """
        root = self._root
        if root is None:
            root = self.path if self._reads_sub_folders else None
        if root is None:
            return NO_COLUMNS
        folder = os.path.dirname(path)
        if folder not in self._columns:
            below = os.path.relpath(folder, root)
            parts = [] if below == "." or below.startswith("..") else below.split(os.sep)
            self._columns[folder] = FolderColumns(folder_values(parts, time))
        return self._columns[folder]

    def format_of(self, entry: FileEntry) -> str:
        """Return the format of one file.

        Raises
        ------
        FileFormatError
            The file's name does not tell its format, and none was declared.
        """
        return format_told(entry.name, entry.path, self.format)

    def has_rows(self, entry: FileEntry) -> bool:
        """Whether the records of a file are rows, which have numbers, and not lines."""
        return self.format_of(entry) in ROW_FORMATS

    def refuse_table(self) -> None:
        """Refuse a path that is a table, or lies inside one: some of the files there may no longer be the table's.

        Raises
        ------
        FileFormatError
            The path is or lies in a Delta, Iceberg or Hudi table.
        """
        self._marks.refuse_around(self.path)


def location_of(stream: Stream, root: str | None = None) -> Location:
    """Return where the files of a stream are, sorted as it asks; `root` is that of `Location`."""
    files = stream.files
    return Location(
        files.path,
        files.format,
        stream.name,
        order=FileOrder(by_modification=files.by_modification),
        sub_folders=files.reads_sub_folders,
        root=root,
        new_names_last=not files.by_modification and files.partition_by is None,
        decodings=partial(decodings_of, files) if stream.time_step is None else partial(timed_decodings, stream),
    )


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
