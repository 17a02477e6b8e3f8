"""What the offset log says of the streams at a batch's end: for the ledger, which outlives it, and for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamjoin_ds.checkpoint.spark_files import source_offset
from streamjoin_ds.errors import OffsetError
from streamjoin_ds.plan import Epochs
from streamjoin_ds.source.offset import decode_clocks, decode_held_back, decode_layout, decode_offset
from streamjoin_ds.source.position import is_told_by_count
from streamjoin_ds.source.set_aside import asides_from
from streamjoin_ds.spec import Stream

__all__ = ["StreamEnd", "batch_end", "batch_layouts"]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Of one stream.

    Attributes
    ----------
    clock : dict
        `ClockFacts`, as plain JSON values.
    position : dict
        The stream's position, as plain JSON values.
    held_back_bytes : int
        Of an unfinished last line that waited when the batch was planned.
    is_counted : bool
        Whether the position is told by the number of records that were read.
    epochs : list
        The batch's `Epochs` as plain JSON values; empty: there is only the first.
    """

    clock: Mapping[str, Any]
    position: Mapping[str, Any]
    held_back_bytes: int
    is_counted: bool
    epochs: Sequence[Mapping[str, Any]] = ()

    @property
    def set_aside_so_far(self) -> int:
        """Files, or rests of files, that this batch and those before it set aside."""
        return int(self.position.get("set_aside", 0))

    def to_row(self, read: int) -> dict[str, Any]:
        """Its columns of the ledger, of a batch with so many of its records."""
        seq = self.position["seq"]
        aside = len(asides_from(self.position.get("aside", ()), seq - read, seq))
        decided: dict[str, Any] = {"clock": self.clock, "position": {} if self.is_counted else self.position}
        decided["epochs"] = self.epochs
        text = json.dumps({name: facts for name, facts in decided.items() if facts}, separators=(",", ":"))
        return {"files_set_aside": aside, "held_back_bytes": self.held_back_bytes, "decided": text}


def batch_end(checkpoint: Path, batch_id: int, streams: Sequence[Stream]) -> dict[str, StreamEnd]:
    """Of each stream by its name; empty where the offset log has no such entry.

    Raises
    ------
    OffsetError
        The entry cannot be read, or is of other streams.
    """
    offset = _offset(checkpoint, batch_id)
    if offset is None:
        return {}
    # A decision may hang on what is there only now, so it is kept of each batch, whatever came of it.
    decides = {
        stream.name for stream in streams if stream.on_bad_file == "quarantine" or stream.max_ahead_us is not None
    }
    names = [stream.name for stream in streams]
    positions: Sequence[Any] = decode_offset(offset, names)
    clocks, held = decode_clocks(offset, names), decode_held_back(offset, names)
    layout = decode_layout(offset, names)
    epochs = layout.epochs.to_facts() if layout.epochs is not None else []
    return {
        name: StreamEnd(clock.to_facts(), position, size, name not in decides and is_told_by_count(position), epochs)
        for name, position, clock, size in zip(names, positions, clocks, held, strict=True)
    }


def batch_layouts(checkpoint: Path, batch_id: int, names: Sequence[str]) -> Epochs | None:
    """Return the epochs of a batch; None where there is only the first, or no such entry. Errors as `batch_end`."""
    offset = _offset(checkpoint, batch_id)
    return None if offset is None else decode_layout(offset, names).epochs


def _offset(checkpoint: Path, batch_id: int) -> dict[str, Any] | None:
    try:
        text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        offset: dict[str, Any] = source_offset(text)
    except (IndexError, ValueError) as error:
        msg = f"the offset log's entry of batch {batch_id} cannot be read"
        raise OffsetError(msg, name="offsets", hint="restore the checkpoint from a spare copy") from error
    return offset
