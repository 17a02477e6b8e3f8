"""The columns that a SELECT list asks for: as a join takes them, and their names in the list's order."""

from __future__ import annotations

from streamjoin_ds.script.conditions import Conditions, Names, Term, column_of
from streamjoin_ds.script.schemas import Schemas
from streamjoin_ds.script.sql_text import SqlText, Token
from streamjoin_ds.script.statements import Item, Query
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.join_parts import Calculated, Selected

__all__ = ["SelectList"]


class SelectList:
    """The SELECT list of a query.

    Parameters
    ----------
    text : SqlText
    query : Query
    names : Names
    schemas : Schemas
    """

    def __init__(self, text: SqlText, query: Query, names: Names, schemas: Schemas) -> None:
        self._text, self._query, self._names, self._schemas = text, query, names, schemas

    def selected(self, *, is_of_one: bool) -> tuple[list[Selected], tuple[str, ...], list[Term]]:
        """Return what is selected, the names of the results' columns in the order of the list, and what is calculated.

        Aggregates have their names alone. With `is_of_one` ``*`` is of the first stream.

        Raises
        ------
        SqlSyntaxError, PredicateSyntaxError
            An entry names no stream or column, or is not understood; the error says where it stands.
        """
        found: list[Selected] = []
        columns: list[str] = []
        calculated: list[Term] = []
        for item in self._query.items:
            if item.aggregate:
                columns.append(item.name or "")
                continue
            if item.tokens:
                expression = Conditions(self._text, self._names, {}).value(item.tokens)
                calculated.append(Term(expression, item.span))
                found.append(Calculated(item.name or "", expression))
                columns.append(item.name or "")
                continue
            if item.column is None:
                all_streams = self._names.streams[:1] if is_of_one else self._names.streams
                chosen = all_streams if item.stream is None else [self._stream(item)]
                found += [f"{stream}.*" for stream in chosen]
                if self._schemas.frames:
                    columns += [f"{stream}_{name}" for stream in chosen for name in self._schemas.names(stream)]
                continue
            stream, column = self.column(item)
            quoted = "`" + column.replace("`", "``") + "`"
            name = "" if item.name is None else " AS `" + item.name.replace("`", "``") + "`"
            found.append(f"{stream}.{quoted}{name}")
            columns.append(item.name or f"{stream}_{column}")
        return found, tuple(columns), calculated

    def column(self, item: Item) -> tuple[str, str]:
        """Return the stream and the column that an entry names.

        Raises
        ------
        SqlSyntaxError
            There is none, or several; the error says where it stands.
        """
        column = item.column or ""
        if item.stream is None:
            return column_of(self._text, self._names, Token("", column, "name", item.span))
        stream = self._stream(item)
        return stream, self._names.column(stream, column)

    def _stream(self, item: Item) -> str:
        stream = self._names.stream(item.stream or "")
        if stream is None:
            hint = names_hint(item.stream or "", list(self._names.streams), "the streams of this query are")
            why = f"'{item.stream}' is not a stream of this query"
            raise self._text.refused(item.span, why, hint, item.stream or "")
        return stream
