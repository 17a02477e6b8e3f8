"""How many cores' worth of time this process has: its affinity, and what its control group allows."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["control_group_cores", "usable_core_count"]


def usable_core_count() -> int:
    """Cores this process may use: its affinity, less where a control group allows less. At least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_cores()
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota)))


def control_group_cores() -> float | None:
    """Cores' worth of time that the control group allows (version 2, else 1); None where it sets no limit."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
        group = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "/")
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        limits = [limit for path in (folder, *folder.parents) if (limit := _cpu_max(path / "cpu.max")) is not None]
        if limits:
            return min(limits)
        version_1 = Path("/sys/fs/cgroup/cpu")
        quota_us = int((version_1 / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        return quota_us / int((version_1 / "cpu.cfs_period_us").read_text(encoding="ascii")) if quota_us > 0 else None
    except (OSError, ValueError):
        return None


def _cpu_max(path: Path) -> float | None:
    try:
        quota_us, period_us = path.read_text(encoding="ascii").split()
        return None if quota_us == "max" else int(quota_us) / int(period_us)
    except (OSError, ValueError):
        return None
