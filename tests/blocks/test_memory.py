"""What a worker does once in its process; the test starts a process for it."""

from __future__ import annotations

import subprocess
import sys

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
