"""A process that holds one side: each task that it is asked for has an outcome (`processes.serve`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tests.bench.suites.processes import serve
from tests.bench.suites.sides import SideTask, make_side

__all__ = ["main"]


def main(side_name: str) -> None:
    """Start the side, do tasks until standard input ends, and close it."""
    made = []

    def begin() -> Callable[[Any], object]:
        side = make_side(side_name)
        made.append(side)
        return lambda task: asdict(side.run(SideTask(**task)))

    serve(begin)
    for side in made:
        side.close()


if __name__ == "__main__":
    main(sys.argv[1])
