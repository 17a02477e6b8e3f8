"""A process that does trials: each one that it is asked for has an outcome."""

from __future__ import annotations

import gc
from dataclasses import asdict
from typing import Any

from streamjoin_ds.engine.core_lease import pin_threads
from tests.bench.suites.figures.trial import Trial
from tests.bench.suites.figures.trials import TRIALS
from tests.bench.suites.processes import serve

__all__ = ["main"]


def main() -> None:
    """Do trials until standard input ends; for each the process is pinned to as many cores as the trial has threads."""
    serve(lambda: _done)


def _done(asked: Any) -> object:
    trial = Trial.from_facts(asked)
    with pin_threads(trial.threads):
        outcome = TRIALS[trial.kind](trial)
    gc.collect()
    return asdict(outcome)


if __name__ == "__main__":
    main()
