"""The note in a checkpoint that says where its tables lie, so that a command needs only the checkpoint."""

from __future__ import annotations

import json

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.recovery import put
from streamjoin_ds.errors import MALFORMED

__all__ = ["note_table", "noted_table"]

_NAME = "table.json"


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
