"""The policy of bucket grids: when a window goes over to one, how large it is made, how a saved one is restored."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.columns import one_batch
from streamjoin_ds.engine.storage.bucket_grid.bucket_window import BucketWindow
from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun, in_order
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape, chosen_shape
from streamjoin_ds.engine.storage.run_form import Range, spanning
from streamjoin_ds.engine.storage.sealed_run import KeptLayout
from streamjoin_ds.engine.storage.sort_layout import SortLayout, sampled
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.tuning import DEFAULT, GridTuning
from streamjoin_ds.errors import KernelError, corrupt_state_error
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = ["BUCKET_ROWS", "BucketGridPolicy", "bucketed"]

# Rows of a window that goes over to a grid, where the option `bucket_rows` does not say. A smaller window stays in
# cache whatever its form.
BUCKET_ROWS = 1 << 16
_log = logging.getLogger(__name__)


class BucketGridPolicy:
    """The rule by which the windows of one stream go over to a bucket grid.

    Parameters
    ----------
    least_rows : int
        Rows of the smallest window that goes over.
    extent : int
        What the window spans once it is full, in units of its position.
    is_sampled : bool
        Whether grids are sampled, because a join order is estimated from samples.
    tuning : GridTuning
    """

    def __init__(
        self, least_rows: int, extent: int, *, is_sampled: bool = False, tuning: GridTuning = DEFAULT.grid
    ) -> None:
        self.least_rows, self.is_sampled = least_rows, is_sampled
        self._extent, self._tuning = extent, tuning

    def wanted_rows(self, rows: int, position: Range, lowest_kept: int | None) -> int:
        """Return how many rows a grid is to be made for: as many as a full window will have at the present rate.

        It is at most `GridTuning.foreseen_times` the live rows, and at most `GridTuning.most_foreseen_rows` unless more
        rows live.

        Parameters
        ----------
        rows : int
            How many rows live.
        position : (smallest, largest)
            Of the live rows and of dead ones.
        lowest_kept : int or None
        """
        oldest = int(position[0]) if lowest_kept is None else max(int(position[0]), lowest_kept)
        span = int(position[1]) - oldest + 1
        times = self._tuning.foreseen_times
        foreseen = rows * times if span * times <= self._extent else rows * self._extent // span
        return max(rows, min(foreseen, self._tuning.most_foreseen_rows))

    def window(self, window: Window) -> Window:
        """Return the window in a bucket grid, where it is large enough and a key narrows what a probe meets.

        Otherwise the window is returned as it is. Where neighbours ask by different keys it stays in runs, which can
        be seen in several orders.
        """
        form, tuning, rows = window.form, self._tuning, sum(run.rows for run in window.sealed)
        if not self.least_rows <= rows <= tuning.most_foreseen_rows:
            return window
        if form.chooser.has_rival_keys and window.sealed[-1].rows * tuning.rival_key_parts < rows:
            return window  # asked again when the newest run is a large one
        try:
            parts = [[run.key(number) for run in window.sealed] for number in range(len(form.keys))]
            keys = [sampled(values, tuning.sample_rows) for values in parts]
            shape = chosen_shape(form.chooser, keys, rows, tuning)
            if shape is None or not form.chooser.suits_all(shape.keys, keys, rows):
                return window
            made = self._made(window, shape)
        except MemoryError:  # the window stays in runs
            _log.debug("stream %s: no memory for a bucket grid of %d rows: they stay in runs", form.stream_name, rows)
            return window
        _log.debug(
            "stream %s: %d rows go from runs to a bucket grid, %s", form.stream_name, rows, shape.told(form.columns)
        )
        return made

    def restored(self, window: Window, facts: Mapping[str, Any]) -> Window:
        """Return the window that `BucketWindow.to_facts` described, from the same rows in runs.

        Where there is no memory for the grid, the window in runs is returned.

        Raises
        ------
        StateCorruptError
            The facts are not those of a bucket grid of these rows.
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
            except MemoryError:  # with the rows that were beside it there may be too many for a grid: runs serve
                _log.debug(
                    "stream %s: no memory for its saved bucket grid: the rows stay in runs", window.form.stream_name
                )
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
    """Return the window without the rows that its rebuild had copied, and these rows; None: it had no rebuild.

    Raises
    ------
    KeyError, TypeError, ValueError
        The facts do not fit the window.
    """
    if "move" not in facts:
        return window, None
    if not facts["move"]["rows"]:
        return window, pa.RecordBatch.from_pylist([], window.form.run_schema)
    if len(window.sealed) < 2:
        msg = "the rows that the rebuild had copied are missing"
        raise ValueError(msg)
    return Window(window.form, window.sealed[:-1], window.tail), window.sealed[-1].tuples


def _unbucketed(window: Window, facts: Any) -> Window:
    try:
        return _uncopied(window, facts)[0]
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt_state_error() from error


def _layout(facts: Any, keys: int) -> KeptLayout | None:
    """Return the layout that `BucketWindow.to_facts` described, or None.

    Raises
    ------
    KeyError, TypeError, ValueError
        The facts are those of no layout.
    """
    if facts is None:
        return None
    rows, uses = facts["rows"], facts.get("uses", 1)
    if type(rows) is not int or type(uses) is not int:
        msg = "a saved sort layout does not say its number of rows"
        raise ValueError(msg)
    return KeptLayout(SortLayout.restored(facts["first"], facts["second"], facts["width"], keys), rows, uses)


def bucketed(forms: Sequence[WindowForm], windows: Sequence[Window], facts: Any) -> list[Window]:
    """Return restored windows, in bucket grids where they were in such.

    Parameters
    ----------
    facts : list or None
        What `Window.to_facts` gave for each window; None: no window was in a bucket grid.

    Raises
    ------
    StateCorruptError
        The facts are not those of these windows.
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
