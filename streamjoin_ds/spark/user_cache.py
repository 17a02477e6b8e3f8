"""The user's cache folder: what is made once for this machine, and can be made again."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_root", "trusted_cache"]


def cache_root() -> Path:
    """Return the folder for what this package need not fetch or make twice.

    It is ``streamjoin_ds`` in the platform's folder for caches: on Linux in ``$XDG_CACHE_HOME``, or in ``~/.cache``.
    """
    with contextlib.suppress(RuntimeError):  # a user without a home folder, as odd containers have them
        root = user_cache_path("streamjoin_ds")
        if root.is_absolute():  # older platformdirs leave the "~" as it is instead
            return root
    return Path(tempfile.gettempdir()) / "streamjoin_ds"


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
