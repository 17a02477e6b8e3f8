"""Facts and bytes that somebody changed, for tests of what reads them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["changed", "torn"]

ODD: Sequence[Any] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**70, 10**400, 1.5, -0.0, float("nan"), float("inf"), "", "x", "1",
    "decimal128(99, 2)", "decimal128(6, 9)", "é\x00\n", [], [[]], [1, "a"], {}, {"a": {}}, [None] * 3, "9" * 5000,
)  # fmt: skip


def places(facts: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container and key of a JSON value, at any depth."""
    if isinstance(facts, dict | list):
        for key in facts if isinstance(facts, dict) else range(len(facts)):
            yield facts, key
            yield from places(facts[key])


def changed(facts: Any, draw: random.Random) -> Any:
    """Return JSON facts with one or two places changed, taken out, swapped or doubled."""
    facts = json.loads(json.dumps(facts))
    for _ in range(draw.choice((1, 1, 2))):
        found = list(places(facts))
        if not found:
            return draw.choice(ODD)
        holder, key = draw.choice(found)
        way = draw.randrange(5)
        if way == 0:
            del holder[key]
        elif way == 1:
            other, at = draw.choice(found)
            holder[key] = json.loads(json.dumps(other[at])) if at in other or isinstance(other, list) else None
        elif way == 2 and type(holder[key]) is int:
            holder[key] += draw.choice((-1, 1, 7))
        else:
            holder[key] = draw.choice(ODD)
    return facts


def torn(data: bytes, draw: random.Random) -> bytes:
    """Return bytes with some changed, cut off, or put in."""
    spoilt = bytearray(data)
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(spoilt) + 1)
        way = draw.randrange(4)
        if way == 0:
            del spoilt[at:]
        elif way == 1:
            spoilt[at:at] = draw.choice((b"\0", b"\n", b"{", b"\xff", b"[" * 3000, b"9" * 5000))
        elif spoilt:
            spoilt[at % len(spoilt)] = draw.randrange(256)
    return bytes(spoilt)
