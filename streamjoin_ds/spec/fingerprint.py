"""The fingerprint of a join: sixteen bytes that change when the result could."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import xxhash

__all__ = ["CONTRACT_VERSION", "fingerprint"]

# Raised when the contract itself changes what a join means.
CONTRACT_VERSION = 1


def fingerprint(join_facts: Mapping[str, object], schemas: Sequence[object]) -> str:
    """32 hexadecimal digits over everything that decides the rows of the result.

    Where the tuples lie does not enter (a file may be moved; what was read of it is checked by digests), nor do layout,
    batch size or the way of the exchange, which the contract says change nothing. A generator's parameters do.
    """
    facts = json.loads(json.dumps(join_facts, sort_keys=True))
    for stream in facts["streams"]:
        if not isinstance(stream["source"], dict):
            stream["source"] = None
        for name in ("schema", "format"):
            del stream[name]
    text = json.dumps([CONTRACT_VERSION, facts, schemas], sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
