"""The sides of a comparison: this package and its peers, each as one class with one method that is timed.

::

    SideTask ──► Side.run ──► Outcome        a process holds one side; its start-up is not timed
"""

from __future__ import annotations

from tests.bench.suites.sides.side import LOCAL, OURS, SIDES, Outcome, Side, SideTask, check_peers, make_side

__all__ = ["LOCAL", "OURS", "SIDES", "Outcome", "Side", "SideTask", "check_peers", "make_side"]
