"""The option `index`: the columns by which a user wants the runs of each stream laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import names_hint

__all__ = ["forced_index"]

_WORDS = ("auto", "scan")
_MOST_COLUMNS = 2


def forced_index(bound: BoundJoin, index: str | Mapping[str, str | Sequence[str]]) -> list[str | tuple[str, ...]]:
    """Return `SortLayoutChooser`'s argument `forced` for each stream and table; "auto" where `index` names none.

    Raises
    ------
    ArgumentError
        `index` is not "auto", "scan", or a mapping of the join's streams to one of these or to one or two columns.
    ColumnError
        No predicate and no window compares the column, so no probe could use its order.
    """
    if isinstance(index, str):
        index = dict.fromkeys(bound.member_names, index)
    for name in index:
        if name not in bound.member_names:
            msg = f"the index names the stream '{name}', which is not in the join"
            raise ArgumentError(msg, name="index", hint=names_hint(name, bound.member_names, "the streams are"))
    return [_of_stream(bound, stream, index.get(name, "auto")) for stream, name in enumerate(bound.member_names)]


def _of_stream(bound: BoundJoin, stream: int, wanted: str | Sequence[str]) -> str | tuple[str, ...]:
    name = bound.member_names[stream]
    if isinstance(wanted, str):
        if wanted not in _WORDS:
            msg = f"the index of stream {name} is neither a known word nor columns"
            raise ArgumentError(msg, name="index", hint="auto, scan, or one or two columns of each stream")
        return wanted
    keys = [key.column for key in bound.keys[stream]]
    for column in wanted:
        if column not in keys:
            msg = f"the index of stream {name} has the column '{column}', which no predicate and no window compares"
            raise ColumnError(msg, name=column, hint=names_hint(column, keys, "the compared columns are"))
    if not 1 <= len(wanted) <= _MOST_COLUMNS or len(set(wanted)) < len(wanted):
        msg = f"the index of stream {name} must be one or two different columns"
        raise ArgumentError(msg, name="index", hint="the first makes buckets, the second sorts each of them")
    return tuple(wanted)
