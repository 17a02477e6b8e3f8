"""Windows as bytes and back; no run is parsed before checksum, version and fingerprint are checked, in this order.

::

    magic  xxh3_128 of the rest  version  facts' length │ facts (JSON) │ pad │ run │ run │ ...
    8 B    16 B                  4 B      4 B           │              │ 64  │ Arrow record batches, 64-byte aligned

A run is written as it lies, in grid order; its layout and zone map are among the facts. So it is used as it is read:
the columns of a restored window are views of the blob. Hashes are written; other keys are not, since they can be made
of the columns again. The first 32 bytes mean the same in every version. With a `RunStore` large runs are blocks, and
the blob is a manifest: it has their names and facts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.run_store import RunStore, restored_run, run_facts
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.window import Window, WindowForm, corrupt_state_error
from streamjoin_ds.errors import BlockMissingError, FingerprintMismatchError, StateCorruptError, StateVersionError

__all__ = ["WINDOW_STATE_VERSION", "decoded", "described", "encoded", "numbers", "opened", "sealed"]

WINDOW_STATE_VERSION = 1

_MAGIC = b"SJDSWIN\n"
_HEADER = struct.Struct("<8s16sII")
_ALIGNMENT = 64

Blob = bytes | bytearray | memoryview


def encoded(
    fingerprint: str, facts: Mapping[str, Any], windows: Sequence[Window], store: RunStore | None = None
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
    """
    parts: list[pa.Buffer] = []
    streams = []
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
                    run.encoded = run.tuples.serialize()
                parts.append(run.encoded)
            runs.append(entry)
        streams.append(runs)
    return sealed(fingerprint, {**facts, "runs": streams}, parts)


def decoded(
    fingerprint: str, blob: Blob, forms: Sequence[WindowForm], store: RunStore | None = None
) -> tuple[dict[str, Any], list[Window]]:
    """Return the facts and windows of a state blob; the windows' columns are views of it, or of the blocks it names.

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
    windows, position = [], 0
    try:
        sizes = iter(facts["sizes"])
        of_streams = list(zip(forms, facts["runs"], strict=True))
        wanted = [
            (stream, form, entry["block"], entry)
            for stream, (form, stream_runs) in enumerate(of_streams)
            for entry in stream_runs
            if "block" in entry
        ]
        stored = iter(_stored(store).runs(wanted) if wanted else ())
        for form, stream_runs in of_streams:
            runs = []
            for entry in stream_runs:
                if "block" in entry:
                    runs.append(next(stored))
                    continue
                size = next(sizes)
                runs.append(_run(form, body.slice(position, size), entry))
                position += _padded(size)
            windows.append(Window(form, runs))
    except (pa.ArrowException, KeyError, TypeError, ValueError, IndexError, StopIteration) as error:
        raise corrupt_state_error() from error
    return facts, windows


def described(blob: Blob) -> list[list[dict[str, Any]]]:
    """Return what a state blob says of its runs, a list for each stream, without opening a run: for people to read.

    Each entry has ``rows``, ``grid``, ``zone``, perhaps ``level``, and ``block`` or, of an inline run, ``size_bytes``.
    The blob may be of any join; other errors as for `decoded`.
    """
    facts, _ = opened(None, blob)
    try:
        sizes = iter(facts["sizes"])
        return [
            [run if "block" in run else {**run, "size_bytes": next(sizes)} for run in stream]
            for stream in facts["runs"]
        ]
    except (KeyError, TypeError, StopIteration):  # the blob is whole, but not of windows
        raise corrupt_state_error() from None


def sealed(fingerprint: str, facts: Mapping[str, Any], parts: Sequence[pa.Buffer | bytes]) -> bytes:
    """Return facts and buffers as one blob with a checksum; every buffer begins at a multiple of 64 bytes."""
    sizes = [len(memoryview(part)) for part in parts]
    text = json.dumps({"fingerprint": fingerprint, **facts, "sizes": sizes}, separators=(",", ":")).encode()
    pieces: list[Any] = [text, bytes(_padded(_HEADER.size + len(text)) - _HEADER.size - len(text))]
    for part, size in zip(parts, sizes, strict=True):
        pieces += [memoryview(part), bytes(_padded(size) - size)]
    tail = struct.pack("<II", WINDOW_STATE_VERSION, len(text))
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
    except (ValueError, KeyError, AttributeError) as error:
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


def _run(form: RunForm, piece: pa.Buffer, entry: Mapping[str, Any]) -> SealedRun:
    try:
        tuples = pa.ipc.read_record_batch(pa.BufferReader(piece), form.run_schema)
    except OSError as error:  # Arrow raises this for a message that is cut off
        raise pa.ArrowInvalid(str(error)) from error
    tuples.validate()
    run = restored_run(form, tuples, entry)
    run.encoded = piece
    return run


def _stored(store: RunStore | None) -> RunStore:
    if store is None:
        msg = "a state blob has part of its windows in blocks, but no folder of blocks was given"
        raise BlockMissingError(msg, name="blocks", hint="restore it with the store with which it was saved")
    return store


def numbers(facts: Mapping[str, Any], name: str, count: int) -> list[int]:
    """Return the fact of this name, which must be a list of `count` whole numbers; else StateCorruptError."""
    values = facts.get(name)
    if not isinstance(values, list) or len(values) != count or not all(type(value) is int for value in values):
        raise corrupt_state_error()
    return values


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
