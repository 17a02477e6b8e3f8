"""Functions of text: LIKE, upper, lower, substr, concat."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.expression.node import Typed, Values, refuse
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, by_row, checked, constant

__all__ = ["TEXTS"]

_MOST = 64  # most operands of concat


def _text(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, "string")
    return Typed(expression.op, "string", args)


def _like(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, "string")
    escape = _escape(expression, args)
    if len(escape) != 1:
        refuse(expression, "has an ESCAPE that is not one character", "leave it out: a backslash escapes % and _")
    if args[1].op == "literal" and _pattern(str(args[1].value), escape) is None:
        hint = f"write {escape}{escape} for a {escape}, and {escape} otherwise before %, _ alone"
        refuse(expression, f"has a pattern in which {escape} stands before another character, or last", hint)
    return Typed(expression.op, "boolean", args)


def _escape(expression: Call, args: tuple[Typed, ...]) -> str:
    return str(constant(expression, args[2], "string", "an escape character")) if len(args) == 3 else "\\"


def _pattern(text: str, escape: str) -> str | None:
    """Return a pattern of LIKE as a regular expression; None where it is none."""
    found, place = ["(?s)\\A"], 0
    while place < len(text):
        character = text[place]
        if character == escape:
            place += 1
            if place == len(text) or text[place] not in ("%", "_", escape):
                return None
            found.append(re.escape(text[place]))
        else:
            found.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
        place += 1
    return "".join([*found, "\\z"])


def _likes(node: Typed, rows: Rows) -> Values:
    escape = _escape(Call(node.op, ()), node.args)
    values = rows.array(rows.value(node.args[0]))
    if node.args[1].op == "literal":
        return pc.match_substring_regex(values, _pattern(str(node.args[1].value), escape))
    compiled: dict[str, re.Pattern[str] | None] = {}

    def match(text: str, pattern: str) -> bool | None:
        if pattern not in compiled:
            found = _pattern(pattern, escape)
            compiled[pattern] = None if found is None else re.compile(found.replace("\\z", "\\Z"))
        known = compiled[pattern]
        return None if known is None else known.match(text) is not None

    return by_row(match, pa.bool_(), [values, rows.array(rows.value(node.args[1]))])


def _cased(node: Typed, rows: Rows) -> Values:
    values = rows.array(rows.value(node.args[0]))
    is_upper = node.op == "upper"
    if pc.all(pc.string_is_ascii(values), min_count=0).as_py():
        return pc.ascii_upper(values) if is_upper else pc.ascii_lower(values)
    # Arrow maps one character to one; Unicode, Java and Python map some to several, and the last sigma of a word.
    return by_row(str.upper if is_upper else str.lower, pa.string(), [values])


def _part(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], "string")
    checked(expression, args[1:], "number")
    if any(argument.scale for argument in args[1:]):
        refuse(expression, "has a place that is no whole number", "write CAST(... AS INT)")
    return Typed(expression.op, "string", args)


def _parts(node: Typed, rows: Rows) -> Values:
    arrays = [rows.array(rows.value(argument)) for argument in node.args]
    return by_row(_substring, pa.string(), arrays)


def _substring(text: str, place: int, length: int | None = None) -> str:
    """Return a part as SQL counts: from 1, or from the end where `place` is negative; 0 is 1."""
    begin = int(place) - 1 if place > 0 else len(text) + int(place) if place < 0 else 0
    end = len(text) if length is None else begin + int(length)
    return text[max(begin, 0) : max(end, 0)]


def _joined(node: Typed, rows: Rows) -> Values:
    arrays = [rows.array(rows.value(argument)) for argument in node.args]
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


TEXTS = (
    Function("like", "x LIKE 'a%' [ESCAPE '!']", _like, _likes, 2, 3, is_condition=True),
    Function("upper", "upper(x)", _text, _cased, aliases=("ucase",)),
    Function("lower", "lower(x)", _text, _cased, aliases=("lcase",)),
    Function("substr", "substr(x, place [, length])", _part, _parts, 2, 3, aliases=("substring",)),
    Function("concat", "concat(x, y, ...) or x || y", _text, _joined, 1, _MOST),
)
