"""Functions of text: LIKE, patterns, and parts of texts.

Patterns are RE2's, which takes a time in proportion to the text. Where a text is put together, what is no text is
written as CAST writes it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.expression.node import Typed, Values, refuse
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.casts import WRITABLE, text_of
from streamjoin_ds.spec.functions.function import Function, Rows, by_row, checked, constant

__all__ = ["TEXTS"]

_MOST = 64  # most operands of concat
MOST_PADDED = 1 << 16  # characters of a padded text
_HEX = re.compile(r"[0-9A-Fa-f]*")
# What is quoted, a class of characters, or the beginning of a group, which is the one that counts.
_PIECE = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|(\(\?P?<[A-Za-z_]\w*>|\((?!\?))", re.DOTALL
)


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


def _joinable(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, *WRITABLE)
    return Typed(expression.op, "string", args)


def _joined(node: Typed, rows: Rows) -> Values:
    arrays = [rows.array(text_of(argument, rows)) for argument in node.args]
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _pattern_of(node: Typed) -> str:
    return str(node.args[1].value)


def _matched(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], "string")
    _groups(expression, args[1])
    return Typed(expression.op, "boolean", args)


def _matches(node: Typed, rows: Rows) -> Values:
    return pc.match_substring_regex(rows.array(rows.value(node.args[0])), _pattern_of(node))


def _extracted(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], "string")
    count = _groups(expression, args[1])
    group = constant(expression, args[2], "number", "the number of a group") if len(args) == 3 else 0
    if not 0 <= group <= count:
        refuse(
            expression, f"asks for a group that its pattern, of {count} groups, does not have", "0 is all that matches"
        )
    return Typed(expression.op, "string", args)


def _groups(expression: Call, pattern: Typed) -> int:
    """Return how many groups a pattern has; refuse one that is none."""
    text = str(constant(expression, pattern, "string", "a pattern"))
    try:
        pc.match_substring_regex(pa.array([""]), text)
        pc.extract_regex(pa.array([""]), _with_names(text))
    except pa.ArrowInvalid:
        hint = "patterns are those of RE2: they look neither ahead nor back, and name no group again"
        refuse(expression, "has a pattern that cannot be read", hint)
    return _with_names(text).count("(?P<g") - 1


def _with_names(pattern: str) -> str:
    """Return a pattern with a name for each group, and for all of it: Arrow gives groups by their names."""
    count = 0

    def named(token: re.Match[str]) -> str:
        nonlocal count
        if token[1] is None:
            return token[0]
        count += 1
        return f"(?P<g{count}>"

    return f"(?P<g0>{_PIECE.sub(named, pattern)})"


def _extractions(node: Typed, rows: Rows) -> Values:
    values = rows.array(rows.value(node.args[0]))
    named = _with_names(_pattern_of(node))
    group = int(node.args[2].value) if len(node.args) == 3 else min(named.count("(?P<g") - 1, 1)
    found = pc.struct_field(pc.extract_regex(values, named), f"g{group}")
    return pc.if_else(pc.is_null(values), None, pc.fill_null(found, ""))


def _length(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, "string", "binary")
    return Typed(expression.op, "number", args, 1 << 31)


def _lengths(node: Typed, rows: Rows) -> Values:
    values = rows.array(rows.value(node.args[0]))
    count = pc.utf8_length if node.args[0].family == "string" else pc.binary_length
    return count(values).cast(pa.int64())


def _trimmed(node: Typed, rows: Rows) -> Values:
    values = rows.array(rows.value(node.args[0]))
    cut = {"trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}[node.op]
    if len(node.args) == 1:
        trim = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[node.op]
        return trim(values, characters=" ")
    characters = rows.array(rows.value(node.args[1]))
    return by_row(lambda text, of: cut(text, of) if of else text, pa.string(), [values, characters])


def _replaced(node: Typed, rows: Rows) -> Values:
    values = rows.array(rows.value(node.args[0]))
    if all(argument.op == "literal" for argument in node.args[1:]):
        search, *other = (str(argument.value) for argument in node.args[1:])
        return pc.replace_substring(values, search, other[0] if other else "") if search else values
    arrays = [values, *(rows.array(rows.value(argument)) for argument in node.args[1:])]
    return by_row(lambda text, search, by="": text.replace(search, by) if search else text, pa.string(), arrays)


def _padded(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], *WRITABLE)
    _whole(expression, args[1], "a length")
    checked(expression, args[2:], "string")
    return Typed(expression.op, "string", args)


def _whole(expression: Call, node: Typed, what: str) -> None:
    checked(expression, (node,), "number")
    if node.scale:
        refuse(expression, f"has {what} that is no whole number", "write CAST(... AS INT)")


def _paddings(node: Typed, rows: Rows) -> Values:
    arrays = [rows.array(text_of(node.args[0], rows)), *(rows.array(rows.value(one)) for one in node.args[1:])]
    return by_row(_left_padded if node.op == "lpad" else _right_padded, pa.string(), arrays)


def _left_padded(text: str, length: int, pad: str = " ") -> str | None:
    return _pad(text, int(length), pad, is_left=True)


def _right_padded(text: str, length: int, pad: str = " ") -> str | None:
    return _pad(text, int(length), pad, is_left=False)


def _pad(text: str, length: int, pad: str, *, is_left: bool) -> str | None:
    if length > MOST_PADDED:
        return None
    missing = length - len(text)
    if missing <= 0 or not pad:
        return text[: max(length, 0)]
    padding = (pad * (missing // len(pad) + 1))[:missing]
    return padding + text if is_left else text + padding


def _split(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:2], "string")
    _whole(expression, args[2], "a number of a part")
    return Typed(expression.op, "string", args)


def _splits(node: Typed, rows: Rows) -> Values:
    arrays = [rows.array(rows.value(argument)) for argument in node.args]
    return by_row(_part_of, pa.string(), arrays)


def _part_of(text: str, separator: str, number: int) -> str | None:
    """Return a part of a text, which counts from 1, or from the end; no part has the number 0."""
    parts = text.split(separator) if separator else [text]
    place = int(number) - 1 if number > 0 else len(parts) + int(number)
    return None if number == 0 else parts[place] if 0 <= place < len(parts) else ""


def _hexed(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, "string", "binary", "number")
    if args[0].scale:
        refuse(expression, "has a number that is not whole", "write CAST(... AS BIGINT)")
    return Typed(expression.op, "string", args)


def _hexes(node: Typed, rows: Rows) -> Values:
    values = rows.array(rows.value(node.args[0]))
    if node.args[0].family == "number":
        return by_row(_number_hex, pa.string(), [values])
    is_text = node.args[0].family == "string"
    return by_row(lambda one: (one.encode() if is_text else one).hex().upper(), pa.string(), [values])


def _number_hex(number: int) -> str | None:
    return f"{int(number) % (1 << 64):X}" if -(1 << 63) <= number < 1 << 63 else None


def _unhexed(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, "string")
    return Typed(expression.op, "binary", args)


def _unhexes(node: Typed, rows: Rows) -> Values:
    return by_row(_bytes_of, pa.binary(), [rows.array(rows.value(node.args[0]))])


def _bytes_of(text: str) -> bytes | None:
    return bytes.fromhex("0" * (len(text) % 2) + text) if _HEX.fullmatch(text) else None


TEXTS = (
    Function("like", "x LIKE 'a%' [ESCAPE '!']", _like, _likes, 2, 3, is_condition=True),
    Function("rlike", "x RLIKE 'pattern'", _matched, _matches, 2, 2, aliases=("regexp_like",), is_condition=True),
    Function("regexp_extract", "regexp_extract(x, 'pattern' [, group])", _extracted, _extractions, 2, 3),
    Function("upper", "upper(x)", _text, _cased, aliases=("ucase",)),
    Function("lower", "lower(x)", _text, _cased, aliases=("lcase",)),
    Function("substr", "substr(x, place [, length])", _part, _parts, 2, 3, aliases=("substring",)),
    Function("concat", "concat(x, y, ...) or x || y", _joinable, _joined, 1, _MOST),
    Function("length", "length(x)", _length, _lengths, aliases=("char_length", "character_length")),
    Function("trim", "trim(x [, characters])", _text, _trimmed, 1, 2, aliases=("btrim",)),
    Function("ltrim", "ltrim(x [, characters])", _text, _trimmed, 1, 2),
    Function("rtrim", "rtrim(x [, characters])", _text, _trimmed, 1, 2),
    Function("replace", "replace(x, search [, other])", _text, _replaced, 2, 3),
    Function("lpad", "lpad(x, length [, pad])", _padded, _paddings, 2, 3, reason="a length that is too large"),
    Function("rpad", "rpad(x, length [, pad])", _padded, _paddings, 2, 3, reason="a length that is too large"),
    Function("split_part", "split_part(x, separator, n)", _split, _splits, 3, 3, reason="a part with the number 0"),
    Function("hex", "hex(x)", _hexed, _hexes),
    Function("unhex", "unhex(x)", _unhexed, _unhexes, is_partial=True),
)
