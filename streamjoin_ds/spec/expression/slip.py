"""A slip in a condition: where a text that cannot be read goes wrong, and what is valid at that place.

The place is shown below the error, with a caret::

    k.distance BETWEN n.distance - 10 AND n.distance + 10
               ^^^^^^
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.expression.predicate import unquoted

__all__ = ["Slip", "bare_column", "misplaced", "shown_at", "slip_of", "with_window"]

Token: TypeAlias = Any  # one of sqlglot's tokens
_WIDTH = 100  # characters of a text that are shown
_WORDS = ("AND", "OR", "NOT", "BETWEEN", "IS", "IN", "LIKE", "RLIKE", "WITHIN", "DISTINCT", "NULL", "INTERVAL", "CASE")
# Signs of other languages, and what stands for them here.
_SIGNS = {"&&": "AND", "&": "AND", "!": "NOT", "=<": "<=", "=>": ">=", "===": "="}
_CONDITION = "a condition stands there, such as abs(l.a - r.b) <= 10, l.a = r.b or l.a BETWEEN r.lo AND r.hi"
_VALUE = "a column such as e.x, a number or an expression stands there"
_OPERATOR = "an operator stands there: = <> < <= > >= + - * / % BETWEEN IN IS LIKE; between conditions AND or OR"
_WITHIN = re.compile(r"\s+WITHIN\s+(?:INTERVAL\s+)?(?P<length>\S.*?)\s*", re.IGNORECASE | re.DOTALL)


class Slip(Struct, frozen=True):
    """What is wrong at a place of a text.

    Attributes
    ----------
    begin, end : int
        The place, as characters of the text.
    why : str
        What is wrong.
    hint : str
        What is valid there.
    """

    begin: int
    end: int
    why: str
    hint: str


def shown_at(text: str, begin: int, end: int) -> str:
    """Return the line of a text that holds a place, and below it carets, as lines that follow a hint."""
    first = text.rfind("\n", 0, begin) + 1
    line = text[first:].partition("\n")[0]
    at = begin - first
    cut = max(at - _WIDTH // 2, 0) if len(line) > _WIDTH else 0
    before, after = "..." * bool(cut), "..." * (len(line) - cut > _WIDTH)
    shown = before + line[cut : cut + _WIDTH] + after
    plain = "".join(one if one.isprintable() else " " for one in shown)
    carets = max(min(end, first + len(line)) - begin, 1)
    return f"\n  {plain}\n  {' ' * (len(before) + at - cut)}{'^' * min(carets, _WIDTH)}"


def slip_of(text: str, tokens: Sequence[Token], found: Sequence[dict[str, Any]]) -> Slip | None:
    """Return what is wrong in a text that is no condition; None where its place is not known.

    Parameters
    ----------
    text : str
    tokens : sequence of tokens
        Those of the text; none where it has none.
    found : sequence of dict
        What the parser says of it.
    """
    told = misplaced(tokens) or _unclosed(text, tokens)
    if told is not None or not tokens:
        return told
    first = found[0] if found else {}
    before, mark = str(first.get("start_context", "")), str(first.get("highlight", ""))
    begin = text.find(before + mark) + len(before) if mark and before + mark in text else -1
    place = next((number for number, token in enumerate(tokens) if token.start == begin), None)
    if place is None:
        return None
    said = str(first.get("description"))
    if ".Cast" in said:
        token = tokens[place]
        return Slip(token.start, token.end + 1, "CAST is not written so", "write CAST(e.x AS INT)")
    return _at(text, tokens, place, is_missing="Required" in said)


def misplaced(tokens: Sequence[Token]) -> Slip | None:
    """Return the first sign that other languages have in a condition, and SQL has not."""
    for number, token in enumerate(tokens):
        written, end = token.text, token.end + 1
        after = tokens[number + 1] if number + 1 < len(tokens) else None
        if after is not None and token.text == "=" and after.text in ("<", ">") and after.start == end:
            written, end = token.text + after.text, after.end + 1
        if written == "|" or written not in _SIGNS or token.token_type.name in ("STRING", "IDENTIFIER"):
            continue
        return Slip(token.start, end, f"{written} is not SQL", f"write {_SIGNS[written]}")
    return None


def _unclosed(text: str, tokens: Sequence[Token]) -> Slip | None:
    left = unquoted(text)
    quote = re.search(r"['\"`]", left)
    if quote is not None:
        return Slip(quote.start(), quote.end(), "this quote has no end", f"close it with {quote[0]}")
    open_: list[Token] = []
    for token in tokens:
        if token.token_type.name == "L_PAREN":
            open_.append(token)
        elif token.token_type.name == "R_PAREN":
            if not open_:
                return Slip(
                    token.start, token.end + 1, "this bracket closes nothing", "leave it out, or open it before"
                )
            open_.pop()
    if open_:
        last = open_[-1]
        return Slip(last.start, last.end + 1, "this bracket is not closed", "put a ) where it ends")
    return None


def _at(text: str, tokens: Sequence[Token], place: int, *, is_missing: bool) -> Slip:
    token = tokens[place]
    word, is_last = token.text, place + 1 == len(tokens)
    near = difflib.get_close_matches(word.upper(), _WORDS, 1, 0.7)
    if near and word.upper() != near[0] and token.token_type.name == "VAR":
        return Slip(token.start, token.end + 1, f"{word} is no word of a condition", f"did you mean {near[0]}?")
    if word.upper() == "WITHIN":
        why = "WITHIN stands at the end of the join's conditions, with a duration"
        return Slip(token.start, token.end + 1, why, "write WITHIN 15 MINUTES there, or give a window of 15m")
    if is_missing and is_last:
        is_word = word.upper() in ("AND", "OR", "NOT")
        why = f"something is missing after {word}"
        return Slip(len(text.rstrip()), len(text.rstrip()) + 1, why, _CONDITION if is_word else _VALUE)
    if is_missing:
        return Slip(token.start, token.end + 1, f"a value is missing at {word}", _VALUE)
    before = tokens[place - 1].text if place else ""
    why = f"{word} cannot follow {before}" if before else f"a condition cannot begin with {word}"
    return Slip(token.start, token.end + 1, why, _OPERATOR if before else _CONDITION)


def bare_column(text: str, name: str, streams: Sequence[str]) -> Slip | None:
    """Return what is said of a column that is written without its stream; None where it is not found in the text.

    Parameters
    ----------
    text, name : str
        The condition, and the column in it.
    streams : sequence of str
        The join's streams, as far as they are known; those that the text names count too.
    """
    plain = unquoted(text)
    found = re.search(rf"(?<![\w.`]){re.escape(name)}(?![\w(.])", plain)
    if found is None:
        return None
    known = list(dict.fromkeys([*streams, *re.findall(r"(?<![\w.])([A-Za-z_]\w*)(?=\.[A-Za-z_`])", plain)]))
    # A comparison is between two streams: the one that its other side does not name is meant.
    ends = [0, *(at.end() for at in re.finditer(r"(?i)\b(?:AND|OR)\b", plain) if at.end() <= found.start())]
    part = re.split(r"(?i)\b(?:AND|OR)\b", plain[max(ends) :])[0]
    beside = set(re.findall(r"(?<![\w.])([A-Za-z_]\w*)(?=\.)", part))
    meant = [stream for stream in known if stream not in beside] or known
    named = " or ".join(f"{stream}.{name}" for stream in meant[:3])
    hint = (
        f"did you mean {named}?"
        if len(known) > 1
        else f"write it with its stream, such as {(known or ['e'])[0]}.{name}"
    )
    return Slip(found.start(), found.end(), "a column in it is not written as stream.column", hint)


def with_window(text: str) -> tuple[str, str | None]:
    """Return a condition without the window that it ends with, and that window: ``... WITHIN 15 MINUTES``.

    Raises
    ------
    ArgumentError
        What stands after WITHIN is no duration.
    """
    places = list(re.finditer(r"\sWITHIN\s", unquoted(text), re.IGNORECASE))
    if not places:
        return text, None
    found = places[-1]
    length = _WITHIN.fullmatch(text, found.start())
    written = length["length"].replace("'", "") if length else ""
    if not re.match(r"\d", written):
        msg = "WITHIN is not followed by a duration"
        hint = "write WITHIN 15 MINUTES at the end, or leave it out and give a window" + shown_at(
            text, found.start() + 1, len(text)
        )
        raise ArgumentError(msg, name="on", hint=hint)
    return text[: found.start()], written
