"""Facts about the machine and the software with which a report was made."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from streamjoin_ds.engine.kernels.loading import load_kernels

__all__ = ["machine_facts"]

_PACKAGES = ("streamjoin-ds", "numpy", "pyarrow", "plotly")


def machine_facts(cores: int) -> dict[str, str]:
    """Return facts by name: CPU, cores, memory, instruction set in use, versions, commit."""
    facts = {
        "CPU": _cpu_model(),
        "cores used": f"{cores} of {os.cpu_count()}",
        "instruction set of the kernels": load_kernels("auto").implementation,
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "Python": platform.python_version(),
    }
    return {**facts, **{package: _version(package) for package in _PACKAGES}, "git commit": _commit()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    given = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {name.strip(): value.strip() for name, value in given.items()}
    if "model name" not in named:
        return platform.processor() or platform.machine()
    return f"{named['model name']} (family {named.get('cpu family', '?')}, model {named.get('model', '?')})"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (ValueError, OSError):
        return "unknown"


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        changed = " and changes not committed" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return "not in a git checkout"
