"""Sealed runs as blocks: written once, mapped where they are needed (ARCHITECTURE.md, "State and blocks").

::

    Window ── large runs ──► block files, named by their content      (a run is written once, however long it is kept)
       │                          ▲
       └───── small runs ──► state blob: inline, beside the names of the blocks
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore, Cache
from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_form import RunForm, range_of
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.storage.waiting import WaitingPiece
from streamjoin_ds.engine.tuning import DEFAULT, CacheTuning
from streamjoin_ds.errors import BlockCorruptError, MapLimitError
from streamjoin_ds.machine import map_limit, memory_limit_bytes, worker_count

__all__ = ["RunStore", "run_facts", "worker_cache"]

_VERSION = "1"
_KEY_BYTES = 8


class _Key(NamedTuple):
    root: str
    owner: Hashable
    stream: int
    name: str

    def __str__(self) -> str:
        """Return the name for the log, without the root: that may be a URI that holds a secret."""
        return f"block {self.name}"


def run_facts(run: Run) -> dict[str, Any]:
    """Return what a state blob and a block's header say of a run: rows, layout, zone map, and a level other than 0."""
    return {
        "rows": run.rows,
        "grid": [run.sort_layout.first, run.sort_layout.second, run.sort_layout.width],
        "zone": [list(ends) for ends in run.zone[: run.form.saved_keys]],
        **({"level": run.level} if run.level else {}),
    }


