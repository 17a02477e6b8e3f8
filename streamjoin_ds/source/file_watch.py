"""Watching what was read: files that vanish, shrink, are replaced, or appear too late."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.errors import FileChangedError, FileMissingError, FileOrderError
from streamjoin_ds.source.digest import SEGMENT_BYTES, RollingDigest, name_sum
from streamjoin_ds.source.listing import FileEntry, Location, is_gzip
from streamjoin_ds.source.parquet_rows import content_digest
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.text import open_text
from streamjoin_ds.spec.stream import Stream

__all__ = ["FileWatch", "changed", "continued", "missing", "order_error", "verify_prefix", "verify_segment"]

_READ_BYTES = 4 << 20


def changed(path: str, how: str) -> FileChangedError:
    """The error for a file that is not what was read from it."""
    msg = f"the file {path} {how}"
    hint = "a file may grow at its end, and files may be added after the last; no more"
    return FileChangedError(msg, name=path, hint=hint)


def continued(path: str, line: int) -> FileChangedError:
    """The error for a file that goes on with a line that was taken as its last, without its newline."""
    msg = f"the file {path} goes on with its line {line}, which was taken as its last when it was finished"
    hint = "put the file back as it was, and what follows in a file of its own; a line that may go on ends in a newline"
    return FileChangedError(msg, name=path, hint=hint)


def missing(path: str, stream: Stream) -> FileMissingError:
    """The error for a file that was being read, or was read, and is gone."""
    msg = f"the file {path} of stream {stream.name} is not there any more"
    hint = "put it back as it was; with missing_files=ignore, files may go once they are read and their batch is done"
    return FileMissingError(msg, name=path, hint=hint)


def order_error(path: str, stream: Stream) -> FileOrderError:
    """The error for a file that sorts among those that were read already."""
    msg = f"the file {path} appeared after files of stream {stream.name} whose names sort behind it were read"
    return FileOrderError(msg, name=path, hint="files are read in the order of their names: give new ones later names")


def verify_prefix(location: Location, entry: FileEntry, position: FilePosition) -> RollingDigest:
    """Read again all that was read of the position's file; the digest at the position, ready to be moved on.

    Raises
    ------
    FileChangedError
        It is not what was read then.
    """
    digest = RollingDigest.at_start_of(position.digest)
    if location.format_of(entry) == "parquet":
        digest.update(content_digest(entry))
    else:
        with open_text(entry.path) as text:
            while digest.offset < position.offset:
                data = text.read(digest.offset, min(_READ_BYTES, position.offset - digest.offset))
                if not data:
                    raise changed(entry.path, f"is shorter than what was read of it, {position.offset} bytes of text")
                digest.update(data)
    if digest.text != position.digest:
        how = f"is not what was read from it: the first {position.offset} bytes or rows have changed"
        raise changed(entry.path, how)
    return digest


def verify_segment(entry: FileEntry, position: FilePosition) -> RollingDigest:
    """As `verify_prefix`, of a text and of its last segment only: at most `SEGMENT_BYTES` are read."""
    begin = position.offset // SEGMENT_BYTES * SEGMENT_BYTES
    digest = RollingDigest(position.digest, begin)
    with open_text(entry.path) as text:
        data = text.read(begin, position.offset - begin)
    digest.update(data)
    if digest.text != position.digest:
        raise changed(entry.path, f"is not what was read from it, at byte {begin} to {position.offset} of its text")
    return digest


class FileWatch:
    """Remembers how the files looked that were read, and compares.

    Parameters
    ----------
    stream : Stream
        Whose files.
    location : Location
        Where they are.
    ignore_missing : bool
        Whether files that lie wholly before a batch's start may be gone.
    """

    def __init__(self, stream: Stream, location: Location, ignore_missing: bool) -> None:
        self._stream = stream
        self._location = location
        self._ignore_missing = ignore_missing
        self._seen: dict[str, FileEntry] = {}

    def entry(self, name: str) -> FileEntry | None:
        """The file of this name as it looked last; None where it is gone, which was allowed."""
        return self._seen.get(name)

    def reading(self, entry: FileEntry) -> None:
        """Take note of a file that is read from now on."""
        self._seen[entry.name] = entry

    def begin(self, start: FilePosition) -> None:
        """Begin at a position that another process may have reached: what lies before must still be there.

        Raises
        ------
        FileMissingError, FileOrderError, FileChangedError
            What is not as it was.
        """
        entries = self._location.entries()
        self._seen = {entry.name: entry for entry in entries if entry.name <= start.file}
        if start.file and start.file not in self._seen and not (self._ignore_missing and start.whole):
            raise missing(self._path(start.file), self._stream)
        if not self._ignore_missing:
            self._check_done([entry for entry in entries if entry.name < start.file], start)

    def _check_done(self, done: Sequence[FileEntry], start: FilePosition) -> None:
        folder = self._location.path
        names = name_sum(entry.name for entry in done)
        if len(done) < start.files:
            msg = f"{start.files} files of {folder} were read, of these {len(done)} are there"
            raise FileMissingError(msg, name=folder, hint="put them back, or allow it with missing_files=ignore")
        if len(done) > start.files or names != start.names:
            surplus = f"{(int(names, 16) - int(start.names, 16)) % (1 << 64):016x}"
            late = next((entry.name for entry in done if name_sum([entry.name]) == surplus), "")
            raise order_error(self._path(late) if late else f"(unknown) in {folder}", self._stream)
        if name_sum(f"{entry.name}/{entry.size}" for entry in done) != start.sizes:
            raise changed(folder, "holds a file that was read and now has another size")

    def look(self, tail: FilePosition, start: FilePosition) -> Sequence[FileEntry]:
        """The files now, after a check of those up to `tail`, the last that was looked into; `start` is committed.

        Raises
        ------
        FileMissingError, FileOrderError, FileChangedError
            What is not as it was.
        """
        entries = self._location.entries()
        now = {entry.name: entry for entry in entries}
        for name in [name for name in self._seen if name not in now]:
            committed = name < start.file or (name == start.file == tail.file and start.whole)
            if not (self._ignore_missing and committed):
                raise missing(self._path(name), self._stream)
            del self._seen[name]
        for entry in entries:
            if entry.name > tail.file:
                break
            before = self._seen.get(entry.name)
            if before is None:
                raise order_error(entry.path, self._stream)
            if entry.stamp != before.stamp:
                self._changed(entry, before, tail)
                self._seen[entry.name] = entry
        return entries

    def _changed(self, entry: FileEntry, before: FileEntry, tail: FilePosition) -> None:
        if entry.name != tail.file:
            raise changed(entry.path, "was read to its end and has changed since")
        if tail.offset == 0:
            return
        text = self._location.format_of(entry) != "parquet"
        if text and not is_gzip(entry.name):
            if entry.size < tail.offset:
                raise changed(entry.path, f"has shrunk to {entry.size} bytes, {tail.offset} of it were read")
            if entry.inode == before.inode and entry.size > before.size:
                verify_segment(entry, tail)
                return
        verify_prefix(self._location, entry, tail)

    def _path(self, name: str) -> str:
        path = self._location.path
        return path if path.endswith(f"/{name}") or path == name else f"{path.rstrip('/')}/{name}"
