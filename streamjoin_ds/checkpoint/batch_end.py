"""What the offset log says of a batch, and what of it the ledger keeps: for longer than Spark, and for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.spark_files import source_offset
from streamjoin_ds.errors import MALFORMED, OffsetError
from streamjoin_ds.source.batch_plan import BatchPlan, versions_told
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import asides_from, is_told_by_count
from streamjoin_ds.spec import Stream

__all__ = ["is_always_placed", "ledger_columns", "logged_plan", "next_version", "partitions_of", "set_aside_so_far"]


def logged_plan(checkpoint: Place, batch_id: int, streams: Sequence[Stream]) -> BatchPlan | None:
    """Return the plan of a batch; None where the offset log has no entry of it.

    Raises
    ------
    OffsetError
        The entry cannot be read, or is of other streams.
    """
    try:
        text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
        batch = BatchPlan.from_offset(source_offset(text), [stream.name for stream in streams])
        for number, stream in enumerate(streams):  # what the batch's ledger will say of it
            ledger_columns(batch, number, stream, 0)
            set_aside_so_far(batch, number), next_version(batch, number), partitions_of(batch, number)
    except FileNotFoundError:
        return None
    except OffsetError:
        raise
    except MALFORMED as error:
        msg = f"the offset log's entry of batch {batch_id} cannot be read"
        raise OffsetError(msg, name="offsets", hint="restore the checkpoint from a spare copy") from error
    return batch


def partitions_of(batch: BatchPlan, number: int) -> PartitionedPosition | None:
    """Return how far each partition of a stream has been read; None for a stream of one order."""
    position = batch.positions[number]
    return PartitionedPosition.from_facts(position, "") if "partitions" in position else None


def set_aside_so_far(batch: BatchPlan, number: int) -> int:
    """Return how often this batch and those before it set something of a stream aside: a file, its rest or a change."""
    return int(batch.positions[number].get("set_aside", 0))


def next_version(batch: BatchPlan, number: int) -> int | None:
    """Return the version of a stream's table that has the next row; None for a stream over something else."""
    version = batch.positions[number].get("version")
    return None if version is None else int(version)


def is_always_placed(stream: Stream) -> bool:
    """Whether the ledger has a stream's position for every batch: its decisions may depend on files as they are now."""
    return stream.on_bad_file == "quarantine" or stream.max_ahead_us is not None


def ledger_columns(
    batch: BatchPlan, number: int, stream: Stream, read: int, before: BatchPlan | None = None
) -> dict[str, Any]:
    """Return a stream's columns of the ledger for a batch, which read `read` records of it.

    Of partitions the ledger has those that are not as they were in `before`, the batch before.
    """
    position = batch.positions[number]
    seq = position["seq"]
    aside = len(asides_from(position.get("aside", ()), seq - read, seq))
    is_counted = not is_always_placed(stream) and is_told_by_count(position)
    decided: dict[str, Any] = {"clock": batch.clocks[number].to_facts(), "position": {} if is_counted else position}
    if before is not None and "partitions" in position:
        same = before.positions[number].get("partitions", {})
        moved = {name: at for name, at in position["partitions"].items() if at != same.get(name)}
        decided |= {"position": {}, "moved": {"seq": seq, "partitions": moved}}
    decided["epochs"] = [] if batch.layout.epochs is None else batch.layout.epochs.to_facts()
    decided["tables"] = versions_told(batch.tables)
    text = json.dumps({name: facts for name, facts in decided.items() if facts}, separators=(",", ":"))
    return {"files_set_aside": aside, "held_back_bytes": batch.held_back_bytes[number], "decided": text}
