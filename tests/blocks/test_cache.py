"""The cache: bounded in bytes and in number; the least recently used entry goes first. Imports are frozen once."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import Cache

kinds = st.sampled_from(["get", "put", "discard", "round", "resize"])
moves = st.lists(st.tuples(kinds, st.integers(0, 5), st.integers(0, 12)))


@given(moves, st.integers(0, 20), st.integers(0, 4))
def test_as_a_plain_list_would(moves: list[tuple[str, int, int]], limit: int, count: int) -> None:
    cache: Cache[int] = Cache(limit, count)
    twin: OrderedDict[int, int] = OrderedDict()  # name to size, the least recently used first
    used: dict[int, int] = {}  # name to the round of its last use
    number = 0
    for move, name, size in moves:
        if move == "round":
            number += 1
            cache.begin_round(name)
            for old in [old for old in twin if number - used[old] > name]:
                del twin[old]
        elif move == "resize":
            limit, count = size, name
            cache.resize(limit, count)
            while sum(twin.values()) > limit or len(twin) > count:
                twin.popitem(last=False)
        elif name in twin or move == "put":
            used[name] = number if move != "discard" else used.get(name, 0)
        if move in ("round", "resize"):
            assert cache.names() == list(twin)
            continue
        if move == "get":
            assert cache.get(name) == twin.get(name)
            if name in twin:
                twin.move_to_end(name)
        else:
            cache.put(name, size, size) if move == "put" else cache.discard(name)
            twin.pop(name, None)
            if move == "put" and size <= limit and count:
                twin[name] = size
                while sum(twin.values()) > limit or len(twin) > count:
                    twin.popitem(last=False)
        assert cache.names() == list(twin)
        assert len(cache) == len(twin) <= count
        assert cache.size_bytes == sum(twin.values()) <= limit


def test_all_goes_at_once() -> None:
    cache: Cache[str] = Cache(10)
    cache.put("a", "x", 4)
    cache.clear()
    assert (len(cache), cache.size_bytes, cache.get("a")) == (0, 0, None)


_COUNT = """
import gc
from streamjoin_ds.blocks import freeze_imports
import pandas
took = [freeze_imports() for _ in range(3)]
print(took, gc.get_freeze_count() > 20_000, len(gc.get_objects()) < 5_000)
class Node: pass
gone = []
import weakref
for _ in range(2):
    node = Node(); node.me = node
    weakref.finalize(node, gone.append, 1)
    del node
gc.collect()
print(len(gone))
kept = [[] for _ in range(50_000)]
print([freeze_imports() for _ in range(2)])
more = []
for _ in range(6):
    more.append([[] for _ in range(50_000)])
    freeze_imports()
import streamjoin_ds.blocks.cache as memory
print(memory._freezes)
"""


def test_imports_are_frozen_once_and_garbage_that_comes_later_is_collected():
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[True, False, False] True True", "2", "[True, False]", "4"]
