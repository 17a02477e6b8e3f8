"""The user's cache folder, for files that are made once for this machine and can be made again."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_root", "trusted_cache"]


def cache_root() -> Path:
    """Return the folder for files that this package fetches or makes only once.

    It is ``streamjoin_ds`` in the platform's folder for caches: on Linux in ``$XDG_CACHE_HOME``, or in ``~/.cache``.
    """
    with contextlib.suppress(RuntimeError):  # the user has no home folder, as in some containers
        root = user_cache_path("streamjoin_ds")
        if root.is_absolute():  # older platformdirs leave the "~" as it is instead
            return root
    return Path(tempfile.gettempdir()) / "streamjoin_ds"


def trusted_cache() -> Path | None:
    """Return the cache folder, for files that are run or mapped as they lie there; make it if it is not there.

    Returns
    -------
    Path or None
        None if the folder belongs to neither this user nor root, if others may write to it, or if it cannot be made.
    """
    root = cache_root().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        facts = root.stat()
        if facts.st_uid == os.geteuid() and facts.st_mode & stat.S_IWGRP and not facts.st_mode & stat.S_IWOTH:
            root.chmod(facts.st_mode & ~stat.S_IWGRP)  # made under a umask that trusts the group
            facts = root.stat()
    except OSError:
        return None
    ours = facts.st_uid in (os.geteuid(), 0) and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return root if ours else None
