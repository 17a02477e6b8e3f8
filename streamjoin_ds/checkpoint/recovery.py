"""What a restart mends before its query begins: it sets torn files aside and goes back to where all files fit together.

::

    newest entries of the tables' logs ──┐
    Spark's offsets, commits, state ─────┼──► Recovery: what goes aside, which batch is next, how the batches after it
    offsets set aside before ────────────┘              were cut ──► done ──► the query starts

A batch may be done again any number of times: each table says whether it has the batch, and blocks and states come out
the same as long as the batch holds the same records. So a torn file is set aside with all newer ones, and the query
goes back as far as needed. The offsets of the batches that are done again are kept, and cut them as before. Where that
cannot mend the checkpoint, the error points at `streamjoin repair`. Nothing is deleted: files are moved to
``<checkpoint>/recovery`` and ``<table>/_torn``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyarrow import ArrowException, parquet

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.checkpoint.spark_files import COMMIT_ENTRY, SparkFiles, source_offset
from streamjoin_ds.errors import RecoveryError, StreamJoinError
from streamjoin_ds.sink.durability import force
from streamjoin_ds.sink.log import read_commit
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.tail import LogTail, tail_of

__all__ = ["INITIAL", "RECOVERY_FOLDER", "Recovery", "cuts_option", "planned_recovery", "put", "recovered"]

RECOVERY_FOLDER = "recovery"
INITIAL = "initial"  # file that holds the offset before the first batch, where no batch is logged
_log = logging.getLogger(__name__)
_HINT = "`streamjoin repair CHECKPOINT --dry-run` says what can be mended, and what is lost"
_ASIDES = {"late": "late", "rejected": "rejects"}  # by the ledger's column: the table with these rows


@dataclass
class Recovery:
    """The plan of what is to be done before the query starts.

    Attributes
    ----------
    checkpoint : Place
    batch : int
        The batch that the query does next.
    tails : list of LogTail
        The ends of those tables' logs that end in torn entries.
    aside : list of Place
        Files of the checkpoint that are set aside, in this order.
    kept : dict of str to str
        Entries of the offset log that say how the next batches are cut, by batch or as `INITIAL`: those that are set
        aside, and those that `repair` derives. They are written first.
    notes : list of str
        What was found, one line each.
    last : int
        The newest batch that Spark has offsets of once the plan is carried out; -1 where there is none.
    completed : int or None
        A batch without Spark's commit that tables and state show to be done. Its commit is written.
    refusal : str
        Why nothing can be done; empty where it can.
    torn_offsets : str
        Why a restart alone cannot go on: offsets are lost of batches that the tables hold, and `repair` derives them.
    """

    checkpoint: Place
    batch: int = 0
    tails: list[LogTail] = field(default_factory=list)
    aside: list[Place] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refusal: str = ""
    torn_offsets: str = ""
    last: int = -1
    completed: int | None = None

    def carry_out(self) -> None:
        """Do what is planned. If it is cut off at any place, the next start does the rest, with the same outcome.

        Raises
        ------
        RecoveryError
            There is a `refusal`, or there are `torn_offsets`. Nothing was changed.
        """
        if refusal := self.refusal or self.torn_offsets:
            raise RecoveryError(refusal, name="checkpoint", hint=_HINT)
        for note in self.notes:
            _log.warning("after a power cut or a crash: %s", note)
        for tail in self.tails:
            tail.set_aside()
        folder = self.checkpoint / RECOVERY_FOLDER
        for name, text in self.kept.items():
            put(folder / "offsets" / name, text)
        if self.kept:  # these folders may be new, and what is kept is set aside next
            force(str(folder))
            force(str(self.checkpoint))
        for path in self.aside:
            self._set_aside(path, folder)
        if self.completed is not None:
            path = self.checkpoint / "commits" / str(self.completed)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            put(path, COMMIT_ENTRY)

    def _set_aside(self, path: Place, folder: Place) -> None:
        if not path.exists():  # it was in a folder that was set aside before
            return
        inside = path.relative_to(self.checkpoint)
        target, number = folder / "torn" / inside, 0
        while target.exists():
            number += 1
            target = folder / "torn" / inside.with_name(f"{inside.name}.{number}")
        target.parent.mkdir(parents=True, exist_ok=True)
        # The checksums go first: Hadoop reads a file without any, and refuses one that does not fit them.
        sums = path.with_name(f".{path.name}.crc")
        if sums.exists():
            sums.replace(target.with_name(f".{target.name}.crc"))
        path.replace(target)
        force(str(path.parent))

    def cuts(self) -> list[Any]:
        """Return the offsets that cut the next batches, for the source.

        The first is the offset of the last logged batch, where the next batch begins. The others are the ends of the
        batches that are done again. Empty where no such offset is kept.
        """
        kept = {int(path.name): path for path in _entries(self.checkpoint / RECOVERY_FOLDER / "offsets")}
        for number in [number for number in kept if number <= self.last]:
            kept.pop(number).unlink(missing_ok=True)
        found, number = [], self.last + 1
        while number in kept:
            found.append(source_offset(kept[number].read_text()))
            number += 1
        first = self.checkpoint / "offsets" / str(self.last)
        if self.last < 0:
            first = self.checkpoint / RECOVERY_FOLDER / "offsets" / INITIAL
        return [source_offset(first.read_text()), *found] if found and first.exists() else []


def recovered(checkpoint: Place, tables: TableSet, partitions: int) -> list[Any]:
    """Mend a checkpoint and its tables so that the query can go on. Return how the source has to cut the next batches.

    Parameters
    ----------
    checkpoint : Place
        The checkpoint of a query that is not running.
    tables : TableSet
    partitions : int
        Number of the query's state partitions.

    Returns
    -------
    list
        Offsets (`SourceOptions.cuts`); empty where every batch to come is cut anew.

    Raises
    ------
    RecoveryError
        Rows might be lost. Nothing was changed.
    """
    recovery = planned_recovery(checkpoint, tables, partitions)
    recovery.carry_out()
    return recovery.cuts()


def planned_recovery(
    checkpoint: Place,
    tables: TableSet,
    partitions: int,
    *,
    far: bool = False,
    fits: Callable[[int], bool] = lambda version: True,
) -> Recovery:
    """Return what is to be done before the query starts. Change nothing.

    Parameters
    ----------
    checkpoint, tables, partitions
        As for `recovered`.
    far : bool, keyword-only
        Also go back for a table that has no batch at all. A restart does not: it takes such a table for a new one.
    fits : callable, keyword-only
        Tells whether a version of the state, whose files are whole, can be used.
    """
    spark = SparkFiles.of(checkpoint, partitions)
    tails = {name: tail for name in TableSet.names() if (tail := tail_of(tables.path_of(name))) is not None}
    found = Recovery(checkpoint)
    found.tails = [tail for tail in tails.values() if tail.torn]
    for tail in found.tails:
        found.notes.append(f"the log of {tail.path} is whole only up to version {tail.version}")
        if tail.refusal:
            found.refusal = f"the log of {tail.path} is torn after version {tail.version}; {tail.refusal}"
    held = [tail.last_batch for tail in tails.values() if tail.last_batch is not None]
    newest_held = max(held, default=-1)
    if spark.query_id is None:
        _without_metadata(found, spark, newest_held)
        return found
    found.last = last = _last_offsets(spark, _held_by_all(tails))
    torn = sorted(number for number in {*spark.offsets, *spark.torn_offsets} if number > last)
    if torn:
        found.notes.append(f"the offset log is whole only up to batch {last}")
        if newest_held > last:
            found.torn_offsets = (
                f"the offsets of batch {last + 1} are torn, and the tables hold batches up to {newest_held}"
            )
    if last > 0 and last - 1 not in spark.offsets and last not in spark.commits:
        found.notes.append(f"batch {last} is in all tables and its state is whole, so it counts as done")
        found.completed = last
    done = last if last in spark.commits or found.completed is not None else last - 1
    following = max(done + 1, 0)
    back = min(following, _first_lacking(found, tails, following, far=far))
    back = min((back, *(batch for tail in found.tails for batch in tail.batches)))
    if done == last and _lacks_asides(found, tails, last):
        back = min(back, max(last, 0))  # a batch that is not done writes the entry again anyway
    batch = _with_state(spark, back, fits)
    if batch < back:
        found.notes.append(f"the state of batch {back} is not whole; the newest whole one is that of batch {batch}")
    found.batch = max(batch, 0)
    _go_back(found, spark, torn, back, batch)
    return found


def _last_offsets(spark: SparkFiles, held: int) -> int:
    """Return the newest batch whose offsets are whole and that is done or can be done again; -1 where there is none."""
    for number in sorted(spark.offsets, reverse=True):
        if number == 0 or number - 1 in spark.offsets or number in spark.commits:
            return number
        # Spark purged the entry before this one when it logged a later one, which is lost.
        if number <= held and spark.has_state(number + 1):
            return number
    return -1


def _held_by_all(tails: dict[str, LogTail]) -> int:
    """Return the newest batch that is in all tables to which every batch adds an entry; -1 where there is none.

    A table without any batch does not count.
    """
    last = [tail.last_batch for name, tail in tails.items() if name not in _ASIDES.values()]
    return min((batch for batch in last if batch is not None), default=-1)


def _first_lacking(found: Recovery, tails: dict[str, LogTail], following: int, *, far: bool) -> int:
    """Return the first batch that some table lacks, at most `following`."""
    first = following
    for name, tail in tails.items():
        if name in _ASIDES.values():
            continue  # not every batch is in these
        last = -1 if tail.last_batch is None else tail.last_batch
        is_new = last < 0 and not tail.torn and not far
        if last + 1 < first and not is_new:
            found.notes.append(f"the table {tail.path} lacks the batches from {last + 1} on")
            first = last + 1
    return first


def _lacks_asides(found: Recovery, tails: dict[str, LogTail], batch: int) -> bool:
    """Whether a done batch may lack its late tuples or its rejects: their log ends in a torn entry.

    Few batches have any, so such an entry may be of a later one. The ledger tells: it counts them.
    """
    torn = {column: tails[name] for column, name in _ASIDES.items() if name in tails and tails[name] in found.tails}
    lacking = [column for column, tail in torn.items() if tail.last_batch is None or tail.last_batch < batch]
    if not lacking:
        return False
    rows = _ledger_rows(tails.get("ledger"), batch, lacking)
    return rows is None or any(any(row.values()) for row in rows)


def _ledger_rows(ledger: LogTail | None, batch: int, columns: list[str]) -> list[dict[str, int]] | None:
    """Return columns of the ledger's rows of a batch; None where they cannot be read."""
    if ledger is None:
        return None
    try:
        for version in range(ledger.version, 0, -1):
            commit = read_commit(ledger.path, version)
            if commit.batch_id is not None and commit.batch_id <= batch:
                if commit.batch_id < batch:
                    return None
                paths = [f"{ledger.path}/{path}" for path in commit.paths]
                return [row for path in paths for row in parquet.read_table(path, columns=columns).to_pylist()]
    except (StreamJoinError, OSError, ArrowException):
        return None
    return None


