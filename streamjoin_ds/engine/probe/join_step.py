"""How one stream joins partial results: the conditions that kernels test, and the decision on what they find."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.probe.probe_batch import ProbeBatch
from streamjoin_ds.engine.probe.residual import Residual
from streamjoin_ds.engine.probe.settled import settled_terms
from streamjoin_ds.engine.storage.conditions import MAX_CONDITIONS, ProbeCondition, finding, oriented
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["JoinStep"]


class JoinStep:
    """How one stream joins partial results of others."""

    def __init__(self, bound: BoundJoin, joined: frozenset[int], stream: int) -> None:
        conditions = oriented(bound, sorted(joined), stream)
        self.stream = stream
        tested = (*conditions, *finding(bound, sorted(joined), stream))
        self.tested: tuple[ProbeCondition, ...] = tested[:MAX_CONDITIONS]
        beside = max(MAX_CONDITIONS - len(conditions), 0)
        self._decision = Residual(bound, joined, stream, conditions[MAX_CONDITIONS:])
        self._settled = settled_terms(bound, sorted(joined), stream, beside)

    def standing(self, block: dict[int, Selection], arrived: ProbeBatch) -> dict[int, Selection]:
        """Return the partial results in `block`, of new tuples, for which everything holds that no kernel tests."""
        decision = self._left(arrived)
        if decision.is_empty:
            return block
        mask = decision.mask(block)
        if mask.all():
            return block
        kept = np.flatnonzero(mask).astype(np.int32)
        return {stream: selection.take(kept) for stream, selection in block.items()}

    def finds_all(self, arrived: ProbeBatch) -> bool:
        """Whether kernels test everything: each pair that they find stands."""
        return self._left(arrived).is_empty

    def standing_pairs(
        self, arrived: ProbeBatch, positions: npt.NDArray[np.int32], found: Selection
    ) -> tuple[npt.NDArray[np.int32], Selection]:
        """Return those of the pairs for which everything holds that no kernel tests."""
        decision = self._left(arrived)
        if decision.is_empty:
            return positions, found
        mask = decision.mask({arrived.stream: arrived.selection.take(positions), self.stream: found})
        if mask.all():
            return positions, found
        kept = np.flatnonzero(mask).astype(np.int32)
        return positions[kept], found.take(kept)

    def _left(self, arrived: ProbeBatch) -> Residual:
        """Return the decision without what kernels have decided, where the values allow that."""
        if not self._settled:
            return self._decision
        done = [one.term for one in self._settled if one.is_decided(arrived.range_of)]
        return self._decision.without(done) if done else self._decision
