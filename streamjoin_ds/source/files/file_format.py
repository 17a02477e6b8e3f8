"""The format of a file, and how it is compressed, by its name."""

from __future__ import annotations

import os

from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.spool.frame import SUFFIX

__all__ = ["COMPRESSIONS", "EXTENSIONS", "compression_of", "format_of", "format_told"]

EXTENSIONS = {
    "csv": (".csv", ".txt"),
    "json": (".json", ".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "spool": (SUFFIX,),
}

# Endings of compressed texts, with the compression's name.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4", ".bz2": "bz2"}


def compression_of(name: str) -> str | None:
    """Return how a file of this name is compressed, one of `COMPRESSIONS`; None: not at all."""
    return COMPRESSIONS.get(os.path.splitext(name)[1])


def format_of(name: str, declared: str) -> str | None:
    """Return the declared format, or for "auto" the format by the name's extension; None where that does not tell."""
    if declared != "auto":
        return declared
    plain = name if compression_of(name) is None else os.path.splitext(name)[0]
    return next((kind for kind, ends in EXTENSIONS.items() if plain.endswith(ends)), None)


def format_told(name: str, path: str, declared: str) -> str:
    """Return the format of a file, as `format_of` does.

    Raises
    ------
    FileFormatError
        The file's name does not tell its format, and none was declared.
    """
    kind = format_of(name, declared)
    if kind is None:
        endings = ", ".join(end for ends in EXTENSIONS.values() for end in ends)
        compressed = ", ".join(COMPRESSIONS)
        msg = f"the name of {path} does not tell its format"
        hint = f"set format, for example to csv, or end the name with one of {endings} (and {compressed})"
        raise FileFormatError(msg, name=path, hint=hint)
    return kind
