"""Fits what the engine's operations cost here: it measures them on small windows of made-up tuples (`twin`)."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from streamjoin_ds.engine.columns import fixed_width
from streamjoin_ds.engine.costs.operation_costs import OperationCosts
from streamjoin_ds.engine.costs.twin import PROBES, Twin
from streamjoin_ds.engine.kernels.loading import Kernels, load_kernels
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["believed_costs", "fit_costs", "fitted_costs", "kinds_of"]


_log = logging.getLogger(__name__)

_MOST_KINDS = 4  # conditions of the twin besides the window's, at most
_ROWS = (512, 4096)  # rows of a small tail or run and of a large one; the slope is what a row costs
_RUNS = (2, 12)  # runs that a probe meets
_MERGED = 4  # runs that are merged
_LEAST_ROW_NS = 0.01  # what a row is taken to cost at least
_ROUNDS = 12  # how often each operation is measured; the median counts
_CALLS = 2  # calls of a short operation in each round

Clock = Callable[[], int]


def kinds_of(bound: BoundJoin) -> tuple[str, ...]:
    """Return the kinds of the conditions, "float" or "int", that a probe meets in a window besides the window's rule.

    Of several streams those of the two with the most conditions are taken. A last kind, "text", says that
    columns without a fixed width travel.
    """
    pairs: dict[tuple[int, int], list[str]] = {}
    for condition in bound.conditions[bound.window_conditions :]:
        kinds = pairs.setdefault((condition.left_stream, condition.right_stream), [])
        kinds.append("float" if condition.kind == "float" else "int")
    if not pairs:
        return ()
    schemas = (bound.tuple_schema(stream) for stream in range(len(bound.member_names)))
    has_text = any(not fixed_width(field.type) for schema in schemas for field in schema)
    return (*max(pairs.values(), key=len)[:_MOST_KINDS], *(("text",) if has_text else ()))


def fitted_costs(bound: BoundJoin, kernel: str = "auto") -> OperationCosts | None:
    """Return `believed_costs` for a join; they are measured once in a process for joins of one kind."""
    return _once(kinds_of(bound), load_kernels(kernel))


def believed_costs(kinds: Sequence[str], kernels: Kernels, clock: Clock = time.thread_time_ns) -> OperationCosts | None:
    """Return `fit_costs`, with its parameters; None where these costs are not known.

    They are not known where no condition compares keys, and where the measurement failed or was disturbed.
    """
    if not kinds:
        _log.debug("a join without bands and equalities has no costs to measure: the usual sizes of runs hold")
        return None
    try:
        costs = fit_costs(kinds, kernels, clock)
    except (MemoryError, ArithmeticError, StreamJoinError) as error:
        _log.debug("costs could not be measured (%s): the usual sizes of runs hold", type(error).__name__)
        return None
    if not costs.are_sane:
        _log.debug("the costs that were measured cannot be: the usual sizes of runs hold: %s", costs)
        return None
    _log.debug("costs, measured for conditions on %s: %s", ", ".join(kinds), costs)
    return costs


@lru_cache(maxsize=32)
def _once(kinds: tuple[str, ...], kernels: Kernels) -> OperationCosts | None:
    return believed_costs(kinds, kernels)


def fit_costs(kinds: Sequence[str], kernels: Kernels, clock: Clock = time.thread_time_ns) -> OperationCosts:
    """Return what operations cost, whatever comes out.

    Parameters
    ----------
    kinds : sequence of {"float", "int", "text"}
        What `kinds_of` returns, with at least one condition.
    kernels : Kernels
    clock : callable
        Returns nanoseconds. By default they are those in which this thread had a core, so that other programs disturb
        little.
    """
    twin, (small, large) = Twin(kinds, kernels), _ROWS
    few, many = _RUNS
    probed = [twin.form.sealed(twin.tuples(number * large, large)) for number in range(many)]
    repeated = {
        "small tail": twin.probing([twin.tail(small)]),
        "large tail": twin.probing([twin.tail(large)]),
        "few runs": twin.probing(probed[:few]),
        "many runs": twin.probing(probed),
        "tailed": twin.taking(is_tailed=True),
        "gridded": twin.taking(is_tailed=False),
    }
    sealed: dict[int, list[SealedRun]] = {small: [], large: []}
    took: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object], calls: int = 1) -> None:
        began = clock()
        for _ in range(calls):
            work()
        took.setdefault(name, []).append((clock() - began) / calls)

    # All in turns, as in a join: a seldom one that is repeated alone finds all that it needs in the caches.
    for number in range(_ROUNDS):
        for name, work in repeated.items():
            work()  # every push does these, so they are warm
            timed(name, work, _CALLS)
        for rows, runs in sealed.items():
            tuples = twin.tuples(number * rows, rows)
            timed(f"seal {rows}", lambda: runs.append(twin.sealed(tuples)))  # noqa: B023 (called at once)
            if len(runs) == _MERGED:
                timed(f"merge {rows}", lambda: twin.merged(runs))  # noqa: B023 (called at once)
                runs.clear()
    ns = {name: statistics.median(values) for name, values in took.items()}
    sealed_row, sealed_run = _line(ns[f"seal {small}"], ns[f"seal {large}"])
    merged_row, merged_run = _line(ns[f"merge {small}"], ns[f"merge {large}"])
    return OperationCosts(
        scanned_row_ns=_line(ns["small tail"], ns["large tail"])[0] / PROBES,
        probed_run_ns=(ns["many runs"] - ns["few runs"]) / (many - few) / PROBES,
        sealed_run_ns=sealed_run,
        sealed_row_ns=sealed_row,
        merged_run_ns=merged_run,
        merged_row_ns=merged_row / _MERGED,
        gridded_batch_ns=ns["gridded"] - ns["tailed"],
    )


def _line(small_ns: float, large_ns: float) -> tuple[float, float]:
    """Return the slope and the height at zero of the line through the times of `_ROWS`.

    A row costs `_LEAST_ROW_NS` at least, where chance hides what it costs.
    """
    small, large = _ROWS
    slope = max((large_ns - small_ns) / (large - small), _LEAST_ROW_NS)
    return slope, small_ns - small * slope
