"""A place in a text's tokens, from which statements are read word by word."""

from __future__ import annotations

from typing import NoReturn

from streamjoin_ds.script.sql_text import Span, SqlText, Token

__all__ = ["Cursor"]


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
