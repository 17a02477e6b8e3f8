"""The driver's notes for the layout of the batches to come: epochs that are over, and a running sample of keys.

::

    cells ── report of a batch ──► driver ── a file in the checkpoint ──► source: the layout of the next batches

One file says which epochs have no tuples in any window any more, and which cells keep nothing. The next batches do
without those epochs and cells. The other file has a sample of the streams' keys, by which the source chooses ranges of
a band attribute. Read tasks draw it, and the driver joins what the cells report and keeps it for about a window
(`KeyLog`).

Both are hints. Where a file is lost, old, or not as it was written, the next batch reports the same again, or ranges
are chosen later: that costs copies of tuples, and nothing else. A decision stands in the offset of its batch.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterable, Sequence

import pyarrow as pa

from streamjoin_ds.blocks import pack, unpack
from streamjoin_ds.blocks.place import Place, place_of
from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.checkpoint.identity import facts_checksum
from streamjoin_ds.errors import MALFORMED, BlockCorruptError
from streamjoin_ds.plan import EpochsOver, KeyHint, Plan, SampledRows, sample_rows

__all__ = ["KeyLog", "epochs_over", "forget_epochs_over", "key_hint", "note_epochs_over", "note_key_hint"]

_log = logging.getLogger(__name__)

_EPOCHS_FILE = "epochs_over.json"
_KEYS_FILE = "key_sample.arrow"
# The sample is written once this share of it is new.
_NEW_SHARE = 1 / 16
# The least stretch of event time that is kept, in microseconds, and the least records of a count window.
_LEAST_EXTENT_US, _LEAST_EXTENT_ROWS = 20_000_000, 20_000
# Sampled tuples of a stream that are kept, however old: a slow stream has few in a window.
_LEAST_ROWS = 512


def note_epochs_over(checkpoint: Place, seqs: Sequence[int], over: EpochsOver) -> None:
    """Write what is over for all batches that begin at these records or later ones."""
    path, aside = checkpoint / _EPOCHS_FILE, checkpoint / f".{_EPOCHS_FILE}.{os.getpid()}"
    facts = {"over": sorted(over.numbers), "epoch": over.epoch, "cells": over.cells, "seqs": list(seqs)}
    aside.write_text(json.dumps({**facts, "checksum": facts_checksum(facts)}))
    aside.replace(path)


def epochs_over(checkpoint: Place, seqs: Sequence[int]) -> EpochsOver:
    """Return what is over for a batch that begins at these records.

    Nothing is over for a batch that begins before the records of the file: the checkpoint was taken back.
    """
    try:
        facts = json.loads((checkpoint / _EPOCHS_FILE).read_bytes())
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
    (checkpoint / _EPOCHS_FILE).unlink(missing_ok=True)


def note_key_hint(checkpoint: Place, keys: KeyHint) -> None:
    """Write the sample, in place of the one before."""
    path, aside = checkpoint / _KEYS_FILE, checkpoint / f".{_KEYS_FILE}.{os.getpid()}"
    table, facts = keys.to_table()
    aside.write_bytes(pack(table, facts))
    aside.replace(path)


def key_hint(checkpoint: Place, seqs: Sequence[int] | None = None) -> KeyHint | None:
    """Return the sample for a batch that begins at these records, or that which is there; None where there is none.

    A sample of later records says nothing of a batch: the checkpoint was taken back.
    """
    try:
        table = unpack((checkpoint / _KEYS_FILE).read_bytes())
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        keys = KeyHint.from_table(table.replace_schema_metadata(None), facts)
    except (OSError, BlockCorruptError, pa.ArrowException, *MALFORMED):
        return None
    if seqs is None:
        return keys
    if len(keys.seqs) != len(seqs) or any(seq < after for seq, after in zip(seqs, keys.seqs, strict=True)):
        return None
    return keys


class KeyLog:
    """The sample of one join in this process.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self._attributes = plan.attributes
        self._folder, self._most = place_of(plan.block_root), sample_rows(plan.cells)
        self._streams, window = len(plan.bound.names), plan.bound.join.window
        self._counts = window.kind == "count"
        extent = max(window.extent(stream) for stream in range(len(plan.bound.names)))
        self._extent = max(extent, _LEAST_EXTENT_ROWS if self._counts else _LEAST_EXTENT_US)
        self._keys: KeyHint | None = None
        self._new_rows = 0

    def took(self, reports: Iterable[CellReport]) -> None:
        """Add what the cells report of a batch."""
        reported: list[list[SampledRows]] = [[] for _ in range(self._streams)]
        for report in reports:
            for stream, text in report.keys:
                table = unpack(base64.b64decode(text))
                threshold = float((table.schema.metadata or {})[b"threshold"])
                reported[stream].append(SampledRows(table.replace_schema_metadata(None), threshold))
        if not any(reported):
            return
        before = self._keys or key_hint(self._folder)
        if before is not None and not before.fits(self._attributes):
            before = None  # another version left it
        streams = []
        for stream, more in enumerate(reported):
            several = more if before is None else [before.streams[stream], *more]
            if not several:
                return  # a stream has had no tuple yet
            streams.append(SampledRows.joined(several))
            self._new_rows += sum(sample.rows.num_rows for sample in more)
        self._keys = KeyHint(tuple(self._recent(streams)))
        if self._new_rows >= _NEW_SHARE * sum(sample.rows.num_rows for sample in self._keys.streams):
            self._new_rows = 0
            try:
                note_key_hint(self._folder, self._keys)
            except OSError as error:  # the batch is committed: it must not fail for a hint
                _log.warning("the sample of keys could not be written: %s", error.strerror)

    def _recent(self, streams: Sequence[SampledRows]) -> list[SampledRows]:
        if self._counts:
            kept = [sample.since(sample.next_seq - self._extent) for sample in streams]
        else:
            latest_us = max((sample.times[1] for sample in streams if sample.times), default=0)
            kept = [sample.newest(latest_us - self._extent, _LEAST_ROWS) for sample in streams]
        return [sample.thinned(self._most) for sample in kept]
