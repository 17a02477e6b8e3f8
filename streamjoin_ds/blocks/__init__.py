"""Arrow blocks: tuples, windows and other columns as immutable files, which many processes may map.

::

    pa.Table ── encode ──► bytes ── write aside, rename ──► <stem>-<checksum>.arrow
                             │                                            │
                             └─ inline in a Spark row                     └─ map ─ checksum ─ parse ─► pa.Table

A block's name carries its checksum and its bytes are a function of its content, so a retried or replayed task writes
the same file again. Checksum first, then parse, then use: an Arrow file with a flipped byte crashes the process that
parses it (ARCHITECTURE.md, "State and blocks").
"""

from streamjoin_ds.blocks.block import checksum, decode, encode, pack, unpack
from streamjoin_ds.blocks.cache import Cache, freeze_imports, reuse_freed_memory
from streamjoin_ds.blocks.folder import FoundFile
from streamjoin_ds.blocks.remote_folder import RemoteFolder
from streamjoin_ds.blocks.store import BlockRef, BlockStore, NamedBlocks

__all__ = [
    "BlockRef",
    "BlockStore",
    "Cache",
    "FoundFile",
    "NamedBlocks",
    "RemoteFolder",
    "checksum",
    "decode",
    "encode",
    "freeze_imports",
    "pack",
    "reuse_freed_memory",
    "unpack",
]
