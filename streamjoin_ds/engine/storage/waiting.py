"""The tuples of one stream that wait for their horizon.

The contract is in ARCHITECTURE.md, "Rows about missing, nearest or summed partners".

::

    new tuples ──► piece  piece  piece  piece ...      each sorted by time, immutable; small ones are put together
                   ├─ passed ─┤                        what lies before the horizon was given, and is given no more

A piece says nothing of its tuples' partners. So it never changes: a saved state names its block for as long as one of
its tuples waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import one_batch
from streamjoin_ds.engine.tuning import DEFAULT, WaitingTuning
from streamjoin_ds.spec.columns import TS

__all__ = ["StreamWaiting", "Waiting", "WaitingPiece"]


@dataclass(eq=False)
class WaitingPiece:
    """Some waiting tuples.

    Attributes
    ----------
    tuples : pyarrow.RecordBatch
        In the inside form, sorted by event time; at least one.
    level : int
        How often its tuples were put together.
    block : str or None
        The name of the block that holds it.
    encoded : pyarrow.Buffer or None
        The bytes that the state codec made of it; None: it made none yet.
    """

    tuples: pa.RecordBatch
    level: int = 0
    block: str | None = None
    encoded: pa.Buffer | None = None

    @classmethod
    def of(cls, tuples: pa.RecordBatch, level: int = 0) -> WaitingPiece:
        """Return a piece of tuples in any order; those of one time keep theirs."""
        times_us = tuples.column(TS).to_numpy()
        if not np.all(times_us[1:] >= times_us[:-1]):
            tuples = tuples.take(pa.array(np.argsort(times_us, kind="stable")))
        return cls(tuples, level)

    @property
    def rows(self) -> int:
        """How many tuples the piece has, those that were given among them."""
        return int(self.tuples.num_rows)

    @cached_property
    def times_us(self) -> npt.NDArray[np.int64]:
        """The event times in microseconds, ascending."""
        times: npt.NDArray[np.int64] = self.tuples.column(TS).to_numpy()
        return times

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the tuples' columns."""
        return int(self.tuples.nbytes)

    @cached_property
    def ends_us(self) -> tuple[int, int]:
        """The smallest and the largest event time, in microseconds."""
        return int(self.times_us[0]), int(self.times_us[-1])

    def begin(self, horizon_us: int | None) -> int:
        """Return the first row that is not before the horizon."""
        if horizon_us is None or horizon_us <= self.ends_us[0]:
            return 0
        return self.rows if horizon_us > self.ends_us[1] else int(self.times_us.searchsorted(horizon_us))

    def to_facts(self) -> dict[str, Any]:
        """Return what a state blob and a block's header say of the piece, besides its tuples."""
        return {"rows": self.rows, "zone": [[*self.ends_us]], **({"level": self.level} if self.level else {})}

    @classmethod
    def restored(cls, tuples: pa.RecordBatch, facts: Mapping[str, Any]) -> WaitingPiece:
        """Return the piece that `to_facts` described.

        Raises
        ------
        KeyError, TypeError, ValueError
            The facts are not those of a piece of these tuples.
        """
        piece = cls(tuples, int(facts.get("level", 0)))
        if not piece.rows or piece.to_facts() != {name: facts[name] for name in piece.to_facts()}:
            msg = "the piece is not what its facts say"
            raise ValueError(msg)
        return piece


class Waiting:
    """The tuples of one stream that wait; immutable.

    Parameters
    ----------
    pieces : sequence of WaitingPiece
        Each has a tuple that waits.
    horizon_us : int or None
        Tuples before this event time were given, and wait no more; in microseconds. None: none was given.
    """

    __slots__ = ("horizon_us", "pieces")

    def __init__(self, pieces: Sequence[WaitingPiece] = (), horizon_us: int | None = None) -> None:
        self.pieces, self.horizon_us = tuple(pieces), horizon_us

    @property
    def rows(self) -> int:
        """How many tuples wait."""
        return sum(piece.rows - piece.begin(self.horizon_us) for piece in self.pieces)

    def joined_by(self, tuples: pa.RecordBatch, tuning: WaitingTuning = DEFAULT.waiting) -> Waiting:
        """Return the waiting tuples with new ones, none of which is before the horizon."""
        if not tuples.num_rows:
            return self
        pieces, ratio = [*self.pieces, WaitingPiece.of(tuples)], tuning.ratio
        while len(due := pieces[-ratio:]) == ratio:
            if len({piece.level for piece in due}) > 1 or sum(piece.rows for piece in due) > tuning.most_merged_rows:
                break
            begins = [piece.begin(self.horizon_us) for piece in due]
            left = [piece.tuples.slice(begin) for piece, begin in zip(due, begins, strict=True)]
            pieces[-ratio:] = [WaitingPiece.of(one_batch(left, tuples.schema), due[0].level + 1)]
        return Waiting(pieces, self.horizon_us)

    def passed(self, horizon_us: int) -> tuple[list[pa.RecordBatch], Waiting]:
        """Return the tuples before a new horizon that still waited, and those that go on waiting.

        The first are several batches, each in order of time.
        """
        if self.horizon_us is not None and horizon_us <= self.horizon_us:
            return [], self
        if not self.pieces or horizon_us <= min(piece.ends_us[0] for piece in self.pieces):
            return [], Waiting(self.pieces, horizon_us)
        given, kept = [], []
        for piece in self.pieces:
            begin, end = piece.begin(self.horizon_us), piece.begin(horizon_us)
            if begin < end:
                given.append(piece.tuples.slice(begin, end - begin))
            if end < piece.rows:
                kept.append(piece)
        return given, Waiting(kept, horizon_us)


@dataclass(frozen=True, eq=False)
class StreamWaiting:
    """The waiting tuples of one stream.

    Attributes
    ----------
    stream : int
    probing : Waiting
        Tuples that may have partners.
    alone : Waiting
        Tuples that have none whatever comes: a compared value is null, or a condition on their stream does not hold.
    """

    stream: int
    probing: Waiting
    alone: Waiting

    @property
    def rows(self) -> int:
        """How many tuples wait."""
        return self.probing.rows + self.alone.rows

    @property
    def blocks(self) -> list[str]:
        """The names of the blocks that hold them."""
        pieces = (*self.probing.pieces, *self.alone.pieces)
        return [piece.block for piece in pieces if piece.block is not None]
