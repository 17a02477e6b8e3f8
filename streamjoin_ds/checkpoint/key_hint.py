"""The file with a running sample of the streams' keys, by which the source chooses ranges of a band attribute.

Read tasks draw it, the cells report it, and the driver writes it into the checkpoint. A decision stands in the offset
of its batch. So where the file is lost or old, ranges are chosen later, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from streamjoin_ds.blocks import pack, unpack
from streamjoin_ds.blocks.place import Place
from streamjoin_ds.errors import MALFORMED, BlockCorruptError
from streamjoin_ds.plan import KeyHint

__all__ = ["key_hint", "note_key_hint"]

_NAME = "key_sample.arrow"


def note_key_hint(checkpoint: Place, keys: KeyHint) -> None:
    """Write the sample, in place of the one before."""
    path, aside = checkpoint / _NAME, checkpoint / f".{_NAME}.{os.getpid()}"
    table, facts = keys.to_table()
    aside.write_bytes(pack(table, facts))
    aside.replace(path)


def key_hint(checkpoint: Place, seqs: Sequence[int] | None = None) -> KeyHint | None:
    """Return the sample for a batch that begins at these records, or that which is there; None where there is none.

    A sample of later records says nothing of a batch: the checkpoint was taken back.
    """
    try:
        table = unpack((checkpoint / _NAME).read_bytes())
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        keys = KeyHint.from_table(table.replace_schema_metadata(None), facts)
    except (OSError, BlockCorruptError, pa.ArrowException, *MALFORMED):
        return None
    if seqs is None:
        return keys
    if len(keys.seqs) != len(seqs) or any(seq < after for seq, after in zip(seqs, keys.seqs, strict=True)):
        return None
    return keys
