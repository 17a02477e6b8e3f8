"""Tables that are no plain files: some of the files in their folders may no longer be theirs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from streamjoin_ds.blocks.files import Files
from streamjoin_ds.blocks.location import folders_above
from streamjoin_ds.errors import FileFormatError

__all__ = ["TableMarks"]

# Folders that mark a table's folder, with the table's kind and the format by which Spark reads it.
_KINDS = {
    "_delta_log": ("a Delta", "delta"),
    "metadata": ("an Iceberg", "iceberg"),
    ".hoodie": ("a Hudi", "hudi"),
}


class TableMarks:
    """The refusal of folders that are tables.

    Parameters
    ----------
    disk : Files
        The file system.
    stream : str
        The stream's name, for errors.
    """

    def __init__(self, disk: Files, stream: str) -> None:
        self._disk = disk
        self._stream = stream

    def refuse_around(self, path: str) -> None:
        """Refuse a path that is a table, or lies inside one.

        Raises
        ------
        FileFormatError
            The path is or lies in a Delta, Iceberg or Hudi table.
        """
        place, *above = folders_above(path)
        for folder in (place, *above):
            self._refuse(folder, "is" if folder == place else "lies in", _KINDS)

    def refuse_below(self, folder: str, names: set[str]) -> None:
        """Refuse a sub-folder that is a table, by the names in it; see `refuse_around`."""
        self._refuse(folder, "has a sub-folder that is", [mark for mark in _KINDS if mark in names])

    def _refuse(self, folder: str, where: str, marks: Iterable[str]) -> None:
        for mark in marks:
            kind, spark_format = _KINDS[mark]
            if self._is_marked(f"{folder.rstrip('/')}/{mark}"):
                msg = f"the input of stream {self._stream} {where} {kind} table, not plain files: {folder}"
                read = f"spark.readStream.format('{spark_format}').load(...)"
                hint = f"read the table with StreamJoin.dataframe and {read}, or give a folder of plain files"
                if spark_format == "delta":
                    hint = f"give the table's folder as it is, with format auto or delta; or {hint}"
                raise FileFormatError(msg, name=folder, hint=hint)

    def _is_marked(self, mark: str) -> bool:
        """Whether `mark` is a folder that marks a table. A folder ``metadata`` must also hold Iceberg's files."""
        try:
            if not stat.S_ISDIR(self._disk.stat(mark).st_mode):
                return False
            if os.path.basename(mark) != "metadata":
                return True
            names = self._disk.names(mark)
        except OSError:
            return False
        return any(name.endswith(".metadata.json") or name == "version-hint.text" for name in names)
