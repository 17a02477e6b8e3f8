"""The driver's running sample of keys: what the cells report is joined, kept for about a window, and written down."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Sequence

from streamjoin_ds.blocks import unpack
from streamjoin_ds.blocks.place import place_of
from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.checkpoint.key_hint import key_hint, note_key_hint
from streamjoin_ds.plan import KeyHint, Plan, SampledRows, sample_rows

__all__ = ["KeyLog"]

_log = logging.getLogger(__name__)

# The sample is written once this share of it is new.
_NEW_SHARE = 1 / 16
# The least stretch of event time that is kept, in microseconds, and the least records of a count window.
_LEAST_EXTENT_US, _LEAST_EXTENT_ROWS = 20_000_000, 20_000
# Sampled tuples of a stream that are kept, however old: a slow stream has few in a window.
_LEAST_ROWS = 512


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
