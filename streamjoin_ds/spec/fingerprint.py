"""The fingerprint of a join: sixteen bytes that change when the result could."""

from __future__ import annotations

import json
from collections.abc import Mapping

import xxhash

__all__ = ["CONTRACT_VERSION", "fingerprint"]

# Raised when the contract itself changes what a join means.
CONTRACT_VERSION = 1


def fingerprint(facts: Mapping[str, object]) -> str:
    """32 hexadecimal digits over everything that decides the rows of the result.

    Parameters
    ----------
    facts : mapping
        Plain JSON values; `BoundJoin.fingerprint` says which. Their order counts in lists, not in mappings.
    """
    text = json.dumps([CONTRACT_VERSION, facts], sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
