"""What the members of a join, its streams and its tables, must be together."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.window import WindowKind

__all__ = ["check_members", "check_window"]


def check_members(streams: Sequence[Stream], tables: Sequence[object], most: int) -> None:
    """Refuse too few or too many members, what is no table, and two members of one name.

    Raises
    ------
    ArgumentError
        The error names what is wrong and says what would be valid.
    """
    for table in tables:
        if not isinstance(table, Table):
            msg = f"the tables of a join must be Table objects, not {type(table).__name__}"
            raise ArgumentError(msg, name="tables", hint="for example Table('zones', 'zones/', refresh='1m')")
    members: list[Stream | Table] = [*streams, *(table for table in tables if isinstance(table, Table))]
    if not streams and tables:
        msg = "a join needs a stream: its tables alone bring no results"
        raise ArgumentError(msg, name="streams", hint="one stream is enough where there is a table")
    if not 2 <= len(members) <= most:
        what = "streams and tables" if tables else "streams"
        msg = f"a join must have 2 to {most} {what}, not {len(members)}"
        hint = "for a self-join, list the input twice under two names; beside a table one stream is enough"
        raise ArgumentError(msg, name="streams", hint=hint)
    folded = [member.name.lower() for member in members]
    for member in members:
        if folded.count(member.name.lower()) > 1:
            what = "a stream and a table" if tables else "two streams"
            msg = f"{what} are named '{member.name}'"
            hint = "give each stream and table its own name; upper and lower case do not make a difference"
            raise ArgumentError(msg, name=member.name, hint=hint)


def check_window(streams: Sequence[Stream], window: WindowKind) -> None:
    """Refuse a window of a single stream: a window says which tuples of two streams may meet.

    Raises
    ------
    WindowError
        There is one stream, and a window that is not the default, 0s.
    """
    if len(streams) == 1 and (window.kind != "time" or window.extent(0)):
        msg = f"a window is between two streams, and {streams[0].name} is the only one"
        raise WindowError(msg, name="window", hint="leave it out: rows of a table have no event time")
