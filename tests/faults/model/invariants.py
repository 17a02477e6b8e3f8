"""What must hold after every run, whatever happened on the way."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streamjoin_ds.blocks import Cache
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.storage import run_store, state_blob
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.sink.log import read_commit
from streamjoin_ds.sink.tables import TableSet
from tests.faults.model.case import facts_text
from tests.faults.model.world import World

__all__ = ["violations"]


def violations(world: World) -> list[str]:
    """Return all that is wrong with a run that has ended; nothing for a good one."""
    found = list(world.violations)
    if any("did not finish" in text for text in found):
        return found
    tables = _Tables(world)
    for check in (_ledger, _numbers, _pairs, _late, _punctuations, _manifests, _copies):
        found += [f"{check.__name__.strip('_')}: {text}" for text in check(world, tables)]
    return found


class _Tables:
    """The tables as their logs alone tell them: the commits of each table, with the rows that each one added."""

    def __init__(self, world: World) -> None:
        self.set = TableSet(world.plan.table_root)
        read = self._live if "upkeep" in world.schedule.asks else self._commits
        self.commits = {name: read(self.set.path_of(name)) for name in TableSet.names()}
        if read == self._live:
            self.commits["matches"] = self._of_batches(self.commits)
        # The ends of batches come from the ledger's read counts, which are checked first: offsets are purged.
        self.ends: dict[int, list[int]] = {}
        names = world.case.names
        self.case = world.case
        planned = [world.planned[batch] for batch in sorted(world.planned) if batch < len(self.commits["matches"])]
        self.asides = self._asides(names, planned)
        if self.case.files and world.schedule.grows:
            unforeseen = {name: [(n, file) for n, kind, file in self.asides[name] if kind != "rest"] for name in names}
            self.case = self.case.with_aside(unforeseen)
        if "devices" in world.schedule.asks:
            counts = [world.there[world.end_of(batch, offset)] for batch, offset in enumerate(planned)]
            self.case = self.case.arrived(planned, counts)
        elif self.case.devices:
            self.case = self.case.arrived(planned)
        elif "idle" in world.schedule.asks:
            ends = [[offset["streams"][name]["seq"] for name in names] for offset in planned]
            clocks = [offset.get("clocks", {}) for offset in planned]
            idle = [[name for name in names if clock.get(name, {}).get("idle")] for clock in clocks]
            self.case = self.case.given(ends, idle)

    @staticmethod
    def _asides(names: Sequence[str], planned: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, str, str]]]:
        """Return what the offsets of the batches set aside: for each stream number, kind and file."""
        found: dict[str, list[tuple[int, str, str]]] = {}
        for name in names:
            facts = [one for offset in planned for one in offset["streams"][name].get("aside", ())]
            # A batch without a record of a stream ends where it began, so it repeats what the batch before it set
            # aside.
            found[name] = list(dict.fromkeys((number, kind, file) for number, _, _, _, file, kind, *_ in facts))
        return found

    def _commits(self, path: str) -> list[tuple[Any, list[dict[str, Any]]]]:
        commits = []
        version = 1
        while os.path.exists(f"{path}/_delta_log/{version:020d}.json"):
            commit = read_commit(path, version)
            rows: list[dict[str, Any]] = []
            for file in commit.paths:
                rows += _rows(f"{path}/{file}")
            commits.append((commit, rows))
            version += 1
        return commits

    def _live(self, path: str) -> list[tuple[Any, list[dict[str, Any]]]]:
        """Return the rows as any reader finds them: the log has been cleaned, and files have been compacted."""
        return [(None, [row for uri in DeltaTable(path).file_uris() for row in _rows(uri)])]

    @staticmethod
    def _of_batches(commits: Any) -> list[tuple[Any, list[dict[str, Any]]]]:
        """Return the matches of each batch, with the punctuation of its row in the table of punctuations."""
        rows: dict[int, list[dict[str, Any]]] = {}
        for row in commits["matches"][0][1]:
            rows.setdefault(row["batch_id"], []).append(row)
        given = sorted(commits["punctuations"][0][1], key=lambda row: row["batch_id"])
        commits["punctuations"] = [(None, given)]
        facts = [SimpleNamespace(batch_id=row["batch_id"], punctuation_us=row["punctuation"]) for row in given]
        found = [(fact, rows.pop(fact.batch_id, [])) for fact in facts]
        return found + [(SimpleNamespace(batch_id=batch, punctuation_us=None), rest) for batch, rest in rows.items()]

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        for _, rows in self.commits[name]:
            yield from rows


def _rows(path: str) -> list[dict[str, Any]]:
    """Return the rows of a file, with times as microseconds."""
    with open(path, "rb") as stream, pq.ParquetFile(pa.BufferReader(stream.read()), pre_buffer=False) as file:
        table = file.read(use_threads=False)
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _differences(found: Counter[Any], expected: Counter[Any]) -> list[str]:
    texts = [f"missing {key} x{count}" for key, count in sorted((expected - found).items())[:3]]
    return texts + [f"surplus {key} x{count}" for key, count in sorted((found - expected).items())[:3]]


def _pairs(world: World, tables: _Tables) -> list[str]:
    """Each result of the oracle is there once, with the columns of its tuples, and no other result."""
    found: Counter[Any] = Counter()
    for row in tables.rows("matches"):
        found[facts_text({name: value for name, value in row.items() if name != "batch_id"})] += 1
    # Files that grow are not there from the start. A count window's order is then that in which batches brought
    # records.
    by_batch = world.schedule.grows and not tables.case.ends and world.case.join.window.kind == "count"
    whole = [ends for _, ends in sorted(tables.ends.items()) if len(ends) == len(world.case.names)]
    if world.table is None:
        return _differences(found, tables.case.result_facts(whole if by_batch else ()))
    told, texts = _versions(world, tables)
    versions = [world.table.rows.get(told.get(batch, ""), []) for batch in range(len(whole) + 1)]
    return texts + _differences(found, tables.case.result_facts(whole, versions, is_by_batch=by_batch))


def _versions(world: World, tables: _Tables) -> tuple[dict[int, str], list[str]]:
    """Return the version of each batch, by the metrics; and what is wrong: it is one for all cells, and never older."""
    assert world.table is not None
    told: dict[int, str] = {}
    texts = []
    for row in sorted(tables.rows("metrics"), key=lambda row: (row["batch_id"], row["cell"])):
        version = json.loads(row["table_versions"] or "{}").get("z", "")
        if told.setdefault(row["batch_id"], version) != version:
            texts.append(f"batch {row['batch_id']} has two versions of the table")
    texts += [
        f"batch {batch} joined {version}" for batch, version in told.items() if version not in world.versions[batch]
    ]
    numbers = [world.table.numbers.get(version, -1) for _, version in sorted(told.items())]
    if -1 in numbers or numbers != sorted(numbers):
        texts.append(f"the versions of the batches are {numbers}")
    return told, texts


def _late(world: World, tables: _Tables) -> list[str]:
    found = Counter((row["stream"], row["seq"], row["ts"], row["largest_ts"]) for row in tables.rows("late"))
    texts = _differences(found, tables.case.late_facts())
    rejects = Counter((row["stream"], os.path.basename(row["file"]), row["line"]) for row in tables.rows("rejects"))
    expected = Counter(
        (name, *tables.case.places[name][number])
        for name, rows in tables.case.rows.items()
        for number, row in enumerate(rows)
        if row["ts"] is None or number in tables.case.ahead.get(name, ())
    )
    unforeseen = {name: [(kind, file) for _, kind, file in found] for name, found in tables.asides.items()}
    return texts + _differences(rejects, expected) + world.input.told(unforeseen)


def _ledger(world: World, tables: _Tables) -> list[str]:
    """There is one row for each batch and stream, and it says what the records of its batch are."""
    texts = []
    names = world.case.names
    read = dict.fromkeys(names, 0)
    found = sorted(tables.rows("ledger"), key=lambda row: (row["batch_id"], row["stream"]))
    batches = [batch for batch, _ in Counter((row["batch_id"], row["stream"]) for row in found)]
    expected = [batch for batch in range(len(found) // len(names)) for _ in names]
    if batches != expected:
        texts.append(f"batches {batches}")
    for row in found:
        name, first = row["stream"], read[row["stream"]]
        read[name] = last = first + row["read"]
        tables.ends.setdefault(row["batch_id"], []).append(last)
        right = {"batch_id": row["batch_id"], "stream": name, **tables.case.ledger(name, first, last)}
        right["largest_ts"] = tables.case.largest_us(name, 0, last)
        if row | right != row:  # the log of offsets tells the other columns
            texts.append(f"{row} is not {right}")
    if any(read[name] != len(tables.case.rows[name]) for name in names):
        texts.append(f"read {read}")
    return texts


def _numbers(world: World, tables: _Tables) -> list[str]:
    """Streams over one input number its partitions alike, and no number is given twice, also not of one forgotten.

    The oracle takes the numbers as the offsets tell them.
    """
    texts = []
    known: dict[str, dict[str, int]] = {name: {} for name in world.case.names}
    for batch, offset in sorted(world.planned.items()):
        for name in world.case.names:
            for one, at in offset["streams"][name].get("partitions", {}).items():
                if known[name].setdefault(one, at["number"]) != at["number"]:
                    texts.append(f"batch {batch} has {at['number']} for {one} of {name}, which was {known[name][one]}")
            if len({*known[name].values()}) < len(known[name]):
                texts.append(f"two partitions of {name} have one number: {known[name]}")
        for name, first in world.case.inputs.items():
            if known[name] != known[first]:
                texts.append(f"batch {batch} has {known[name]} in {name}, and {known[first]} in {first}")
    return texts


def _punctuations(world: World, tables: _Tables) -> list[str]:
    """Each batch has its punctuation, never back, never ahead of a later row, and as far as the input allows."""
    texts = []
    promised = None
    none = [0] * len(world.case.names)
    for number, (commit, rows) in enumerate(tables.commits["matches"]):
        if commit.batch_id != number:
            texts.append(f"commit {number} of the matches is of batch {commit.batch_id}")
        early = [row["event_time"] for row in rows if promised is not None and row["event_time"] < promised]
        if early:
            texts.append(f"batch {number} holds a row of {min(early)} after {promised} was given")
        ends = tables.ends.get(number, [])
        expected = tables.case.watermark_us(ends if len(ends) == len(none) else none)
        if tables.case.ends:
            expected = tables.case.watermarks[number]
        expected = tables.case.punctuation_us(expected)
        if commit.punctuation_us != expected:
            texts.append(f"batch {number} gives {commit.punctuation_us}, not {expected}")
        if promised is not None and (commit.punctuation_us is None or commit.punctuation_us < promised):
            texts.append(f"batch {number} goes back from {promised} to {commit.punctuation_us}")
        promised = commit.punctuation_us
    given = [(row["batch_id"], row["punctuation"], row["matches"]) for row in tables.rows("punctuations")]
    right = [(n, commit.punctuation_us, len(rows)) for n, (commit, rows) in enumerate(tables.commits["matches"])]
    if given != right:
        texts.append(f"rows {given}, not {right}")
    metrics = Counter((row["batch_id"], row["cell"]) for row in tables.rows("metrics"))
    told = Counter(batch for batch, _ in metrics)
    if "cores" not in world.schedule.asks:
        told = Counter(dict.fromkeys(range(len(right)), world.plan.layout.cells))
    cells = Counter((batch, cell) for batch in range(len(right)) for cell in range(max(told[batch], 1)))
    return texts + _differences(metrics, cells)


def _restored(world: World) -> Iterator[tuple[int, int, CellWindows | StreamJoinError]]:
    """Yield version, cell, and the windows of each state that is kept, or the error if they cannot be loaded."""
    before, run_store.worker_cache = run_store.worker_cache, Cache(1 << 26)
    try:
        for (_, version), state in sorted(world.checkpoint.states.items()):
            for cell, blob in state.items():
                try:
                    yield version, cell, CellWindows(world.plan, cell, blob)
                except StreamJoinError as error:  # noqa: PERF203 - each is reported
                    yield version, cell, error
    finally:
        run_store.worker_cache = before


def _manifests(world: World, tables: _Tables) -> list[str]:
    """Spark may come back by as many batches as it is told to retain, and all blocks of those versions are there.

    It may hold older versions by luck, where it died before it purged them. Nothing is promised of these.
    """
    del tables
    oldest = max((version for _, version in world.checkpoint.states), default=0) - 1 - world.checkpoint.retain
    texts, named = [], set[str]()
    for version, cell, windows in _restored(world):
        if isinstance(windows, CellWindows):
            named |= windows.named_blocks | {name for _, name in windows.state.retired}
        elif version >= oldest:
            texts.append(f"version {version} of cell {cell} cannot be loaded: {windows.code} {windows.name}")
    # After a power cut a removed file may be there again, as an orphan for `streamjoin vacuum`.
    return texts if world.schedule.power else texts + _blocks(world, named)


def _copies(world: World, tables: _Tables) -> list[str]:
    """Cells with the same tuples of a stream have them, and what waits of them, in the same blocks: they share these.

    Otherwise one of them might remove a block that another one still names.
    """
    del tables
    layout, bound = world.checkpoint.layout, world.plan.bound
    if not bound.decided or layout is None:
        return []
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    texts = []
    for version in sorted({version for _, version in world.checkpoint.states}):
        of_version = [state for (_, number), state in world.checkpoint.states.items() if number == version]
        for cell, blob in (pair for state in of_version for pair in state.items()):
            facts, _ = state_blob.opened(bound.fingerprint, CellState.decode(blob).windows)
            for stream, runs in enumerate(facts["runs"]):
                key = version, stream, layout.window_group(cell, stream)
                held = {"runs": runs, "waiting": [one for one in facts["waiting"] if one["stream"] == stream]}
                if found.setdefault(key, held) != held:
                    texts.append(f"version {version} of cell {cell} has other blocks of stream {stream} than its like")
    return texts


def _blocks(world: World, named: set[str]) -> list[str]:
    """Each block is named by a manifest, waits for its end, or was written by a process that had stopped."""
    if world.schedule.blocks is None:
        return ["a folder of blocks"] if world.block_names() else []
    there = world.block_names()
    leaked = {name for name in there - named - world.late_blocks if not name.startswith(".")}
    again = any(fault.kind == "back" for fault in world.fired) and {"cores", "ranges"} & {*world.schedule.asks}
    again = again or (world.moves and world.plan.bound.decided)  # then a planned batch goes by the new layout
    again = again or len(world.kinds) > 1
    if again or "settings" in world.schedule.asks:
        # A batch may have been done again in blocks of another size or form, or by another layout: `streamjoin vacuum`
        # removes the first ones.
        leaked = set()
    texts = [f"{name} leaks" for name in sorted(leaked)]
    aside = len({name for name in there if name.startswith(".")})
    deaths = sum(fault.kind != "twice" for fault in world.fired)
    if aside > deaths:
        texts.append(f"{aside} unfinished blocks after {deaths} deaths")
    exchange = world.folder / "exchange"
    waiting = [path.name for path in exchange.iterdir()] if exchange.is_dir() else []
    done = world.source_done
    if done and not any(fault.kind in ("stall", "freeze") for fault in world.fired):
        seqs = [done[name]["seq"] for name in world.case.names]
        stale = [name for name in waiting if name.startswith("x") and int(name[24:43]) <= seqs[int(name[1:3])]]
        texts += [f"exchange block {name} stays" for name in sorted(stale)]
    return texts
