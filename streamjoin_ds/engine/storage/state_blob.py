"""State blobs: windows as bytes and back. No run is parsed before checksum, version and fingerprint are checked.

::

    magic  xxh3_128 of the rest  version  facts' length │ facts (JSON) │ pad │ run │ run │ ...
    8 B    16 B                  4 B      4 B           │              │ 64  │ Arrow record batches, 64-byte aligned

The checks have this order: checksum, version, fingerprint. A run is written as it lies, in grid order; its layout and
zone map are among the facts. So it is used as it is read: the columns of a restored window are views of the blob.
Hashes are written; other keys are not, since they can be made of the columns again. So the zone map has no limits
(`Limit`). The first 32 bytes mean the same in every version. With a `RunStore` large runs are blocks, and the blob
is a manifest: it has their names and facts. A join's totals are among the facts too (`state_blob`, `opened_state`).
In place of runs a blob may have the pieces of a `Journal`, with a ``span`` and no ``grid``: version 2.

*Other cells.* `redistribute` deals the tuples of a join that decides some at their horizon to other cells, and rewrites
none of them::

    old cells        0           1           2                        new cells   0            1
    decided      ┌─ a b ─┐   ┌─ c d ─┐   ┌─ e f ─┐                             a b e f        c d
    others        r s t u     r s t u     r s t u       all have them           r s t u      r s t u

A tuple may lie in any group of its stream, as long as it lies in one. So a state blob is taken apart, and its runs and
waiting tuples go to new blobs as they are: those in blocks by their names, the others as their bytes. A group's tuples
stay together, and cells that have the same group have the same runs and waiting tuples.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.engine.storage.bucket_grid.policy import bucketed
from streamjoin_ds.engine.storage.journal import Journal, Origin, tuples_of
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.run_store import RunStore, restored_run, run_facts
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.waiting import StreamWaiting, Waiting, WaitingPiece
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.storage.window_set import Joinable, JoinState
from streamjoin_ds.errors import (
    MALFORMED,
    BlockMissingError,
    FingerprintMismatchError,
    StateCorruptError,
    StateVersionError,
    corrupt_state_error,
    whole_numbers,
)
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = [
    "WINDOW_STATE_VERSION",
    "decoded",
    "described",
    "encoded",
    "opened",
    "opened_state",
    "parts_of",
    "redistribute",
    "sealed",
    "state_blob",
]

WINDOW_STATE_VERSION = 2
_OF_RUNS = 1  # the version of a blob without a journal

_MAGIC = b"SJDSWIN\n"
_HEADER = struct.Struct("<8s16sII")
_ALIGNMENT = 64

Blob = bytes | bytearray | memoryview

_KINDS = ("probing", "alone")

Piece = tuple[dict[str, Any], pa.Buffer | None]
"""What a blob says of a run or of waiting tuples, and their bytes; None: they are in a block."""


def encoded(
    fingerprint: str,
    facts: Mapping[str, Any],
    windows: Sequence[Window],
    store: RunStore | None = None,
    waiting: Sequence[StreamWaiting] = (),
    journal: Journal | None = None,
) -> bytes:
    """Return windows as a state blob.

    Parameters
    ----------
    fingerprint : str
        Of the join.
    facts : mapping
        Plain JSON values to be kept with them.
    windows : sequence of Window
        One for each stream.
    store : RunStore, optional
        Where large runs are put; without one all are inline.
    waiting : sequence of StreamWaiting
        The tuples that wait for their horizon; without any the blob says nothing of them.
    journal : Journal, optional
        The tuples that the windows were made of, in place of the windows.
    """
    parts: list[pa.Buffer] = []
    streams = []
    for of_stream in () if journal is None else journal.pieces:
        streams.append([piece.to_facts() for piece in of_stream])
        parts += [piece.encoded for piece in of_stream if piece.encoded is not None]
    for stream, window in enumerate(windows):
        runs = []
        for run in window.runs:
            entry = run_facts(run)
            # A tail changes with the next push, so it is never a block.
            name = store.keep(stream, run) if store is not None and run.is_sealed else None
            if name is not None:
                entry["block"] = name
            else:
                if run.encoded is None:
                    run.encoded = run.form.saved(run.tuples).serialize()
                parts.append(run.encoded)
            runs.append(entry)
        streams.append(runs)
    facts = {**facts, "runs": streams}
    if waiting:
        facts["waiting"] = [_waiting_facts(of_stream, store, parts) for of_stream in waiting]
    return sealed(fingerprint, facts, parts, _OF_RUNS if journal is None else WINDOW_STATE_VERSION)


def _waiting_facts(of_stream: StreamWaiting, store: RunStore | None, parts: list[pa.Buffer]) -> dict[str, Any]:
    """Return what a state blob says of a stream's waiting tuples; add those that are inline to `parts`."""
    stream, kinds = of_stream.stream, {}
    for kind, waiting in (("probing", of_stream.probing), ("alone", of_stream.alone)):
        pieces = []
        for piece in waiting.pieces:
            entry = piece.to_facts()
            name = None if store is None else store.keep_waiting(stream, piece)
            if name is not None:
                entry["block"] = name
            else:
                if piece.encoded is None:
                    piece.encoded = piece.tuples.serialize()
                parts.append(piece.encoded)
            pieces.append(entry)
        kinds[kind] = {"horizon_us": waiting.horizon_us, "pieces": pieces}
    return {"stream": stream, **kinds}


