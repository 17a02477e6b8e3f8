"""The user's cache folder, for files that are made once for this machine and can be made again."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from streamjoin_ds.machine import is_private

__all__ = ["cache_root", "trusted_cache"]

_TEMPORARY = "streamjoin_ds-"  # before the user's number


def cache_root() -> Path:
    """Return the folder for files that this package fetches or makes only once.

    It is ``streamjoin_ds`` in the platform's folder for caches: on Linux in ``$XDG_CACHE_HOME``, or in ``~/.cache``. A
    user without a home has one of his own in the folder for temporary files.
    """
    with contextlib.suppress(RuntimeError):  # the user has no home folder, as in some containers
        root = user_cache_path("streamjoin_ds")
        if root.is_absolute():  # older platformdirs leave the "~" as it is instead
            return root
    return Path(tempfile.gettempdir()) / f"{_TEMPORARY}{os.geteuid()}"


def trusted_cache() -> Path | None:
    """Return the cache folder, for files that are run or mapped as they lie there; make it if it is not there.

    Returns
    -------
    Path or None
        None if the folder belongs to neither this user nor root, or is a link that does, if others may write to it or
        to a folder above it, or if it cannot be made. One in the folder for temporary files must be this user's alone.
    """
    root = cache_root().absolute()
    is_temporary = root.name.startswith(_TEMPORARY)
    try:
        for folder in (*reversed(root.parents), root):  # parents=True would make those above as the umask says
            if not folder.exists():
                folder.mkdir(mode=0o700 if is_temporary else 0o755, exist_ok=True)
        facts = root.stat()
        if facts.st_uid == os.geteuid() and facts.st_mode & stat.S_IWGRP and not facts.st_mode & stat.S_IWOTH:
            root.chmod(facts.st_mode & ~stat.S_IWGRP)  # made under a umask that trusts the group
            facts = root.stat()
        link_owner = root.lstat().st_uid
        above = [folder.stat().st_mode for folder in root.resolve().parents]
    except OSError:
        return None
    if is_temporary:
        return root if is_private(root) else None
    ours = {facts.st_uid, link_owner} <= {os.geteuid(), 0} and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # In a folder that anybody may write to, only a sticky bit keeps others from putting another one in its place.
    is_kept = all(not mode & stat.S_IWOTH or mode & stat.S_ISVTX for mode in above)
    return root if ours and is_kept else None
