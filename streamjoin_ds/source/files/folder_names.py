"""The names in one folder, and whether they may have changed since it was listed."""

from __future__ import annotations

__all__ = ["FolderNames"]

# A listing is kept while the folder's time of change stands still. It is kept only after so many seconds without a
# change, because file systems round their times.
_SETTLED_S = 3.0
# A listing is kept for so many seconds at most.
_KEPT_S = 10.0


class FolderNames:
    """What a folder held when it was listed last.

    Parameters
    ----------
    identity : (int, int)
        The folder's device and inode.
    """

    def __init__(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.names: set[str] = set()  # unwanted names included
        self.is_known = False  # whether it was listed
        self._changed_ns: int | None = None  # the folder's time of change when it was listed last
        self._changed_seen_s = self._listed_s = 0.0
        self._settled = False

    def may_be_old(self, changed_ns: int, now_s: float, *, fresh: bool) -> bool:
        """Whether the folder must be listed again, where it was changed last at `changed_ns`."""
        same = changed_ns == self._changed_ns
        return fresh or not (same and self._settled and now_s - self._listed_s < _KEPT_S)

    def listed(self, found: set[str], changed_ns: int, now_s: float, *, tells: bool) -> tuple[bool, set[str], set[str]]:
        """Note what the folder holds now. Return whether its time of change stood still, and which names came and went.

        Parameters
        ----------
        found : set of str
            All its names.
        changed_ns : int
            Its time of change before it was listed.
        now_s : float
            The clock.
        tells : bool
            Whether the time of change was seen to move with the names, here or in a folder beside it.
        """
        same = changed_ns == self._changed_ns
        self._settled = same and tells and now_s - self._changed_seen_s >= _SETTLED_S
        if not same:
            self._changed_ns, self._changed_seen_s = changed_ns, now_s
        self._listed_s = now_s
        new, gone = found - self.names, self.names - found
        self.names = found
        return same, new, gone
