"""The interface of a run: what windows, probes and gathers ask of it, whichever kind it is.

::

    SealedRun    sorted, immutable: may be a block, is merged, has views in other orders       ArrowRun
    Tail         in order of arrival: a view of the first rows of a buffer that grows          ArrowRun, UnsortedRun
    BucketRun    a bucket grid, changed in place when a push is over                           UnsortedRun

The three kinds do not know each other. Where they differ there is a method here, so that callers need not ask which
kind they have. What two kinds have in common is a base class: columns that are Arrow arrays, row by row (`ArrowRun`),
and no order that a probe can use (`UnsortedRun`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import gathered
from streamjoin_ds.engine.kernels.objects import ByteColumn, RunIndex
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run_form import Range, RunForm, Zoned
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER, SortLayout
from streamjoin_ds.engine.storage.sorted_keys import SortedKeys

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ArrowRun", "Probed", "Run", "Sampled", "UnsortedRun"]


class Sampled(Protocol):
    """A sample from which the join order is estimated; it never changes."""

    @property
    def rows(self) -> int:
        """The number of tuples that the sample stands for."""

    def key(self, number: int, /) -> npt.NDArray[Any]:
        """Return values of a key, float64 or int64."""


class Probed(Protocol):
    """What probes meet: a run, or a view of one.

    Attributes
    ----------
    form : RunForm
    """

    form: RunForm

    @property
    def rows(self) -> int:
        """The number of tuples; a bucket grid counts dead ones too until they are dropped."""

    @property
    def sort_layout(self) -> SortLayout:
        """The order of the tuples."""

    @property
    def zone(self) -> tuple[Range, ...]:
        """Smallest and largest value of each key; key 0 is the event time in microseconds."""

    @property
    def in_order(self) -> SortedKeys | None:
        """The keys in an order that kernels can use; None where there is no such order."""

    def key(self, number: int, /) -> npt.NDArray[Any]:
        """Return the values of a key, float64 or int64; of a bucket grid also its free room."""

    def index(self, conditions: tuple[ProbeCondition, ...], /) -> RunIndex:
        """Return the run as `RunsProbe` reads it for these conditions; it stays valid when rows are added."""

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return, for each row, its number in the run itself; the rows of a view are in another order."""


class Run(Probed, Protocol):
    """Some tuples of one stream: a piece of its window.

    Attributes
    ----------
    is_sealed : bool
        Whether its tuples never change, so that it may be a block.
    is_grid : bool
        Whether it is a bucket grid: it is then its window's first run, and columns of no fixed width are in parts.
    block : str or None
        Name of the block that holds it.
    level : int
        How often it was merged, as `BlockMergePolicy` counts.
    encoded : pyarrow.Buffer or None
        The bytes that the state codec made of the run; None: it made none yet.
    """

    is_sealed: bool
    is_grid: bool
    block: str | None
    level: int
    encoded: pa.Buffer | None

    @property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of ``run_schema``."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the tuples' columns."""

    @property
    def position(self) -> Range:
        """Smallest and largest value of the key that the window is measured in."""

    @property
    def oldest_us(self) -> int:
        """Smallest event time, in microseconds."""

    @property
    def newest_us(self) -> int:
        """Largest event time, in microseconds."""

    @property
    def sampled(self) -> Sampled:
        """The sample from which the join order is estimated."""

    @property
    def stays(self) -> object:
        """An object that stays the same for as long as this is the same run, even while the run grows."""

    def seen_by(self, conditions: tuple[ProbeCondition, ...], /) -> Sequence[Probed]:
        """Return the run, or a view of it that serves these conditions better, or parts of it that do."""

    # Arrays below include the free room behind a tail's rows and in a bucket grid. So they stay valid while these grow.

    def values(self, name: str, /) -> npt.NDArray[Any] | None:
        """Return the items of a column (`item_values`); None where it has nulls or no fixed width."""

    def room_key(self, number: int, /) -> npt.NDArray[Any]:
        """Return the values of a key, float64 or int64."""

    def narrow_key(self, number: int, /) -> tuple[str, np.dtype[Any]] | None:
        """Return the column that holds a key's values in 4 bytes each, and its dtype; None where they have 8 bytes."""

    def column(self, name: str, /) -> pa.Array:
        """Return a column of ``run_schema``."""

    def taken(self, name: str, rows: npt.NDArray[np.int32], /) -> pa.Array:
        """Return a column of some rows; any type, nulls kept."""

    def byte_parts(self, name: str, /) -> list[ByteColumn]:
        """Return a column of strings or binary values as kernels gather from it, in one part or several."""

    def located(self, rows: npt.NDArray[np.int32], /) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return, for each row, the number of its part in `byte_parts`, and its row in that part."""

    def described(self, keys: list[str], streams: tuple[str, ...], /) -> str:
        """Return the layout in words; `keys` are the columns of the keys, `streams` the names of the join's streams."""


class ArrowRun(Zoned):
    """A run whose row i is row i of each of its columns; its keys are float64 or int64."""

    is_grid = False

    @property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of ``run_schema``."""
        raise NotImplementedError

    def column(self, name: str) -> pa.Array:
        """Return a column of ``run_schema``."""
        raise NotImplementedError

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the tuples' columns."""
        return int(self.tuples.nbytes)

    @property
    def sampled(self) -> Self:
        """The sample from which the join order is estimated: the run itself, since it never changes."""
        return self

    def narrow_key(self, number: int) -> None:
        """Return None: no key is kept in 4 bytes."""
        del number

    def taken(self, name: str, rows: npt.NDArray[np.int32]) -> pa.Array:
        """Return a column of some rows; any type, nulls kept."""
        return gathered(self.column(name), rows, self.form.kernels)

    def located(self, rows: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return, for each row, the number of its part in `Run.byte_parts`, always 0, and its row there."""
        return np.zeros(len(rows), np.int32), rows


class UnsortedRun(Zoned):
    """A run in no order that a probe can use; it is no block, is not merged, and is never seen in another order."""

    sort_layout = ARRIVAL_ORDER
    in_order = None
    is_sealed = False
    level = 0

    def seen_by(self, conditions: tuple[ProbeCondition, ...]) -> Sequence[Self]:
        """Return the run itself, whatever the conditions."""
        del conditions
        return [self]
