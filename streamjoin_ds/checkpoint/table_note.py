"""The note in a checkpoint that says where its tables lie, so that a command needs only the checkpoint."""

from __future__ import annotations

import json

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.recovery import put

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
    OSError, ValueError, KeyError, TypeError
        There is no note, or it cannot be read.
    """
    return str(json.loads((checkpoint / _NAME).read_bytes())["table"])