def decoded(
    fingerprint: str,
    blob: Blob,
    forms: Sequence[WindowForm],
    store: RunStore | None,
    partnered: Callable[[int, pa.RecordBatch], pa.RecordBatch],
) -> tuple[dict[str, Any], list[Window], list[StreamWaiting], list[list[Origin]]]:
    """Return the facts of a state blob, its windows, what waits, and what the windows' runs were made of.

    The columns of all tuples are views of the blob, or of the blocks that it names.

    Parameters
    ----------
    fingerprint, blob, forms, store
        As for `encoded`.
    partnered : callable
        Returns those of a stream's tuples that may enter a window: a journal may have others.

    Raises
    ------
    StateCorruptError
        The bytes are not those that were written.
    StateVersionError
        A newer version wrote the blob.
    FingerprintMismatchError
        The blob is of another join.
    BlockMissingError, BlockCorruptError, MapLimitError
        A block that the blob names is missing, has changed or cannot be mapped; or no store was given to find it in.
    """
    facts, body = opened(fingerprint, blob)
    origins: list[list[Origin]] = []
    try:
        inline = _Inline(body, iter(facts["sizes"]))
        of_streams = list(zip(forms, facts["runs"], strict=True))
        wanted = [
            (stream, form, entry)
            for stream, (form, entries) in enumerate(of_streams)
            for entry in entries
            if "block" in entry
        ]
        stored = iter(_all_in_blocks(_stored(store), wanted) if wanted else ())
        for stream, (form, entries) in enumerate(of_streams):
            of_stream: list[Origin] = []
            for entry in entries:
                piece = None if "block" in entry else inline.next()
                if "span" in entry:
                    rows = next(stored) if piece is None else tuples_of(form, entry, piece, store)
                    tuples = partnered(stream, rows)
                    run = form.arrived(tuples) if tuples.num_rows else None
                else:
                    run = next(stored) if piece is None else _run(form, piece, entry)
                of_stream.append((entry, run, piece))
            origins.append(of_stream)
        waiting = [_waiting(entry, forms, inline, store) for entry in facts.get("waiting", ())]
    except (pa.ArrowException, StopIteration, *MALFORMED) as error:
        raise corrupt_state_error() from error
    if any("span" in entry for of_stream in origins for entry, _, _ in of_stream):
        with ThreadPoolExecutor(len(forms)) as pool:
            windows = list(pool.map(_of_journal, forms, origins))
    else:
        windows = [Window(form, _runs(of_stream)) for form, of_stream in zip(forms, origins, strict=True)]
    return facts, windows, waiting, origins


