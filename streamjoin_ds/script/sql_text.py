"""A text of SQL statements: its tokens, a cursor over them, and errors that say where in the text they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, TypeVar

from msgspec import Struct
from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from streamjoin_ds.errors import SqlSyntaxError, StreamJoinError

__all__ = ["MAX_TEXT", "Cursor", "Span", "SqlText", "Token"]


MAX_TEXT = 1_000_000  # most characters of a text

_WORD = re.compile(r"[^\W\d]\w*(?:\s+BY)?", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_OPENED = re.compile(r"['\"`]|/\*")
_SHOWN = 100  # most characters of a line that an error shows
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)

ErrorT = TypeVar("ErrorT", bound=StreamJoinError)


class _SparkSql(Spark):
    """Spark's SQL with every statement split into tokens: sqlglot's own dialect takes ``VACUUM ...;`` as one text."""

    class Tokenizer(Spark.Tokenizer):
        """Knows no statement that is one text."""

        COMMANDS = set()  # noqa: RUF012


class Span(Struct, frozen=True):
    """A stretch of the text: from the character `begin` to the one before `end`."""

    begin: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the stretch from the beginning of this one to the end of the other."""
        return Span(self.begin, max(self.end, other.end))


class Token(Struct, frozen=True):
    """A word, a name, a literal or a sign of the text.

    Parameters
    ----------
    word : str
        In upper case, with one space inside ``GROUP BY``; of a name or text in quotes, "".
    value : str
        What it says: a name or text without its quotes.
    kind : {"word", "name", "text", "number", "sign"}
        A "name" is in back-ticks. A "word" may be a name too.
    span : Span
        Where it stands.
    """

    word: str
    value: str
    kind: str
    span: Span

    @property
    def is_name(self) -> bool:
        """Whether it can name something."""
        return self.kind in ("word", "name")


