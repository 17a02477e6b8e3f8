"""The identity of a checkpoint: the file ``join.json`` beside Spark's own files says which join it belongs to.

A restart that would give other rows than the batches before it (another window, band, stream, selection) is refused by
name. Spark itself would accept it and mix two queries in one table (ARCHITECTURE.md, "State and blocks").
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from streamjoin_ds.blocks.folder import put_new
from streamjoin_ds.blocks.object_store import Conditional
from streamjoin_ds.blocks.place import Place, StorePath
from streamjoin_ds.errors import (
    MALFORMED,
    FingerprintMismatchError,
    ForeignCheckpointError,
    StateCorruptError,
    StateVersionError,
    StreamJoinError,
)
from streamjoin_ds.plan import CellLayout, is_of_ranges, layout_from_facts
from streamjoin_ds.sink.durability import force
from streamjoin_ds.spec import BoundJoin, Generator, Stream, bound_from_facts
from streamjoin_ds.spec.columns import schema_facts
from streamjoin_ds.spec.member.source import identity_of

__all__ = ["VERSION", "CheckpointIdentity", "facts_checksum"]

_FILE = "join.json"
# 1: a grid, and the first generation; 2: a later generation; 3: the first layout is of ranges; 4: over DataFrames; 5:
# over DataFrames whose rows are judged in their order.
VERSION = 5
"""The newest form of `join.json` that this version writes and reads."""
_SPARK_FILES = ("metadata", "offsets", "commits", "state")


@dataclass(frozen=True)
class CheckpointIdentity:
    """What a checkpoint fixes: the bound join, its layout of cells, and an id.

    Attributes
    ----------
    join_id : str
        The id. It is made with the checkpoint, and the tables hold it too.
    bound : BoundJoin
        The join with the schemas as they were first seen, so that a restart reads the same types.
    layout : CellLayout
        The layout that the checkpoint began with.
    partitions : int
        Number of Spark's state partitions, and of the cells that new tuples have.
    generation : int
        How often the number of cells was changed (`streamjoin_ds.checkpoint.move`).
    order_by : tuple of tuple of str, or None
        For each stream the columns that number its rows, where the join is over DataFrames; None where it is not.
    in_order : bool
        Whether lateness of streams with `order_by` is judged in that order. A checkpoint that began without goes on so.
    """

    join_id: str
    bound: BoundJoin
    layout: CellLayout
    partitions: int
    generation: int = 0
    order_by: tuple[tuple[str, ...], ...] | None = None
    in_order: bool = False

    def spark_folder(self, checkpoint: Place) -> Place:
        """Return the folder of Spark's own files in this checkpoint: offsets, commits, state."""
        return checkpoint / f"generation-{self.generation}" if self.generation else checkpoint

    @staticmethod
    def is_in(checkpoint: Place) -> bool:
        """Whether a folder has a ``join.json``, readable or not."""
        return (checkpoint / _FILE).exists()

    @classmethod
    def load(cls, checkpoint: Place) -> CheckpointIdentity | None:
        """Return the identity of an existing checkpoint, or None where there is no checkpoint yet.

        Raises
        ------
        ForeignCheckpointError
            The folder is a checkpoint of another kind of query, or is a file.
        StateVersionError
            A newer version of this package wrote ``join.json``.
        StateCorruptError
            ``join.json`` cannot be read, or is not as it was written.
        FingerprintMismatchError
            A version of this package with another contract wrote ``join.json``.
        """
        path = checkpoint / _FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if any((checkpoint / name).exists() for name in _SPARK_FILES):
                msg = f"the checkpoint has no {_FILE}: it belongs to another query"
                hint = "give this join a checkpoint of its own"
                raise ForeignCheckpointError(msg, name="checkpoint", hint=hint) from None
            return None
        except NotADirectoryError:
            msg = "the checkpoint is a file"
            raise ForeignCheckpointError(
                msg, name="checkpoint", hint="give a folder; it is made if it does not exist"
            ) from None
        except OSError as error:
            msg = f"the checkpoint's {_FILE} cannot be opened"
            raise StateCorruptError(msg, name=_FILE, hint="check who may read the checkpoint's folder") from error
        try:
            return cls._from_facts(json.loads(data))
        except (*MALFORMED, StreamJoinError, OSError) as error:
            if isinstance(error, FingerprintMismatchError | StateVersionError):
                raise
            msg = f"the checkpoint's {_FILE} cannot be read"
            raise StateCorruptError(msg, name=_FILE, hint="restore the checkpoint from a spare copy") from error

    @classmethod
    def create(
        cls,
        checkpoint: Place,
        bound: BoundJoin,
        layout: CellLayout,
        partitions: int,
        order_by: tuple[tuple[str, ...], ...] | None = None,
    ) -> CheckpointIdentity:
        """Write and return a new checkpoint's identity. Of two starts at once one wins, and both get its identity."""
        in_order = order_by is not None and any(order_by)
        identity = cls(uuid.uuid4().hex, bound, layout, partitions, order_by=order_by, in_order=in_order)
        checkpoint.mkdir(parents=True, exist_ok=True)
        if isinstance(checkpoint, StorePath):
            put = Conditional(str(checkpoint / _FILE)).put(identity.to_json().encode(), if_none=True)
            return identity if put is not None else cls._of_winner(checkpoint, bound, order_by)
        assert isinstance(checkpoint, Path)
        aside = checkpoint / f".{_FILE}.{identity.join_id}"
        with aside.open("w") as file:
            file.write(identity.to_json())
            file.flush()
            os.fsync(file.fileno())
        if not put_new(aside, checkpoint / _FILE):
            return cls._of_winner(checkpoint, bound, order_by)
        for folder in (checkpoint, *checkpoint.absolute().parents[:1]):
            force(str(folder))
        return identity

    @classmethod
    def _of_winner(
        cls, checkpoint: Place, bound: BoundJoin, order_by: tuple[tuple[str, ...], ...] | None
    ) -> CheckpointIdentity:
        winner = cls.load(checkpoint)
        assert winner is not None, "what exists can be loaded"
        winner.check(bound, order_by)
        return winner

    def to_json(self) -> str:
        """Return the text of ``join.json``."""
        facts = {
            "version": self._version,
            "join_id": self.join_id,
            "fingerprint": self.bound.fingerprint,
            "bound": self.bound.to_facts(),
            "layout": self.layout.to_facts(),
            "partitions": self.partitions,
        }
        if self.generation:
            facts["generation"] = self.generation
        if self.order_by is not None:
            facts["order_by"] = self.order_by
        if self.in_order:
            facts["in_order"] = True
        return json.dumps({**facts, "checksum": facts_checksum(facts)}, indent=1)

    @property
    def _version(self) -> int:
        if self.order_by is not None:
            return 5 if self.in_order else 4
        return 3 if is_of_ranges(self.layout) else 2 if self.generation else 1

    @classmethod
    def _from_facts(cls, facts: dict[str, Any]) -> CheckpointIdentity:
        if facts["version"] > VERSION:
            msg = f"the checkpoint's {_FILE} was written by a newer version"
            raise StateVersionError(msg, name=_FILE, hint="update streamjoin-ds to the version that wrote it")
        if facts.pop("checksum") != facts_checksum(facts):
            msg = "checksum"
            raise ValueError(msg)
        bound = bound_from_facts(facts["bound"])
        if bound.fingerprint != facts["fingerprint"]:
            msg = "this checkpoint was written by a version of streamjoin-ds that joins other rows than this one"
            hint = "use the version that wrote it, or a new checkpoint and a new table"
            raise FingerprintMismatchError(msg, name="contract", hint=hint)
        layout = layout_from_facts(facts["layout"], len(bound.names))
        order_by = tuple(map(tuple, facts["order_by"])) if "order_by" in facts else None
        generation, in_order = facts.get("generation", 0), facts.get("in_order", False)
        join_id, partitions = facts["join_id"], facts["partitions"]
        # Facts of another form were not written by this package, whatever their checksum says.
        is_counted = all(type(number) is int for number in (facts["version"], partitions, generation))
        is_named = all(type(name) is str for name in (join_id, *(name for names in order_by or () for name in names)))
        if not (is_counted and is_named and partitions > 0 <= generation and type(in_order) is bool):
            msg = "facts"
            raise ValueError(msg)
        return cls(join_id, bound, layout, partitions, generation, order_by, in_order)

    def check(self, bound: BoundJoin, order_by: tuple[tuple[str, ...], ...] | None = None) -> None:
        """Refuse a join that is not the checkpoint's, naming what changed.

        Raises
        ------
        FingerprintMismatchError
        """
        is_over_frames, was_over_frames = order_by is not None, self.order_by is not None
        if is_over_frames != was_over_frames:
            msg = f"this checkpoint belongs to a join over {'DataFrames' if was_over_frames else 'sources of its own'}"
            hint = "start it as it was, with frames= or without, or use a new checkpoint and a new table"
            raise FingerprintMismatchError(msg, name="frames", hint=hint)
        if bound.fingerprint == self.bound.fingerprint and order_by != self.order_by:
            msg = "this checkpoint belongs to a join whose rows are numbered by other columns"
            hint = "give order_by as it was, or use a new checkpoint and a new table"
            raise FingerprintMismatchError(msg, name="order_by", hint=hint)
        if bound.fingerprint != self.bound.fingerprint:
            changed = ", ".join(_changes(self.bound, bound))
            msg = f"this checkpoint belongs to another join; changed: {changed}"
            hint = (
                "restore the join's former definition, which streamjoin inspect CHECKPOINT shows, or start the changed "
                "one with a new checkpoint and a new table"
            )
            raise FingerprintMismatchError(msg, name=changed, hint=hint)