def _runs(origins: Sequence[Origin]) -> list[SealedRun]:
    return [run for _, run, _ in origins if run is not None]


def _of_journal(form: WindowForm, origins: Sequence[Origin]) -> Window:
    """Return the window of a stream's journal, whose tuples lie as they came.

    They go into a grid at once, where one serves: sorting and merging them before that took four tenths of the CPU time
    of a restart with full windows. Else they are sorted, piece by piece. Runs of an older state are sorted already.
    """
    if form.bucket_policy is not None:
        window = form.bucket_policy.window(Window(form, sorted(_runs(origins), key=_first_number)))
        if window.is_grid:
            return window
    made = [form.sealed(run.tuples) if "span" in entry else run for entry, run, _ in origins if run is not None]
    return Window(form, made)


def _first_number(run: SealedRun) -> int:
    return int(run.tuples.column("_seq")[0].as_py())


def _all_in_blocks(
    store: RunStore, wanted: Sequence[tuple[int, WindowForm, Mapping[str, Any]]]
) -> list[pa.RecordBatch | SealedRun]:
    """Return the runs and the journal's tuples that lie in blocks; remote blocks are read side by side."""

    def read(one: tuple[int, WindowForm, Mapping[str, Any]]) -> pa.RecordBatch | SealedRun:
        stream, form, entry = one
        if "span" in entry:
            return tuples_of(form, entry, None, store)
        return store.run(stream, form, entry["block"], entry)

    return store.blocks.together(read, wanted)


class _Inline:
    """The parts of a blob that come next."""

    def __init__(self, body: pa.Buffer, sizes: Iterator[int]) -> None:
        self._body, self._sizes, self._position = body, sizes, 0

    def next(self) -> pa.Buffer:
        size = next(self._sizes)
        piece = self._body.slice(self._position, size)
        self._position += _padded(size)
        return piece


def _waiting(
    facts: Mapping[str, Any], forms: Sequence[WindowForm], inline: _Inline, store: RunStore | None
) -> StreamWaiting:
    stream = facts["stream"]
    form = forms[stream]
    kinds = {}
    for kind in ("probing", "alone"):
        pieces = []
        for entry in facts[kind]["pieces"]:
            if "block" in entry:
                pieces.append(_stored(store).waiting(stream, form, entry["block"], entry))
                continue
            encoded = inline.next()
            piece = WaitingPiece.restored(_batch(encoded, form.tuple_schema), entry)
            piece.encoded = encoded
            pieces.append(piece)
        horizon_us = facts[kind]["horizon_us"]
        kinds[kind] = Waiting(pieces, None if horizon_us is None else int(horizon_us))
    return StreamWaiting(stream, kinds["probing"], kinds["alone"])


def described(blob: Blob) -> list[list[dict[str, Any]]]:
    """Return what a state blob says of its runs, a list for each stream, without opening a run: for people to read.

    Each entry has ``rows``, ``grid``, ``zone``, perhaps ``level``, and ``block`` or, of an inline run, ``size_bytes``.
    Tuples that wait for their horizon follow the runs of their stream: entries without ``grid``.
    The blob may be of any join; other errors as for `decoded`.
    """
    facts, _ = opened(None, blob)
    try:
        sizes = iter(facts["sizes"])
        told = [
            [run if "block" in run else {**run, "size_bytes": next(sizes)} for run in stream]
            for stream in facts["runs"]
        ]
        for of_stream in facts.get("waiting", ()):
            pieces = [*of_stream["probing"]["pieces"], *of_stream["alone"]["pieces"]]
            told[of_stream["stream"]] += [
                piece if "block" in piece else {**piece, "size_bytes": next(sizes)} for piece in pieces
            ]
        return told
    except (StopIteration, *MALFORMED):  # the blob is whole, but not of windows
        raise corrupt_state_error() from None