def _with_state(spark: SparkFiles, batch: int, fits: Callable[[int], bool]) -> int:
    """Return the newest batch up to `batch` for which offsets and state are kept; -1 where there is none."""
    oldest = min(spark.offsets, default=0)
    while batch >= oldest:
        if (batch == 0 or batch - 1 in spark.offsets) and spark.has_state(batch) and fits(batch):
            return batch
        batch -= 1
    return -1


def _go_back(found: Recovery, spark: SparkFiles, torn: list[int], back: int, batch: int) -> None:
    if batch < 0:
        found.refusal = found.refusal or f"no state is kept from which batch {back} could be done again"
        return
    again = range(batch, found.last + 1)
    if not all(number in spark.offsets for number in again):
        missing = next(number for number in again if number not in spark.offsets)
        found.refusal = (
            found.refusal or f"batch {batch} has to be done again, but the offsets of batch {missing} are gone"
        )
        return
    folder = found.checkpoint
    commits = sorted(
        number for number in {*spark.commits, *spark.torn_commits} if number >= batch or number in spark.torn_commits
    )
    later = [number for number in again if number > batch]
    if later:
        found.notes.append(f"batches {batch} to {found.last} are done again, with the same records as before")
    found.kept |= {str(number): spark.offsets[number] for number in later}
    # Commits go first, the newest first: at every moment a batch that counts as done must have its offsets.
    found.aside += [folder / "commits" / str(number) for number in reversed(commits)]
    if commits:
        found.notes.append(f"Spark's commits of batches {commits} are set aside")
    found.aside += [folder / "offsets" / str(number) for number in reversed([*later, *torn])]
    state = folder / "state"
    if batch == 0 and found.last >= 0 and state.exists() and (later or not spark.has_state(1)):
        found.aside.append(state)
    else:
        # The state of a batch whose offsets are lost is of no use: the batch is cut anew and leaves another state.
        found.aside += sorted({*spark.torn_state(batch), *spark.later_state(found.last + 1)})
    found.aside += spark.torn_checksums
    found.last = min(found.last, batch)


def _without_metadata(found: Recovery, spark: SparkFiles, newest_held: int) -> None:
    """Plan for a query whose id is missing or torn: begin anew, or refuse where the tables hold batches."""
    begun = [found.checkpoint / name for name in ("metadata", "commits", "offsets", "state")]
    there = [path for path in begun if path.exists()]
    if not there:
        return
    if newest_held >= 0:
        found.refusal = f"the checkpoint's metadata is torn or gone, and the tables hold batches up to {newest_held}"
        return
    found.notes.append("the query's id is torn or gone, and no batch was found in a table: the query begins anew")
    found.aside = there


def _entries(folder: Place) -> list[Place]:
    return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []


def put(path: Place, text: str) -> None:
    """Write a file under another name, force it to the device, and rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_text(text)
    force(str(aside))
    aside.replace(path)
    force(str(path.parent))


def cuts_option(cuts: Sequence[Any]) -> dict[str, str]:
    """Return offsets as the source's option ``cuts``; no option for fewer than two, which cut no batch."""
    return {"cuts": json.dumps(list(cuts))} if len(cuts) > 1 else {}