class SqlText:
    """A text and its tokens.

    Parameters
    ----------
    text : str
        The statements.

    Raises
    ------
    SqlSyntaxError
        The text is too long, or a quote in it is not closed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: tuple[Token, ...] = ()
        if len(text) > MAX_TEXT:
            raise self.refused(Span(0, 0), f"the text is longer than {MAX_TEXT} characters", "give several texts")
        try:
            self.tokens = tuple(_tokens(text))
        except SqlglotError:
            at = _unclosed(text)
            why = "a quote or a comment is not closed"
            raise self.refused(Span(at, at + 1), why, "close it: '...', `...` or /* ... */") from None

    def slice(self, span: Span) -> str:
        """Return what stands there."""
        return self.text[span.begin : span.end]

    def place(self, span: Span) -> str:
        """Return the line and the column where it begins, both counted from 1."""
        before = self.text[: span.begin]
        return f"line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"

    def refused(self, span: Span, why: str, hint: str, name: str = "") -> SqlSyntaxError:
        """Return the error that says why something is not understood, where it stands, and what is valid there."""
        return self.located(SqlSyntaxError(why, name=name, hint=hint), span)

    def located(self, error: ErrorT, span: Span) -> ErrorT:
        """Return an error of the same class that also says where in the text it arose."""
        return type(error)(
            f"{self.place(span)}: {error.message}",
            name=error.name,
            hint=f"{error.hint}\n{self._excerpt(span)}".lstrip("\n"),
        )

    def _excerpt(self, span: Span) -> str:
        """Return the line with carets below the stretch; values of options are not shown, since they may be secrets."""
        begin = self.text.rfind("\n", 0, span.begin) + 1
        end = self.text.find("\n", span.begin)
        end = len(self.text) if end < 0 else end
        if not self.tokens:  # the text cannot be read any further
            end = min(end, span.end)
        secrets = _secrets(self.tokens)
        line, columns = "", []  # the columns at which the line's characters are shown
        for place in range(begin, end):
            hidden = next((secret for secret in secrets if secret.begin <= place < secret.end), None)
            columns.append(len(line))
            if hidden is None:
                line += self.text[place] if self.text[place].isprintable() else " "
            elif place == max(hidden.begin, begin):
                line += "'...'"
        columns.append(len(line))
        at, after = columns[span.begin - begin], columns[min(max(span.end, span.begin), end) - begin]
        cut = max(0, min(at - _SHOWN // 2, len(line) - _SHOWN))
        line, at, after = line[cut : cut + _SHOWN], at - cut, min(after - cut, _SHOWN)
        return f"  {line.rstrip()}\n  {' ' * at}{'^' * max(1, after - at)}"


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    for token in _SparkSql().tokenize(text):
        written = text[token.start : token.end + 1]
        span = Span(token.start, token.end + 1)
        if token.token_type is TokenType.HINT:
            continue  # Spark may pass over a hint, and so does a join
        if found and found[-1].span == span:
            continue  # 10L is read as a number, a cast and a type, all at one place
        if token.token_type is TokenType.IDENTIFIER:
            found.append(Token("", token.text, "name", span))
        elif token.token_type in _STRINGS:
            if found and found[-1].kind == "text":  # Spark takes texts that follow each other as one
                found[-1] = Token("", found[-1].value + token.text, "text", found[-1].span.to(span))
            else:
                found.append(Token("", token.text, "text", span))
        elif token.token_type is TokenType.NUMBER:
            found.append(Token(token.text, token.text, "number", span))
        else:
            kind = "word" if _WORD.fullmatch(written) else "sign"
            found.append(Token(" ".join(written.upper().split()), written, kind, span))
    return found


def _secrets(tokens: Sequence[Token]) -> list[Span]:
    """Return where values of options stand: in ``WITH (name = value, ...)``, and all that follows ``SET name =``."""
    found: list[Span] = []
    ends: tuple[str, ...] = ()  # the signs that end a value; none outside of options
    is_value = False
    for place, token in enumerate(tokens):
        before = tokens[place - 1].word if place else ";"
        if before == ";":
            ends = (";",) if token.word == "SET" else ()
            is_value = False
        elif before == "WITH" and token.word == "(":
            ends = (",", ")")
        if token.word in ends:
            is_value = False
            ends = () if token.word == ")" else ends
        elif is_value:
            found[-1] = found[-1].to(token.span) if found[-1].end else token.span
        elif ends and token.word == "=":
            is_value = True
            found.append(Span(0, 0))
    return [span for span in found if span.end]


def _unclosed(text: str) -> int:
    """Return where a quote or a comment begins that does not end."""
    place = 0
    while (opened := _OPENED.search(text, place)) is not None:
        whole = _QUOTED.search(text, place)
        if whole is None or whole.start() > opened.start():
            return opened.start()
        place = whole.end()
    return max(0, len(text) - 1)


class Cursor:
    """The next token of a text, and what may be asked about it.

    Attributes
    ----------
    text : SqlText
    place : int
        The number of the next token.
    """

    def __init__(self, text: SqlText) -> None:
        self.text = text
        self.place = 0
        self._halves: list[Token] = []  # what is left of a sign that was split: `>>` closes two types

    @property
    def next(self) -> Token | None:
        """The next token; None at the end."""
        if self._halves:
            return self._halves[-1]
        return self.text.tokens[self.place] if self.place < len(self.text.tokens) else None

    @property
    def span(self) -> Span:
        """Where the next token stands; the text's end if there is none."""
        return Span(len(self.text.text.rstrip()), len(self.text.text)) if self.next is None else self.next.span

    @property
    def word(self) -> str:
        """The next word or sign in upper case; "" for names and texts in quotes and at the end."""
        return "" if self.next is None else self.next.word

    def after(self, places: int = 1) -> str:
        """Return the word so many places after the next one; "" where there is none."""
        place = self.place + places
        return self.text.tokens[place].word if place < len(self.text.tokens) else ""

    def peek(self, places: int) -> Token | None:
        """Return the token so many places after the next one; None where there is none."""
        place = self.place + places
        return self.text.tokens[place] if place < len(self.text.tokens) else None

    def ends_after(self) -> bool:
        """Whether the statement ends after the next token."""
        return self.place + 1 >= len(self.text.tokens) or self.after() == ";"

    def take(self) -> Token:
        """Return the next token and go on; there must be one."""
        if self._halves:
            return self._halves.pop()
        self.place += 1
        return self.text.tokens[self.place - 1]

    def took(self, *words: str) -> bool:
        """Go on past these words if they come next, and say whether they did."""
        if any(word != (self.word if place == 0 else self.after(place)) for place, word in enumerate(words)):
            return False
        for _ in words:
            self.take()
        return True

    def expect(self, word: str, valid: str = "") -> Token:
        """Return the next token, which must be this word or sign.

        Raises
        ------
        SqlSyntaxError
            Something else comes next; the hint says what is valid.
        """
        if word == ">" and self.word in (">>", ">>>"):
            token = self.take()
            rest = Span(token.span.begin + 1, token.span.end)
            self._halves.append(Token(token.word[1:], token.value[1:], token.kind, rest))
            return token
        if self.word != word:
            self.refuse(valid or word)
        return self.take()

    def name(self, what: str) -> Token:
        """Return the next token, which must be able to name something; `what` says what is named.

        Raises
        ------
        SqlSyntaxError
            Something else comes next.
        """
        if self.next is None or not self.next.is_name:
            self.refuse(what)
        return self.take()

    def whole_number(self) -> int:
        """Return the next token, which must be a whole number.

        Raises
        ------
        SqlSyntaxError
            Something else comes next.
        """
        if self.next is None or self.next.kind != "number" or not self.next.value.isdecimal() or len(self.word) > 18:
            self.refuse("a whole number")
        return int(self.take().value)

    def refuse(self, valid: str) -> NoReturn:
        """Refuse the next token, which is not understood here; `valid` says what would be."""
        if self.next is None:
            raise self.text.refused(self.span, "the text ends here", f"valid here is {valid}")
        shown = self.text.slice(self.next.span) if self.next.kind != "text" else "a text"
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
        what = f"'{shown}'" if self.next.kind != "text" else shown
        raise self.text.refused(self.span, f"{what} is not understood here", f"valid here is {valid}", name=shown)