def sealed(
    fingerprint: str, facts: Mapping[str, Any], parts: Sequence[pa.Buffer | bytes], version: int = _OF_RUNS
) -> bytes:
    """Return facts and buffers as one blob with a checksum; every buffer begins at a multiple of 64 bytes."""
    sizes = [len(memoryview(part)) for part in parts]
    text = json.dumps({"fingerprint": fingerprint, **facts, "sizes": sizes}, separators=(",", ":")).encode()
    pieces: list[Any] = [text, bytes(_padded(_HEADER.size + len(text)) - _HEADER.size - len(text))]
    for part, size in zip(parts, sizes, strict=True):
        pieces += [memoryview(part), bytes(_padded(size) - size)]
    tail = struct.pack("<II", version, len(text))
    digest = xxhash.xxh3_128(tail)
    for piece in pieces:
        digest.update(piece)
    return b"".join([_MAGIC, digest.digest(), tail, *pieces])


def opened(fingerprint: str | None, blob: Blob) -> tuple[dict[str, Any], pa.Buffer]:
    """Verify a sealed blob, and return its facts and the buffers behind them.

    Errors as for `decoded`. `fingerprint` None: the blob may be of any join.
    """
    view = memoryview(blob).cast("B")
    if len(view) < _HEADER.size or bytes(view[: len(_MAGIC)]) != _MAGIC:
        msg = "this is not a state blob, or its beginning is lost"
        raise StateCorruptError(msg, name="state", hint="go back to an earlier checkpoint")
    _, checksum, version, length = _HEADER.unpack_from(view)
    if xxhash.xxh3_128_digest(view[24:]) != checksum:
        msg = "a state blob fails its checksum"
        raise StateCorruptError(msg, name="state", hint="go back to an earlier checkpoint")
    if version > WINDOW_STATE_VERSION:
        msg = f"a state blob was written by a newer version (format {version}, this one reads {WINDOW_STATE_VERSION})"
        raise StateVersionError(msg, name="state", hint="upgrade streamjoin_ds")
    try:
        facts = json.loads(bytes(view[_HEADER.size : _HEADER.size + length]))
        found = facts.pop("fingerprint")
    except MALFORMED as error:
        msg = "the header of a state blob cannot be read"
        raise StateCorruptError(msg, name="state", hint="go back to an earlier checkpoint") from error
    if fingerprint is not None and found != fingerprint:
        msg = "a state blob belongs to another join: streams, types, predicates, window or selection differ"
        raise FingerprintMismatchError(msg, name="state", hint="use a new checkpoint, or the join that wrote this one")
    body = view[_padded(_HEADER.size + length) :]
    buffer = pa.py_buffer(body)
    if buffer.size and buffer.address % 8:
        # Kernels need columns that are aligned to 8 bytes. A blob that begins elsewhere is copied once.
        buffer = pa.py_buffer(np.frombuffer(body, dtype=np.uint8).copy())
    return facts, buffer


def parts_of(facts: Mapping[str, Any], body: pa.Buffer) -> list[pa.Buffer]:
    """Return the buffers of a blob that `opened` has verified, as they were given to `sealed`."""
    sizes = facts.get("sizes")
    if not isinstance(sizes, list) or not sizes or not all(type(size) is int for size in sizes):
        raise corrupt_state_error()
    begins = [0]
    for size in sizes:
        begins.append(begins[-1] + _padded(size))
    if begins[-1] > body.size:
        raise corrupt_state_error()
    return [body.slice(begin, size) for begin, size in zip(begins, sizes, strict=False)]


def _run(form: RunForm, piece: pa.Buffer, entry: Mapping[str, Any]) -> SealedRun:
    run = restored_run(form, _batch(piece, form.saved_schema), entry)
    run.encoded = piece
    return run


