"""When the windows of a stream go over to a bucket grid, how large it is made, and how a saved one is restored."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import one_batch
from streamjoin_ds.engine.arrays.keys import INT64_MAX, INT64_MIN
from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun, in_order
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape, chosen_shape
from streamjoin_ds.engine.storage.bucket_grid.window import BucketWindow
from streamjoin_ds.engine.storage.layout import SortLayout, sampled
from streamjoin_ds.engine.storage.window import Window, WindowForm, corrupt_state_error
from streamjoin_ds.engine.storage.zone import Range, spanning
from streamjoin_ds.engine.tuning import DEFAULT, GridTuning
from streamjoin_ds.errors import KernelError

__all__ = ["BUCKET_ROWS", "BucketGridPolicy", "bucketed"]

# Where nothing is forced: a smaller window stays in cache whatever its form.
BUCKET_ROWS = 1 << 16
_log = logging.getLogger(__name__)


class BucketGridPolicy:
    """When and how the windows of one stream go over to a bucket grid.

    Parameters
    ----------
    least_rows : int
        Of a window that is to be in one.
    extent : int
        What the window spans once it is full, in units of its position.
    is_sampled : bool
        Whether an order of joining is to be decided by samples of it.
    tuning : GridTuning
    """

    def __init__(
        self, least_rows: int, extent: int, *, is_sampled: bool = False, tuning: GridTuning = DEFAULT.grid
    ) -> None:
        self.least_rows, self.is_sampled = least_rows, is_sampled
        self._extent, self._tuning = extent, tuning

    def wanted_rows(self, rows: int, position: Range, lowest_kept: int | None) -> int:
        """How many rows a grid is to be made for: as many as there will be, at this rate, when the window is full.

        Parameters
        ----------
        rows : int
            Of those that live.
        position : (smallest, largest)
            Of these, and of dead ones.
        lowest_kept : int or None
        """
        oldest = int(position[0]) if lowest_kept is None else max(int(position[0]), lowest_kept)
        span = int(position[1]) - oldest + 1
        times = self._tuning.foreseen_times
        foreseen = rows * times if span * times <= self._extent else rows * self._extent // span
        return max(rows, min(foreseen, self._tuning.most_foreseen_rows))

    def window(self, window: Window) -> Window:
        """The window in a bucket grid, where it is large enough and a key narrows what a probe meets.

        Where neighbours ask by other keys each, it stays in runs, which can be seen in several orders.
        """
        form, tuning, rows = window.form, self._tuning, sum(run.rows for run in window.sealed)
        if not self.least_rows <= rows <= tuning.most_foreseen_rows:
            return window
        if form.chooser.is_contested and window.sealed[-1].rows * tuning.contested_parts < rows:
            return window  # asked again when the newest run is a large one
        try:
            parts = [[run.key(number) for run in window.sealed] for number in range(len(form.keys))]
            keys = [sampled(values, tuning.sample_rows) for values in parts]
            shape = chosen_shape(form.chooser, keys, rows, tuning)
            if shape is None or not form.chooser.suits_all(shape.keys, keys, rows):
                return window
            made = self._made(window, shape)
        except MemoryError:  # runs serve on
            _log.debug("stream %s: no memory for a bucket grid of %d rows: they stay in runs", form.stream_name, rows)
            return window
        _log.debug(
            "stream %s: %d rows go from runs to a bucket grid, %s", form.stream_name, rows, shape.told(form.columns)
        )
        return made

    def restored(self, window: Window, facts: Mapping[str, Any]) -> Window:
        """The window that `BucketWindow.to_facts` told of, from the same rows in runs; those, where it has no room.

        Raises
        ------
        StateCorruptError
            They are no such facts.
        """
        try:
            shape, lowest_kept = GridShape.from_facts(facts), facts["lowest_kept"]
            if max(shape.keys) >= len(window.form.keys):
                msg = "a saved grid cell names a key that this stream does not have"
                raise ValueError(msg)
            if lowest_kept is not None and not (type(lowest_kept) is int and INT64_MIN <= lowest_kept <= INT64_MAX):
                msg = "a saved lowest position is not an int64"
                raise ValueError(msg)
            window, copied = _uncopied(window, facts)
            try:
                made = self._made(window, shape, facts, lowest_kept, copied)
            except MemoryError:  # of what was beside it too, there may be more than a grid takes: runs serve on
                _log.debug("stream %s: no memory for its saved bucket grid: runs serve on", window.form.stream_name)
                return window
            made.layout = _layout(facts.get("layout"), len(window.form.keys))
            return made
        except (KeyError, TypeError, ValueError, KernelError) as error:
            raise corrupt_state_error() from error

    def _made(
        self,
        window: Window,
        shape: GridShape,
        facts: Mapping[str, Any] | None = None,
        lowest_kept: int | None = None,
        copied: pa.RecordBatch | None = None,
    ) -> BucketWindow:
        form = window.form
        tuples = one_batch([run.tuples for run in window.sealed], form.run_schema)
        if facts is None:
            tuples = in_order(form, tuples)
        zone = spanning([run.zone for run in window.sealed])
        run = BucketRun.of(form, tuples, zone or ((0, 0),) * len(form.keys), shape, facts, copied)
        if self.is_sampled and (facts is None or "sample" not in facts):
            run.sample()
        return BucketWindow(form, run, (), window.tail, None, lowest_kept)


def _uncopied(window: Window, facts: Mapping[str, Any]) -> tuple[Window, pa.RecordBatch | None]:
    """The window as it is in use, and what was copied of it already; None: it was not being made anew."""
    if "move" not in facts:
        return window, None
    if not facts["move"]["rows"]:
        return window, pa.RecordBatch.from_pylist([], window.form.run_schema)
    if len(window.sealed) < 2:
        msg = "the rows that were copied are not there"
        raise ValueError(msg)
    return Window(window.form, window.sealed[:-1], window.tail), window.sealed[-1].tuples


def _unbucketed(window: Window, facts: Any) -> Window:
    try:
        return _uncopied(window, facts)[0]
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt_state_error() from error


def _layout(facts: Any, keys: int) -> tuple[SortLayout, int, int] | None:
    """What `BucketWindow.to_facts` told of a layout; KeyError, TypeError or ValueError where it did not."""
    if facts is None:
        return None
    rows, uses = facts["rows"], facts.get("uses", 1)
    if type(rows) is not int or type(uses) is not int:
        msg = "a saved sort layout does not say its number of rows"
        raise ValueError(msg)
    return SortLayout.restored(facts["first"], facts["second"], facts["width"], keys), rows, uses


def bucketed(forms: Sequence[WindowForm], windows: Sequence[Window], facts: Any) -> list[Window]:
    """Restored windows, in bucket grids where they were in such; `facts`: of `Window.to_facts`, one a window, or None.

    Raises
    ------
    StateCorruptError
        They are no such facts.
    """
    if facts is None:
        return list(windows)
    if not isinstance(facts, list) or len(facts) != len(windows):
        raise corrupt_state_error()
    made = []
    for form, window, found in zip(forms, windows, facts, strict=True):
        if found is not None and form.bucket_policy is not None:
            made.append(form.bucket_policy.restored(window, found))
        else:
            made.append(window if found is None else _unbucketed(window, found))
    return made
