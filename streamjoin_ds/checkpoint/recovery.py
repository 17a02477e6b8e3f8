"""What a restart does before its query begins: torn files go, and the query goes back to where all fits together.

::

    newest entries of the tables' logs ──┐
    Spark's offsets, commits, state ─────┼──► Recovery: what goes aside, which batch is next, how the batches after it
    offsets set aside before ────────────┘              were cut ──► done ──► the query starts

A batch may be done again as often as one likes: each table says whether it has it, and blocks and states come out the
same, as long as it holds the same records. So what is torn is set aside, with all that is newer, and the query goes
back as far as needed. The offsets of the batches that are done again are kept and cut them as before. What cannot be
mended so is an error that points at `streamjoin repair`. Nothing is deleted: it lies in ``<checkpoint>/recovery`` and
``<table>/_torn``.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamjoin_ds.checkpoint.spark_files import SparkFiles, source_offset
from streamjoin_ds.errors import RecoveryError
from streamjoin_ds.sink.durability import force
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.tail import LogTail, tail_of

__all__ = ["INITIAL", "RECOVERY_FOLDER", "Recovery", "cuts_option", "planned_recovery", "put", "recovered"]

RECOVERY_FOLDER = "recovery"
INITIAL = "initial"  # the offset before the first batch, where no batch is logged
_log = logging.getLogger(__name__)
_HINT = "`streamjoin repair CHECKPOINT --dry-run` says what can be mended, and what is lost"
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'  # no query of a join has a watermark that Spark knows of


@dataclass
class Recovery:
    """What is to be done before the query starts.

    Attributes
    ----------
    batch : int
        The batch that the query does next.
    tails : list of LogTail
        Of the tables whose logs end in something torn.
    aside : list of Path
        Files of the checkpoint that go aside, in this order.
    kept : dict of int to str
        Entries of the offset log that go aside, and say how batches are cut that are done again.
    notes : list of str
        What was found, a line each.
    last : int
        The newest batch that Spark has offsets of, when all is done.
    completed : int or None
        A batch that is done, as tables and state tell, and that Spark is to take for done.
    refusal : str
        Why it cannot be done; empty where it can.
    """

    checkpoint: Path
    batch: int = 0
    tails: list[LogTail] = field(default_factory=list)
    aside: list[Path] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refusal: str = ""
    last: int = -1
    completed: int | None = None

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.tails or self.aside or self.completed is not None)

    def carry_out(self) -> None:
        """Do it; cut off at any place it is begun again, and comes to the same.

        Raises
        ------
        RecoveryError
            It cannot be done; nothing was changed.
        """
        if self.refusal:
            raise RecoveryError(self.refusal, name="checkpoint", hint=_HINT)
        for note in self.notes:
            _log.warning("after a power cut or a crash: %s", note)
        for tail in self.tails:
            tail.set_aside()
        folder = self.checkpoint / RECOVERY_FOLDER
        for number, text in self.kept.items():
            put(folder / "offsets" / str(number), text)
        for path in self.aside:
            self._set_aside(path, folder)
        if self.completed is not None:
            path = self.checkpoint / "commits" / str(self.completed)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            put(path, _COMMIT)

    def _set_aside(self, path: Path, folder: Path) -> None:
        if not path.exists():  # went with what it belongs to
            return
        inside = path.relative_to(self.checkpoint)
        target, number = folder / "torn" / inside, 0
        while target.exists():
            number += 1
            target = folder / "torn" / inside.with_name(f"{inside.name}.{number}")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Its checksums first: a file without any is read, one with another's is not.
        sums = path.with_name(f".{path.name}.crc")
        if sums.exists():
            sums.replace(target.with_name(f".{target.name}.crc"))
        path.replace(target)
        force(str(path.parent))

    def cuts(self) -> list[Any]:
        """Offsets from that of the last batch that is logged on, for the source; fewer than two say nothing."""
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


def recovered(checkpoint: Path, tables: TableSet, partitions: int) -> list[Any]:
    """Make a checkpoint and its tables fit to go on, and tell how the source is to cut the next batches.

    Parameters
    ----------
    checkpoint : Path
        Of a query that is not running.
    tables : TableSet
    partitions : int
        Of its state.

    Returns
    -------
    list
        Offsets (`SourceOptions.cuts`).

    Raises
    ------
    RecoveryError
        Rows might be lost: nothing was changed.
    """
    recovery = planned_recovery(checkpoint, tables, partitions)
    recovery.carry_out()
    return recovery.cuts()


def planned_recovery(
    checkpoint: Path,
    tables: TableSet,
    partitions: int,
    *,
    far: bool = False,
    fits: Callable[[int], bool] = lambda version: True,
) -> Recovery:
    """Look at all, and say what is to be done; changes nothing.

    Parameters
    ----------
    checkpoint, tables, partitions
        As of `recovered`.
    far : bool, keyword-only
        Also go back where a table has none of the checkpoint's batches, which a restart takes for another's table.
    fits : callable, keyword-only
        Whether a version of the state, whose files are whole, can be used.
    """
    spark = SparkFiles.of(checkpoint, partitions)
    tails = {name: tail for name in TableSet.names() if (tail := tail_of(tables.path_of(name))) is not None}
    found = Recovery(checkpoint)
    found.tails = [tail for tail in tails.values() if tail.torn]
    for tail in found.tails:
        found.notes.append(f"the log of {tail.path} is whole up to version {tail.version} only")
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
        found.notes.append(f"the offset log is whole up to batch {last} only")
        if newest_held > last:
            found.refusal = f"the offsets of batch {last + 1} are torn, and the tables hold batches up to {newest_held}"
    if last > 0 and last - 1 not in spark.offsets and last not in spark.commits:
        found.notes.append(f"batch {last} is in all tables, and its state is whole: it is done")
        found.completed = last
    done = last if last in spark.commits or found.completed is not None else last - 1
    following = max(done + 1, 0)
    back = min(following, _first_lacking(found, tails, following, far=far))
    back = min((back, *(batch for tail in found.tails for batch in tail.batches)))
    if done == last and _lacks_asides(found, tails):
        back = min(back, max(last, 0))  # of a batch that is under way it is the first entry, and written again
    batch = _with_state(spark, back, fits)
    if batch < back:
        found.notes.append(f"the state of batch {back} is not whole, that of batch {batch} is")
    found.batch = max(batch, 0)
    _go_back(found, spark, torn, back, batch)
    return found


def _last_offsets(spark: SparkFiles, held: int) -> int:
    """The newest batch whose offsets are whole, and that is done or can be done again; -1 where there is none."""
    for number in sorted(spark.offsets, reverse=True):
        if number == 0 or number - 1 in spark.offsets or number in spark.commits:
            return number
        # The entry before it was purged for one that is lost.
        if number <= held and spark.has_state(number + 1):
            return number
    return -1


def _held_by_all(tails: dict[str, LogTail]) -> int:
    """Up to which batch all tables are complete that every batch is in."""
    last = [tail.last_batch for name, tail in tails.items() if name not in ("late", "rejects")]
    return min((batch for batch in last if batch is not None), default=-1)


def _first_lacking(found: Recovery, tails: dict[str, LogTail], following: int, *, far: bool) -> int:
    """The first batch that some table has to be given again."""
    first = following
    for name, tail in tails.items():
        if name in ("late", "rejects"):
            continue  # not every batch is in these
        last = -1 if tail.last_batch is None else tail.last_batch
        is_new = last < 0 and not tail.torn and not far
        if last + 1 < first and not is_new:
            found.notes.append(f"the table {tail.path} lacks the batches from {last + 1} on")
            first = last + 1
    return first


def _lacks_asides(found: Recovery, tails: dict[str, LogTail]) -> bool:
    """Whether an entry of late tuples or rejects was torn, of the last batch as Spark tells."""
    return any(tail in found.tails for name, tail in tails.items() if name in ("late", "rejects"))


def _with_state(spark: SparkFiles, batch: int, fits: Callable[[int], bool]) -> int:
    """The newest batch up to this one that can be done with what is kept of the state; -1 where there is none."""
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
        found.refusal = found.refusal or f"batch {batch} has to be done again, and the offsets of {missing} are gone"
        return
    folder = found.checkpoint
    commits = sorted(
        number for number in {*spark.commits, *spark.torn_commits} if number >= batch or number in spark.torn_commits
    )
    later = [number for number in again if number > batch]
    if later:
        found.notes.append(f"batches {batch} to {found.last} are done again, as they were cut")
    found.kept = {number: spark.offsets[number] for number in later}
    # Commits first, the newest first: a batch that counts as done must have its offsets, at every moment.
    found.aside += [folder / "commits" / str(number) for number in reversed(commits)]
    if commits:
        found.notes.append(f"Spark's commits of batches {commits} are set aside")
    found.aside += [folder / "offsets" / str(number) for number in reversed([*later, *torn])]
    state = folder / "state"
    if batch == 0 and found.last >= 0 and state.exists() and (later or not spark.has_state(1)):
        found.aside.append(state)
    else:
        # A state of a batch whose offsets are lost is nobody's: cut anew, the batch leaves another one.
        found.aside += sorted({*spark.torn_state(batch), *spark.later_state(found.last + 1)})
    found.aside += spark.torn_checksums
    found.last = min(found.last, batch)


def _without_metadata(found: Recovery, spark: SparkFiles, newest_held: int) -> None:
    """The query's id is not there, or torn: nothing has happened yet, or it is the operator's to say what did."""
    begun = [found.checkpoint / name for name in ("metadata", "commits", "offsets", "state")]
    there = [path for path in begun if path.exists()]
    if not there:
        return
    if newest_held >= 0:
        found.refusal = f"the checkpoint's metadata is torn or gone, and the tables hold batches up to {newest_held}"
        return
    found.notes.append("the query's id was not written to its end: it had done nothing yet, and begins anew")
    found.aside += there
    found.aside = [path for path in found.aside if path in there]


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []


def put(path: Path, text: str) -> None:
    """Write a file aside, force it to the device, and give it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_text(text)
    force(str(aside))
    os.replace(aside, path)
    force(str(path.parent))


def cuts_option(cuts: Sequence[Any]) -> dict[str, str]:
    """As an option of the source."""
    return {"cuts": json.dumps(list(cuts))} if len(cuts) > 1 else {}
