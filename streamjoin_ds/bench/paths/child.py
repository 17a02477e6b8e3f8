"""A process that holds one side: each line on standard input is a task, each line on standard output an outcome.

::

    parent                                child
      │── {"workload": ..., ...} ──────────►│ Side.run
      │◄── {"outcome": {...}} ──────────────│
      │        or {"error": "CODE: ..."}
      └── end of input ────────────────────►  Side.close
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from typing import TextIO

from streamjoin_ds.bench.sides import Side, SideTask, make_side

__all__ = ["main", "own_output"]


def main(side_name: str) -> None:
    """Start the side, and do tasks until standard input ends."""
    answers = own_output()
    try:
        side = make_side(side_name)
    except Exception as error:
        _answer(answers, {"error": _told(error)})
        return
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _answer(answers, _done(side, SideTask(**json.loads(line))))
    side.close()


def _done(side: Side, task: SideTask) -> dict[str, object]:
    try:
        return {"outcome": asdict(side.run(task))}
    except Exception as error:
        return {"error": _told(error)}


def own_output() -> TextIO:
    """Return standard output for answers alone; what libraries print then goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _answer(answers: TextIO, facts: dict[str, object]) -> None:
    answers.write(json.dumps(facts) + "\n")
    answers.flush()


def _told(error: Exception) -> str:
    traceback.print_exception(error)
    return str(error) or type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1])
