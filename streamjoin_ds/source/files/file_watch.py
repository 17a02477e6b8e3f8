"""The watch over files while others write them: when a file is finished, and what became of files that were read.

It finds files that vanish, shrink, are replaced or appear too late. A file is finished when so much time has passed
since its last change.

A writer that rotates its files cuts a file off in place, or puts it away under another name. A replay needs the bytes
that were read. After a rotation they lie in another file or nowhere, so it is refused by name.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import islice

from msgspec import Struct

from streamjoin_ds.errors import FileChangedError, FileMissingError, FileOrderError, FileRotatedError, StreamJoinError
from streamjoin_ds.source.files.file_names import compression_of, without_compression
from streamjoin_ds.source.files.listing import FileEntry, Location
from streamjoin_ds.source.files.row_files import content_digest
from streamjoin_ds.source.files.text import has_its_bytes, open_text, prefix_digest
from streamjoin_ds.source.position import SEGMENT_BYTES, FilePosition, RollingDigest, difference, name_sum
from streamjoin_ds.spec.member.stream import Stream

__all__ = [
    "BadFile",
    "FileWatch",
    "FinishRule",
    "changed",
    "continued",
    "cut_off",
    "holds",
    "is_copy",
    "late_names",
    "missing",
    "moved_to",
    "order_error",
    "read_twice",
    "verify_prefix",
    "verify_segment",
]

_log = logging.getLogger(__name__)

_BY_MODIFICATION_NS = 10_000_000_000  # where files are read by modification, and nothing is said
_MOST_TRIED = 16  # files that are read in search of what was read, at most
_HINT = (
    "read files that nobody writes to any more, by a pattern such as /var/log/app.log-* (logrotate: dateext, "
    "nocompress), or let the writer begin files under later names; to go on with this checkpoint, put the file back as "
    "it was"
)
Stamp = tuple[int, int, int]
_FILES_A_TURN = 32  # read files that one look checks
_GROUPS_A_SIZE = 4  # groups of one size in `FilePosition.kept`, at most
_MANY_LATE = 64  # newest files that are tried as late ones, at most
_DIGESTS = 1 << 64  # digests of names are below this


class FinishRule:
    """Says whether a file may be taken as whole (ARCHITECTURE.md, "Folders").

    Parameters
    ----------
    said_us : int or None
        The `finished_after` of a stream or a table. Without one, files that are read by modification are finished after
        10 s; in a query that ends with the input that is there, at once. Others are finished at once: then only whether
        there is a later file decides.
    clock : callable
        Returns the time in nanoseconds since 1970.
    by_modification : bool
        Whether files are read by modification.
    """

    def __init__(self, said_us: int | None, clock: Callable[[], int], *, by_modification: bool = False) -> None:
        self._clock = clock
        self._said_ns = None if said_us is None else said_us * 1000
        self._usual_ns = _BY_MODIFICATION_NS if by_modification else 0
        self._now_ns: int | None = None
        self._is_frozen = False

    def begin_look(self) -> None:
        """Judge files as of now: what one look was told before may have changed since, if it takes long."""
        if not self._is_frozen:
            self._now_ns = self._clock()

    def freeze(self) -> None:
        """Judge all files as of now from here on."""
        self._now_ns, self._is_frozen = self._clock(), True

    def is_finished(self, mtime_ns: int) -> bool:
        """Whether a file whose last change was at `mtime_ns` is finished."""
        if self._said_ns is None and self._is_frozen:
            return True
        after_ns = self._usual_ns if self._said_ns is None else self._said_ns
        return not after_ns or (self._clock() if self._now_ns is None else self._now_ns) - mtime_ns >= after_ns


def holds(entry: FileEntry, digest: str, offset: int) -> bool:
    """Whether a text begins with the `offset` bytes of which `digest` was taken (see `RollingDigest`)."""
    if entry.size < offset and has_its_bytes(entry):
        return False
    return prefix_digest(entry, digest, offset).text == digest


def is_copy(name: str, other: str) -> bool:
    """Whether the file `name` is, by its name, the compressed form of the file `other`."""
    return compression_of(name) is not None and without_compression(name) == other


def moved_to(entry: FileEntry, digest: str, offset: int) -> FileChangedError | None:
    """Return the error for a file whose bytes that were read lie in a file beside it; None where there is none."""
    for other in _beside(entry):
        if holds(other, digest, offset):
            msg = f"the file {entry.path} was rotated: it begins anew, and what was read of it is in {other.path}"
            return FileRotatedError(msg, name=entry.path, hint=_HINT)
    return None


def cut_off(entry: FileEntry, offset: int) -> FileChangedError:
    """Return the error for a file that was cut off in place, as copytruncate does."""
    msg = (
        f"the file {entry.path} has shrunk to {entry.size} bytes, but {offset} bytes of it were read: "
        "it was cut off in place and begins anew"
    )
    return FileRotatedError(msg, name=entry.path, hint=_HINT)


def read_twice(entry: FileEntry, path: str) -> FileChangedError:
    """Return the error for a file that holds what was read already, under the name `path`."""
    msg = f"the file {entry.path} begins with what was read as {path}: it was rotated, and would be read twice"
    return FileRotatedError(msg, name=entry.path, hint=_HINT)


def _beside(entry: FileEntry) -> list[FileEntry]:
    """Return the files whose names say that they may be the rotated form of a file, the newest first."""
    folder, name = os.path.split(entry.path)
    stem, ending = os.path.splitext(name)
    found = []
    try:
        with os.scandir(folder) as walk:
            for one in walk:
                if one.name != name and one.name.startswith(stem) and ending in one.name and one.is_file():
                    about = one.stat()
                    stamp = about.st_size, about.st_mtime_ns, about.st_ino
                    found.append(FileEntry(one.name, one.path, *stamp, entry.decodings))
    except OSError:
        return []
    found.sort(key=lambda one: one.mtime_ns, reverse=True)
    return found[:_MOST_TRIED]


def changed(path: str, how: str) -> FileChangedError:
    """Return the error for a file that is no longer what was read from it."""
    msg = f"the input {path} {how}"
    hint = "put it back as it was; a file may only grow at its end, and new files must sort after those that were read"
    return FileChangedError(msg, name=path, hint=hint)


def written_on(path: str) -> FileChangedError:
    """Return the error for a file that is written to although one after it was begun."""
    msg = f"the input {path} was read to its end, since a later file is there, and has changed since"
    hint = (
        "put it back as it was; where several files are written at once, finished_after=30s makes the later ones wait, "
        "and partition_by=file reads them side by side"
    )
    return FileChangedError(msg, name=path, hint=hint)


def continued(path: str, line: int) -> FileChangedError:
    """Return the error for a file whose last line was taken without a newline, and which now goes on with that line."""
    msg = f"the file {path} goes on in line {line}, which was read as its last, complete line"
    hint = (
        "put the file back as it was, and what follows into a new file; end each complete line with a newline; where "
        "several files are written at once, set finished_after or partition_by=file"
    )
    return FileChangedError(msg, name=path, hint=hint)


def missing(path: str, stream: Stream) -> FileMissingError:
    """Return the error for a file that is gone, though it was read or is being read."""
    msg = f"the file {path} of stream {stream.name} is not there any more"
    hint = "put it back as it was; with missing_files=ignore, files may be removed once their batch is done"
    if stream.files.by_modification:
        msg = f"the file {path} of stream {stream.name} is not there any more as it was read"
        hint += ", or written again: they are then new files"
    return FileMissingError(msg, name=path, hint=hint)


def order_error(path: str, stream: Stream) -> FileOrderError:
    """Return the error for a new file whose name sorts before a file that was read already."""
    if stream.files.by_modification:
        msg = f"the file {path} came late: stream {stream.name} has already read files that were changed after it"
        hint = "touch it; files are read by the times of their changes, so they must be there within finished_after"
        return FileOrderError(msg, name=path, hint=hint)
    msg = f"the file {path} came late: stream {stream.name} has already read files whose names sort after it"
    hint = (
        "files are read in the order of their names: give new ones later names; names that do not sort in time need "
        "file_order=modified, and files without an order partition_by=file, with a new checkpoint"
    )
    return FileOrderError(msg, name=path, hint=hint)


def late_names(names: Sequence[str], expected: str, location: Location) -> Sequence[str] | None:
    """Return the names that came late: `expected` is the digest of the others. None where they cannot be found.

    One or two late names are found by their digests. For more, the newest files are tried together, up to 64 of them,
    also without any one of them: a file that was read may have changed meanwhile, and then it is among the newest.
    """
    surplus = int(difference(name_sum(names), expected), 16)
    if surplus == 0:
        return ()
    digests = {int(name_sum([name]), 16): name for name in names}
    if surplus in digests:
        return (digests[surplus],)
    for digest, name in digests.items():
        other = digests.get((surplus - digest) % _DIGESTS)
        if other not in (None, name):
            return sorted((name, other))
    entries = [entry for entry in (location.entry(name) for name in names) if entry is not None]
    entries.sort(key=lambda entry: entry.mtime_ns, reverse=True)
    tried: list[str] = []
    for entry in entries[:_MANY_LATE]:
        tried.append(entry.name)
        left = (int(name_sum(tried), 16) - surplus) % _DIGESTS
        if left == 0:
            return sorted(tried)
        if digests.get(left) in tried:
            return sorted(name for name in tried if name != digests[left])
    return None


def verify_prefix(location: Location, entry: FileEntry, position: FilePosition) -> RollingDigest:
    """Read again all that was read of the position's file. Return the digest at the position, ready to be moved on.

    Raises
    ------
    FileChangedError
        The file does not hold what was read then.
    """
    digest = RollingDigest.at_start_of(position.digest)
    if position.offset == 0:
        return digest
    is_text = not location.has_rows(entry)
    if is_text:
        digest = prefix_digest(entry, position.digest, position.offset)
    else:
        digest.update(content_digest(entry))
    if digest.text != position.digest:
        rotated = moved_to(entry, position.digest, position.offset) if is_text else None
        if rotated is not None:
            raise rotated
        how = f"has changed in its first {position.offset} bytes or rows, which were read already"
        if is_text and digest.offset < position.offset:
            how = f"is shorter than the {position.offset} bytes of text that were read from it"
        raise changed(entry.path, how)
    return digest


def verify_segment(entry: FileEntry, position: FilePosition) -> RollingDigest:
    """Verify a text as `verify_prefix` does, but only its last segment: at most `SEGMENT_BYTES` are read."""
    begin = position.offset // SEGMENT_BYTES * SEGMENT_BYTES
    digest = RollingDigest(position.digest, begin)
    with open_text(entry) as text:
        data = text.read(begin, position.offset - begin)
    digest.update(data)
    if digest.text != position.digest:
        raise moved_to(entry, position.digest, position.offset) or changed(
            entry.path, f"has changed in bytes {begin} to {position.offset} of its text, which were read already"
        )
    return digest


class BadFile(Struct, frozen=True):
    """A file that came late, or has changed since it was read, and what it changes in the digests of a position."""

    kind: str
    name: str
    error: StreamJoinError
    names: Sequence[str] = ()  # names that are added to those that were read
    sizes: tuple[str, ...] = ()  # digests of names with sizes that are added
    sizes_before: tuple[str, ...] = ()  # digests of names with sizes that are taken away


class FileWatch:
    """Remembers how the files that were read looked, and compares them with what is there now.

    `look` checks the file that is being read and, by turns, a few of those before it. It checks the names only where
    the folder has changed. `begin` checks the names of all files, and their sizes where no file may be removed, so it
    finds what happened while no process ran.

    Parameters
    ----------
    stream : Stream
        The stream that the files belong to.
    location : Location
        Where the files are.
    ignore_missing : bool
        Whether files that lie wholly before a batch's start may be gone.
    """

    def __init__(self, stream: Stream, location: Location, ignore_missing: bool) -> None:
        self._stream = stream
        self._location = location
        self._ignore_missing = ignore_missing
        self._quarantine = stream.quarantines
        self._seen: dict[str, Stamp] = {}
        self._found: list[BadFile] = []
        self._turn = 0
        self._generation = -1

    def seen(self, name: str) -> bool:
        """Whether the file of this name was read, in part or whole, and was still there at the last look."""
        return name in self._seen

    def reading(self, entry: FileEntry) -> None:
        """Note a file that is read from now on."""
        self._seen[entry.name] = entry.stamp

    def taken_bad(self) -> list[BadFile]:
        """Return the bad files found since the last call; none where a bad file stops the stream."""
        found, self._found = self._found, []
        return found

    def kept_before(self, file: str) -> tuple[tuple[str, int, str], ...]:
        """Return `FilePosition.kept` for a position in `file`. The four newest files before it are groups of one."""
        names = sorted(self._seen)
        end, size, groups = bisect_left(names, file), 1, []
        while end > 0:
            for _ in range(min(_GROUPS_A_SIZE, -(-end // size))):
                first = max(0, end - size)
                groups.append((names[end - 1], end - first, name_sum(names[first:end])))
                end = first
            size *= 2
        return tuple(reversed(groups))

    def begin(self, start: FilePosition) -> None:
        """Begin at a position that another process may have reached. Check that the files before it are as they were.

        Raises
        ------
        FileMissingError, FileOrderError, FileChangedError
            A file is gone, has come or has changed.
        """
        names = self._location.names(fresh=True)
        found = [self._location.entry(name) for name in names[: bisect_right(names, start.file)]]
        entries = [entry for entry in found if entry is not None]
        self._seen = {entry.name: entry.stamp for entry in entries}
        self._turn, self._generation, self._found = 0, -1, []
        if start.file and start.file not in self._seen and not (self._ignore_missing and start.whole):
            raise missing(self._location.path_of(start.file), self._stream)
        done = [entry for entry in entries if entry.name < start.file]
        if self._ignore_missing:
            self._check_kept([entry.name for entry in done], start)
        else:
            self._check_done(done, start)

    def _check_done(self, done: Sequence[FileEntry], start: FilePosition) -> None:
        folder = self._location.path
        if len(done) < start.files:
            msg = f"{start.files} files of {folder} were read, but only {len(done)} of them are there"
            hint = "put the others back, or allow this with missing_files=ignore"
            if self._location.order.by_modification:
                msg, hint = f"{msg} as they were", f"{hint}: a file that was changed is then read again"
            raise FileMissingError(msg, name=folder, hint=hint)
        late = set(self._check_names([entry.name for entry in done], start.names))
        known = [f"{entry.name}/{entry.size}" for entry in done if entry.name not in late]
        if name_sum(known) != start.sizes:
            error = changed(folder, "holds a file that was read and now has another size")
            if not self._quarantine:
                raise error
            sizes = difference(name_sum(known), start.sizes)
            self._found.append(BadFile("changed", "", error, sizes=(sizes,)))

    def _check_names(self, names: Sequence[str], expected: str) -> Sequence[str]:
        """Return the names that came since `expected` was the digest. Note each as a bad file, or raise."""
        late = late_names(names, expected, self._location)
        if late is None or (late and not self._quarantine):
            path = self._location.path_of(late[0] if late else "(unknown)")
            raise order_error(path, self._stream)
        for name in late:
            self._late(name)
        return late

    def _late(self, name: str) -> None:
        entry = self._location.entry(name)
        if entry is None and self._location.order.by_modification:
            return  # it has been changed meanwhile: it is listed as a later file
        error = order_error(self._location.path_of(name), self._stream)
        if not self._quarantine:
            raise error
        size = 0 if entry is None else entry.size
        if entry is not None:
            self._seen[name] = entry.stamp
        self._found.append(BadFile("late", name, error, (name,), (name_sum([f"{name}/{size}"]),)))

    def _check_kept(self, done: Sequence[str], start: FilePosition) -> None:
        """Check that no file has come, where files may be gone. The check is exact in each group that lost no file."""
        kept = start.kept
        if not kept and start.files:  # an offset without groups: all its files are one group
            kept = ((done[-1] if done else "", start.files, start.names),)
        first = 0
        for last, count, names in kept:
            end = bisect_right(done, last)
            there = done[first:end]
            first = end
            if len(there) >= count:
                self._check_names(there, names)
            elif there:
                _log.warning(
                    "stream %s: of %d files that were read, up to %s, only %d are there: a file that came late would "
                    "not be noticed among them",
                    *(self._stream.name, count, last, len(there)),
                )
        for late in done[first:]:
            self._late(late)

    def look(self, tail: FilePosition, start: FilePosition) -> FileEntry | None:
        """Check the files up to the tail's, and return the tail's file as it is now; None where it is gone.

        `tail` is how far was read ahead. What lies before `start` is committed.

        Raises
        ------
        FileMissingError, FileOrderError, FileChangedError
            A file is gone, has come or has changed.
        """
        names = self._location.names()
        if self._location.generation != self._generation:
            self._compare(names, tail, start)
            self._generation = self._location.generation
        self._look_at_some(tail)
        entry = self._location.entry(tail.file) if tail.file in self._seen else None
        if entry is None:
            if tail.file in self._seen:
                self._gone(tail.file, tail, start)
            return None
        if entry.stamp != self._seen[tail.file]:
            if not tail.closed:
                self._changed(entry, self._seen[tail.file], tail)
            self._seen[tail.file] = entry.stamp
        return entry

    def _compare(self, names: Sequence[str], tail: FilePosition, start: FilePosition) -> None:
        now = set(names)
        for name in [name for name in self._seen if name not in now]:
            self._gone(name, tail, start)
        read = bisect_right(names, tail.file)
        if read > len(self._seen):
            for late in [name for name in names[:read] if name not in self._seen]:
                self._late(late)

    def _gone(self, name: str, tail: FilePosition, start: FilePosition) -> None:
        committed = name < start.file or (name == start.file == tail.file and start.whole)
        if not (self._ignore_missing and committed):
            raise missing(self._location.path_of(name), self._stream)
        del self._seen[name]

    def _look_at_some(self, tail: FilePosition) -> None:
        """Check a few of the files that were read to their ends, other ones at each call."""
        for name in list(islice(self._seen, self._turn, self._turn + _FILES_A_TURN)):
            entry = self._location.entry(name)
            if name != tail.file and entry is not None and entry.stamp != self._seen[name]:
                error = written_on(entry.path)
                if not self._quarantine:
                    raise error
                sizes = tuple(name_sum([f"{name}/{size}"]) for size in (entry.size, self._seen[name][0]))
                self._found.append(BadFile("changed", name, error, sizes=sizes[:1], sizes_before=sizes[1:]))
                self._seen[name] = entry.stamp
        self._turn = self._turn + _FILES_A_TURN if self._turn + _FILES_A_TURN < len(self._seen) else 0

    def _has_shrunk(self, entry: FileEntry, tail: FilePosition) -> bool:
        """Whether a file that is shorter than before, or than its text was, no longer has what was read of it."""
        if has_its_bytes(entry):
            return entry.size < tail.offset
        return not holds(entry, tail.digest, tail.offset)

    def _changed(self, entry: FileEntry, before: Stamp, tail: FilePosition) -> None:
        if tail.offset == 0:
            return
        text = not self._location.has_rows(entry)
        if text and compression_of(entry.name) is None:
            size, _, inode = before
            if entry.size < max(size, tail.offset) and self._has_shrunk(entry, tail):
                how = f"has shrunk to {entry.size} bytes, but {tail.offset} bytes of it were read"
                rotated = moved_to(entry, tail.digest, tail.offset)
                is_cut = entry.inode == inode
                raise rotated or (cut_off(entry, tail.offset) if is_cut else changed(entry.path, how))
            if entry.inode == inode and entry.size > size:
                verify_segment(entry, tail)
                return
        verify_prefix(self._location, entry, tail)
