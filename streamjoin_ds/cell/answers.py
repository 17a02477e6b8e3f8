"""Puts together what several cells know of the same tuples to rows.

::

    left, right, full, anti   the home cell's rows of the tuples that all cells tell of
    semi                      each tuple once that any cell tells of; of several streams if partners in all are told of
    nearest                   of all rows of a tuple the k nearest, ranked anew
    sums                      the row of the home cell, of the first that has one for "inner", and the aggregates of all

Every pair meets in exactly one cell. So a tuple has no partner if it has none in any cell, and its partners are those
of all cells, none of them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.cell.partial_answers import answer_of
from streamjoin_ds.engine import load_kernels
from streamjoin_ds.engine.probe.aggregation import whole_aggregates
from streamjoin_ds.engine.probe.nearest import NEARNESS
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.errors import LedgerError
from streamjoin_ds.plan import Layout, Plan, copied_streams
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.row_kind import RANK

__all__ = ["whole_answers"]


Int64 = npt.NDArray[np.int64]
_DEFECT = "nothing was committed; this is a defect, please report it"


def whole_answers(
    plan: Plan, layout: Layout, answers: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows that all cells' answers make together, each table with the home cell of its group.

    Parameters
    ----------
    plan : Plan
    layout : Layout
        The layout of the batch.
    answers : mapping of int to mapping
        What `PartialAnswers.reported` returned in each cell.

    Yields
    ------
    (int, pyarrow.Table)
        Only tables that have rows, with the columns of results without ``batch_id``. A tuple's rows are in one table:
        by the tuples' order in the cells, first the home cell; of nearest partners by the tuples' numbers, then ranks.

    Raises
    ------
    BlockMissingError, BlockCorruptError
        A cell's answer is not there, or damaged.
    AggregateOverflowError
        A sum over the partners in all cells does not fit its column.
    LedgerError
        A tuple is twice in one cell's answer, or a pair in all; or the cells do not tell of the same tuples.
    """
    for stream in copied_streams(plan.bound, layout):
        put = _way(plan.bound, stream)
        for group in range(layout.counts[stream]):
            cells = layout.cells_of(stream, group)
            told = [answers[cell].get(str(stream)) for cell in cells]
            tables = [None if answer is None else answer_of(plan, answer) for answer in told]
            if any(table is not None for table in tables):
                yield from ((cells[0], rows) for rows in put(plan.bound, stream, tables) if rows.num_rows)


def _way(bound: BoundJoin, stream: int) -> Callable[[BoundJoin, int, Sequence[pa.Table | None]], Iterator[pa.Table]]:
    if bound.distance is not None:
        return _nearest
    if bound.aggregates:
        return _summed
    if stream in bound.row_kind.lonely:
        return _all
    return _each if bound.row_kind.of_each else _any


