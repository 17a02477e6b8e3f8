"""What the offset log says of each stream at a batch's end. The ledger keeps it for longer, and people read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.spark_files import source_offset
from streamjoin_ds.errors import MALFORMED, OffsetError
from streamjoin_ds.plan import Epochs
from streamjoin_ds.source.backlog import BacklogFacts
from streamjoin_ds.source.offset import (
    DelayFacts,
    decode_backlog,
    decode_clocks,
    decode_delay,
    decode_held_back,
    decode_layout,
    decode_offset,
    decode_tables,
)
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import is_told_by_count
from streamjoin_ds.source.set_aside import asides_from
from streamjoin_ds.source.table_version import TableVersion, versions_told
from streamjoin_ds.spec import Stream

__all__ = ["StreamEnd", "batch_end", "batch_layouts"]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """One stream at the end of a batch.

    Attributes
    ----------
    clock : dict
        The stream's `ClockFacts`, as plain JSON values.
    position : dict
        The stream's position, as plain JSON values.
    held_back_bytes : int
        Bytes of a last line that was unfinished when the batch was planned, and so was not read.
    is_counted : bool
        Whether the number of records that were read is enough to find the position again.
    epochs : list
        The batch's `Epochs` as plain JSON values; empty while there is only the first.
    delay : DelayFacts or None
        What was known of the delays of all streams; None where there is no `max_delay`.
    backlog : BacklogFacts
        What was known of the backlogs of all streams.
    tables : mapping of str to TableVersion
        The version of each table that the batch joined.
    """

    clock: Mapping[str, Any]
    position: Mapping[str, Any]
    held_back_bytes: int
    is_counted: bool
    epochs: Sequence[Mapping[str, Any]] = ()
    delay: DelayFacts | None = None
    backlog: BacklogFacts = field(default_factory=BacklogFacts)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)

    @property
    def partitions(self) -> PartitionedPosition | None:
        """How far each partition has been read; None for a stream of one order."""
        return PartitionedPosition.from_facts(self.position, "") if "partitions" in self.position else None

    @property
    def set_aside_so_far(self) -> int:
        """How often this batch and those before it set something aside: a file, a file's rest or a change."""
        return int(self.position.get("set_aside", 0))

    @property
    def next_version(self) -> int | None:
        """The version of the stream's table to which the next row belongs; None for a stream over something else."""
        version = self.position.get("version")
        return None if version is None else int(version)

    def to_row(self, read: int, before: StreamEnd | None = None) -> dict[str, Any]:
        """Return the stream's columns of the ledger for this batch, which read `read` records of it.

        Of partitions the ledger has those that are not as they were in `before`, the end of the batch before.
        """
        seq = self.position["seq"]
        aside = len(asides_from(self.position.get("aside", ()), seq - read, seq))
        decided: dict[str, Any] = {"clock": self.clock, "position": {} if self.is_counted else self.position}
        if before is not None and "partitions" in self.position:
            same = before.position.get("partitions", {})
            moved = {name: at for name, at in self.position["partitions"].items() if at != same.get(name)}
            decided |= {"position": {}, "moved": {"seq": seq, "partitions": moved}}
        decided["epochs"] = self.epochs
        decided["tables"] = versions_told(self.tables)
        text = json.dumps({name: facts for name, facts in decided.items() if facts}, separators=(",", ":"))
        return {"files_set_aside": aside, "held_back_bytes": self.held_back_bytes, "decided": text}


def batch_end(checkpoint: Place, batch_id: int, streams: Sequence[Stream]) -> dict[str, StreamEnd]:
    """Return each stream's end of a batch, by the stream's name; empty where the offset log has no entry of the batch.

    Raises
    ------
    OffsetError
        The entry cannot be read, or is of other streams.
    """
    offset = _offset(checkpoint, batch_id)
    if offset is None:
        return {}
    # These streams' decisions may depend on files as they are only now. So the ledger keeps their positions for every
    # batch, whatever was decided.
    decides = {
        stream.name for stream in streams if stream.on_bad_file == "quarantine" or stream.max_ahead_us is not None
    }
    names = [stream.name for stream in streams]
    try:
        positions: Sequence[Any] = decode_offset(offset, names)
        clocks, held = decode_clocks(offset, names), decode_held_back(offset, names)
        layout = decode_layout(offset, names)
        epochs = layout.epochs.to_facts() if layout.epochs is not None else []
        of_all = epochs, decode_delay(offset), decode_backlog(offset, names), decode_tables(offset)
        ends = {
            name: StreamEnd(clock.to_facts(), at, size, name not in decides and is_told_by_count(at), *of_all)
            for name, at, clock, size in zip(names, positions, clocks, held, strict=True)
        }
        for end in ends.values():  # what the batch's ledger will say of it
            end.to_row(0), end.set_aside_so_far, end.next_version, end.partitions
    except OffsetError:
        raise
    except MALFORMED as error:
        raise _unreadable(batch_id) from error
    return ends


def batch_layouts(checkpoint: Place, batch_id: int, names: Sequence[str]) -> Epochs | None:
    """Return the epochs of a batch; None where there is only the first, or no such entry. Errors as `batch_end`."""
    offset = _offset(checkpoint, batch_id)
    return None if offset is None else decode_layout(offset, names).epochs


def _offset(checkpoint: Place, batch_id: int) -> dict[str, Any] | None:
    try:
        text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
        offset: dict[str, Any] = source_offset(text)
    except FileNotFoundError:
        return None
    except MALFORMED as error:
        raise _unreadable(batch_id) from error
    return offset


def _unreadable(batch_id: int) -> OffsetError:
    msg = f"the offset log's entry of batch {batch_id} cannot be read"
    return OffsetError(msg, name="offsets", hint="restore the checkpoint from a spare copy")
