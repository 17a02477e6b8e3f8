"""The user's cache folder: what is made once for this machine, and can be made again."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["cache_root", "trusted_cache"]


def cache_root() -> Path:
    """Where this package keeps what it need not fetch or make twice: ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # no home folder: an odd container
        root = Path(tempfile.gettempdir())
    return root / "streamjoin_ds"


def trusted_cache() -> Path | None:
    """The cache folder, for what is run as it lies there; made if it is not there.

    Returns
    -------
    Path or None
        None where somebody else but root may write to it, or where it cannot be made.
    """
    root = cache_root().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        facts = root.stat()
    except OSError:
        return None
    ours = facts.st_uid in (os.geteuid(), 0) and not facts.st_mode & stat.S_IWOTH
    return root if ours else None
