"""Deals the tuples that are decided at their horizon to another number of cells, and rewrites none of them.

::

    old cells        0           1           2                        new cells   0            1
    decided      ┌─ a b ─┐   ┌─ c d ─┐   ┌─ e f ─┐                             a b e f        c d
    others        r s t u     r s t u     r s t u       all have them           r s t u      r s t u

A decided tuple may lie in any cell, as long as it lies in one: each has all tuples of the other streams
(`streamjoin_ds.plan.deciding_layout`). So a state blob is taken apart, and its runs and waiting tuples go to new blobs
as they are: those in blocks by their names, the others as their bytes. An old cell's tuples stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.storage import snapshot
from streamjoin_ds.engine.storage.window import corrupt_state_error
from streamjoin_ds.spec.bound import BoundJoin

__all__ = ["dealt_anew"]

_KINDS = ("probing", "alone")

Piece = tuple[dict[str, Any], pa.Buffer | None]
"""What a blob says of a run or of waiting tuples, and their bytes; None: they are in a block."""


def dealt_anew(bound: BoundJoin, blobs: Sequence[bytes], cells: int) -> list[bytes]:
    """Return the state blobs of so many cells: the tuples of old cell *c* are in the new cell *c* mod `cells`.

    Parameters
    ----------
    bound : BoundJoin
        A join that decides the tuples of one stream at their horizon.
    blobs : sequence of bytes
        What `WindowJoin.save` gave in each of the old cells, all after the same batch.
    cells : int
        At least 1.

    Raises
    ------
    StateCorruptError, StateVersionError, FingerprintMismatchError
        As for `snapshot.decoded`. Or the cells have not decided up to the same time, so they are not of one batch.
    """
    opened = [_Opened.of(bound, blob) for blob in blobs]
    return [_encoded(bound, opened[0], opened[cell::cells]) for cell in range(cells)]


@dataclass(frozen=True)
class _Opened:
    """A state blob in its parts. What waits, and up to which horizon it was decided, is by stream and kind."""

    facts: dict[str, Any]
    runs: list[list[Piece]]
    waiting: dict[tuple[int, str], list[Piece]]
    horizons_us: dict[tuple[int, str], int | None]

    @classmethod
    def of(cls, bound: BoundJoin, blob: bytes) -> _Opened:
        facts, body = snapshot.opened(bound.fingerprint, blob)
        try:
            parts = iter(snapshot.parts_of(facts, body) if facts["sizes"] else ())

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
        return snapshot.numbers(self.facts, name, len(self.runs))


def _encoded(bound: BoundJoin, first: _Opened, taken: Sequence[_Opened]) -> bytes:
    """Return the blob of a cell that takes the decided tuples of `taken`; all else is as in the first old cell."""
    if any(one.horizons_us != first.horizons_us for one in taken):
        raise corrupt_state_error()
    facts, runs = {**first.facts}, [*first.runs]
    stored, null_keys, tails = (first.numbers(name) for name in ("stored", "null_keys", "tails"))
    for stream in bound.decided:
        runs[stream] = [run for one in taken for run in one.runs[stream]]
        stored[stream] = sum(one.numbers("stored")[stream] for one in taken)
        null_keys[stream] = sum(one.numbers("null_keys")[stream] for one in taken)
        # Only the last run can be a tail. The other cells' tails go on as runs in order of arrival.
        tails[stream] = taken[-1].numbers("tails")[stream] if taken else 0
    if "buckets" in facts:  # what was in a bucket grid is in runs until the window goes over to a grid of its new size
        facts["buckets"] = [None if n in bound.decided else found for n, found in enumerate(facts["buckets"])]
    matches = sum(snapshot.numbers(one.facts, "totals", 3)[0] for one in taken)
    _, _, pushes = snapshot.numbers(first.facts, "totals", 3)
    rows = sum(entry["rows"] for of_stream in runs for entry, _ in of_stream)
    waiting = {key: [piece for one in taken for piece in one.waiting[key]] for key in first.waiting}
    facts |= {
        "totals": [matches, sum(stored) - sum(null_keys) - rows, pushes],
        "stored": stored,
        "null_keys": null_keys,
        "tails": tails,
        "runs": [[entry for entry, _ in of_stream] for of_stream in runs],
        "waiting": [
            {"stream": stream, **{kind: _of_kind(first, waiting, (stream, kind)) for kind in _KINDS}}
            for stream in bound.decided
        ],
    }
    del facts["sizes"]
    every = [piece for pieces in (*runs, *waiting.values()) for piece in pieces]
    return snapshot.sealed(bound.fingerprint, facts, [part for _, part in every if part is not None])


def _of_kind(
    first: _Opened, waiting: Mapping[tuple[int, str], Sequence[Piece]], key: tuple[int, str]
) -> dict[str, Any]:
    return {"horizon_us": first.horizons_us[key], "pieces": [entry for entry, _ in waiting[key]]}
