"""The file that says which version of a table's frame a batch over DataFrames joins.

Spark plans these batches, and its offsets know nothing of static frames. A frame is read at each start. The batches
that were planned before keep the version that they had, also when they are done again; those after it join the new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.recovery import put
from streamjoin_ds.checkpoint.spark_files import numbered
from streamjoin_ds.errors import MALFORMED, OffsetError, StateCorruptError
from streamjoin_ds.source.batch_plan import TableVersion, versions_from, versions_told

__all__ = ["given_before", "note_given", "sole_entry"]

_NAME = "tables.json"
Given = tuple[tuple[int, str], ...]


def given_before(checkpoint: Place) -> Given:
    """Return what earlier starts gave: the first batch that joins it, and the versions as JSON; ascending.

    Raises
    ------
    StateCorruptError
        The file cannot be read, or is gone though batches were planned.
    """
    path = checkpoint / _NAME
    try:
        entries = [(first, versions_from(versions)) for first, versions in json.loads(path.read_bytes())]
        firsts = [first for first, _ in entries]
        if any(type(first) is not int or first < 0 for first in firsts) or firsts != sorted({*firsts}):
            msg = "these are no batches in their order"
            raise ValueError(msg)
    except FileNotFoundError:
        if not any(numbered(checkpoint / "offsets")):
            return ()
        msg = f"the checkpoint's {_NAME} is gone, which says what batches joined"
        raise StateCorruptError(msg, name=_NAME, hint="restore the checkpoint from a spare copy") from None
    except (OSError, OffsetError, *MALFORMED) as error:
        msg = f"the checkpoint's {_NAME} cannot be read"
        raise StateCorruptError(msg, name=_NAME, hint="restore the checkpoint from a spare copy") from error
    return tuple((first, _text(versions)) for first, versions in entries)


def note_given(checkpoint: Place, before: Given, versions: Mapping[str, TableVersion], retain_batches: int) -> Given:
    """Write that batches which are not planned yet join these versions; forget those that no batch can join again.

    Parameters
    ----------
    checkpoint : Place
    before : tuple of (int, str)
        As `given_before` returned it.
    versions : mapping of str to TableVersion
    retain_batches : int
        How many batches Spark can go back by.

    Returns
    -------
    tuple of (int, str)
        What the file has now.
    """
    planned = max((number for number, _ in numbered(checkpoint / "offsets")), default=-1)
    entries = [entry for entry in before if entry[0] <= planned]
    if not entries or entries[-1][1] != _text(versions):
        entries.append((planned + 1, _text(versions)))
    oldest = planned - retain_batches
    firsts = [first for first, _ in entries[1:]]
    entries = [entry for entry, until in zip(entries, [*firsts, oldest + 1], strict=True) if until > oldest]
    put(checkpoint / _NAME, json.dumps([[first, json.loads(text)] for first, text in entries]))
    return tuple(entries)


def sole_entry(versions: Mapping[str, TableVersion]) -> Given:
    """Return what a start gave where offsets say which batches join it; empty where it gave nothing."""
    return ((0, _text(versions)),) if versions else ()


def _text(versions: Mapping[str, TableVersion]) -> str:
    return json.dumps(versions_told(versions), sort_keys=True, separators=(",", ":"))
