"""Which sub-folders are listed again at one look: of many only some, by turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

__all__ = ["FolderTurns", "upwards"]

# Of many sub-folders the last ones are looked at each time, since new files come there, and some of the others by
# turns; all of them after so many seconds.
_LAST_FOLDERS = 64
_FOLDERS_A_TURN = 64
_ALL_FOLDERS_S = 10.0


class FolderTurns:
    """The turns of sub-folders.

    Parameters
    ----------
    key : callable
        Returns by what a folder is sorted: those that sort last get new files.
    """

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self._sorted: list[str] = []
        self._seen_all_s = 0.0  # when all were looked at last
        self._turn = 0

    def change(self) -> None:
        """Take note that folders have come or gone."""
        self._sorted = []

    def due(self, folders: Collection[str], now_s: float, *, is_each: bool) -> Iterable[str]:
        """Return the folders that are to be looked at now.

        Parameters
        ----------
        folders : collection of str
            All sub-folders by their paths; the folder itself, "", may be among them.
        now_s : float
        is_each : bool
            Whether all of them are to be looked at anyway.
        """
        if len(folders) == 1:
            return ()
        if len(self._sorted) != len(folders) - 1:
            self._sorted = sorted(filter(None, folders), key=self._key)
        few = len(self._sorted) <= _LAST_FOLDERS + _FOLDERS_A_TURN
        if few or is_each or now_s - self._seen_all_s >= _ALL_FOLDERS_S:
            self._seen_all_s = now_s
            return tuple(self._sorted)
        last = {folder for known in self._sorted[-_LAST_FOLDERS:] for folder in upwards(known)}
        by_turns = self._sorted[self._turn : self._turn + _FOLDERS_A_TURN]
        self._turn = self._turn + _FOLDERS_A_TURN if self._turn + _FOLDERS_A_TURN < len(self._sorted) else 0
        return last.union(by_turns)


def upwards(folder: str) -> Iterator[str]:
    """Yield a folder's path, then those of the folders above it, without the last one."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
