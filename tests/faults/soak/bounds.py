"""What must not grow, however long the join runs: each bound with its unit and its reason."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from streamjoin_ds.sink.tables import TableSet
from tests.support.processes import process_facts

__all__ = ["BOUNDS", "Samples", "batch_lines"]

BOUNDS: Mapping[str, float] = {
    # the median of the last 1 000 commits over that of the first 1 000: a fault in the middle of a batch weighs nothing
    "commit_growth": 1.3,
    # files of one table, two a batch: a round of compaction is due every 250 batches, and may take as long under load
    "live_files": 1_000,
    # entries of one table's log, in bytes and in number: the newest 10 000 stay, and those until the next cleaning
    "log_bytes": 48 << 20,
    "log_entries": 13_000,
    # bytes on the disk that is the soak's own: all rows, files that were replaced and not removed yet, logs, checkpoint
    "disk_bytes": 2 << 30,
    # a process's maps of files that are deleted: these are retired blocks
    "deleted_maps": 64,
    # a process's maps: two for each thread's stack, and those of blocks; the system allows 65 530
    "maps": 4_000,
    # a process's open files: delta-rs opens up to a thousand entries of a log at once
    "open_files": 1_200,
    # a process's threads: delta-rs alone may have 512 that wait for files, as long as it has work and 10 s more
    "threads": 640,
    # resident bytes; the first sample of a process comes after its imports
    "driver_bytes": 900 << 20,
    "worker_bytes": 700 << 20,
    # of driver and workers together: the most in the last quarter of the looks over that in the second, since processes
    # that have just begun take little
    "memory_growth": 1.5,
    # files in the checkpoint: blocks of the windows, and of the exchange
    "block_files": 400,
    "exchange_files": 400,
}

_SHARE = 1_000  # batches at the beginning and at the end whose commits are compared
_FEWEST_LOOKS = 80  # at the memory, below which nothing is compared


@dataclass
class Samples:
    """The largest value seen of each measure, and where it was seen."""

    largest: dict[str, float] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    looks: list[int] = field(default_factory=list)  # resident bytes of all processes together

    def note(self, measure: str, value: float, place: str) -> None:
        """Keep a value if it is the largest of its measure."""
        if value > self.largest.get(measure, -1.0):
            self.largest[measure], self.places[measure] = value, place

    def processes(self, tree: Sequence[psutil.Process]) -> None:
        """Look at a driver and its workers; one that has just gone is left out."""
        sizes = [self._process(process, "worker" if number else "driver") for number, process in enumerate(tree)]
        if tree:
            self.looks.append(sum(sizes))

    def _process(self, process: psutil.Process, kind: str) -> int:
        facts = process_facts(process)
        if facts is None:
            return 0
        # only blocks count, and no other deleted files such as libraries
        deleted = sum(line.endswith("(deleted)") and "/blocks/" in line for line in facts.maps)
        self.note("deleted_maps", deleted, kind)
        self.note("maps", len(facts.maps), kind)
        self.note("threads", facts.threads, kind)
        self.note("open_files", facts.open_files, kind)
        self.note(f"{kind}_bytes", facts.resident_bytes, kind)
        return facts.resident_bytes

    def tables(self, root: Path) -> None:
        """Look at the tables' logs."""
        for name in TableSet.names():
            log = Path(TableSet(str(root / "matches")).path_of(name)) / "_delta_log"
            if log.is_dir():
                sizes = [size for path in log.iterdir() if (size := _size(path)) is not None]
                self.note("log_entries", len(sizes), name)
                self.note("log_bytes", sum(sizes), name)

    def checkpoint(self, root: Path) -> None:
        """Look at the folders of the checkpoint."""
        for measure, folder in (("block_files", "blocks"), ("exchange_files", "exchange")):
            where = root / "checkpoint" / folder
            if where.is_dir():
                self.note(measure, sum(1 for path in where.rglob("*") if path.is_file()), folder)

    def disk(self, root: Path) -> None:
        """Look at the disk that the soak has for itself, if it has one."""
        if root.is_mount():
            self.note("disk_bytes", shutil.disk_usage(root).used, "disk")

    def commits(self, root: Path) -> None:
        """Compare the time of a commit in the last 1 000 batches with the first 1 000, once there are so many."""
        # Only batches of durable lives: forcing files takes time, so the others cannot be compared.
        times = [line["commit_s"] for line in batch_lines(root) if line.get("durable")]
        if len(times) >= 2 * _SHARE:
            growth = statistics.median(times[-_SHARE:]) / statistics.median(times[:_SHARE])
            self.note("commit_growth", growth, f"{len(times)} batches")

    def memory(self) -> None:
        """Compare the most that the processes take at the end with what it was before, once there are enough looks."""
        quarter = len(self.looks) // 4
        if len(self.looks) >= _FEWEST_LOOKS:
            growth = max(self.looks[-quarter:]) / max(self.looks[quarter : 2 * quarter])
            self.note("memory_growth", growth, f"{len(self.looks)} looks")

    def broken(self) -> list[str]:
        """Return the bounds that do not hold, as text."""
        return [
            f"{measure} came to {value:g}, at most {BOUNDS[measure]:g} ({self.places[measure]})"
            for measure, value in sorted(self.largest.items())
            if value > BOUNDS[measure]
        ]


def batch_lines(root: Path) -> list[dict[str, float]]:
    """Return what the lives wrote about their batches, without lines that a kill cut short."""
    path = root / "batches.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}") and line.count("{") == 2]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
