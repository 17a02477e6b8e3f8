"""Reads the conditions after ON and WHERE: which are bounds on event times, and which find or decide.

The tokens of a condition are written anew for `expression.parser`, which reads the text of a predicate: texts in single
quotes, names with the stream's name before them. So a condition means the same here, in Python and on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec import Struct

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.script.sql_text import Span, SqlText, Token
from streamjoin_ds.script.time_bounds import TimeBound, time_bounds
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.expression.parser import parse_condition, parse_value
from streamjoin_ds.spec.expression.predicate import quoted_name
from streamjoin_ds.spec.expression.tree import Expression, conjuncts

__all__ = ["Conditions", "Names", "Term", "column_of"]

_UNITS = ("number", "text")  # what comes before the unit of an interval
_LITERALS = ("DATE", "TIMESTAMP", "INTERVAL", "X")  # words that a text may follow
# Words of conditions that are no columns unless they are quoted or follow a stream's name.
_RESERVED = frozenset(
    (
        "AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "ESCAPE", "CASE",
        "WHEN", "THEN", "ELSE", "END", "DISTINCT", "FROM", "INTERVAL", "DIV", "EXISTS", "ANY", "ALL", "SOME", "TO",
        "SYMMETRIC", "ASYMMETRIC", "CAST", "SELECT", "AS",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Names:
    """The streams of a query and their columns.

    Parameters
    ----------
    streams : sequence of str
        Their names in the query.
    columns : callable
        Returns the columns of a stream, as its source has them.
    declared : mapping of stream name to sequence of str
        The columns of those streams whose columns are known without looking at a source.
    """

    streams: Sequence[str]
    columns: Callable[[str], Sequence[str]]
    declared: Mapping[str, Sequence[str]]

    def stream(self, name: str) -> str | None:
        """Return the stream that a name means, in upper or lower case; None if it means none."""
        return next((stream for stream in self.streams if stream.casefold() == name.casefold()), None)

    def column(self, stream: str, name: str) -> str:
        """Return a column's name as it was declared; as it was written, where that is not known."""
        return _same(name, self.declared.get(stream, ())) or name

    def with_column(self, name: str) -> list[tuple[str, str]]:
        """Return the streams that have a column, with its name there."""
        found = [(stream, _same(name, self.columns(stream))) for stream in self.streams]
        return [(stream, column) for stream, column in found if column is not None]


class Term(Struct, frozen=True):
    """A condition that must hold among others, and where it stands."""

    expression: Expression
    span: Span


class Conditions:
    """Reads conditions of one query.

    Parameters
    ----------
    text : SqlText
        The text that holds them.
    names : Names
        The query's streams.
    times : mapping of stream name to column
        Their event times.
    is_fine : bool
        Whether event times have parts of a microsecond (`time_bounds`).
    """

    def __init__(self, text: SqlText, names: Names, times: Mapping[str, str], *, is_fine: bool = False) -> None:
        self._text = text
        self._names = names
        self._times = times
        self._is_fine = is_fine

    def read(self, tokens: Sequence[Token]) -> tuple[list[TimeBound], list[Term], list[Term]]:
        """Return what a condition says: bounds on event times, other terms, and the terms that those bounds were.

        Raises
        ------
        SqlSyntaxError, PredicateSyntaxError
            A part of it is not understood; the error says where it stands.
        """
        bounds: list[TimeBound] = []
        terms: list[Term] = []
        bounding: list[Term] = []
        for part in _parts(tokens):
            if part[-1].word == "AND":
                hint = "a condition, such as abs(e.x - w.x) <= 0.1, stands on each side of AND"
                raise self._text.refused(part[-1].span, "a condition is missing beside AND", hint)
            span = part[0].span.to(part[-1].span)
            written = self.written(part)
            try:
                expression = parse_condition(written)
            except StreamJoinError as error:
                raise self._text.located(error, _place(part, error) or span) from None
            for conjunct in conjuncts(expression):
                found = time_bounds(conjunct, self._times, span, is_fine=self._is_fine)
                bounds += found or ()
                (terms if found is None else bounding).append(Term(conjunct, span))
        return bounds, terms, bounding

    def value(self, tokens: Sequence[Token]) -> Expression:
        """Return the expression that some tokens are: a value of any type.

        Raises
        ------
        SqlSyntaxError, PredicateSyntaxError
            It is not understood; the error says where it stands.
        """
        try:
            return parse_value(self.written(tokens))
        except StreamJoinError as error:
            span = _place(tokens, error) or tokens[0].span.to(tokens[-1].span)
            raise self._text.located(error, span) from None

    def written(self, tokens: Sequence[Token]) -> str:
        """Return the text of a condition or of an aggregate as `expression.parser` reads it."""
        inner = next((token for token in tokens if token.word == "SELECT"), None)
        if inner is not None:
            hint = "join the stream that it reads: JOIN w ON ..., or LEFT SEMI JOIN and LEFT ANTI JOIN"
            raise self._text.refused(inner.span, "a query inside a condition is not possible", hint)
        pieces: list[str] = []
        place = 0
        while place < len(tokens):
            token = tokens[place]
            word = tokens[place + 1].word if place + 1 < len(tokens) else ""
            if place and token.span.begin > tokens[place - 1].span.end:
                pieces.append(" ")
            if token.word == "|":
                raise self._text.refused(token.span, "'|' is not possible here", "write abs(e.x - w.x)")
            if token.is_name and word == "." and not self._is_outer(token):
                stream, column, place = self._qualified(tokens, place)
                inside, place = path_after(tokens, place)
                pieces.append(f"{stream}.{column}{inside}")
                continue
            if self._is_column(tokens, place):
                stream, name = column_of(self._text, self._names, token)
                inside, place = path_after(tokens, place + 1)
                pieces.append(f"{stream}.{quoted_name(name)}{inside}")
                continue
            if token.kind == "text":
                pieces.append("'" + token.value.replace("'", "''") + "'")
            elif token.kind == "number":
                pieces.append(token.value)
            else:
                pieces.append(quoted_name(token.value) if token.kind == "name" else self._text.slice(token.span))
            place += 1
        return "".join(pieces)

    def _is_outer(self, token: Token) -> bool:
        """Whether a name with a dot behind it is no stream, but a column into which a path leads."""
        return self._names.stream(token.value) is None and len(self._names.with_column(token.value)) == 1

    def _qualified(self, tokens: Sequence[Token], place: int) -> tuple[str, str, int]:
        """Return the stream and the column in ``stream.column``, and the place after them."""
        first = tokens[place]
        stream = self._names.stream(first.value)
        if stream is None:
            hint = names_hint(first.value, list(self._names.streams), "the streams of this query are")
            why = f"'{first.value}' is not a stream of this query"
            raise self._text.refused(first.span, why, hint, first.value)
        if place + 2 >= len(tokens) or not tokens[place + 2].is_name:
            span = tokens[min(place + 2, len(tokens) - 1)].span
            raise self._text.refused(span, "a column's name is missing", f"write {stream}.column")
        second = tokens[place + 2]
        return stream, quoted_name(self._names.column(stream, second.value)), place + 3

    def _is_column(self, tokens: Sequence[Token], place: int) -> bool:
        """Whether a name stands for a column without its stream: not for a function, a unit or a part of a literal."""
        token = tokens[place]
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        before = tokens[place - 1] if place else None
        if token.kind == "name":
            return True
        if token.kind != "word" or token.word in _RESERVED:
            return False
        if after is not None and (after.word in ("(", "FROM") or (after.kind == "text" and token.word in _LITERALS)):
            return False
        return before is None or not (before.kind in _UNITS or before.word in (".", "::", "AS", "TO", "INTERVAL"))


