"""A note in the checkpoint of where its tables lie, so that a checkpoint alone is enough to look after both."""

from __future__ import annotations

import json
from pathlib import Path

from streamjoin_ds.checkpoint.recovery import put

__all__ = ["note_table", "noted_table"]

_NAME = "table.json"


def note_table(checkpoint: Path, root: str) -> None:
    """Remember in the checkpoint where its tables lie."""
    path, text = checkpoint / _NAME, json.dumps({"table": root})
    if not path.exists() or path.read_text() != text:
        put(path, text)


def noted_table(checkpoint: Path) -> str:
    """Return where the tables of a checkpoint lie, as it was noted.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError
        There is no note, or it is none.
    """
    return str(json.loads((checkpoint / _NAME).read_bytes())["table"])
