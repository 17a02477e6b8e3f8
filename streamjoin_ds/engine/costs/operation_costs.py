"""What the engine's operations cost on one machine, in nanoseconds; as one frozen object and as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

__all__ = ["USUAL_COSTS", "OperationCosts"]

# A machine of the last twenty years costs neither this share of the usual costs nor this many times them. A fit beyond
# was disturbed, by other programs or by a clock that stood still.
_LEAST_SHARE, _MOST_TIMES = 1 / 50, 50.0
_HIDDEN = ("sealed_row_ns", "merged_row_ns", "merged_run_ns")


@dataclass(frozen=True, slots=True)
class OperationCosts:
    """Costs by which sizes of runs are chosen (Gedik, Yu and Bordawekar, 2007, section 6). No result depends on them.

    The defaults are the usual costs, with which a fit is compared. They were measured on two cores with AVX-512, on a
    join of two bands.

    Attributes
    ----------
    scanned_row_ns : float
        A probe tests a row of the tail.
    probed_run_ns : float
        A probe meets one more sorted run, whatever the run's rows.
    sealed_run_ns : float
        A tail becomes a run, whatever its rows: choosing its order, making its columns.
    sealed_row_ns : float
        A row is sorted into a run.
    merged_run_ns : float
        Runs become one run, whatever their rows.
    merged_row_ns : float
        A row is copied by a merge.
    gridded_batch_ns : float
        A batch goes into a bucket grid, whatever its rows: so much more than into the tail.
    """

    scanned_row_ns: float = 0.25
    probed_run_ns: float = 30.0
    sealed_run_ns: float = 250_000.0
    sealed_row_ns: float = 50.0
    merged_run_ns: float = 600_000.0
    merged_row_ns: float = 25.0
    gridded_batch_ns: float = 100_000.0

    @property
    def are_sane(self) -> bool:
        """Whether the costs are near enough to the usual ones to be believed.

        What a merge and a row cost that is sealed or merged has an upper bound only: chance may hide it.
        """
        usual = USUAL_COSTS.to_facts()
        times = {name: cost / usual[name] for name, cost in self.to_facts().items()}
        is_seen = all(times[name] >= _LEAST_SHARE for name in times if name not in _HIDDEN)
        return is_seen and all(cost <= _MOST_TIMES for cost in times.values())

    def to_facts(self) -> dict[str, float]:
        """Return the costs as plain JSON values, which `from_facts` reads."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, float]) -> OperationCosts:
        """Return the costs that `to_facts` wrote; those that are missing are the usual ones, unknown ones left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: float(cost) for name, cost in facts.items() if name in known})


USUAL_COSTS = OperationCosts()
