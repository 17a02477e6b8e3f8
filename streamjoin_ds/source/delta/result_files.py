"""The results of a join that are complete, as the table of its matches holds them now, by ranges of event time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.location import is_local
from streamjoin_ds.delta.results import EVENT_TIME, order_columns, punctuation_us
from streamjoin_ds.delta.table_state import TableState, file_path
from streamjoin_ds.errors import FileFormatError, FileMissingError, LogCleanedError, TableError
from streamjoin_ds.source.delta.change_log import stated_bounds, stated_rows

__all__ = ["ResultFiles", "mixed", "read_results", "row_hashes", "times_of"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_STATED_US = 1000  # what the log states of a time may be cut off to milliseconds
_LAST = (1 << 63) - 1


class ResultFiles:
    """The table of a join's matches, followed as it grows.

    Parameters
    ----------
    path : str
        The table's folder.

    Attributes
    ----------
    complete_us : int or None
        All results with an older event time are there; None: none is known to be.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._state = TableState(path, with_files=True)
        self.complete_us: int | None = None
        self._bounds: dict[str, tuple[int, int, int]] = {}  # by file: smallest and largest event time, rows
        self._note()

    @property
    def table_id(self) -> str:
        """The id that the table got when it was made."""
        return self._state.table_id

    def forward(self) -> None:
        """Take in what is new.

        Raises
        ------
        TableChangedError
            The table was deleted, or replaced by another.
        TableError
            An entry cannot be read.
        """
        before = self._state.version
        try:
            for _ in self._state.forward():
                pass
        except LogCleanedError:  # the results are in the table all the same
            self._state, self._bounds = TableState(self._path, with_files=True), {}
        if self._state.version != before:
            self._note()

    def names(self, low_us: int, high_us: int) -> list[str]:
        """Return the files that may hold results with ``low_us <= event_time <= high_us``, oldest results first."""
        found = [(low, name) for name, (low, high, _) in self._bounds.items() if high >= low_us and low <= high_us]
        return [name for _, name in sorted(found)]

    def horizon(self, low_us: int, rows: int) -> int:
        """Return an event time before which there are about `rows` complete results from `low_us` on, or all.

        It is never newer than `complete_us`, and the results before it can be read without those after it.
        """
        assert self.complete_us is not None
        count = 0
        for high, more in sorted((high, more) for _, high, more in self._bounds.values() if high >= low_us):
            count += more
            if count >= rows or high >= self.complete_us:
                return min(high + 1, self.complete_us)
        return self.complete_us

    def _note(self) -> None:
        self.complete_us = punctuation_us(self._state.configuration, self._state.transactions)
        live = self._state.files
        self._bounds = {name: bounds for name, bounds in self._bounds.items() if name in live}
        for name in live.keys() - self._bounds.keys():
            add = live[name]
            if add.get("deletionVector"):
                msg = f"the table {self._path} has deletion vectors, which a table of results must not have"
                hint = "REORG TABLE ... APPLY (PURGE) removes them; or read the table with format=delta"
                raise TableError(msg, name=self._path, hint=hint)
            low, high = stated_bounds(add, EVENT_TIME)
            latest = _LAST - 1 if high is None else high + _STATED_US
            self._bounds[name] = (-(1 << 63) if low is None else low, latest, stated_rows(add))


def read_results(table: str, names: list[str], low_us: int, high_us: int, columns: list[str]) -> pa.Table:
    """Return columns of the results with ``low_us <= event_time <= high_us``, in the results' order.

    The columns by which they are ordered come too.

    Parameters
    ----------
    table : str
        The table's folder.
    names : list of str
        The files that may hold such results, as the log writes their paths.
    columns : list of str
        The columns.

    Raises
    ------
    FileMissingError, FileFormatError
        A file is gone, or cannot be read.
    """
    parts = []
    for name in names:
        path = file_path(table, name)
        try:
            with pq.ParquetFile(files_at(path).input(path), pre_buffer=not is_local(path)) as file:
                orders = order_columns(file.schema_arrow.names)
                wanted = [*columns, *(order for order in orders if order not in columns)]
                all_groups = ((number, file.metadata.row_group(number)) for number in range(file.num_row_groups))
                groups = [number for number, group in all_groups if _overlaps(group, low_us, high_us)]
                part = file.read_row_groups(groups, columns=wanted, use_threads=False).select(wanted)
        except FileNotFoundError:
            msg = f"the file {path} is gone before its results were read"
            hint = "restart the join: the table holds the results in other files now"
            raise FileMissingError(msg, name=path, hint=hint) from None
        except (pa.ArrowInvalid, OSError, KeyError):
            msg = f"the file {path} of a table of results cannot be read"
            raise FileFormatError(msg, name=path, hint="restore it from a copy of the table") from None
        times = times_of(part)
        inside = (times >= low_us) & (times <= high_us)
        parts.append(part if inside.all() else part.filter(pa.array(inside)))
    if not parts:
        return pa.table({EVENT_TIME: pa.array([], _TIMESTAMP)})
    found = pa.concat_tables(parts)
    keys = [(name, "ascending") for name in order_columns(found.column_names)]
    return found.take(pc.sort_indices(found, sort_keys=keys)).combine_chunks()


def times_of(results: pa.Table) -> np.ndarray:
    """Return the event times of results, in microseconds UTC."""
    times: np.ndarray = results.column(EVENT_TIME).cast(pa.int64()).to_numpy()
    return times


def row_hashes(results: pa.Table) -> np.ndarray:
    """Return a hash of each result, uint64, from its event time, its tuples' numbers and its window."""
    hashes = np.zeros(results.num_rows, np.uint64)
    for name in order_columns(results.column_names):
        column = results.column(name)
        if name == EVENT_TIME or pa.types.is_integer(column.type):
            numbers = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
            hashes = mixed(hashes ^ numbers.view(np.uint64))
    return hashes


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers (uint64) with their bits mixed: Stafford's mix 13 after a step of SplitMix64."""
    found = numbers + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    last: np.ndarray = found ^ (found >> np.uint64(31))
    return last


def _overlaps(group: pq.RowGroupMetaData, low_us: int, high_us: int) -> bool:
    """Whether a row group may hold results of a range, as far as its statistics tell."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == EVENT_TIME:
            stated = column.statistics
            if stated is None or not stated.has_min_max:
                return True
            low, high = (pa.scalar(bound, _TIMESTAMP).value for bound in (stated.min, stated.max))
            return bool(low <= high_us and high >= low_us)
    return True
