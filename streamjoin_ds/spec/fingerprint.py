"""The fingerprint of a join: sixteen bytes that change when the result could change."""

from __future__ import annotations

import json
from collections.abc import Mapping

import xxhash

__all__ = ["CONTRACT_VERSION", "fingerprint"]

# To be raised when the contract changes what a join means.
CONTRACT_VERSION = 1


def fingerprint(facts: Mapping[str, object]) -> str:
    """Return the digest, 32 hexadecimal digits, of all that decides the rows of the result.

    Parameters
    ----------
    facts : mapping
        Plain JSON values; `BoundJoin.fingerprint` says which. Order counts in lists, not in mappings.
    """
    text = json.dumps([CONTRACT_VERSION, facts], sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
