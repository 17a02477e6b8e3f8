"""Commits by the ten thousand: what one costs, and what log and folders hold, does not grow with their number.

``python -m tests.sink.long_log --commits 20000`` (five minutes on a quiet core). Batches are small and come as fast as
they can; to the maintenance each is half a minute after the one before, so that a day's cleaning comes every 2 880.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.maintenance import Maintenance
from streamjoin_ds.sink.tables import TableSet
from tests.sink.conftest import Join
from tests.support.scratch import memory_folder

__all__ = ["LongLog"]

TRIGGER_S = 30
KEPT_ENTRIES = 2_000
SLOWER = 1.3
TABLES = ("ledger", "metrics", "matches", "punctuations")
# The entries that are kept, those until the next checkpoint of the log, and as many until that one is old enough.
MOST_ENTRIES = KEPT_ENTRIES + 4_000
MOST_LOG_BYTES = MOST_ENTRIES * 2_048
MOST_LIVE = 500
MOST_FILES = 2 * 86_400 // TRIGGER_S + MOST_LIVE


@dataclass
class LongLog:
    """A run of many commits; `violations` says what went over its bound.

    Parameters
    ----------
    root : str
        Path of the matches table, which is not there yet.
    commits : int
        Batches to commit.
    part : int
        Batches at the end of the run, the times of which are compared with those of the first batches of young tables.
        The two take turns, so that whatever else the machine does slows both.
    """

    root: str
    commits: int
    part: int = 1_000
    batch: int = 0
    wall_s: list[float] = field(default_factory=list)
    thread_s: list[float] = field(default_factory=list)
    young_wall_s: list[float] = field(default_factory=list)
    young_thread_s: list[float] = field(default_factory=list)
    tended_s: float = 0.0
    most: dict[str, int] = field(default_factory=dict)

    def run(self, *, report_every: int = 0) -> None:
        """Commit all batches, with maintenance between them."""
        join = Join(self.root)
        committer = join.committer()
        for name in TABLES:
            # delta-rs goes by the machine's clock, and the run's clock is ahead of it. With a longer retention a
            # checkpoint of the log would hold every file that the run has replaced.
            kept = {"delta.deletedFileRetentionDuration": "interval 1 minute"}
            DeltaTable(join.tables.path_of(name)).alter.set_table_properties(kept)
        tended = Maintenance(
            join.tables,
            kept_entries=KEPT_ENTRIES,
            background=False,
            clock=lambda: time.time() + self.batch * TRIGGER_S,
        )
        young = Join(f"{self.root}-young")
        young_committer = young.committer()
        for batch in range(self.commits):
            self.batch = batch
            _timed(join, committer, batch, self.wall_s, self.thread_s)
            first = self.commits - self.part
            if batch >= first:
                _timed(young, young_committer, batch - first, self.young_wall_s, self.young_thread_s)
            wall = time.perf_counter()
            tended.after_commit()
            self.tended_s += time.perf_counter() - wall
            if self.batch % 250 == 249 or self.batch == self.commits - 1:
                self._look(join.tables)
            if report_every and (self.batch + 1) % report_every == 0:
                print(self._text(report_every), flush=True)
        assert tended.failures == 0
        rows = join.batches()
        assert sorted(rows) == list(range(self.commits)), "a batch is missing"

    def violations(self, *, is_quiet: bool = False) -> list[str]:
        """Return what is over its bound.

        On a quiet machine both ratios of a commit's time have to be within theirs, else one of them.
        """
        bounds = {"entries": MOST_ENTRIES, "log bytes": MOST_LOG_BYTES, "live files": MOST_LIVE, "files": MOST_FILES}
        found = [
            f"{self.most[name]} {name}, bound {bound}" for name, bound in bounds.items() if self.most[name] > bound
        ]
        wall, thread = self.ratios()
        # A busy machine can spoil one of them; a fault shows in both.
        if (max if is_quiet else min)(wall, thread) > SLOWER:
            found.append(f"a commit takes {wall:.2f} x a first one by the clock, {thread:.2f} x by its thread")
        return found

    def ratios(self) -> tuple[float, float]:
        """Return the time of the last commits over that of first ones: by the clock, and by the thread's own time."""
        pairs = ((self.wall_s, self.young_wall_s), (self.thread_s, self.young_thread_s))
        wall, thread = (statistics.median(old[-self.part :]) / statistics.median(young) for old, young in pairs)
        return wall, thread

    def _look(self, tables: TableSet) -> None:
        for name in TABLES:
            folder = Path(tables.path_of(name))
            with os.scandir(folder / "_delta_log") as files:
                sizes = [file.stat().st_size for file in files]
            with os.scandir(folder) as files:
                data = sum(file.name.endswith(".parquet") for file in files)
            for what, value in (("entries", len(sizes)), ("log bytes", sum(sizes)), ("files", data)):
                self.most[what] = max(self.most.get(what, 0), value)
        if self.batch % 1_000 == 999 or self.batch == self.commits - 1:
            live = max(len(DeltaTable(tables.path_of(name)).file_uris()) for name in TABLES)
            self.most["live files"] = max(self.most.get("live files", 0), live)

    def _text(self, commits: int) -> str:
        wall, thread = (1e3 * statistics.median(times_s[-commits:]) for times_s in (self.wall_s, self.thread_s))
        tended = f"maintenance {1e3 * self.tended_s / (self.batch + 1):.2f} ms a batch"
        spent = f"median {wall:.2f} ms, of the thread {thread:.2f} ms"
        return f"{self.batch + 1:7} commits: {spent}; {tended}; most {json.dumps(self.most)}"


def _timed(join: Join, committer: Committer, batch: int, wall_s: list[float], thread_s: list[float]) -> None:
    reports = join.write(batch)
    wall, thread = time.perf_counter(), time.thread_time()
    committed = join.commit(committer, batch, reports).committed
    thread_s.append(time.thread_time() - thread)
    wall_s.append(time.perf_counter() - wall)
    assert committed


def main() -> int:
    """Run the command line; return exit status 1 if something grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.sink.long_log", description=__doc__)
    parser.add_argument("--commits", type=int, default=20_000, help="batches (%(default)s)")
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="streamjoin-long-log-", dir=memory_folder())
    try:
        run = LongLog(f"{folder}/matches", asked.commits, part=max(min(1_000, asked.commits // 4), 1))
        run.run(report_every=1_000)
        violations = run.violations(is_quiet=True)
        wall, thread = run.ratios()
        print(f"last / first: {wall:.2f} x by the clock, {thread:.2f} x by the thread's own time")
        print("\n".join(violations) or "flat")
        return 1 if violations else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
