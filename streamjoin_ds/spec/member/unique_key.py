"""The key by which a tuple that came twice is known: which columns, and how far apart in time two copies may be.

The rule is ARCHITECTURE.md's, "Duplicates". It is a function of the stream's own order, of keys and event times alone.
In a stream of partitions each partition has its own order, so copies are told in each partition alone; where devices
have clocks of their own, in each device alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, ColumnError, WindowError
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.member.source import DeltaRows
from streamjoin_ds.spec.nested_path import path_name
from streamjoin_ds.spec.window import WindowKind

__all__ = ["UniqueStream", "check_unique", "check_unique_columns", "check_unique_window", "span_us", "unique_columns"]


class UniqueStream(Protocol):
    """What these checks ask of a `Stream`; each property is that of the stream."""

    @property
    def name(self) -> str:
        """The stream's name."""

    @property
    def source(self) -> object:
        """Where its tuples come from."""

    @property
    def max_ahead(self) -> object:
        """How far a record may be ahead."""

    @property
    def quarantines(self) -> bool:
        """Whether a bad file is set aside."""

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns of the key; none where it looks for no duplicates."""


def unique_columns(given: object, name: str) -> tuple[str, ...] | None:
    """Return the columns of a key, given as one text with commas between them or as a sequence of texts.

    Raises
    ------
    ArgumentError
        It is neither, names no column, or names one twice.
    """
    if given is None:
        return None
    names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if (
        not isinstance(names, Sequence)
        or not names
        or not all(isinstance(one, str) and one for one in names)
        or len(set(names)) < len(names)
    ):
        msg = f"unique of stream {name} is no list of different columns"
        raise ArgumentError(msg, name="unique", hint="for example 'device,counter', or ['device', 'counter']")
    return tuple(map(path_name, names))


def check_unique(stream: UniqueStream) -> None:
    """Refuse a key of a stream whose decisions cannot be repeated from its records alone.

    Raises
    ------
    ArgumentError
        The error names the option that does not go with `unique`.
    """
    if not stream.unique_key:
        return
    what, option, hint = "", "unique", "leave it out"
    if isinstance(stream.source, DeltaRows):
        what, hint = "reads a table", "leave it out, or keep the table free of duplicates (MERGE INTO)"
    elif stream.max_ahead is not None:
        what, option, hint = "has a key of unique rows", "max_ahead", "leave out max_ahead, or unique"
    elif stream.quarantines:
        what, option, hint = "has a key of unique rows", "on_bad_file", "leave out on_bad_file, or unique"
    if what:
        msg = f"stream {stream.name} {what}, so it cannot have {option} yet"
        raise ArgumentError(msg, name=option, hint=hint)


def check_unique_columns(stream: UniqueStream, schema: pa.Schema) -> None:
    """Refuse a key with a column that the stream lacks, or whose values cannot be compared.

    Raises
    ------
    ColumnError
    """
    for column in stream.unique_key:
        if column not in schema.names:
            msg = f"stream {stream.name} has no column '{column}', which unique names"
            raise ColumnError(msg, name=column, hint=names_hint(column, schema.names, "its columns are"))
        if pa.types.is_nested(schema.field(column).type):
            msg = f"column '{column}' of stream {stream.name} is nested, so it can be no part of unique"
            raise ColumnError(msg, name=column, hint="name columns of numbers, texts, bytes, times or booleans")


def check_unique_window(stream: UniqueStream, window: WindowKind) -> None:
    """Refuse a key in a join whose window is no time: it would not say how long a key is remembered.

    Raises
    ------
    WindowError
    """
    if stream.unique_key and window.kind == "count":
        msg = f"unique of stream {stream.name} holds within a window of time, and a count window is none"
        raise WindowError(msg, name="window", hint="use a time window (15s) or a periodic one, or leave out unique")


def span_us(window: WindowKind, stream: int) -> int:
    """Return how far apart two tuples of one key are at most if they are duplicates, in microseconds, included.

    It is ``W_i + max W_j``: two tuples of stream *i* that one tuple of another stream may meet are no further apart.
    Beside tables alone it is ``W_i``.
    """
    others = (window.extent(other) for other in range(window.streams) if other != stream)
    return window.extent(stream) + max(others, default=0)
