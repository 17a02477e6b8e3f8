"""What CREATE STREAM and CREATE TABLE say, checked where it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamjoin_ds.errors import PredicateError, StreamJoinError
from streamjoin_ds.request.request import described_streams
from streamjoin_ds.request.tables import described_tables
from streamjoin_ds.script.sql_options import TABLE_KEYS, stream_facts
from streamjoin_ds.script.sql_text import Span, SqlText
from streamjoin_ds.script.statements import StreamStatement

__all__ = ["check_created", "check_stream"]


def check_created(text: SqlText, made: StreamStatement) -> None:
    """Refuse options of a statement, as far as that can be told without its source: also where no query names it.

    Raises
    ------
    StreamJoinError
        The error says where in the text the option stands.
    """
    given = {key: value for key, value in stream_facts(text, made).items() if key not in TABLE_KEYS}
    if not made.is_table:
        check_stream(text, made.name, given, made, made.span)
    elif "source" in given:
        try:
            described_tables({made.name: given}, {}, {})
        except StreamJoinError as error:
            raise text.located(error, _span_of(error, made)) from None


def check_stream(text: SqlText, name: str, given: Mapping[str, Any], made: StreamStatement | None, span: Span) -> None:
    """Refuse options of a stream where they were written.

    Parameters
    ----------
    text : SqlText
    name : str
        The stream's, in its query.
    given : mapping
        The options, as keys of the stream's table in the TOML file.
    made : StreamStatement or None
        What created it; None: it is of Spark's catalog.
    span : Span
        Where the query names it.
    """
    try:
        described_streams({name: given}, {}, {})
    except StreamJoinError as error:
        raise text.located(error, span if made is None else _span_of(error, made)) from None


def _span_of(error: StreamJoinError, made: StreamStatement) -> Span:
    """Return where the option stands that an error names."""
    option = error.name.partition(" of ")[0]
    option = "where" if isinstance(error, PredicateError) and "where" in made.options else option
    return made.options[option].span if option in made.options else made.span
