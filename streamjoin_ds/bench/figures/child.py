"""A process that does trials: each line on standard input is a trial, each line on standard output its outcome."""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict

from streamjoin_ds.bench.figures.trial import Trial
from streamjoin_ds.bench.figures.trials import TRIALS
from streamjoin_ds.engine.threads.core_lease import pin_threads

__all__ = ["main"]


def main() -> None:
    """Do trials until standard input ends; for each the process is pinned to as many cores as the trial has threads."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        trial = Trial.from_facts(json.loads(line))
        with pin_threads(trial.threads):
            outcome = TRIALS[trial.kind](trial)
        gc.collect()
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


if __name__ == "__main__":
    main()
