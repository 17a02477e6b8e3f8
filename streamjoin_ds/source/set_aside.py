"""What is set aside of bad files where a stream goes on (``on_bad_file="quarantine"``): decided once, kept in offsets.

What is set aside counts as one record, broken: it has a number, and its row in the rejects names the file and why::

    rest      the file that is read cannot be read any further: what is left of it
    late      a file that sorts before what was read: all of it
    changed   a file that was read to its end and is another now: whatever it holds now
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import pyarrow as pa

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.source.records import Chunk, Reject
from streamjoin_ds.spec.inside import inside_schema

__all__ = ["SetAside", "aside_chunk", "asides_from", "reason_of", "well_formed"]

_MAX_REASON = 300
_KINDS = {"rest": "the rest of the file", "late": "the file", "changed": "what the file holds now"}


@dataclass(frozen=True, slots=True)
class SetAside:
    """One decision.

    Parameters
    ----------
    seq : int
        Number of the record that it counts as.
    file, offset, line : str, int, int
        Where reading stood: the file, the place and the lines of it before that.
    culprit : str
        Name of the file that is set aside; `file` itself where it is the rest of it.
    kind : {"rest", "late", "changed"}
        What of it.
    column, reason : str
        What is wrong.
    """

    seq: int
    file: str
    offset: int
    line: int
    culprit: str
    kind: str
    column: str
    reason: str

    def facts(self) -> tuple[object, ...]:
        """Plain JSON values."""
        return astuple(self)

    def reject(self, path: str) -> Reject:
        """Its row in the rejects."""
        line = self.line + 1 if self.kind == "rest" else 0
        return Reject(path, line, self.column, self.reason, f"{_KINDS[self.kind]} is set aside", self.seq)


def reason_of(error: StreamJoinError) -> tuple[str, str]:
    """Column (may be empty) and reason, of which so much is kept that an offset can hold it."""
    column = error.name if error.code == "SCHEMA_DRIFT" and len(error.name) <= _MAX_REASON else ""
    return column, f"{error.code}: {error.message}"[:_MAX_REASON]


def well_formed(facts: object) -> bool:
    """Whether `asides_from` can read them."""
    types = [int, str, int, int, str, str, str, str]
    return isinstance(facts, tuple) and all(
        isinstance(part, tuple)
        and [type(value) for value in part] == types
        and all(0 <= part[place] < 1 << 63 for place in (0, 2, 3))
        and "/" not in part[1] + part[4]
        and part[5] in _KINDS
        for part in facts
    )


def asides_from(facts: Iterable[Sequence[object]], first: int, last: int) -> list[SetAside]:
    """The decisions of an offset whose numbers are in ``[first, last)``."""
    found = (SetAside(*part) for part in facts)  # type: ignore[arg-type]
    return [aside for aside in found if first <= aside.seq < last]


def aside_chunk(aside: SetAside, path: str, schema: pa.Schema, time: str) -> Chunk:
    """The record that it counts as."""
    inner = inside_schema(schema, time)
    return Chunk(aside.seq, 1, pa.RecordBatch.from_pylist([], schema=inner), [aside.reject(path)])
