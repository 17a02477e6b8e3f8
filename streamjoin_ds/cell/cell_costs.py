"""What the engine's operations cost, on the way from the driver to the cells: the driver measures, the plan carries."""

from __future__ import annotations

from streamjoin_ds.engine.costs.cost_fit import fitted_costs
from streamjoin_ds.engine.costs.operation_costs import OperationCosts
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.plan import Execution, Plan
from streamjoin_ds.spec import BoundJoin

__all__ = ["costs_of", "measured_costs"]


def measured_costs(bound: BoundJoin, execution: Execution, state_root: str) -> tuple[tuple[str, float], ...]:
    """Return what operations cost on this machine, for a plan; empty where no choice of its cells depends on them.

    Windows in blocks (`state_root`) keep the usual sizes of runs: what a block costs is not measured. A kernel that
    only the workers have cannot be measured here.
    """
    if state_root or execution.kernel not in kernel_names():
        return ()
    costs = fitted_costs(bound, execution.kernel)
    return () if costs is None else tuple(sorted(costs.to_facts().items()))


def costs_of(plan: Plan) -> OperationCosts | None:
    """Return the costs that a plan carries; None: it carries none."""
    return OperationCosts.from_facts(dict(plan.costs)) if plan.costs else None
