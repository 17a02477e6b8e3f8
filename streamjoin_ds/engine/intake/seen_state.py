"""The keys that a `JoinEngine` has seen (`Stream.unique`), as parts of its saved state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.storage.window import corrupt_state_error
from streamjoin_ds.errors import MALFORMED
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.duplicates import SeenKeys, unique_key

__all__ = ["seen_from", "seen_state"]


def seen_state(seen: Mapping[int, SeenKeys]) -> tuple[dict[str, Any], list[pa.Buffer]]:
    """Return what a state says of the keys, as plain JSON values, and the buffers with them; nothing of no keys.

    Parameters
    ----------
    seen : mapping of stream number to SeenKeys
    """
    if not seen:
        return {}, []
    facts, parts = [], []
    for stream, keys in sorted(seen.items()):
        saved = keys.saved()
        facts.append({"stream": stream, "largest_us": keys.largest_us, "is_empty": saved is None})
        if saved is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, saved.schema) as writer:
                writer.write_batch(saved)
            parts.append(sink.getvalue())
    return {"seen": facts}, parts


def seen_from(facts: Mapping[str, Any], parts: Sequence[pa.Buffer], bound: BoundJoin) -> dict[int, SeenKeys]:
    """Return the keys that `seen_state` wrote, by stream.

    Raises
    ------
    StateCorruptError
        These facts and buffers were not written by `seen_state`, for this join.
    """
    found: dict[int, SeenKeys] = {}
    left = iter(parts)
    try:
        for entry in facts.get("seen", ()):
            stream = entry["stream"]
            assert type(stream) is int
            assert stream in range(len(bound.names))
            assert stream not in found
            key = unique_key(bound, stream)
            assert key is not None
            saved = None
            if not entry["is_empty"]:
                (saved,) = pa.ipc.open_stream(next(left)).read_all().combine_chunks().to_batches()
                saved.validate(full=True)
                inside = bound.read_schema(stream)
                assert saved.schema.types == [pa.int64(), *(inside.field(name).type for name in key.names)]
                assert not any(column.null_count for column in saved.columns)
            assert entry["largest_us"] is None or type(entry["largest_us"]) is int
            found[stream] = SeenKeys.restored(key, saved, entry["largest_us"])
        assert next(left, None) is None
        for stream, largest_us in enumerate(facts["largest_us"]):
            assert largest_us is None or stream in found or unique_key(bound, stream) is None
    except (pa.ArrowException, AssertionError, OSError, StopIteration, *MALFORMED) as error:
        raise corrupt_state_error() from error
    return found