def _batch(piece: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    try:
        tuples = pa.ipc.read_record_batch(pa.BufferReader(piece), schema)
    except (OSError, EOFError) as error:  # Arrow raises these for a message that is cut off, or empty
        raise pa.ArrowInvalid(str(error)) from error
    tuples.validate()
    if any(column.null_count for field, column in zip(schema, tuples.columns, strict=True) if not field.nullable):
        msg = "a column that must have no null has one"
        raise ValueError(msg)
    return tuples


def _stored(store: RunStore | None) -> RunStore:
    if store is None:
        msg = "a state blob has part of its windows in blocks, but no folder of blocks was given"
        raise BlockMissingError(msg, name="blocks", hint="restore it with the store with which it was saved")
    return store


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def state_blob(
    bound: BoundJoin,
    forms: Sequence[WindowForm],
    state: JoinState,
    windows: Sequence[Window],
    store: RunStore | None,
    journal: Journal | None = None,
) -> bytes:
    """Return a state as bytes; `windows` are its windows after all work on them. See `WindowJoin.save`."""
    expired = state.expired_rows(sum(window.rows for window in windows))
    facts: dict[str, Any] = {
        "totals": [state.matches, expired, state.pushes],
        "stored": list(state.stored),
        "null_keys": list(state.null_keys),
        "tails": [window.tail.rows for window in windows],
    }
    if journal is not None:
        facts |= {"totals": [state.matches, 0, state.pushes], "tails": [0] * len(windows)}
        return encoded(bound.fingerprint, facts, (), store, state.waiting, journal)
    if any(form.bucket_policy is not None for form in forms):
        facts["buckets"] = [window.to_facts() for window in windows]
    return encoded(bound.fingerprint, facts, [window.in_runs() for window in windows], store, state.waiting)


def opened_state(
    bound: BoundJoin,
    forms: Sequence[WindowForm],
    blob: bytes | bytearray | memoryview,
    store: RunStore | None,
    joinable: Joinable,
) -> tuple[JoinState, list[list[Origin]]]:
    """Return the state that `state_blob` was given, and what its runs were made of; errors as `WindowJoin.restored`."""

    def partnered(stream: int, tuples: pa.RecordBatch) -> pa.RecordBatch:
        return joinable.partnered(stream, forms[stream].tuple_columns(tuples)).batch

    facts, windows, waiting, origins = decoded(bound.fingerprint, blob, forms, store, partnered)
    count = len(forms)
    stored, null_keys, tails = (whole_numbers(facts, name, count) for name in ("stored", "null_keys", "tails"))
    matches, _, pushes = whole_numbers(facts, "totals", 3)
    windows = [window.reopened(rows) for window, rows in zip(windows, tails, strict=True)]
    if tuple(of_stream.stream for of_stream in waiting) != bound.decided:
        raise corrupt_state_error()
    windows = bucketed(forms, windows, facts.get("buckets"))
    return JoinState(windows, matches, pushes, stored, null_keys, waiting=waiting), origins


def redistribute(bound: BoundJoin, blobs: Sequence[bytes], givers: Sequence[Sequence[Sequence[int]]]) -> list[bytes]:
    """Return the state blobs of new cells, one for each item of `givers`.

    Parameters
    ----------
    bound : BoundJoin
        A join that decides tuples at their horizon.
    blobs : sequence of bytes
        What `WindowJoin.save` gave in each of the old cells, all after the same batch.
    givers : sequence of sequence of sequence of int
        For each new cell and each stream the old cells whose tuples of that stream it gets; none: it gets none.

    Raises
    ------
    StateCorruptError, StateVersionError, FingerprintMismatchError
        As for `decoded`. Or the cells have not decided up to the same time, so they are not of one batch.
    """
    opened = [_Opened.of(bound, blob) for blob in blobs]
    if any(one.horizons_us != opened[0].horizons_us for one in opened):
        raise corrupt_state_error()
    made = []
    for cell, of_cell in enumerate(givers):
        matches = sum(whole_numbers(one.facts, "totals", 3)[0] for one in opened[cell :: len(givers)])
        made.append(_encoded(bound, [[opened[giver] for giver in of_stream] for of_stream in of_cell], opened, matches))
    return made


@dataclass(frozen=True)
class _Opened:
    """A state blob in its parts. What waits, and up to which horizon it was decided, is by stream and kind."""

    facts: dict[str, Any]
    runs: list[list[Piece]]
    waiting: dict[tuple[int, str], list[Piece]]
    horizons_us: dict[tuple[int, str], int | None]

    @classmethod
    def of(cls, bound: BoundJoin, blob: bytes) -> _Opened:
        facts, body = opened(bound.fingerprint, blob)
        try:
            parts = iter(parts_of(facts, body) if facts["sizes"] else ())

            def pieces(entries: Sequence[dict[str, Any]]) -> list[Piece]:
                return [(entry, None if "block" in entry else next(parts)) for entry in entries]

            runs = [pieces(entries) for entries in facts["runs"]]
            kinds = {(one["stream"], kind): one[kind] for one in facts["waiting"] for kind in _KINDS}
            waiting = {key: pieces(of_kind["pieces"]) for key, of_kind in kinds.items()}
            horizons_us = {key: of_kind["horizon_us"] for key, of_kind in kinds.items()}
        except (KeyError, TypeError, StopIteration) as error:
            raise corrupt_state_error() from error
        decided = [(stream, kind) for stream in bound.decided for kind in _KINDS]
        if [*waiting] != decided or len(runs) != len(bound.names):
            raise corrupt_state_error()
        return cls(facts, runs, waiting, horizons_us)

    def numbers(self, name: str) -> list[int]:
        """Return a fact that is a number for each stream."""
        return whole_numbers(self.facts, name, len(self.runs))


def _encoded(bound: BoundJoin, givers: Sequence[Sequence[_Opened]], opened: Sequence[_Opened], matches: int) -> bytes:
    """Return the blob of a cell that gets each stream's tuples from these old cells."""
    first = opened[0]
    runs = [[run for one in of_stream for run in one.runs[stream]] for stream, of_stream in enumerate(givers)]
    stored, null_keys = (
        [sum(one.numbers(name)[stream] for one in of_stream) for stream, of_stream in enumerate(givers)]
        for name in ("stored", "null_keys")
    )
    _, _, pushes = whole_numbers(first.facts, "totals", 3)
    rows = sum(entry["rows"] for of_stream in runs for entry, _ in of_stream)
    waiting = {
        (stream, kind): [piece for one in givers[stream] for piece in one.waiting[stream, kind]]
        for stream, kind in first.waiting
    }
    facts = {
        **first.facts,
        "totals": [matches, sum(stored) - sum(null_keys) - rows, pushes],
        "stored": stored,
        "null_keys": null_keys,
        # Only the last run can be a tail. The other cells' tails go on as runs in order of arrival.
        "tails": [of_stream[-1].numbers("tails")[n] if of_stream else 0 for n, of_stream in enumerate(givers)],
        "runs": [[entry for entry, _ in of_stream] for of_stream in runs],
        "waiting": [
            {"stream": stream, **{kind: _of_kind(first, waiting, (stream, kind)) for kind in _KINDS}}
            for stream in bound.decided
        ],
    }
    if "buckets" in facts:  # what was in a bucket grid is in runs until the window goes over to a grid of its new size
        facts["buckets"] = [
            of_stream[0].facts["buckets"][n] if len(of_stream) == 1 else None for n, of_stream in enumerate(givers)
        ]
    del facts["sizes"]
    every = [piece for pieces in (*runs, *waiting.values()) for piece in pieces]
    has_journal = any("span" in entry for of_stream in runs for entry, _ in of_stream)
    inline = [part for _, part in every if part is not None]
    return sealed(bound.fingerprint, facts, inline, WINDOW_STATE_VERSION if has_journal else _OF_RUNS)


def _of_kind(
    first: _Opened, waiting: Mapping[tuple[int, str], Sequence[Piece]], key: tuple[int, str]
) -> dict[str, Any]:
    return {"horizon_us": first.horizons_us[key], "pieces": [entry for entry, _ in waiting[key]]}
