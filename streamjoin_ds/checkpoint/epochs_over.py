"""Which epochs have nothing in any window any more: the cells tell it with a batch, the source asks for the next.

The driver leaves it in the checkpoint after each batch that ends an epoch. Where the file is lost, the next batch tells
it again: a missing file costs copies, nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["epochs_over", "note_epochs_over"]

_NAME = "epochs_over.json"


def note_epochs_over(checkpoint: Path, seqs: Sequence[int], numbers: Sequence[int]) -> None:
    """Leave the numbers of epochs that are over once the streams have come to these records."""
    path, aside = checkpoint / _NAME, checkpoint / f".{_NAME}.{os.getpid()}"
    aside.write_text(json.dumps({"over": sorted(numbers), "seqs": list(seqs)}))
    os.replace(aside, path)


def epochs_over(checkpoint: Path, seqs: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of epochs that are over for a batch that begins at these records.

    A checkpoint may have been taken back to before they were: then they are not.
    """
    try:
        facts = json.loads((checkpoint / _NAME).read_bytes())
        over, since = facts["over"], facts["seqs"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    if len(since) != len(seqs) or any(seq < first for seq, first in zip(seqs, since, strict=True)):
        return ()
    return tuple(over)
