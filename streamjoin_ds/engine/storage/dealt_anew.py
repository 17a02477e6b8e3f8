"""Deals the tuples of a join that decides some at their horizon to other cells, and rewrites none of them.

::

    old cells        0           1           2                        new cells   0            1
    decided      ┌─ a b ─┐   ┌─ c d ─┐   ┌─ e f ─┐                             a b e f        c d
    others        r s t u     r s t u     r s t u       all have them           r s t u      r s t u

A tuple may lie in any group of its stream, as long as it lies in one. So a state blob is taken apart, and its runs and
waiting tuples go to new blobs as they are: those in blocks by their names, the others as their bytes. A group's tuples
stay together, and cells that have the same group have the same runs and waiting tuples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.storage import snapshot
from streamjoin_ds.engine.storage.window import corrupt_state_error
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["dealt_anew"]

_KINDS = ("probing", "alone")

Piece = tuple[dict[str, Any], pa.Buffer | None]
"""What a blob says of a run or of waiting tuples, and their bytes; None: they are in a block."""


def dealt_anew(bound: BoundJoin, blobs: Sequence[bytes], givers: Sequence[Sequence[Sequence[int]]]) -> list[bytes]:
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
        As for `snapshot.decoded`. Or the cells have not decided up to the same time, so they are not of one batch.
    """
    opened = [_Opened.of(bound, blob) for blob in blobs]
    if any(one.horizons_us != opened[0].horizons_us for one in opened):
        raise corrupt_state_error()
    made = []
    for cell, of_cell in enumerate(givers):
        matches = sum(snapshot.numbers(one.facts, "totals", 3)[0] for one in opened[cell :: len(givers)])
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


def _encoded(bound: BoundJoin, givers: Sequence[Sequence[_Opened]], opened: Sequence[_Opened], matches: int) -> bytes:
    """Return the blob of a cell that gets each stream's tuples from these old cells."""
    first = opened[0]
    runs = [[run for one in of_stream for run in one.runs[stream]] for stream, of_stream in enumerate(givers)]
    stored, null_keys = (
        [sum(one.numbers(name)[stream] for one in of_stream) for stream, of_stream in enumerate(givers)]
        for name in ("stored", "null_keys")
    )
    _, _, pushes = snapshot.numbers(first.facts, "totals", 3)
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
    return snapshot.sealed(bound.fingerprint, facts, [part for _, part in every if part is not None])


def _of_kind(
    first: _Opened, waiting: Mapping[tuple[int, str], Sequence[Piece]], key: tuple[int, str]
) -> dict[str, Any]:
    return {"horizon_us": first.horizons_us[key], "pieces": [entry for entry, _ in waiting[key]]}
