"""Where a checkpoint may lie, in a folder that all see or in a bucket, and its note that says where its tables lie.

With the note a command needs only the checkpoint.
"""

from __future__ import annotations

import json

from streamjoin_ds.blocks.object_store import S3_SCHEMES
from streamjoin_ds.blocks.place import Place, is_local, place_of
from streamjoin_ds.checkpoint.recovery import put
from streamjoin_ds.errors import MALFORMED, ArgumentError

__all__ = ["checkpoint_place", "note_table", "noted_table", "refuse_store"]

_NAME = "table.json"


def checkpoint_place(checkpoint: str) -> Place:
    """Return the path of a checkpoint: a folder, or a location that Spark knows as ``s3a://``.

    Raises
    ------
    ArgumentError
        It is neither, or the location holds credentials.
    """
    if is_local(checkpoint):
        return place_of(checkpoint).resolve()
    scheme, _, rest = checkpoint.partition("://")
    if scheme not in S3_SCHEMES:
        msg = "the checkpoint is neither a folder nor in S3"
        raise ArgumentError(
            msg, name="checkpoint", hint="give a folder that the driver and every worker see, or s3a://bucket/folder"
        )
    if "?" in rest or "@" in rest.partition("/")[0] or not rest.partition("/")[2].strip("/"):
        msg = "the location of the checkpoint holds credentials or options, or no folder"
        hint = "give s3a://bucket/folder; credentials come from the environment (docs/sources/object-stores.md)"
        raise ArgumentError(msg, name="checkpoint", hint=hint)
    return place_of(f"s3a://{rest.rstrip('/')}")


def refuse_store(checkpoint: str) -> None:
    """Refuse a checkpoint in a bucket, where repair does not reach.

    Raises
    ------
    ArgumentError
        It lies in a bucket.
    """
    if not is_local(checkpoint):
        msg = "a checkpoint in an object store cannot be repaired"
        hint = (
            "copy it to a disk and repair it there, then copy it back; or begin with a new checkpoint and a new table"
        )
        raise ArgumentError(msg, name="checkpoint", hint=hint)


def note_table(checkpoint: Place, root: str) -> None:
    """Write into the checkpoint where its tables lie."""
    path, text = checkpoint / _NAME, json.dumps({"table": root})
    if not path.exists() or path.read_text() != text:
        put(path, text)


def noted_table(checkpoint: Place) -> str:
    """Return where the tables of a checkpoint lie, by its note.

    Raises
    ------
    OSError, ValueError
        There is no note, or it cannot be read.
    """
    try:
        table: object = json.loads((checkpoint / _NAME).read_bytes())["table"]
    except MALFORMED as error:
        raise ValueError(_NAME) from error
    if not isinstance(table, str):
        raise ValueError(_NAME)
    return table