def _all(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield the rows of the tuples that all cells tell of; the first has the rows."""
    if any(table is None for table in tables):
        return
    rows, *others = (table for table in tables if table is not None)
    numbers = _numbers(bound, stream, rows)
    mask = np.ones(len(numbers), np.bool_)
    for other in others:
        mask &= np.isin(numbers, _numbers(bound, stream, other), assume_unique=True)
    yield rows.filter(pa.array(mask))


def _any(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield the rows of the tuples that any cell tells of, each once."""
    given = [table for table in tables if table is not None]
    numbers = np.concatenate([_numbers(bound, stream, table) for table in given])
    yield pa.concat_tables(given).take(pa.array(_firsts(numbers)))


def _each(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield the rows of the tuples that have partners in each of the other streams, in whatever cells."""
    given = [table for table in tables if table is not None]
    rows = pa.concat_tables(given)
    numbers = np.concatenate([_numbers(bound, stream, table) for table in given])
    _, first, tuples = np.unique(numbers, return_index=True, return_inverse=True)
    met, (told,), rows = np.zeros(len(first), np.int64), *_split(rows, 1)
    np.bitwise_or.at(met, tuples, told.to_numpy())
    is_met = met == (1 << (len(bound.names) - 1)) - 1
    yield rows.take(pa.array(np.sort(first[is_met])))


def _nearest(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield each tuple with the nearest of the partners that all cells found for it."""
    assert bound.join.nearest is not None, "the join has nearest partners"
    nearness, rows = _split(pa.concat_tables([table for table in tables if table is not None]), len(NEARNESS))
    numbers = rows[_number_of(bound, stream)].to_numpy()
    partner = rows[_number_of(bound, 1 - stream)]
    is_lonely = partner.is_null().to_numpy()
    partners = partner.fill_null(-1).to_numpy()
    near, *ties = (column.fill_null(0).to_numpy() for column in nearness)
    order = np.lexsort((partners, *reversed(ties), near, is_lonely, numbers))
    numbers, partners = numbers[order], partners[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = numbers[1:] != numbers[:-1]
    if np.any(~is_first[1:] & (partners[1:] == partners[:-1])):
        msg = "two cells have found one pair"
        raise LedgerError(msg, name=_number_of(bound, stream), hint=_DEFECT)
    begins = np.flatnonzero(is_first)
    ranks = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    # A tuple is lonely where no other row comes before that which says so.
    is_kept = np.where(is_lonely[order], ranks == 0, ranks < bound.join.nearest.k)
    kept = rows.take(pa.array(order[is_kept]))
    if bound.has_ranks:
        made = pa.array(ranks[is_kept] + 1, mask=is_lonely[order][is_kept])
        kept = kept.set_column(kept.schema.get_field_index(RANK), kept.schema.field(RANK), made)
    yield kept


def _summed(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield a row for each tuple with the aggregates over the partners that all cells found for it, in slices."""
    given = [table for table in tables if table is not None]
    numbers = [_numbers(bound, stream, table) for table in given]
    if stream in bound.row_kind.lonely:
        rows = given[0]
        if len(given) < len(tables) or any(not np.array_equal(np.sort(numbers[0]), np.sort(of)) for of in numbers[1:]):
            msg = "the cells have not decided the same tuples"
            raise LedgerError(msg, name=_number_of(bound, stream), hint=_DEFECT)
    else:
        rows = pa.concat_tables(given).take(pa.array(_firsts(np.concatenate(numbers))))
    places = _Places(rows[_number_of(bound, stream)].to_numpy())
    parts = [(table, *places.ordered(of)) for table, of in zip(given, numbers, strict=True)]
    schema = pa.schema([field for field in bound.result_schema if field.name != "batch_id"])
    module, most = load_kernels("auto").module, DEFAULT.waiting
    step = most.held_rows if bound.holds_values else most.summed_rows
    for begin in range(0, rows.num_rows, step):
        some = rows.slice(begin, step)
        partials = []
        for table, of, order in parts:
            low, high = np.searchsorted(of, [begin, begin + step])
            partials.append(((of[low:high] - begin).astype(np.int32), table.take(pa.array(order[low:high]))))
        made = whole_aggregates(bound, some.num_rows, partials, module)
        columns = [made[field.name] if field.name in made else some[field.name] for field in schema]
        yield pa.Table.from_arrays(columns, schema=schema)


class _Places:
    """Where tuples are, by their numbers."""

    def __init__(self, numbers: Int64) -> None:
        self._order = np.argsort(numbers)
        self._sorted = numbers[self._order]

    def ordered(self, numbers: Int64) -> tuple[Int64, Int64]:
        """Return the places of tuples with these numbers, ascending, and the order that makes them so."""
        places = self._order[np.searchsorted(self._sorted, numbers)]
        order = np.argsort(places)
        return places[order], order


def _split(rows: pa.Table, count: int) -> tuple[list[pa.ChunkedArray], pa.Table]:
    """Return the last columns, and the others. A column of the result may have the name of one of the last."""
    whole = rows.num_columns - count
    return rows.columns[whole:], rows.select(range(whole))


def _firsts(numbers: Int64) -> Int64:
    """Return where each number is for the first time, ascending."""
    _, first = np.unique(numbers, return_index=True)
    return np.sort(first)


def _number_of(bound: BoundJoin, stream: int) -> str:
    return f"{bound.names[stream]}_seq"


def _numbers(bound: BoundJoin, stream: int, table: pa.Table) -> Int64:
    """Return the numbers of the tuples in a cell's answer; no tuple is decided twice."""
    numbers: Int64 = table[_number_of(bound, stream)].to_numpy()
    in_order = np.sort(numbers)
    if np.any(in_order[1:] == in_order[:-1]):
        msg = "a cell has decided a tuple twice"
        raise LedgerError(msg, name=_number_of(bound, stream), hint=_DEFECT)
    return numbers
