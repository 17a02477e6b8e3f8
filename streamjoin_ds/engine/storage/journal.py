"""A journal of windows: the tuples as they came, by which windows that stay in memory can be made anew.

::

    exchange blocks ──► join ──► bucket grids               live on from batch to batch, and are never written
          │ linked
          ▼
       journal:   block  block  block ... │ inline          a state names it; it loses what no window holds any more

A window in memory may be in any form. What a state needs of it are its tuples, in any order: the exact test of the join
refuses those that have left the window. So a batch's blocks are the state, and nothing is sorted, merged or encoded for
it. Small batches wait inline until they make a block. Small blocks are folded into large ones, each tuple twice at
most, so that a long window has few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.engine.columns import one_batch
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.errors import MALFORMED, corrupt_state_error

__all__ = ["Arrived", "Journal", "JournalPiece", "Origin", "tuples_of"]

Origin = tuple[Mapping[str, Any], SealedRun | None, pa.Buffer | None]
"""What a state says of a journal's piece or of a sorted run, the run that was made of it (None: no tuple of it may
enter a window), and the bytes of one that is inline."""

# So many small blocks in a row become one. A block of level n has about this number to the power of n as many bytes as
# the smallest; those of the last level stay as they are.
_FOLDED, _INLINE, _LEVELS = 32, -1, 2


class Arrived(Struct, frozen=True):
    """Tuples that came to a cell in one batch.

    Attributes
    ----------
    tuples : pyarrow.Table
    block : str
        The block of the exchange that holds these tuples and no others; empty: there is none.
    """

    tuples: pa.Table
    block: str = ""

    def kept(self, is_kept: npt.NDArray[np.bool_]) -> Arrived:
        """Return those of the tuples for which `is_kept` is true."""
        return self if is_kept.all() else Arrived(self.tuples.filter(pa.array(is_kept)))


class JournalPiece(Struct, frozen=True):
    """Some tuples of one stream.

    Attributes
    ----------
    rows : int
    zone : tuple of int
        Smallest and largest event time, in microseconds.
    span : tuple of int
        Smallest and largest position (event time, or number of a count window).
    level : int
        How large its block is; below 0: it is inline.
    block : str
        The block that holds them; empty: they are inline.
    encoded : pyarrow.Buffer or None
        Inline tuples, as one message of Arrow IPC.
    """

    rows: int
    zone: tuple[int, int]
    span: tuple[int, int]
    level: int
    block: str = ""
    encoded: pa.Buffer | None = None

    @classmethod
    def inline(cls, form: RunForm, tuples: pa.RecordBatch) -> JournalPiece:
        """Return a piece of tuples that are in no block; at least one."""
        zone, span = _ends(form, [tuples])
        return cls(tuples.num_rows, zone, span, _INLINE, encoded=tuples.serialize())

    def to_facts(self) -> dict[str, Any]:
        """Return what a state says of the piece."""
        facts = {"rows": self.rows, "zone": [list(self.zone)], "span": list(self.span), "level": self.level}
        return {**facts, "block": self.block} if self.block else facts

    @classmethod
    def restored(cls, form: RunForm, origin: Origin) -> JournalPiece:
        """Return the piece that a state tells of."""
        entry, run, inline = origin
        if "span" in entry:
            zone, span = ((int(low), int(high)) for low, high in (entry["zone"][0], entry["span"]))
            return cls(int(entry["rows"]), zone, span, int(entry["level"]), entry.get("block", ""), inline)
        assert run is not None, "a sorted run has tuples"
        if run.block is None:
            return cls.inline(form, run.tuples.select(form.tuple_schema.names))
        low, high = run.position
        return cls(run.rows, (run.oldest_us, run.newest_us), (int(low), int(high)), _LEVELS, run.block)


def _ends(form: RunForm, batches: Sequence[pa.RecordBatch]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the zone and the span of tuples."""

    def of_key(number: int) -> tuple[int, int]:
        keys = [form.key_of(batch, number) for batch in batches if batch.num_rows]
        return min(int(of_batch.min()) for of_batch in keys), max(int(of_batch.max()) for of_batch in keys)

    return of_key(0), of_key(form.position_key)


