"""Aggregates over the partners of tuples that are decided: what `reduce` asks for.

::

    pairs, some at a time ──► values of arguments ──► accumulators ──────────────► one row for each tuple
    (position, partner)       (pairs)                 counts, exact sums, extremes   (aggregation)
                                                      (accumulators, exact_sums; the kernel `ExactSums`)
                                                      one partner's value (picked)
                                                      values held (held)

Where other cells have partners of the same tuples, an accumulator gives what it knows (`partial`) instead of a value,
and one in the commit takes what all have given (`add_partial`, `whole_aggregates`).

The contract is in ARCHITECTURE.md, "Sums over partners".
"""

from streamjoin_ds.engine.probe.aggregates import Aggregation, aggregates_of_none, partials_of_none, whole_aggregates

__all__ = ["Aggregation", "aggregates_of_none", "partials_of_none", "whole_aggregates"]