def path_after(tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """Return the rest of a path, ``.after.temp[0]``, that follows a column, and the place after it."""
    found = ""
    while place + 1 < len(tokens) and tokens[place].word in (".", "["):
        following = tokens[place + 1]
        if tokens[place].word == "." and following.is_name:
            found += f".{quoted_name(following.value)}"
            place += 2
        elif tokens[place].word == "[" and following.value.isdecimal() and place + 2 < len(tokens):
            found += f"[{following.value}]"
            place += 3
        else:
            break
    return found, place


def column_of(text: SqlText, names: Names, token: Token) -> tuple[str, str]:
    """Return the stream and the name of a column that is written without its stream.

    Raises
    ------
    SqlSyntaxError
        No stream of the query has such a column, or several have one.
    """
    found = names.with_column(token.value)
    if len(found) == 1:
        return found[0]
    if found:
        why = f"'{token.value}' is a column of {' and '.join(stream for stream, _ in found)}"
        hint = f"write {' or '.join(f'{stream}.{column}' for stream, column in found)}"
    else:
        why = f"no stream of this query has a column '{token.value}'"
        hint = names_hint(
            token.value, [*{c: None for s in names.streams for c in names.columns(s)}], "their columns are"
        )
    raise text.refused(token.span, why, hint, token.value)


def _place(tokens: Sequence[Token], error: StreamJoinError) -> Span | None:
    """Return where the function stands that an error names; None if it names none."""
    calls = (one for one, other in pairwise(tokens) if other.word == "(" and one.is_name)
    return next((one.span for one in calls if one.value == error.name), None)


def _same(name: str, columns: Sequence[str]) -> str | None:
    """Return the column of a name: in the same case, else the only one in another case, as SQL does not mind case."""
    if name in columns:
        return name
    found = [column for column in columns if column.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else None


def _parts(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Give the parts of a condition between its outermost ANDs; all of it, where an OR stands beside them.

    The AND of a BETWEEN and those of a CASE part nothing. A part that is empty is the AND that lacks it.
    """
    depth, betweens, begin = 0, 0, 0
    ends: list[int] = []
    for place, token in enumerate(tokens):
        if place and tokens[place - 1].word == ".":
            continue  # a column of that name
        depth += (token.word in ("(", "CASE")) - (token.word in (")", "END"))
        if depth == 0 and token.word == "OR":
            yield tokens
            return
        if depth == 0 and token.word == "BETWEEN":
            betweens += 1
        elif depth == 0 and token.word == "AND" and betweens:
            betweens -= 1
        elif depth == 0 and token.word == "AND":
            ends.append(place)
    for end in [*ends, len(tokens)]:
        yield tokens[begin:end] if end > begin else tokens[max(0, end - 1) : max(1, end)]
        begin = end + 1
