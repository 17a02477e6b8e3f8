"""Types of columns as they are written in a mapping, a join file or a flag: Arrow's names."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["arrow_type", "parts_of"]

_ALIASES = {"timestamp": "timestamp[us]", "float": "float32"}
_OPEN, _CLOSE = "<[(", ">])"
_NOT_NULL = " not null"
_MOST_DEPTH = 32  # of lists and structs in each other


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that ``str(type)`` printed: also timestamps, decimals, lists and structs.

    Of a list the name of its items may be left out: ``list<int32>`` is ``list<item: int32>``.

    Raises
    ------
    ValueError, KeyError
        There is no such type.
    """
    return _type(text, 0)


def _type(text: str, depth: int) -> pa.DataType:
    text = text.strip()
    if depth > _MOST_DEPTH:
        msg = "lists and structs lie too deep in each other"
        raise ValueError(msg)
    for prefix, made in (("list<", pa.list_), ("large_list<", pa.large_list)):
        if text.startswith(prefix) and text.endswith(">"):
            return made(_item(text[len(prefix) : -1], depth))
    if text.startswith("fixed_size_list<") and text.endswith("]"):
        inner, _, size = text[len("fixed_size_list<") : -1].rpartition(">[")
        return pa.list_(_item(inner, depth), int(size))
    if text.startswith("struct<") and text.endswith(">"):
        return pa.struct([_field(part, depth) for part in parts_of(text[len("struct<") : -1], ",")])
    if text.startswith("timestamp[") and text.endswith("]"):
        unit, _, zone = text[len("timestamp[") : -1].partition(",")
        return pa.timestamp(unit.strip(), tz=zone.strip().removeprefix("tz=").strip() or None)
    prefix, _, digits = text.partition("(")
    if prefix in ("decimal", "decimal128") and digits.endswith(")"):
        precision, scale = (int(part) for part in digits[:-1].split(","))
        return pa.decimal128(precision, scale)
    return pa.type_for_alias(_ALIASES.get(text, text))


def _item(text: str, depth: int) -> pa.Field:
    named = text if len(parts_of(text, ":")) > 1 else f"item: {text}"
    return _field(named, depth)


def _field(text: str, depth: int) -> pa.Field:
    name, *rest = parts_of(text, ":")
    kind = ":".join(rest).strip()
    plain = kind.removesuffix(_NOT_NULL)
    return pa.field(name.strip(), _type(plain, depth + 1), nullable=plain == kind)


def parts_of(text: str, separator: str) -> list[str]:
    """Return a text's parts between separators that stand in no brackets."""
    parts, level, begin = [], 0, 0
    for place, character in enumerate(text):
        level += (character in _OPEN) - (character in _CLOSE)
        if character == separator and not level:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]
