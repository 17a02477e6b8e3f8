"""The cache: bounded in bytes, the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import Cache

moves = st.lists(st.tuples(st.sampled_from(["get", "put", "discard"]), st.integers(0, 5), st.integers(0, 12)))


@given(moves, st.integers(0, 20))
def test_as_a_plain_list_would(moves: list[tuple[str, int, int]], limit: int) -> None:
    cache: Cache[int] = Cache(limit)
    twin: OrderedDict[int, int] = OrderedDict()  # name to size, the least recently used first
    for move, name, size in moves:
        if move == "get":
            assert cache.get(name) == twin.get(name)
            if name in twin:
                twin.move_to_end(name)
        else:
            cache.put(name, size, size) if move == "put" else cache.discard(name)
            twin.pop(name, None)
            if move == "put" and size <= limit:
                twin[name] = size
                while sum(twin.values()) > limit:
                    twin.popitem(last=False)
        assert len(cache) == len(twin)
        assert cache.size_bytes == sum(twin.values()) <= limit
