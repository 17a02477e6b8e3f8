"""A process that holds one contestant, pinned to its cores: each run that it is asked for has its numbers."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from typing import Any

from streamjoin_ds.engine.core_lease import pin_threads
from tests.bench.suites.engine.cases import make_case
from tests.bench.suites.processes import serve

__all__ = ["main"]


def main(case_name: str, window_rows: int, cores: int) -> None:
    """Make the contestant, and do runs until standard input ends."""

    def begin() -> Callable[[Any], object]:
        case = make_case(case_name, window_rows, cores)

        def run(asked: Any) -> object:
            numbers = case.run(asked["pushes"], asked["compared"])
            # Linux counts in KiB. This is the peak so far, filling included.
            return {"numbers": numbers, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}

        return run

    with pin_threads(cores):
        serve(begin)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
