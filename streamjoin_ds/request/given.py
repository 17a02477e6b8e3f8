"""Values as flags and files write them: one for all members of a join, or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Expression
from streamjoin_ds.spec.parse import parse_condition

__all__ = ["assigned", "conditions_of", "per_member", "texts_of"]


def per_member(value: Any, what: str, streams: Mapping[str, Any], kind: str = "stream") -> dict[str, Any]:
    """Return a value for each stream or table: ``"ts"`` is one for all, ``"e=ts,w=time"`` or a table one for each."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) and (not isinstance(value, str) or "=" not in value):
        return dict.fromkeys(streams, value)
    if isinstance(value, str):
        hint = f"give one for all {kind}s, or {','.join(f'{name}=...' for name in streams)}"
        value = dict(assigned(part, what, hint) for part in value.split(","))
    for name in value:
        if name not in streams:
            msg = f"{what} names the {kind} '{name}', which is not in the join"
            raise ArgumentError(msg, name=name, hint=f"the {kind}s are {', '.join(streams)}")
    return dict(value)


def conditions_of(given: str | Sequence[str], name: str) -> list[Expression]:
    """Return conditions on one stream or table."""
    return [parse_condition(text, name) for text in texts_of(given)]


def texts_of(given: str | Sequence[str]) -> list[str]:
    """Return one text or several as a list."""
    return [given] if isinstance(given, str) else list(given)


def assigned(text: str, what: str, hint: str) -> tuple[str, str]:
    """Return the two sides of ``NAME=VALUE``; raise ArgumentError where there are none."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        msg = f"{what} is not of the form NAME=VALUE"
        raise ArgumentError(msg, name=what, hint=hint)
    return name.strip(), value.strip()
