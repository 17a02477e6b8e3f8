"""Which epochs have nothing in the windows any more, and which cells keep nothing: the next batch does without them.

The cells tell it with a batch, and the driver leaves it in the checkpoint. Where the file is lost, the next batch tells
it again: a missing file costs copies, nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from streamjoin_ds.plan import EpochsOver

__all__ = ["epochs_over", "note_epochs_over"]

_NAME = "epochs_over.json"


def note_epochs_over(checkpoint: Path, seqs: Sequence[int], over: EpochsOver) -> None:
    """Leave what is over once the streams have come to these records."""
    path, aside = checkpoint / _NAME, checkpoint / f".{_NAME}.{os.getpid()}"
    facts = {"over": sorted(over.numbers), "epoch": over.epoch, "cells": over.cells, "seqs": list(seqs)}
    aside.write_text(json.dumps(facts))
    os.replace(aside, path)


def epochs_over(checkpoint: Path, seqs: Sequence[int]) -> EpochsOver:
    """Return what is over for a batch that begins at these records.

    A checkpoint may have been taken back to before it was: then it is not.
    """
    try:
        facts = json.loads((checkpoint / _NAME).read_bytes())
        over = EpochsOver(tuple(facts["over"]), facts["epoch"], facts["cells"])
        since = facts["seqs"]
    except (OSError, ValueError, KeyError, TypeError):
        return EpochsOver()
    if len(since) != len(seqs) or any(seq < first for seq, first in zip(seqs, since, strict=True)):
        return EpochsOver()
    return over
