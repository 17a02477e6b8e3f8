"""Whose checkpoint this is: the file ``join.json`` that a checkpoint keeps beside Spark's own files.

A restart that would give other rows than the batches before it (another window, band, stream, selection, layout) is
refused by name; Spark itself would accept it and mix two queries in one table (reliability notes, M7).
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.errors import FingerprintMismatchError, ForeignCheckpointError, LayoutError, StateCorruptError
from streamjoin_ds.plan import Layout
from streamjoin_ds.spec import BoundJoin

__all__ = ["Identity", "local_path"]

_FILE = "join.json"
_VERSION = 1


@dataclass(frozen=True)
class Identity:
    """What a checkpoint fixes: the bound join, its grid, and an id of its own.

    Attributes
    ----------
    join_id : str
        Made when the checkpoint is; the tables remember it.
    bound : BoundJoin
        With the schemas as they were first seen, so that a restart reads the same types.
    layout : Layout
    partitions : int
        State partitions, fixed by Spark with the first batch.
    """

    join_id: str
    bound: BoundJoin
    layout: Layout
    partitions: int

    @classmethod
    def load(cls, checkpoint: Path) -> Identity | None:
        """The identity of an existing checkpoint, or None where there is none yet.

        Raises
        ------
        ForeignCheckpointError
            The folder is a checkpoint of another kind of query.
        StateCorruptError
            ``join.json`` cannot be read.
        """
        path = checkpoint / _FILE
        try:
            text = path.read_text()
        except FileNotFoundError:
            if (checkpoint / "metadata").exists() or (checkpoint / "offsets").exists():
                msg = f"the checkpoint has no {_FILE}: it belongs to another query"
                raise ForeignCheckpointError(msg, name="checkpoint", hint="give this join a checkpoint of its own") from None
            return None
        try:
            facts = json.loads(text)
            if facts["version"] != _VERSION:
                msg = f"the checkpoint's {_FILE} was written by another version"
                raise StateCorruptError(msg, name=_FILE, hint="use the version of streamjoin-ds that wrote it")
            bound = BoundJoin.from_facts(facts["bound"])
            return cls(facts["join_id"], bound, Layout(tuple(facts["layout"])), facts["partitions"])
        except (KeyError, TypeError, ValueError) as error:
            msg = f"the checkpoint's {_FILE} cannot be read"
            raise StateCorruptError(msg, name=_FILE, hint="restore the checkpoint from a spare copy") from error

    @classmethod
    def create(cls, checkpoint: Path, bound: BoundJoin, layout: Layout, partitions: int) -> Identity:
        """Give a new checkpoint its identity; of two starts at once, one wins and both get the winner's."""
        identity = cls(uuid.uuid4().hex, bound, layout, partitions)
        checkpoint.mkdir(parents=True, exist_ok=True)
        facts = {
            "version": _VERSION,
            "join_id": identity.join_id,
            "fingerprint": bound.fingerprint,
            "bound": bound.to_facts(),
            "layout": list(layout.counts),
            "partitions": partitions,
        }
        aside = checkpoint / f".{_FILE}.{identity.join_id}"
        with aside.open("w") as file:
            json.dump(facts, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, checkpoint / _FILE)  # unlike a rename, a link does not replace what is there
        except FileExistsError:
            winner = cls.load(checkpoint)
            assert winner is not None
            winner.check(bound, layout)
            return winner
        finally:
            aside.unlink()
        return identity

    def check(self, bound: BoundJoin, layout: Layout | None) -> None:
        """Refuse a join that is not the checkpoint's, naming what changed.

        Raises
        ------
        FingerprintMismatchError, LayoutError
        """
        if bound.fingerprint != self.bound.fingerprint:
            changed = ", ".join(_changes(self.bound, bound)) or "the contract"
            msg = f"this checkpoint belongs to another join; changed: {changed}"
            raise FingerprintMismatchError(msg, name=changed, hint="start the changed join with a new checkpoint and a new table")
        if layout is not None and layout != self.layout:
            msg = f"this checkpoint was laid out as {self.layout}, not {layout}"
            raise LayoutError(msg, name="layout", hint=f"leave the layout out or give {self.layout}; a new layout needs a new checkpoint")


def _changes(old: BoundJoin, new: BoundJoin) -> list[str]:
    old_join, new_join = old.join, new.join
    changed = []
    if old_join.names != new_join.names:
        changed.append("streams")
    else:
        for before, after in zip(old_join.streams, new_join.streams, strict=True):
            changed += [
                f"{what} of {before.name}"
                for what, same in (
                    ("time column", before.time == after.time and before.time_unit == after.time_unit),
                    ("delay", before.delay_us == after.delay_us),
                )
                if not same
            ]
        changed += [f"columns of {n}" for n, a, b in zip(old_join.names, old.schemas, new.schemas, strict=True) if a != b]
    if old_join.window != new_join.window:
        changed.append("window")
    before_texts, after_texts = ({str(p) for p in join.predicates} for join in (old_join, new_join))
    if before_texts != after_texts:
        changed.append(f"predicates (was {' AND '.join(sorted(before_texts - after_texts)) or 'fewer'})")
    if old_join.select != new_join.select:
        changed.append("select")
    if old_join.include_self_pairs != new_join.include_self_pairs:
        changed.append("include_self_pairs")
    return changed


def local_path(location: str) -> Path | None:
    """The path of a local or shared folder (plain or ``file:``), None for other file systems."""
    if location.startswith("file:"):
        return Path(location.removeprefix("file://").removeprefix("file:"))
    return None if "://" in location else Path(location)
