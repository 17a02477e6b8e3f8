"""A run: sealed tuples of one stream, in columns, sorted (CellJoin, section 4.1; T_S of PIM-Tree, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, byte_column, filtered, fixed_width
from streamjoin_ds.engine.kernels.objects import ByteColumn
from streamjoin_ds.engine.storage.conditions import ProbeCondition, past_of, serving
from streamjoin_ds.engine.storage.run_base import ArrowRun
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.run_part import parted
from streamjoin_ds.engine.storage.run_view import RunView
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.storage.sorted_keys import SortedKeys
from streamjoin_ds.engine.storage.zone import Range, range_of
from streamjoin_ds.spec.key_values import item_values

__all__ = ["SealedRun"]


class SealedRun(SortedKeys, ArrowRun):
    """Tuples in the order of a layout, their keys, and a zone map; immutable.

    Parameters
    ----------
    form : RunForm
    tuples : pyarrow.RecordBatch or None
        Of ``run_schema``. None: the run is made of items (`of_items`).
    layout : SortLayout
    zone : tuple of (smallest, largest)
        One for each key; key 0 is the event time in microseconds.
    keys : mapping of int to ndarray, optional
        Values of the keys that are made already.

    Attributes
    ----------
    rows : int
        How many tuples.
    block : str or None
        Name of the block that holds it; None while it is only in memory.
    level : int
        0: not merged since it was sealed; 1: merged (`BlockMergePolicy` tells them apart).
    encoded : pyarrow.Buffer or None
        The bytes that the state codec made of the run; they stay valid, since the run never changes.
    """

    is_sealed = True

    def __init__(
        self,
        form: RunForm,
        tuples: pa.RecordBatch | None,
        layout: SortLayout,
        zone: tuple[Range, ...],
        keys: Mapping[int, npt.NDArray[Any]] | None = None,
    ) -> None:
        super().__init__(form, layout, zone, 0 if tuples is None else int(tuples.num_rows))
        self._tuples = tuples
        self._keys: dict[int, npt.NDArray[Any]] = dict(keys or {})
        self._values: dict[str, npt.NDArray[Any] | None] = {}
        self._byte_columns: dict[str, ByteColumn] = {}
        self._views: dict[frozenset[int], RunView | None] = {}
        self._parts: dict[tuple[int, int, SortLayout], list[SortedKeys]] = {}
        self.block: str | None = None
        self.level = 0
        self.encoded: pa.Buffer | None = None

    @classmethod
    def of_items(
        cls,
        form: RunForm,
        layout: SortLayout,
        zone: tuple[Range, ...],
        values: dict[str, npt.NDArray[Any]],
        keys: Sequence[npt.NDArray[Any]],
    ) -> SealedRun:
        """Return a run of columns that all have a fixed width and no nulls; its Arrow batch is made when asked for."""
        run = cls(form, None, layout, zone, dict(enumerate(keys)))
        run.rows = len(next(iter(values.values())))
        run._values.update(values)
        return run

    @property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of ``run_schema``."""
        if self._tuples is None:
            schema = self.form.run_schema
            items = {name: values for name, values in self._values.items() if values is not None}
            columns = [array_of(items[field.name], field.type) for field in schema]
            self._tuples = pa.RecordBatch.from_arrays(columns, schema=schema)
        return self._tuples

    @property
    def is_plain(self) -> bool:
        """Whether it is known without a look that all columns have a fixed width and no nulls."""
        return self._tuples is None

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, float64 or int64, in the run's order."""
        if number not in self._keys:
            self._keys[number] = self.form.key_of(self.tuples, number)
        return self._keys[number]

    def values(self, name: str) -> npt.NDArray[Any] | None:
        """Return the items of a column (`item_values`); None where it has nulls or no fixed width."""
        if name not in self._values:
            column = self.tuples.column(name)
            plain = fixed_width(column.type) and not column.null_count
            self._values[name] = item_values(column) if plain else None
        return self._values[name]

    # ------------------------------------------------------------------ as one of a set (see `Run`)

    @property
    def stays(self) -> object:
        """The run itself, since it never grows."""
        return self

    def seen_by(self, conditions: tuple[ProbeCondition, ...]) -> Sequence[SortedKeys]:
        """Return the run, or a view of it that serves the conditions far better, perhaps in parts.

        It is a function of the run's rows.
        """
        seen = self._viewed(conditions)
        _, second = serving(seen.sort_layout, conditions)
        past = past_of(second, conditions)
        if past < 0:
            return [seen]
        place = conditions[second].run_key, conditions[past].run_key, seen.sort_layout
        if place not in self._parts:
            self._parts[place] = parted(seen, seen.row_numbers(), *place[:2], self.form.tuning.layout)
        return self._parts[place]

    def _viewed(self, conditions: tuple[ProbeCondition, ...]) -> SealedRun | RunView:
        chooser = self.form.chooser
        if not chooser.has_rival_keys or self.rows < chooser.tuning.least_viewed_rows:
            return self
        partners = frozenset(condition.stream for condition in conditions)
        if partners not in self._views:
            keys = [self.key(number) for number in range(len(self.form.keys))]
            layout = chooser.better(self.sort_layout, partners, keys, self.rows)
            like = [view for view in list(self._views.values()) if view is not None and view.sort_layout == layout]
            if layout is not None and not like:
                like = [RunView(self, layout, self.form.ordering(keys, layout).do())]
            self._views[partners] = like[0] if like else None
        return self._views[partners] or self

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return the numbers of its rows, in order."""
        return np.arange(self.rows, dtype=np.int32)

    def room_key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key."""
        return self.key(number)

    def column(self, name: str) -> pa.Array:
        """Return a column of ``run_schema``."""
        return self.tuples.column(name)

    def byte_parts(self, name: str) -> list[ByteColumn]:
        """Return a column of strings or binary values as kernels gather from it; it is made once."""
        found = self._byte_columns.get(name)
        if found is None:
            found = self._byte_columns[name] = byte_column(self.tuples.column(name), self.form.kernels)
        return [found]

    def described(self, keys: Sequence[str], streams: Sequence[str]) -> str:
        """Return the layout in words, and those of the views that streams have asked for so far."""
        views = [
            (sorted(partners), view.sort_layout) for partners, view in list(self._views.items()) if view is not None
        ]
        seen = sorted(views, key=lambda found: found[0])
        told = [f"; for {' and '.join(streams[n] for n in who)} {layout.described(keys)}" for who, layout in seen]
        parts = [f"; in {len(parts)} parts by length" for parts in list(self._parts.values()) if len(parts) > 1]
        return self.sort_layout.described(keys) + "".join(told + parts)

    # ------------------------------------------------------------------ parts of it

    def behind(self, rows: int) -> SealedRun:
        """Return the run without its first `rows` rows, in its order."""
        if not rows:
            return self
        run = SealedRun(self.form, self.tuples.slice(rows), self.sort_layout, self.zone)
        run.level = self.level
        return run

    def kept(self, mask: npt.NDArray[np.bool_]) -> SealedRun:
        """Return the run without the rows where the mask is false; it stays in grid order."""
        tuples = filtered(self.tuples, mask)
        zone = tuple(range_of(self.form.key_of(tuples, number)) for number in range(len(self.zone)))
        run = SealedRun(self.form, tuples, self.sort_layout, zone)
        run.level = self.level
        return run
