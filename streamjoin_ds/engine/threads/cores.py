"""How many cores' worth of time this process has: its affinity, and what its control groups allow."""

from __future__ import annotations

import math
import os
from pathlib import Path

from streamjoin_ds.machine import control_group_folders

__all__ = ["control_group_cores", "usable_core_count"]


def usable_core_count() -> int:
    """Return how many cores this process may use: its affinity, or what a control group allows if less; 1 at least."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_cores()
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota)))


def control_group_cores() -> float | None:
    """Return how many cores' worth of time the control groups allow; None: no limit.

    It is the least that any group allows, of version 1 or 2, the outer ones too.
    """
    limits = [
        limit
        for folder in control_group_folders("cpu")
        for limit in (_cpu_max(folder / "cpu.max"), _cpu_quota(folder))
        if limit is not None
    ]
    return min(limits, default=None)


def _cpu_max(path: Path) -> float | None:
    try:
        quota_us, period_us = path.read_text(encoding="ascii").split()
        return None if quota_us == "max" else int(quota_us) / int(period_us)
    except (OSError, ValueError):
        return None


def _cpu_quota(folder: Path) -> float | None:
    """Return what a group of version 1 allows; None: no limit (a quota of -1)."""
    try:
        quota_us, period_us = (
            int((folder / name).read_text(encoding="ascii")) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        return quota_us / period_us if quota_us > 0 and period_us > 0 else None
    except (OSError, ValueError):
        return None
