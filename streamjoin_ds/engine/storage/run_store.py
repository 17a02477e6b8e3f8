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
from streamjoin_ds.engine.storage.layout import SortLayout
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.threads.cores import usable_core_count
from streamjoin_ds.engine.tuning import DEFAULT, CacheTuning
from streamjoin_ds.errors import BlockCorruptError, MapLimitError
from streamjoin_ds.machine import map_limit, memory_limit_bytes, worker_count

__all__ = ["RunStore", "run_facts"]

_VERSION = "1"
_KEY_BYTES = 8


class _Key(NamedTuple):
    root: str
    owner: Hashable
    stream: int
    name: str

    def __str__(self) -> str:
        """For the log: a root may be a URI that holds a secret."""
        return f"block {self.name}"


def run_facts(run: Run) -> dict[str, Any]:
    """What a state blob says of a run, and the header of its block too: rows, layout, zone map, and a level but 0."""
    return {
        "rows": run.rows,
        "grid": [run.sort_layout.first, run.sort_layout.second, run.sort_layout.width],
        "zone": [list(ends) for ends in run.zone],
        **({"level": run.level} if run.level else {}),
    }


class RunStore:
    """The blocks of one cell's windows.

    Parameters
    ----------
    blocks : BlockStore
        Of sealed runs; shared by all cells.
    stems : sequence of str
        One a stream: how the names of its blocks begin. The same for cells that are given the same tuples of the
        stream: they then share each block (DP-Join: partitions are shared inside a host).
    owner : hashable
        What runs in the process's cache are told apart by besides their names: the join and the kernels they are for.
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
        self._least_bytes = least_bytes

    def begin(self, cells: int) -> None:
        """Begin a task of one cell: this process lets go of what no task here is going to ask for.

        That is what fills more than this process's share of the machine, what has been removed, and what no task has
        used for long: the windows of a cell that others work at now, or of a query that has ended.

        Parameters
        ----------
        cells : int
            How many cells the join has. Tasks go to any worker: a cell may come back.
        """
        tuning = self._tuning
        _cache.resize(*_limits(tuning))
        _cache.begin_round(max(tuning.least_idle_tasks, tuning.idle_tasks * cells))
        kept = [key for key in _cache.names() if isinstance(key, _Key) and key.root == self.blocks.root]
        gone = set(self.blocks.gone({key.name for key in kept}))
        for key in kept:
            if key.name in gone:
                _cache.discard(key, "its file has been removed")

    def forget_but(self, names: Collection[str]) -> None:
        """Let go of all blocks of this cell's windows but these: they have expired, or were merged."""
        prefixes = tuple(f"{stem}-" for stem in self._stems)
        for key in _cache.names():
            if (
                isinstance(key, _Key)
                and key.root == self.blocks.root
                and key.name not in names
                and key.name.startswith(prefixes)
            ):
                _cache.discard(key, "it has left the windows")

    def keep(self, stream: int, run: Run) -> str | None:
        """Write a run as a block, once; its name, or None for one that is to stay inline."""
        if run.block is None and run.size_bytes >= self._least_bytes:
            text = json.dumps(run_facts(run), separators=(",", ":"))
            facts = {"version": _VERSION, "stream": str(stream), "run": text}
            stem = f"{self._stems[stream]}-{run.rows:010d}"
            run.block = self.blocks.write(stem, pa.Table.from_batches([run.tuples]), facts).name
        return run.block

    def run(self, stream: int, form: RunForm, name: str, expected: Mapping[str, Any]) -> SealedRun:
        """The run in a block: from the process's cache, or mapped and verified.

        Parameters
        ----------
        expected : mapping
            What the state blob says of it, as `run_facts`.

        Raises
        ------
        BlockMissingError, BlockCorruptError, MapLimitError
            By name. A block that is whole but holds another run than the state says is corrupt too.
        """
        key = _Key(self.blocks.root, self._owner, stream, name)
        run = _cache.get(key)
        if run is None:
            try:
                run = self._mapped(stream, form, name)
            except MapLimitError:
                _cache.clear()  # what this task does not use
                run = self._mapped(stream, form, name)
            # Keys that are not a view of their column are made at the first probe; they are counted as if they were.
            _cache.put(key, run, run.size_bytes + _KEY_BYTES * run.rows * (len(form.keys) - 1))
        if _text(run_facts(run)) != _text(expected):
            _cache.discard(key, "it is not what the state says")
            raise _foreign(name)
        return run

    def runs(self, wanted: Sequence[tuple[int, RunForm, str, Mapping[str, Any]]]) -> list[SealedRun]:
        """The runs in several blocks, in this order; each as `run`, side by side where blocks are far away."""
        return self.blocks.together(lambda arguments: self.run(*arguments), wanted)

    def _mapped(self, stream: int, form: RunForm, name: str) -> SealedRun:
        table = self.blocks.read(name)
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if facts.get("version") != _VERSION or facts.get("stream") != str(stream):
            raise _foreign(name)
        batches = table.replace_schema_metadata(None).to_batches()
        if len(batches) != 1 or not batches[0].schema.equals(form.run_schema):
            raise _foreign(name)
        try:
            run = restored_run(form, batches[0], json.loads(facts["run"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _foreign(name) from error
        run.block = name
        return run


def restored_run(form: RunForm, tuples: pa.RecordBatch, facts: Mapping[str, Any]) -> SealedRun:
    """A run of these tuples, which lie in grid order already, and what `run_facts` said of it; ValueError if not so."""
    first, second, width = facts["grid"]
    layout = SortLayout.restored(first, second, width, len(form.keys))
    zone = tuple((lo, hi) for lo, hi in facts["zone"])
    if tuples.num_rows != facts["rows"] or len(zone) != len(form.keys):
        msg = "the run is not what its facts say"
        raise ValueError(msg)
    if any(not isinstance(end, (int, float)) for ends in zone for end in ends):
        msg = "the run's facts are of the wrong kind"
        raise ValueError(msg)
    level = facts.get("level", 0)
    if type(level) is not int or level < 0:
        msg = "the run's level is no number of merges"
        raise ValueError(msg)
    run = SealedRun(form, tuples, layout, zone)
    run.level = level
    return run


def _text(facts: Mapping[str, Any]) -> str:
    # The level is left out: states of earlier versions do not have it.
    return json.dumps({key: facts[key] for key in ("rows", "grid", "zone")})


def _foreign(name: str) -> BlockCorruptError:
    msg = f"block {name} holds another run than the state says"
    return BlockCorruptError(msg, name=name, hint="restore the checkpoint's files, all of one moment")


def _limits(tuning: CacheTuning) -> tuple[int, int]:
    """Bytes and blocks that this process keeps: most of it is mapped files, which the system may take back any time."""
    # Each usable core may have a worker soon; a daemon that serves more cores than that has more already.
    memory_bytes, maps, cores = _machine()
    return memory_bytes // tuning.memory_parts // max(cores, worker_count()), maps // tuning.maps_parts


@lru_cache(maxsize=1)  # asked by every task; half a millisecond
def _machine() -> tuple[int, int, int]:
    return memory_limit_bytes(), map_limit(), usable_core_count()


_cache: Cache[SealedRun] = Cache(*_limits(DEFAULT.cache))
