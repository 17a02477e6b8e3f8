"""Lines of CSV that say no time: each gets one, a start and so many steps after it.

A file of a sensor's rate has its start and its rate in its first lines, and then one value in each line. Its decoder
writes the time before each of them, so all else reads a column of times::

    1709629208.0          1709629208.0
    4.0                   4.0
    23.5                  2024-03-05T09:00:08.000000Z,23.5
    23.6                  2024-03-05T09:00:08.250000Z,23.6

A line's number in its file decides: an empty or a broken one takes its step too. A comment takes none.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
from msgspec import Struct

from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.decoders import Decoder, Decoding
from streamjoin_ds.source.files.file_names import decodings_of
from streamjoin_ds.spec.event_time import MAX_TS_US
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_start import TimeStart
from streamjoin_ds.spec.time_text import moment_us

__all__ = ["Timed", "timed_decodings"]

_BOM = b"\xef\xbb\xbf"
_MOST_EXACT = 1 << 62


def timed_decodings(stream: Stream, kind: str | None, name: str) -> tuple[Decoding, ...]:
    """Return what the bytes of a stream's files go through, whose records say no time.

    Raises
    ------
    ArgumentError
        They are not in CSV.
    """
    files = stream.files
    if kind != "csv":
        msg = f"time_step says when lines of CSV were written, and a file of {files.path} is {kind or 'in no format'}"
        raise ArgumentError(msg, name="time_step", hint="leave time_step out, or set format=csv")
    assert stream.time_start is not None
    assert stream.time_step is not None
    start = TimeStart(stream.time_start, stream.time_step, partial(moment_us, stream=stream))
    return *decodings_of(files, kind, name), Timed(stream.time, start, files)


class Timed(Struct, frozen=True):
    """The times of a file's lines.

    Parameters
    ----------
    column : str
        The name of the column of times.
    start : TimeStart
        Where they begin, and their step.
    files : Files
        Its `skip_lines`, `header`, `comment` and `delimiter`.
    """

    column: str
    start: TimeStart
    files: Files

    begin_bytes = 0

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        del begin
        return _TimedLines(self, path)


class _TimedLines(Decoder):
    def __init__(self, about: Timed, path: str) -> None:
        files = about.files
        self._about, self._path = about, path
        self._delimiter, self._comment = CsvDialect.of(files).delimiter, (files.comment or "").encode()
        self._between = self._delimiter.encode()
        self._rest = b""  # the beginning of a line
        self._left = files.skip_lines + 1  # lines before the header that are still to come, and one
        self._names = int(files.header)  # lines of the header that are still to come
        self._number = 0  # of the next record
        self._start_us, self._step_us = 0, Fraction(0)

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`. Nothing is given before the lines that may say the start and the step."""
        self._rest += data
        if self.fault is not None or (self._left and self._rest.count(b"\n") < self._left - 1):
            return b""
        whole, newline, self._rest = self._rest.rpartition(b"\n")
        if not newline and self._left > 1:
            return b""
        if not newline:
            return b""
        text = self._timed(whole.split(b"\n"))
        return b"" if self._left else text + newline

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        if self.fault is not None or self._rest.count(b"\n") < self._left - 1:
            return b""
        return self._timed(self._rest.split(b"\n")) if self._rest else b""

    def _timed(self, lines: list[bytes]) -> bytes:
        head = lines[: max(self._left - 1, 0)]
        if self._left and not self._begin(head):
            return b""
        self._left, begin = 0, len(head)
        found = [*head]
        while begin < len(lines) and self._names:
            is_comment = bool(self._comment) and lines[begin].startswith(self._comment)
            is_first = self._names == self._about.files.header and not is_comment
            named = self._about.column.encode() + self._between + lines[begin].removeprefix(_BOM)
            found.append(named if is_first else lines[begin])
            self._names -= not is_comment
            begin += 1
        return b"\n".join([*found, *self._records(lines[begin:])])

    def _records(self, lines: list[bytes]) -> list[bytes]:
        if not lines:
            return []
        is_record = [not (self._comment and line.startswith(self._comment)) for line in lines]
        count = sum(is_record)
        times = iter(self._times(count))
        self._number += count
        return [
            next(times) + self._between + line if told and line.strip() else _passed(line, times, told)
            for line, told in zip(lines, is_record, strict=True)
        ]

    def _times(self, count: int) -> list[bytes]:
        """Return the times of the next records, as they are written: exact, and then cut off to microseconds."""
        whole, rest = divmod(self._step_us, 1)
        last = self._number + count
        if last * max(rest.denominator, whole, rest.numerator) >= _MOST_EXACT:
            numbers = np.array([int(number * self._step_us) for number in range(self._number, last)], object)
        else:
            number = np.arange(self._number, last, dtype=np.int64)
            numbers = number * int(whole) + number * rest.numerator // rest.denominator
        numbers = np.minimum(numbers + self._start_us, MAX_TS_US).astype(np.int64)
        texts = np.datetime_as_string(numbers.astype("datetime64[us]")).astype("S32").tolist()
        return [text + b"Z" for text in texts]

    def _begin(self, head: list[bytes]) -> bool:
        """Find the start and the step, which the lines before the records may say; return whether they do."""
        lines = [line.removeprefix(_BOM).decode("utf-8", "replace") for line in head]
        fields = [line.partition(self._delimiter)[0].strip().strip('"') for line in lines]
        try:
            self._start_us, self._step_us = self._about.start.read(fields)
        except ValueError as error:
            msg = f"{error} of {self._path}"
            hint = "time_start and time_step name lines that say a time, and a rate in Hz: time_start='line 1'"
            self.fault = FileFormatError(msg, name=self._path, hint=hint)
        return self.fault is None


def _passed(line: bytes, times: object, told: bool) -> bytes:
    """Return a line that is no record as it is; an empty one has its time all the same."""
    if told:
        next(times)  # type: ignore[call-overload]
    return line
