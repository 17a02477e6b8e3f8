"""The process in which trials are done, one after the other; a trial may also ask for a process of its own."""

from __future__ import annotations

from types import TracebackType

from tests.bench.suites.figures.trial import Trial, TrialOutcome
from tests.bench.suites.processes import BenchError, Child

__all__ = ["Workers"]


class Workers:
    """Does trials; as a context manager it ends its process."""

    def __init__(self) -> None:
        self._common: Child | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._common is not None:
            self._common.end()

    def done(self, trial: Trial) -> TrialOutcome:
        """Do a trial in a process that is pinned, meanwhile, to as many cores as the trial has threads.

        Raises
        ------
        BenchError
            The trial failed, or its engine found another number of matches than the independent count.
        """
        if trial.is_fresh:
            worker = _started()
            try:
                return verified(trial, _done(worker, trial))
            finally:
                worker.end()
        if self._common is None:
            self._common = _started()
        return verified(trial, _done(self._common, trial))


def verified(trial: Trial, outcome: TrialOutcome) -> TrialOutcome:
    """Return the outcome, if the engine found as many matches as there are.

    Raises
    ------
    BenchError
        The engine found another number.
    """
    if outcome.found != outcome.expected:
        found, expected = f"{outcome.found:,} matches", f"{outcome.expected:,}"
        msg = f"a trial of kind {trial.kind} finds {found}, but an independent count {expected}"
        raise BenchError(msg, name=trial.kind, hint="no measurement is valid until both agree")
    return outcome


def _started() -> Child:
    child = Child("figures.child", name="the process of the trials")
    child.__enter__()
    child.answer()
    return child


def _done(child: Child, trial: Trial) -> TrialOutcome:
    try:
        facts = child.ask(trial.to_facts())
    except BenchError as error:
        msg = f"a trial of kind {trial.kind}: {error.message}"
        raise BenchError(msg, name=trial.kind, hint="check that there is enough memory") from error
    curves = {name: [(x, y) for x, y in curve] for name, curve in facts["curves"].items()}
    spans = [(begin, end) for begin, end in facts["checked_us"]]
    return TrialOutcome(facts["numbers"], curves, facts["found"], facts["expected"], spans)
