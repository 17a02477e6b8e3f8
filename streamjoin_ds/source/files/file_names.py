"""The order of a folder's files, as labels: texts that sort as the files are read, and tell each file's path.

==========================  ====================================================
order                       the label of ``day=2/a.csv``
==========================  ====================================================
by name                     the path in the folder: ``day=1:2/a.csv``
by modification             the time of the last change before it:
                            ``1704067200000000000/day=1:2/a.csv``
==========================  ====================================================

A whole number in the name of a sub-folder has its number of digits before it, so ``hour=9`` sorts before ``hour=10``. A
file of the folder itself keeps its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["BY_NAME", "FileOrder", "is_label"]


_NUMBER = re.compile(r"([^=]+)=(\d+)", re.ASCII)
_COUNTED = re.compile(r"([^=]+)=(\d+):(.*)", re.ASCII)
_TIME_DIGITS = 20  # digits of a time of change, in nanoseconds: all that int64 can hold


@dataclass(frozen=True, slots=True)
class FileOrder:
    """How labels are made of paths.

    Parameters
    ----------
    by_modification : bool
        Whether files sort by the times of their last changes, then by their paths; False: by their paths alone.
    """

    by_modification: bool = False

    def label(self, path: str, mtime_ns: int) -> str:
        """Return the label of a file.

        Parameters
        ----------
        path : str
            Its path in the folder, with ``/`` between the parts.
        mtime_ns : int
            When it was changed last, in nanoseconds since 1970; times before are taken as 0.
        """
        label = path
        if "/" in path:
            *folders, name = path.split("/")
            label = "/".join((*map(_with_count, folders), name))
        return f"{max(mtime_ns, 0):0{_TIME_DIGITS}d}/{label}" if self.by_modification else label

    def path(self, label: str) -> str:
        """Return the path in the folder that a label tells."""
        path = label.partition("/")[2] if self.by_modification else label
        if "/" not in path:
            return path
        *folders, name = path.split("/")
        return "/".join((*map(_without_count, folders), name))

    def mtime_ns(self, label: str) -> int | None:
        """Return the time of the last change that a label tells; None where it tells none."""
        digits = label.partition("/")[0]
        return int(digits) if self.by_modification and digits.isdecimal() else None


BY_NAME = FileOrder()


def is_label(text: str) -> bool:
    """Whether a text can be a label: it leads to no place outside of the folder."""
    if "\0" in text or text.startswith("/"):
        return False
    return not text or all(part not in ("", ".", "..") for part in text.split("/"))


def _with_count(name: str) -> str:
    number = _NUMBER.fullmatch(name)
    if number is not None:
        return f"{number[1]}={len(number[2])}:{number[2]}"
    counted = _COUNTED.fullmatch(name)  # a name that looks like a label's part is marked as none
    return name if counted is None else f"{counted[1]}=0:{name[len(counted[1]) + 1 :]}"


def _without_count(part: str) -> str:
    counted = _COUNTED.fullmatch(part)
    return part if counted is None else f"{counted[1]}={counted[3]}"
