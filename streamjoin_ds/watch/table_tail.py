"""The new rows of one of a join's tables, file by file; at first those that are there."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from streamjoin_ds.delta.table_state import TableState
from streamjoin_ds.errors import LogCleanedError, TableChangedError, TableError
from streamjoin_ds.sink.log import added_rows
from streamjoin_ds.sink.tables import BATCH_ID

__all__ = ["TableTail"]

# Files that are read one by one. A reader that is further behind does better with the table as it is by now: the join
# has put its small files together.
_MOST_FILES = 400
_LAST = 1 << 62  # no batch has a larger number
_WHOLE_BYTES = 1 << 18  # files up to this size are read at once: that is quicker than a column after the other
_BUFFER_BYTES = 1 << 16


class TableTail:
    """Reads a table from its log, and goes on from there.

    Parameters
    ----------
    path : str
        The table; it need not be there yet.
    columns : tuple of str
        The columns that are read; those that a file lacks, because it is older, are left out.
    most_rows : int or None, keyword-only
        With a number only the newest files are read, until they have so many rows, and of each file no more of them.
    repeated : tuple of str, keyword-only
        Columns of texts that many rows have in common; they come as dictionaries.
    newest_whole : bool, keyword-only
        Whether the files of the newest batch are read with all columns.
    """

    def __init__(
        self,
        path: str,
        columns: tuple[str, ...] = (),
        *,
        most_rows: int | None = None,
        repeated: tuple[str, ...] = (),
        newest_whole: bool = False,
    ) -> None:
        self.path, self._columns, self._most_rows, self._repeated = path, columns, most_rows, repeated
        self._newest_whole = newest_whole
        self._state: TableState | None = None
        self._later: list[dict[str, Any]] = []  # files of batches that were not asked for

    def poll(self, least_batch: int = 0, last_batch: int = _LAST) -> list[pa.Table]:
        """Return the rows that are new, one table for each file, the oldest first.

        Parameters
        ----------
        least_batch : int
            At first, files whose rows are all of batches before this one are not read.
        last_batch : int
            Files with rows of later batches wait for a later poll.

        Raises
        ------
        LogCleanedError
            This reader is too far behind, or the table is another one now. The next poll begins anew.
        TableError
            A file cannot be read.
        """
        if self._state is None:
            try:
                self._state = TableState(self.path, with_files=True)
            except TableError as error:
                if not error.message.startswith("there is no Delta table"):
                    raise
                return []
            adds = [add for add in self._state.files.values() if _newest_batch(add, _LAST) >= least_batch]
            adds.sort(key=lambda add: _newest_batch(add, _LAST))
            self._later = []
        else:
            adds = [*self._later, *self._added()]
        self._later = [add for add in adds if _newest_batch(add, 0) > last_batch]
        adds = [add for add in adds if _newest_batch(add, 0) <= last_batch]
        try:
            newest = max((_newest_batch(add, 0) for add in adds), default=0) if self._newest_whole else _LAST
            return [
                self._read(add, () if _newest_batch(add, 0) == newest else self._columns) for add in self._newest(adds)
            ]
        except (OSError, pa.ArrowException) as error:
            self._state = None
            msg = f"a file of the table {self.path} cannot be read"
            raise TableError(msg, name=self.path, hint="it is tried again") from error

    def _added(self) -> list[dict[str, Any]]:
        assert self._state is not None, "it was opened"
        try:
            adds = [add for _, actions in self._state.forward() for add in added_rows(actions)]
        except TableChangedError as error:
            self._state = None
            raise LogCleanedError(error.message, name=self.path, hint=error.hint or "") from error
        except TableError:
            self._state = None
            raise
        if self._most_rows is None and len(adds) > _MOST_FILES:
            self._state = None
            msg = f"the reader of {self.path} is {len(adds)} files behind"
            raise LogCleanedError(msg, name=self.path, hint="it begins anew")
        return adds

    def _newest(self, adds: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._most_rows is None:
            return adds
        rows, first = 0, len(adds)
        while first and rows < self._most_rows:
            first -= 1
            rows += _stats(adds[first].get("stats") or "{}")[0]
        return adds[first:]

    def _read(self, add: dict[str, Any], columns: tuple[str, ...]) -> pa.Table:
        assert self._state is not None, "it was opened"
        with self._state.filesystem.open_input_file(f"{self._state.folder}/{unquote(add['path'])}") as file:
            is_small = add.get("size", _LAST) <= _WHOLE_BYTES
            found = parquet.ParquetFile(
                pa.BufferReader(file.read_buffer()) if is_small else file,
                buffer_size=0 if is_small else _BUFFER_BYTES,
                read_dictionary=self._repeated,
            )
            there = found.schema_arrow.names if columns else ()
            names = [name for name in columns if name in there] or None
            if self._most_rows is None or found.metadata.num_rows <= self._most_rows:
                return found.read(names, use_threads=False)  # files are small, and cores are the query's
            # A file of matches may have millions of rows, of which so only the first pages are read.
            first = next(found.iter_batches(self._most_rows, columns=names, use_threads=False))
            return pa.Table.from_batches([first])


@lru_cache(maxsize=1024)  # a file is asked for its numbers several times
def _stats(text: str) -> tuple[int, int | None]:
    """Return how many rows a file has, and their newest batch; None where it does not say."""
    facts = json.loads(text)
    if not isinstance(facts, dict):
        return 0, None
    newest = (facts.get("maxValues") or {}).get(BATCH_ID)
    return facts.get("numRecords", 0), None if newest is None else int(newest)


def _newest_batch(add: dict[str, Any], unknown: int) -> int:
    """Return the newest batch of a file's rows; `unknown` of a file that does not say."""
    newest = _stats(add.get("stats") or "{}")[1]
    return unknown if newest is None else newest
