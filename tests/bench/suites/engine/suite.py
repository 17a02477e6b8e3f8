"""Runs the measures of the engine: each contestant in its own process, in turns with its peer."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.errors import ArgumentError
from tests.bench.suites.engine.targets import MEASURES, Contestant, Measure
from tests.bench.suites.processes import BenchError, Child

__all__ = ["Result", "measure", "workload_names"]

_QUICK_SHARE = 64  # how many times smaller windows are in a quick look
_QUICK_ROWS = 1 << 13  # but no smaller than this, in rows


@dataclass(frozen=True, slots=True)
class Result:
    """One measure over all its runs.

    Attributes
    ----------
    measure : Measure
        What was measured.
    values, peer_values : tuple of float
        One value for each run; the peer's are empty if there is no peer.
    peak_mib : float
        Peak memory of the contestant's process, filling included.
    """

    measure: Measure
    values: tuple[float, ...]
    peer_values: tuple[float, ...]
    peak_mib: float

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def peer_value(self) -> float | None:
        """The peer's median."""
        return statistics.median(self.peer_values) if self.peer_values else None

    @property
    def held(self) -> float:
        """The number that the bounds are for: the median of the values, or of the paired ratios."""
        if not self.measure.ratio:
            return self.value
        return statistics.median(own / peer for own, peer in zip(self.values, self.peer_values, strict=True))

    @property
    def is_met(self) -> bool | None:
        """Whether the result is within its bounds; None: it has none."""
        least, most = self.measure.at_least, self.measure.at_most
        if least is None and most is None:
            return None
        return (least is None or self.held >= least) and (most is None or self.held <= most)


def workload_names() -> tuple[str, ...]:
    """Return the names of the workloads, in the report's order."""
    return tuple(dict.fromkeys(measure.workload for measure in MEASURES))


def measure(workloads: Sequence[str], runs: int, quick: bool, say: Callable[[str], None]) -> list[Result]:
    """Measure all lines of some workloads.

    Parameters
    ----------
    workloads : sequence of str
        Names of workloads; empty: all but those that must be asked for by name.
    runs : int
        Runs of each contestant.
    quick : bool
        Windows a sixty-fourth of their size (but 8 192 rows at least), a tenth of the pushes: a look, not a
        measurement. No line is then held to its bounds.
    say : callable
        Takes a line about what is being done.

    Raises
    ------
    ArgumentError
        There is no such workload.
    BenchError
        A contestant failed, or found other matches than its peer.
    """
    for name in workloads:
        if name not in workload_names():
            msg = f"there is no workload '{name}'"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(workload_names())}")
    named = [line for line in MEASURES if (line.workload in workloads if workloads else not line.opt_in)]
    cores = usable_core_count()
    for line in named:
        if line.contestant.cores > cores:
            say(f"{line.workload}: {line.name} needs {line.contestant.cores} cores, and there are {cores}: left out")
    chosen = [_quick(line) if quick else line for line in named if line.contestant.cores <= cores]
    results: list[Result] = []
    # Lines with the same contestants take their numbers from the same runs.
    groups: dict[tuple[Contestant, Contestant | None], list[Measure]] = {}
    for line in chosen:
        groups.setdefault((line.contestant, line.peer), []).append(line)
    for (contestant, peer), lines in groups.items():
        say(f"{lines[0].workload}: {contestant.case}" + (f" beside {peer.case}" if peer else ""))
        results += _group(contestant, peer, lines, runs, say)
    order = {id(line): number for number, line in enumerate(chosen)}
    return sorted(results, key=lambda result: order[id(result.measure)])


def _quick(line: Measure) -> Measure:
    def small(contestant: Contestant) -> Contestant:
        rows = max(contestant.window_rows // _QUICK_SHARE, min(contestant.window_rows, _QUICK_ROWS))
        return replace(contestant, window_rows=rows, pushes=max(1, contestant.pushes // 10))

    peer = None if line.peer is None else small(line.peer)
    compared = min(line.compared_pushes, 3)
    return replace(
        line, contestant=small(line.contestant), peer=peer, compared_pushes=compared, at_least=None, at_most=None
    )


def _group(
    contestant: Contestant, peer: Contestant | None, lines: list[Measure], runs: int, say: Callable[[str], None]
) -> list[Result]:
    own, other, peak_mib = [], [], 0.0
    compared = max(line.compared_pushes for line in lines)
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(_child(contestant))
        process.answer()
        peer_process = stack.enter_context(_child(peer)) if peer else None
        if peer_process is not None:
            peer_process.answer()
        for number in range(runs):
            answer = process.ask({"pushes": contestant.pushes, "compared": compared})
            own.append(answer["numbers"])
            peak_mib = max(peak_mib, answer["peak_mib"])
            if peer_process is not None:
                assert peer is not None
                pushes = contestant.pushes if compared else peer.pushes
                other.append(peer_process.ask({"pushes": pushes, "compared": compared})["numbers"])
                if compared and own[-1]["matches"] != other[-1]["matches"]:
                    msg = (
                        f"{contestant.case} finds {own[-1]['matches']:,.0f} matches, "
                        f"{peer.case} {other[-1]['matches']:,.0f}"
                    )
                    raise BenchError(msg, name=contestant.case, hint="no measurement is valid until both agree")
            say(f"  run {number + 1} of {runs}: {own[-1][lines[0].value]:,.4g} {lines[0].unit}")
    results = []
    for line in lines:
        values = tuple(numbers[line.value] for numbers in own)
        peers = tuple(numbers[line.peer_value] for numbers in (other if line.peer else own)) if line.peer_value else ()
        results.append(Result(line, values, peers, peak_mib))
    return results


def _child(contestant: Contestant) -> Child:
    asked = contestant.case, str(contestant.window_rows), str(contestant.cores)
    return Child("engine.child", *asked, name=f"the contestant {contestant.case}")
