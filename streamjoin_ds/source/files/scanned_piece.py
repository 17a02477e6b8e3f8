"""A stretch of a file that was read ahead, and the positions within it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamjoin_ds.source.digest import RollingDigest
from streamjoin_ds.source.files.lines import Lines
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.set_aside import SetAside

__all__ = ["ScannedPiece"]


@dataclass(frozen=True, slots=True)
class ScannedPiece:
    """Records that were read ahead, or one record that stands for what is set aside.

    `start` is the position before them. Its digest is in `digest`, ready to be moved on.
    """

    start: FilePosition
    digest: RollingDigest | None  # None where something is set aside
    lines: Lines | None  # None for Parquet, whose places are row numbers, and where something is set aside
    running_max: np.ndarray
    timed: np.ndarray  # which of the records have an event time
    file_ends: bool
    aside: SetAside | None = None  # what is set aside; the piece is then one record
    after: FilePosition | None = None  # the position after what is set aside

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.running_max)

    def position(self, records: int) -> FilePosition:
        """Return the position after the first `records` of the piece, at least one."""
        start, time = self.start, int(self.running_max[records - 1])
        if self.after is not None:
            return self.after
        assert self.digest is not None
        if self.lines is None:
            whole = self.file_ends and records == self.count
            moved = replace(start, offset=start.offset + records, line=start.line + records, whole=whole)
            return replace(moved, seq=start.seq + records, time=time, digest=self.digest.text)
        end = int(self.lines.ends[records - 1])
        open_line = self.lines.data[end - 1 : end] != b"\n"
        digest = self.digest.copy()
        digest.update(memoryview(self.lines.data)[:end])
        return replace(
            start,
            offset=start.offset + end,
            line=start.line + int(self.lines.numbers[records - 1]) + (not open_line),
            seq=start.seq + records,
            time=time,
            whole=self.file_ends and end == len(self.lines.data),
            open_line=open_line,
            digest=digest.text,
        )