def _changes(old: BoundJoin, new: BoundJoin) -> list[str]:
    """Return what differs between two joins, in a user's words and without values."""
    if old.names != new.names:
        return ["streams"]
    if old.member_names != new.member_names:
        return ["tables"]
    changed = [
        f"columns of {old.member_names[number]}"
        for number in range(len(old.names), len(old.member_names))
        if schema_facts(old.schemas[number]) != schema_facts(new.schemas[number])
    ]
    for stream, name in enumerate(old.names):
        before, after = old.join.streams[stream], new.join.streams[stream]
        facts = {
            "time column": (before.time != after.time or before.time_unit != after.time_unit),
            **{
                name: before.clock_facts.get(name) != after.clock_facts.get(name)
                for name in {**before.clock_facts, **after.clock_facts}
            },
            "partitions": _partitions(before) != _partitions(after),
            **_source_changes(before, after),
            "computed columns": old.computed(stream) != new.computed(stream),
            "unique": sorted(before.unique_key) != sorted(after.unique_key),
            "delay": before.delay_us != after.delay_us,
            "generator": _generator(before) != _generator(after),
            "columns": schema_facts(old.schemas[stream]) != schema_facts(new.schemas[stream]),
        }
        changed += [f"{what} of {name}" for what, other in facts.items() if other]
    if old.join.window != new.join.window:
        changed.append("window")
    if _predicates(old) != _predicates(new):
        changed.append("predicates")
    if old.how != new.how:
        changed.append("how")
    if _nearest(old) != _nearest(new):
        changed.append("nearest")
    if [one.facts for one in old.aggregates] != [one.facts for one in new.aggregates]:
        changed.append("reduce")
    if (old.result, _outputs(old)) != (new.result, _outputs(new)) and not {"how", "reduce"} & set(changed):
        changed.append("select")
    return changed or ["self-pairs"]


