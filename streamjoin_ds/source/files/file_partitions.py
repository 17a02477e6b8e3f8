"""The partitions of a folder: each file, or each sub-folder, is one, with an order of its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import xxhash

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.location import is_local, local_path
from streamjoin_ds.errors import FileMissingError, OffsetError, StreamJoinError
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.files.file_names import is_label
from streamjoin_ds.source.files.listing import Location, location_of
from streamjoin_ds.source.position import FilePosition, Position
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["FilePartitions", "partition_streams"]


class FilePartitions:
    """The files, or the sub-folders, of a stream's folder (see `partitions.Inputs`).

    A file is read as it grows. The files of a sub-folder are read in the stream's order of files, as those of a stream
    of one order are. With ``sub_folders="read"`` a file may lie in any sub-folder, and the name of a sub-folder that is
    a partition may be a column. Names that begin with a point or an underscore are left out.

    Parameters
    ----------
    stream : Stream
        A stream with `partition_by`.
    schema : pyarrow.Schema
        See `FileFeed`.
    ignore_missing : bool
        Whether a partition that was read to its end may vanish.
    """

    threads = 1

    @property
    def looks(self) -> int:
        """See `partitions.Inputs.looks`.

        A sub-folder has several files. One whose own sub-folders are read, or on another machine, would take a walk.
        """
        if isinstance(self._folder, Location):
            return 256
        return 16 if self._stream.sub_folders != "read" and is_local(self._folder.path) else 0

    def __init__(self, stream: Stream, schema: pa.Schema, *, ignore_missing: bool = False) -> None:
        self._stream = stream
        self._schema = schema
        self._ignore_missing = ignore_missing
        self._leader: FilePartitions | None = None
        self._listed: Sequence[str] = ()
        self._folder: _SubFolders | Location
        if stream.partition_by == "folder":
            self._folder = _SubFolders(stream)
        else:
            self._folder = location_of(stream)
        self._disk = files_at(self._folder.path)

    @property
    def passed_over(self) -> Sequence[str]:
        """The sub-folders beside files; the files beside sub-folders."""
        if self._leader is not None:
            return self._leader.passed_over
        return self._folder.folders if isinstance(self._folder, Location) else self._folder.files

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """See `partitions.Inputs.names`.

        Raises
        ------
        FileMissingError
            The folder is not there.
        """
        self._listed = self._folder.names(fresh=fresh) if self._leader is None else self._leader._listed
        return self._listed

    def follow(self, leader: FilePartitions) -> None:
        """See `partitions.Inputs.follow`."""
        self._leader = leader

    def feed(self, name: str) -> FileFeed:
        """See `partitions.Inputs.feed`.

        Raises
        ------
        OffsetError
            The name leads elsewhere: the offset was edited.
        """
        reads_sub_folders = self._stream.sub_folders == "read"
        if not name or not is_label(name) or ("/" in name and not reads_sub_folders):
            msg = f"the logged offset of stream {self._stream.name} is malformed: partitions"
            hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
            raise OffsetError(msg, name="partitions", hint=hint)
        own = replace(self._stream, source=self._folder.path_of(name), partition_by=None)
        root = self._folder.path if reads_sub_folders else None
        return FileFeed(own, self._schema, ignore_missing=self._ignore_missing, root=root)

    def begins(self, names: Sequence[str], *, at_start: bool) -> Mapping[str, Position]:
        """See `partitions.Inputs.begins`: at their first record."""
        del at_start
        return dict.fromkeys(names, FilePosition())

    def begin_of(self, name: str, at: Position) -> Position:
        """See `partitions.Inputs.begin_of`."""
        del name, at
        return FilePosition()

    def stamp(self, name: str) -> int | None:
        """See `partitions.Inputs.stamp`: sizes, times of change and inodes."""
        path = self._folder.path_of(name)
        try:
            if isinstance(self._folder, Location):
                found = self._disk.stat(path)
                return _stamp(f"{found.st_size}/{found.st_mtime_ns}/{found.st_ino}")
            with os.scandir(path if os.path.isdir(path) else os.path.dirname(path)) as walk:
                files = sorted((one.name, one.stat()) for one in walk)
        except OSError:
            return None
        return _stamp("".join(f"{name}/{of.st_size}/{of.st_mtime_ns}/{of.st_ino}/" for name, of in files))

    def may_be_gone(self, at: Position) -> bool:
        """See `partitions.Inputs.may_be_gone`."""
        return self._ignore_missing and isinstance(at, FilePosition) and at.whole

    def gone(self, name: str) -> StreamJoinError:
        """See `partitions.Inputs.gone`."""
        path = self._folder.path_of(name)
        msg = f"the partition {path} of stream {self._stream.name} is not there any more"
        hint = "put it back as it was; with missing_files=ignore, one that was read to its end may be removed"
        return FileMissingError(msg, name=path, hint=hint)


def _stamp(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode()) >> 1  # int64 holds it


class _SubFolders:
    """The sub-folders of a folder, by name; ``/folder/*.csv`` means the files of that ending in each of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream.name
        source = str(stream.source)
        path = str(local_path(source) or source) if source.startswith("file:") else source
        folder, last = os.path.split(path)
        self._pattern = last if "*" in last else ""
        self.path = (folder or ".") if self._pattern else path
        self.files: list[str] = []
        self._disk = files_at(self.path)

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        try:
            if is_local(self.path):  # each call lists
                with os.scandir(self.path) as walk:
                    found = [(one.name, one.is_dir()) for one in walk if not one.name.startswith((".", "_"))]
            else:
                listed = [
                    name for name in self._disk.names(self.path, fresh=fresh, new_last=False) if name[0] not in "._"
                ]
                found = [(name, stat.S_ISDIR(self._disk.stat(f"{self.path}/{name}").st_mode)) for name in listed]
        except OSError:
            msg = f"the input of stream {self._stream} is not there: {self.path}"
            hint = "give a folder that exists and can be read, with a sub-folder for each partition"
            raise FileMissingError(msg, name=self.path, hint=hint) from None
        self.files = sorted(name for name, is_folder in found if not is_folder)
        return sorted(name for name, is_folder in found if is_folder)

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name, self._pattern) if self._pattern else os.path.join(self.path, name)


def partition_streams(stream: Stream) -> Mapping[str, Stream]:
    """Return a stream of one order for each sub-folder of a stream with ``partition_by="folder"``, by its name."""
    folders = _SubFolders(stream)
    return {name: replace(stream, source=folders.path_of(name), partition_by=None) for name in folders.names()}
