"""What is set aside of bad files where the stream goes on (``on_bad_file="quarantine"``).

The planner decides once what is set aside, and the decision stands in the offset. What is set aside counts as one
broken record. The record has a number, and its row in the rejects names the file and the reason::

    rest      a file cannot be read any further: its rest is set aside
    late      a file appeared whose name sorts before a file that was read: the file is set aside
    changed   a file was read to its end and has changed since: what the file holds now is set aside
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import pyarrow as pa

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.source.files.file_names import is_label
from streamjoin_ds.source.records import Chunk, Reject
from streamjoin_ds.spec.inside import inside_schema

__all__ = ["SetAside", "aside_chunk", "asides_from", "reason_of", "well_formed"]

_MAX_REASON = 300  # characters of a reason, or of a column's name, that an offset holds
_KINDS = {"rest": "the rest of the file", "late": "the file", "changed": "what the file holds now"}


@dataclass(frozen=True, slots=True)
class SetAside:
    """One decision to set something aside.

    Parameters
    ----------
    seq : int
        Number of the record that stands for what is set aside.
    file, offset, line : str, int, int
        Where reading stood: the file, the place in it (`FilePosition.offset`), and the lines before that place.
    culprit : str
        Name of the file that is set aside; `file` where its rest is set aside. Empty where the changed file is not
        known.
    kind : {"rest", "late", "changed"}
        What is set aside of the culprit.
    column, reason : str
        What is wrong. `column` may be empty.
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
        """Return this decision as plain JSON values."""
        return astuple(self)

    def reject(self, path: str) -> Reject:
        """Return the reject that stands for what is set aside."""
        line = self.line + 1 if self.kind == "rest" else 0
        return Reject(path, line, self.column, self.reason, f"{_KINDS[self.kind]} is set aside", self.seq)


def reason_of(error: StreamJoinError) -> tuple[str, str]:
    """Return the column (may be empty) and the reason that an error names, cut to a length that fits into an offset."""
    column = error.name if error.code == "SCHEMA_DRIFT" and len(error.name) <= _MAX_REASON else ""
    return column, f"{error.code}: {error.message}"[:_MAX_REASON]


def well_formed(facts: object) -> bool:
    """Whether `asides_from` can read these facts."""
    types = [int, str, int, int, str, str, str, str]
    return isinstance(facts, tuple) and all(
        isinstance(part, tuple)
        and [type(value) for value in part] == types
        and all(0 <= part[place] < 1 << 63 for place in (0, 2, 3))
        and is_label(part[1])
        and is_label(part[4])
        and part[5] in _KINDS
        for part in facts
    )


def asides_from(facts: Iterable[Sequence[object]], first: int, last: int) -> list[SetAside]:
    """Return the decisions of an offset whose record numbers are in ``[first, last)``."""
    found = (SetAside(*part) for part in facts)  # type: ignore[arg-type]
    return [aside for aside in found if first <= aside.seq < last]


def aside_chunk(aside: SetAside, path: str, schema: pa.Schema, time: str) -> Chunk:
    """Return the chunk of one record that stands for what is set aside."""
    inner = inside_schema(schema, time)
    return Chunk(aside.seq, 1, pa.RecordBatch.from_pylist([], schema=inner), [aside.reject(path)])