class RunStore:
    """The blocks of one cell's windows.

    Parameters
    ----------
    blocks : BlockStore
        The blocks of sealed runs and of journals, shared by all cells.
    stems : sequence of str
        One for each stream: how the names of its blocks begin. Cells that are given the same tuples of the stream have
        the same stem, so they share its blocks (DP-Join: partitions are shared inside a host).
    owner : hashable
        The join and the kernels that runs are for. It tells runs of one name apart in the process's cache.
    least_bytes : int
        Runs whose columns are smaller stay inline.
    tuning : CacheTuning, keyword-only
    """

    def __init__(
        self,
        blocks: BlockStore,
        stems: Sequence[str],
        owner: Hashable,
        least_bytes: int = 0,
        *,
        tuning: CacheTuning = DEFAULT.cache,
    ) -> None:
        self.blocks, self._tuning = blocks, tuning
        self._stems = tuple(stems)
        self._owner = owner
        self.least_bytes = least_bytes

    def begin(self, cells: int) -> None:
        """Begin a task of one cell: let go of cached runs that tasks of this process will hardly ask for.

        These are runs beyond this process's share of the machine, runs whose files have been removed, and runs that no
        task has used for long: those of a cell that other workers have now, or of a query that has ended.

        Parameters
        ----------
        cells : int
            How many cells the join has. A task may go to any worker, so a cell may come back to this one.
        """
        tuning = self._tuning
        worker_cache.resize(*_limits(tuning))
        worker_cache.begin_round(max(tuning.least_idle_tasks, tuning.idle_tasks * cells))
        kept = [key for key in worker_cache.names() if isinstance(key, _Key) and key.root == self.blocks.root]
        gone = set(self.blocks.gone({key.name for key in kept}))
        for key in kept:
            if key.name in gone:
                worker_cache.discard(key, "its file has been removed")

    def forget_but(self, names: Collection[str]) -> None:
        """Let go of all cached blocks of this cell's windows but these; the others have expired or were merged."""
        prefixes = tuple(f"{stem}-" for stem in self._stems)
        for key in worker_cache.names():
            if (
                isinstance(key, _Key)
                and key.root == self.blocks.root
                and key.name not in names
                and key.name.startswith(prefixes)
            ):
                worker_cache.discard(key, "it has left the windows")

    def keep(self, stream: int, run: Run) -> str | None:
        """Write a run as a block, once, and return the block's name; None: the run is to stay inline."""
        if run.block is None and run.size_bytes >= self.least_bytes:
            text = json.dumps(run_facts(run), separators=(",", ":"))
            facts = {"version": _VERSION, "stream": str(stream), "run": text}
            stem = f"{self._stems[stream]}-{run.rows:010d}"
            run.block = self.blocks.write(stem, pa.Table.from_batches([run.form.saved(run.tuples)]), facts).name
        return run.block

    def keep_waiting(self, stream: int, piece: WaitingPiece) -> str | None:
        """Write waiting tuples as a block, once, and return the block's name; None: they are to stay inline."""
        if piece.block is None and piece.size_bytes >= self.least_bytes:
            text = json.dumps(piece.to_facts(), separators=(",", ":"))
            facts = {"version": _VERSION, "stream": str(stream), "waiting": text}
            stem = f"{self._stems[stream]}-{piece.rows:010d}"
            piece.block = self.blocks.write(stem, pa.Table.from_batches([piece.tuples]), facts).name
        return piece.block

    def write_rows(self, stream: int, tuples: pa.RecordBatch) -> str:
        """Write tuples as a block of a journal; return the block's name."""
        facts = {"version": _VERSION, "stream": str(stream)}
        return self.blocks.write(self._rows_stem(stream, tuples.num_rows), pa.Table.from_batches([tuples]), facts).name

    def link_rows(self, stream: int, rows: int, source: BlockStore, name: str) -> str | None:
        """Make a block of another store one of a journal, without a copy; None: no file system can do that here."""
        return self.blocks.link(self._rows_stem(stream, rows), source, name)

    def rows(self, form: RunForm, name: str) -> pa.RecordBatch:
        """Return the tuples in a block, which may have other columns besides; errors as for `run`."""
        batches = self._read(name).to_batches()
        names = form.tuple_schema.names
        tuples = batches[0].select(names) if len(batches) == 1 and {*names} <= {*batches[0].schema.names} else None
        if tuples is None or not tuples.schema.remove_metadata().equals(form.tuple_schema):
            raise _foreign(name)
        return tuples.replace_schema_metadata(None)

    def _rows_stem(self, stream: int, rows: int) -> str:
        return f"{self._stems[stream]}-{rows:010d}j"

    def waiting(self, stream: int, form: RunForm, name: str, expected: Mapping[str, Any]) -> WaitingPiece:
        """Return the waiting tuples in a block; errors as for `run`."""
        key = _Key(self.blocks.root, self._owner, stream, name)
        piece = worker_cache.get(key)
        if piece is None:
            batch, facts = self._opened(stream, name, form.tuple_schema)
            try:
                piece = WaitingPiece.restored(batch, json.loads(facts["waiting"]))
            except (KeyError, TypeError, ValueError) as error:
                raise _foreign(name) from error
            piece.block = name
            worker_cache.put(key, piece, piece.size_bytes)
        if not isinstance(piece, WaitingPiece) or piece.to_facts() != {
            n: v for n, v in expected.items() if n != "block"
        }:
            worker_cache.discard(key, "it holds other tuples than the state says")
            raise _foreign(name)
        return piece

    def run(self, stream: int, form: RunForm, name: str, expected: Mapping[str, Any]) -> SealedRun:
        """Return the run in a block: from the process's cache, or mapped and verified.

        Parameters
        ----------
        expected : mapping
            What the state blob says of the run, in the form of `run_facts`.

        Raises
        ------
        BlockMissingError, BlockCorruptError, MapLimitError
            The error names the block. A whole block that holds another run than the state says counts as corrupt.
        """
        key = _Key(self.blocks.root, self._owner, stream, name)
        run = worker_cache.get(key)
        if run is None:
            run = self._mapped(stream, form, name)
            # Keys that are not a view of their column are made at the first probe. They are counted as if made already.
            worker_cache.put(key, run, run.size_bytes + _KEY_BYTES * run.rows * (len(form.keys) - 1))
        if not isinstance(run, SealedRun) or _text(run_facts(run)) != _text(expected):
            worker_cache.discard(key, "it is another run than the state says")
            raise _foreign(name)
        return run

    def _opened(self, stream: int, name: str, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[str, str]]:
        """Return the tuples in a block, and what its header says of them."""
        table = self._read(name)
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if facts.get("version") != _VERSION or facts.get("stream") != str(stream):
            raise _foreign(name)
        batches = table.replace_schema_metadata(None).to_batches()
        if len(batches) != 1 or not batches[0].schema.equals(schema):
            raise _foreign(name)
        return batches[0], facts

    def _read(self, name: str) -> pa.Table:
        try:
            return self.blocks.read(name)
        except MapLimitError:
            worker_cache.clear()  # unmaps the blocks that this task does not use
            return self.blocks.read(name)

    def _mapped(self, stream: int, form: RunForm, name: str) -> SealedRun:
        batch, facts = self._opened(stream, name, form.saved_schema)
        try:
            run = restored_run(form, batch, json.loads(facts["run"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _foreign(name) from error
        run.block = name
        return run


def restored_run(form: RunForm, tuples: pa.RecordBatch, facts: Mapping[str, Any]) -> SealedRun:
    """Return a run of these tuples, which are in grid order already, with the facts that `run_facts` gave.

    Raises
    ------
    KeyError, TypeError, ValueError
        The facts are not those of a run of these tuples.
    """
    first, second, width = facts["grid"]
    layout = SortLayout.restored(first, second, width, len(form.keys))
    zone = tuple((lo, hi) for lo, hi in facts["zone"])
    if tuples.num_rows != facts["rows"] or len(zone) != form.saved_keys or not form.may_lie_in_run(tuples):
        msg = "the run is not what its facts say"
        raise ValueError(msg)
    if any(not isinstance(end, (int, float)) for ends in zone for end in ends):
        msg = "the run's facts are of the wrong kind"
        raise ValueError(msg)
    level = facts.get("level", 0)
    if type(level) is not int or level < 0:
        msg = "the run's level is not a number of merges"
        raise ValueError(msg)
    tuples = form.with_hashes(tuples)
    limits = range(form.saved_keys, len(form.keys))
    zone = (*zone, *(range_of(form.key_of(tuples, number)) for number in limits))
    run = SealedRun(form, tuples, layout, zone)
    run.level = level
    return run


def _text(facts: Mapping[str, Any]) -> str:
    # The level is left out: states of earlier versions do not have it.
    return json.dumps({key: facts[key] for key in ("rows", "grid", "zone")})


def _foreign(name: str) -> BlockCorruptError:
    msg = f"block {name} holds another run than the state says"
    return BlockCorruptError(msg, name=name, hint="restore all of the checkpoint's files from one copy")


def _limits(tuning: CacheTuning) -> tuple[int, int]:
    """Return how many bytes and blocks this process may keep.

    Most of the bytes are mapped files, whose memory the system may take back at any time.
    """
    # Each usable core may have a worker soon. A daemon that serves more cores than that has more workers already.
    memory_bytes, maps, cores = _machine()
    return memory_bytes // tuning.memory_parts // max(cores, worker_count()), maps // tuning.maps_parts


@lru_cache(maxsize=1)  # every task asks, and each answer would take half a millisecond
def _machine() -> tuple[int, int, int]:
    return memory_limit_bytes(), map_limit(), usable_core_count()


worker_cache: Cache[SealedRun | WaitingPiece] = Cache(*_limits(DEFAULT.cache))