def _partitions(stream: Stream) -> object:
    return stream.partition_kind, stream.device_columns


def _nearest(bound: BoundJoin) -> object:
    """Return what decides which partners are the nearest; the direction is in the window."""
    return bound.join.nearest and (bound.join.nearest.k, bound.distance and bound.distance.facts)


def _source_changes(before: Stream, after: Stream) -> dict[str, bool]:
    """Return, by their names in refusals, whether options of the source that results depend on are others."""
    old, new = identity_of(before.source), identity_of(after.source)
    return {words: old.get(name) != new.get(name) for name, (words, _) in {**old, **new}.items()}


def _generator(stream: Stream) -> object:
    return stream.source if isinstance(stream.source, Generator) else None


def _predicates(bound: BoundJoin) -> tuple[object, ...]:
    conditions = [
        (bound.keys[c.left_stream][c.left_key], bound.keys[c.right_stream][c.right_key], c.lo, c.hi, c.is_equality)
        for c in bound.conditions[bound.window_conditions :]
    ]
    return (conditions, [term.facts for term in bound.terms], bound.filters, bound.bars)


def _outputs(bound: BoundJoin) -> list[str]:
    return [output.facts for output in bound.outputs]


def facts_checksum(facts: Mapping[str, Any]) -> str:
    """Return the checksum of JSON facts, whatever the order of their names."""
    return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())