class Journal:
    """The journal of a join's windows; immutable.

    Parameters
    ----------
    pieces : sequence of sequence of JournalPiece
        One for each stream, in the order in which they came.
    """

    def __init__(self, pieces: Sequence[Sequence[JournalPiece]]) -> None:
        self.pieces = tuple(tuple(of_stream) for of_stream in pieces)

    @classmethod
    def restored(cls, forms: Sequence[RunForm], origins: Sequence[Sequence[Origin]]) -> Journal:
        """Return the journal of windows that were made of these pieces and sorted runs (`WindowJoin.restore`)."""
        pairs = zip(forms, origins, strict=True)
        return cls([[JournalPiece.restored(form, origin) for origin in of_stream] for form, of_stream in pairs])

    @property
    def blocks(self) -> frozenset[str]:
        """The names of the blocks."""
        return frozenset(piece.block for of_stream in self.pieces for piece in of_stream if piece.block)

    @property
    def rows(self) -> int:
        """The number of tuples, those that no window holds any more among them."""
        return sum(piece.rows for of_stream in self.pieces for piece in of_stream)

    def after(
        self,
        arrived: Mapping[int, Sequence[Arrived]],
        lowest_kept: Sequence[int | None],
        forms: Sequence[RunForm],
        store: RunStore,
        exchange: BlockStore,
    ) -> Journal:
        """Return the journal after a batch; what is new in it lies in the store's blocks, or inline.

        Parameters
        ----------
        arrived : mapping of stream number to sequence of Arrived
            The tuples that entered the windows, and perhaps some that no window needs.
        lowest_kept : sequence of int or None
            For each stream the smallest position that its window still holds; None: it holds all.
        forms : sequence of RunForm
        store : RunStore
        exchange : BlockStore
            Where the blocks of `arrived` lie.

        Raises
        ------
        BlockWriteError, BlockMissingError, BlockCorruptError
        """
        made = []
        for stream, form in enumerate(forms):
            low = lowest_kept[stream]
            pieces = [piece for piece in self.pieces[stream] if low is None or piece.span[1] >= low]
            new = (one for one in arrived.get(stream, ()) if one.tuples.num_rows)
            pieces += [_taken(stream, form, one, store, exchange) for one in new]
            made.append(_folded(stream, form, pieces, low, store))
        return Journal(made)


def _taken(stream: int, form: RunForm, arrived: Arrived, store: RunStore, exchange: BlockStore) -> JournalPiece:
    """Return the piece of new tuples: their block by another name, or inline where they are few."""
    tuples = arrived.tuples
    if tuples.nbytes < store.least_bytes:
        return JournalPiece.inline(form, one_batch([tuples], form.tuple_schema))
    name = store.link_rows(stream, tuples.num_rows, exchange, arrived.block) if arrived.block else None
    if name is None:
        name = store.write_rows(stream, one_batch([tuples], form.tuple_schema))
    return JournalPiece(tuples.num_rows, *_ends(form, tuples.to_batches()), _level(tuples.nbytes, store), name)


def _folded(
    stream: int, form: RunForm, pieces: list[JournalPiece], lowest_kept: int | None, store: RunStore
) -> list[JournalPiece]:
    """Return the pieces with those that are due put together: inline ones that make a block, and many small blocks."""
    for level in range(_INLINE, _LEVELS):
        due = [piece for piece in pieces if piece.level == level]
        inline_bytes = sum(piece.encoded.size for piece in due if piece.encoded is not None)
        if len(due) >= _FOLDED or inline_bytes >= max(store.least_bytes, 1):
            pieces = [piece for piece in pieces if piece.level != level]
            pieces += _together(stream, form, due, lowest_kept, store)
    return pieces


def _together(
    stream: int, form: RunForm, pieces: Sequence[JournalPiece], lowest_kept: int | None, store: RunStore
) -> list[JournalPiece]:
    """Return one piece of the tuples of several of one level that a window still holds; none where it holds none."""
    kept = []
    for piece in pieces:
        tuples = tuples_of(form, piece.to_facts(), piece.encoded, store)
        if lowest_kept is not None and piece.span[0] < lowest_kept:
            tuples = tuples.filter(pa.array(form.key_of(tuples, form.position_key) >= lowest_kept))
        kept.append(tuples)
    tuples = one_batch(kept, form.tuple_schema)
    if not tuples.num_rows:
        return []
    name = store.write_rows(stream, tuples)
    level = max(_level(tuples.nbytes, store), pieces[0].level + 1)
    return [JournalPiece(tuples.num_rows, *_ends(form, [tuples]), level, name)]


def _level(size_bytes: int, store: RunStore) -> int:
    level, least = 0, max(store.least_bytes, 1) * _FOLDED
    while level < _LEVELS and size_bytes >= least:
        level, least = level + 1, least * _FOLDED
    return level


def tuples_of(
    form: RunForm, entry: Mapping[str, Any], inline: pa.Buffer | None, store: RunStore | None
) -> pa.RecordBatch:
    """Return the tuples of a piece of a journal, in the inside form.

    Raises
    ------
    BlockMissingError, BlockCorruptError, StateCorruptError, MapLimitError
    """
    if inline is None:
        assert store is not None, "the caller has looked"
        tuples = store.rows(form, entry["block"])
    else:
        try:
            tuples = pa.ipc.read_record_batch(pa.BufferReader(inline), form.tuple_schema)
            tuples.validate()
        except (OSError, EOFError, pa.ArrowException, *MALFORMED) as error:
            raise corrupt_state_error() from error
    if tuples.num_rows != entry["rows"] or any(
        column.null_count for field, column in zip(form.tuple_schema, tuples.columns, strict=True) if not field.nullable
    ):
        raise corrupt_state_error()
    return tuples
