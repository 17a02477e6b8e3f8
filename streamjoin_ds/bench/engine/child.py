"""A process that holds one contestant: each line on standard input asks for a run, each line out has its numbers."""

from __future__ import annotations

import json
import os
import resource
import sys

from streamjoin_ds.bench.engine.cases import make_case
from streamjoin_ds.engine.threads.core_lease import pin_threads

__all__ = ["main"]


def main(case_name: str, window_rows: int, cores: int) -> None:
    """Make the contestant, say that it is ready, and do runs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with pin_threads(cores):
        case = make_case(case_name, window_rows, cores)
        _answer(answers, {"ready": True})
        for line in sys.stdin:
            asked = json.loads(line)
            numbers = case.run(asked["pushes"], asked["compared"])
            # Linux counts in KiB. This is the peak so far, filling included.
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            _answer(answers, {"numbers": numbers, "peak_mib": peak_mib})


def _answer(answers: object, facts: dict[str, object]) -> None:
    print(json.dumps(facts), file=answers, flush=True)  # type: ignore[call-overload]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
