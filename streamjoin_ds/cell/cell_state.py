r"""A cell's state between two batches: its clocks as JSON, its windows as the engine's blob, under one checksum.

::

    offset 0           7        8                     24             28
           "SJCELL\0"  version  xxh3-128 of the rest  facts' length  facts (JSON)  engine blob
"""

from __future__ import annotations

import json
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import xxhash

from streamjoin_ds.errors import MALFORMED, OffsetError, StateCorruptError, StateVersionError
from streamjoin_ds.plan import Epoch, is_of_ranges
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = ["CELL_STATE_VERSION", "RESTORE_STATE", "CellState", "KeptEpoch", "checksum_of", "corrupt_cell_state"]

RESTORE_STATE = "restore the checkpoint from a spare copy; the table is unharmed"

# 1: the cell has windows of the checkpoint's first layout only; 2: of several epochs; 4: one of them has ranges; 8: of
# the first layout, with clocks of partitions. No bit that flips turns one of them into another.
_VERSIONS = (1, 2, 4, 8)
CELL_STATE_VERSION = _VERSIONS[-1]
_MAGIC = b"SJCELL\x00"
_HEADER = struct.Struct("<7sB16s")
_LENGTH = struct.Struct("<I")
_FOREIGN, _DAMAGED = "is not one that this package wrote", "fails its checksum"
_FORGED = "passes its checksum, but does not say what this package writes"


