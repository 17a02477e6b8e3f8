"""The sizes of runs by costs: of costs that are given, or of costs that are measured when they are worth it."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from streamjoin_ds.engine.cost_model import best_sizes
from streamjoin_ds.engine.costs.operation_costs import OperationCosts
from streamjoin_ds.engine.costs.run_sizes import RunSizes
from streamjoin_ds.engine.sizing import fitted_costs
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["WORTH_TAILS", "Costs", "GivenSizing", "MeasuredSizing", "Sizing", "sizing_of"]

# Tails that a stream has filled before costs are measured: so many rows that came in small pushes have taken many times
# as long as the measurement does, and as many again gain more than it takes.
WORTH_TAILS = 128


class Sizing(Protocol):
    """A source of the sizes of runs."""

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        """Return the sizes for a form that has sealed so many tails, now of a window of so many rows.

        None: the sizes that it has stay.
        """

    def described(self) -> str:
        """Return where the sizes are from, in words, for `explain`."""


# What `WindowJoin` takes: costs, or a source of sizes, or the word for measuring.
Costs: TypeAlias = OperationCosts | Sizing | Literal["measured"] | None


class GivenSizing:
    """Sizes by costs that are given.

    Parameters
    ----------
    costs : OperationCosts
    ratio : int or None
        The merge ratio that is forced; None: the costs say.
    """

    def __init__(self, costs: OperationCosts, ratio: int | None = None) -> None:
        self.costs, self._ratio = costs, ratio

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        """Return the sizes, from the start."""
        del sealed_tails
        return best_sizes(self.costs, self._ratio, window_rows, is_grid=is_grid)

    def described(self) -> str:
        """See `Sizing`."""
        return f"by costs that were given: {_told(self.costs)}"


class MeasuredSizing:
    """Sizes by costs that are measured once a stream has filled some tails.

    Parameters
    ----------
    bound : BoundJoin
    kernel : str
        As `load_kernels` takes it.
    ratio : int or None
        As for `GivenSizing`.
    """

    def __init__(self, bound: BoundJoin, kernel: str, ratio: int | None = None) -> None:
        self.costs: OperationCosts | None = None
        self._bound, self._kernel, self._ratio = bound, kernel, ratio

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        """Measure once, when so many tails were sealed that it is worth the time."""
        if sealed_tails < WORTH_TAILS:
            return None
        self.costs = fitted_costs(self._bound, self._kernel)
        return None if self.costs is None else best_sizes(self.costs, self._ratio, window_rows, is_grid=is_grid)

    def described(self) -> str:
        """See `Sizing`."""
        if self.costs is not None:
            return f"by costs measured in this process: {_told(self.costs)}"
        return f"the usual sizes; costs are measured once a stream has filled {WORTH_TAILS} tails"


def sizing_of(costs: Costs, bound: BoundJoin, kernel: str, ratio: int | None) -> Sizing | None:
    """Return the source of sizes that `costs` asks for; the arguments are those of `WindowJoin`."""
    if costs == "measured":
        return MeasuredSizing(bound, kernel, ratio)
    return GivenSizing(costs, ratio) if isinstance(costs, OperationCosts) else costs


def _told(costs: OperationCosts) -> str:
    """Return costs in words."""
    scanned = f"a row of the tail {costs.scanned_row_ns:.2f} ns, a run {costs.probed_run_ns:.0f} ns for a probe"
    sealed = f"a sealed run {costs.sealed_run_ns / 1e3:.0f} us"
    merged = f"a merge {costs.merged_run_ns / 1e3:.0f} us and {costs.merged_row_ns:.0f} ns a row"
    return f"{scanned}; {sealed}; {merged}; a batch into a grid {costs.gridded_batch_ns / 1e3:.0f} us"
