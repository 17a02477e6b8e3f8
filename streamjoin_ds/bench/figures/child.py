"""A process that does trials: one a line on standard input, what came of it a line on standard output."""

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
    """Serve until standard input ends, pinned for each trial to as many cores as it has threads."""
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