@dataclass(frozen=True)
class KeptEpoch:
    """One epoch's part of a cell's windows.

    Attributes
    ----------
    epoch : Epoch
    end_seqs : tuple of int, or None
        For each stream the number of the first record after the epoch; None while the epoch takes new tuples.
    last_positions : tuple of int or None
        For each stream the largest position (event time, or number of a count window) of the epoch's own tuples, in all
        cells; all None while it takes new tuples.
    window_bytes : int
        How many bytes of `CellState.windows` belong to the epoch.
    """

    epoch: Epoch
    end_seqs: tuple[int, ...] | None
    last_positions: tuple[int | None, ...]
    window_bytes: int

    def to_facts(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        ends = None if self.end_seqs is None else list(self.end_seqs)
        last = list(self.last_positions)
        return {"epoch": self.epoch.to_facts(), "end": ends, "last": last, "bytes": self.window_bytes}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> KeptEpoch:
        """Return the epoch whose facts `to_facts` gave; raise OffsetError or one of `MALFORMED` for anything else."""
        end, last, size = facts["end"], facts["last"], facts["bytes"]
        is_whole = end is None or (_is_list(end, _is_count) and len(end) == len(last))
        if not (is_whole and _is_list(last, _is_moment) and _is_count(size)):
            raise ValueError
        return cls(Epoch.from_facts(facts["epoch"], len(last)), None if end is None else tuple(end), tuple(last), size)


@dataclass
class CellState:
    """What one cell keeps between two batches.

    Attributes
    ----------
    fingerprint : str
        The join's fingerprint. A state of another join is refused.
    largest_us : list of int or None
        Largest event time of each stream so far, in microseconds UTC; None before its first tuple.
    watermark_us : int or None
        The query's watermark, in microseconds UTC. It never goes back.
    batches : int
        Number of batches that this cell has taken part in.
    windows : bytes
        What `WindowJoin.save` returned.
    retired : list of (int, str)
        Blocks that the windows no longer name: the batch that left each out, and its name. They are removed some
        batches later.
    epochs : list of KeptEpoch, or None
        The epochs whose windows `windows` holds, one after the other. None: only the checkpoint's first epoch, which
        still takes new tuples.
    partitions : list of (dict or None), or None
        For each stream the clocks of its partitions (`PartitionClocks.to_facts`), where a DataFrame's rows are judged
        in their order. None: in no stream.
    checksum : str
        Of the bytes that the state was decoded from; empty where it was made otherwise.
    grid : dict or None
        Layout of cells and state partitions of a DataFrame query. Only the state under `LAYOUT_KEY` has it, and that
        state has no windows.
    """

    fingerprint: str
    largest_us: list[int | None]
    watermark_us: int | None = None
    batches: int = 0
    windows: bytes = field(default=b"", repr=False)
    retired: list[tuple[int, str]] = field(default_factory=list)
    grid: dict[str, Any] | None = None
    epochs: list[KeptEpoch] | None = None
    partitions: list[Mapping[str, Any] | None] | None = None
    checksum: str = field(default="", repr=False, compare=False)

    def engine_blobs(self) -> list[bytes]:
        """Return what `WindowJoin.save` gave for each epoch, the oldest first."""
        if self.epochs is None:
            return [self.windows]
        ends = list(accumulate(epoch.window_bytes for epoch in self.epochs))
        return [self.windows[begin:end] for begin, end in pairwise([0, *ends])]

    def encode(self) -> bytes:
        """Return the state as bytes. The same state gives the same bytes."""
        told = ((name, value) for name, value in vars(self).items() if value is not None or name == "watermark_us")
        facts = {name: value for name, value in told if name not in ("windows", "checksum")}
        text = json.dumps(facts, default=_plain, sort_keys=True, separators=(",", ":")).encode()
        length = _LENGTH.pack(len(text))
        digest = xxhash.xxh3_128(length)
        digest.update(text)
        digest.update(self.windows)
        has_ranges = any(is_of_ranges(kept.epoch.layout) for kept in self.epochs or ())
        version = 1 if self.epochs is None else 4 if has_ranges else 2
        if self.partitions is not None:
            version = 8
        return b"".join((_HEADER.pack(_MAGIC, version, digest.digest()), length, text, self.windows))

    @classmethod
    def first(cls, bound: BoundJoin) -> CellState:
        """Return the state before a cell's first batch."""
        return cls(bound.fingerprint, [None] * len(bound.names))

    @classmethod
    def decode(cls, blob: bytes) -> CellState:
        """Return the state in `blob`.

        Raises
        ------
        StateVersionError
            A newer version of this package wrote the state.
        StateCorruptError
            `blob` is no state, or is damaged.
        """
        start = _HEADER.size + _LENGTH.size
        if len(blob) < start or blob[: len(_MAGIC)] != _MAGIC:
            raise corrupt_cell_state(_FOREIGN)
        _, version, digest = _HEADER.unpack_from(blob)
        if version > CELL_STATE_VERSION:
            msg = (
                f"a cell's state was written by a newer version ({version}; this one reads up to {CELL_STATE_VERSION})"
            )
            upgrade = "update streamjoin-ds to the version that wrote the checkpoint"
            raise StateVersionError(msg, name="state", hint=upgrade)
        if version not in _VERSIONS or xxhash.xxh3_128_digest(memoryview(blob)[_HEADER.size :]) != digest:
            raise corrupt_cell_state(_DAMAGED)
        end = start + _LENGTH.unpack_from(blob, _HEADER.size)[0]
        try:
            facts = json.loads(bytes(blob[start:end]))
            facts["retired"] = [(batch_id, name) for batch_id, name in facts["retired"]]
            if "epochs" in facts:
                facts["epochs"] = [KeptEpoch.from_facts(epoch) for epoch in facts["epochs"]]
            state = cls(**facts, windows=bytes(blob[end:]), checksum=digest.hex())
            state._check()
        except (OffsetError, *MALFORMED):  # it is whole, and somebody else sealed it
            raise corrupt_cell_state() from None
        return state

    def _check(self) -> None:
        """Raise one of `MALFORMED` for facts of another form than `encode` writes."""
        streams, layout = len(self.largest_us), self.grid
        if not (
            type(self.fingerprint) is str
            and _is_list(self.largest_us, _is_moment)
            and _is_moment(self.watermark_us)
            and _is_count(self.batches)
            and all(type(batch_id) is int and type(name) is str for batch_id, name in self.retired)
            and all(len(epoch.last_positions) == streams for epoch in self.epochs or ())
            and (self.partitions is None or (_is_list(self.partitions, _is_facts) and len(self.partitions) == streams))
            and (layout is None or (_is_list(layout["layout"], _is_count) and _is_count(layout["partitions"])))
        ):
            raise ValueError


def checksum_of(blob: bytes) -> str:
    """Return the checksum that `CellState.encode` wrote into a blob."""
    digest: bytes = _HEADER.unpack_from(blob)[2]
    return digest.hex()


def corrupt_cell_state(why: str = _FORGED) -> StateCorruptError:
    """Return the error for a state that cannot be read, or that does not fit the join."""
    return StateCorruptError(f"a cell's state {why}", name="state", hint=RESTORE_STATE)


def _is_list(values: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(values, list) and all(map(fits, values))


def _is_moment(us: object) -> bool:
    return us is None or (type(us) is int and INT64_MIN <= us <= INT64_MAX)


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= INT64_MAX


def _is_facts(facts: object) -> bool:
    return facts is None or isinstance(facts, Mapping)


def _plain(value: Any) -> Any:
    # Clocks that ran over arrays hold NumPy integers, which `json` cannot write.
    return value.to_facts() if isinstance(value, KeptEpoch) else operator.index(value)
