"""The file that says which epochs have no tuples in any window any more, and which cells keep nothing.

The cells report this with a batch, and the driver writes it into the checkpoint. The next batches then do without those
epochs and cells. Where the file is lost, or is not as it was written, the next batch reports the same again: that costs
copies of tuples, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.identity import facts_checksum
from streamjoin_ds.errors import MALFORMED
from streamjoin_ds.plan import EpochsOver

__all__ = ["epochs_over", "forget_epochs_over", "note_epochs_over"]


_NAME = "epochs_over.json"


def note_epochs_over(checkpoint: Place, seqs: Sequence[int], over: EpochsOver) -> None:
    """Write what is over for all batches that begin at these records or later ones."""
    path, aside = checkpoint / _NAME, checkpoint / f".{_NAME}.{os.getpid()}"
    facts = {"over": sorted(over.numbers), "epoch": over.epoch, "cells": over.cells, "seqs": list(seqs)}
    aside.write_text(json.dumps({**facts, "checksum": facts_checksum(facts)}))
    aside.replace(path)


def epochs_over(checkpoint: Place, seqs: Sequence[int]) -> EpochsOver:
    """Return what is over for a batch that begins at these records.

    Nothing is over for a batch that begins before the records of the file: the checkpoint was taken back.
    """
    try:
        facts = json.loads((checkpoint / _NAME).read_bytes())
        if facts.pop("checksum") != facts_checksum(facts):
            return EpochsOver()
        over = EpochsOver(tuple(facts["over"]), facts["epoch"], facts["cells"])
        since = facts["seqs"]
    except (OSError, *MALFORMED):
        return EpochsOver()
    if len(since) != len(seqs) or any(seq < first for seq, first in zip(seqs, since, strict=True)):
        return EpochsOver()
    return over


def forget_epochs_over(checkpoint: Place) -> None:
    """Remove the file: the batches to come may number their epochs otherwise than those that are given up."""
    (checkpoint / _NAME).unlink(missing_ok=True)
