"""What must be in the tables at the end, and what is there: every result once, every record accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.faults.soak.consumer import DELETED_REST, DELETED_STEP, Consumer, triples
from tests.faults.soak.rows import DELAY_US, NAMES, Recorded, expected

__all__ = ["differences"]

_ASIDE = " is set aside"
_CHANGED = "what the file holds now" + _ASIDE


def differences(
    root: Path,
    recorded: dict[str, Recorded],
    dropped: Counter[tuple[str, str]],
    consumer: Consumer,
    how: str,
) -> list[str]:
    """Return what is not as it must be, as texts.

    Parameters
    ----------
    root : Path
        The folder of the tables.
    recorded : dict of str to Recorded
        What was written, by stream.
    dropped : Counter of (stream, file)
        Bad files (`poison.Poison.dropped`).
    consumer : Consumer
        The consumer, after its last look.
    how : str
        The kind of join.
    """
    tables = TableSet(str(root / "matches"))
    # The last batch has both streams awake: so far behind the watermark are what their tuples wait for.
    until_us = min(side.largest_us for side in recorded.values()) - DELAY_US
    wanted = expected(recorded["e"], recorded["w"], how, until_us)
    deleted = (wanted[:, 0] % DELETED_STEP == DELETED_REST) & (wanted[:, 2] < consumer.deleted_before_us)
    found = _of_results("the table", wanted[~deleted], triples(_rows(tables.matches)))
    followed = np.concatenate([np.empty((0, 3), np.int64), *consumer.followed])
    if np.any(np.diff(followed[:, 2]) < 0):
        found.append("the follower gave results out of order")
    found += _of_results("the follower", wanted[wanted[:, 2] < consumer.punctuation_us], followed)
    return found + _of_fates(tables, recorded) + _of_files(tables, dropped)


def _rows(path: str) -> pa.Table:
    return scanned(DeltaTable(path)).to_table()


def _of_results(what: str, wanted: np.ndarray, found: np.ndarray) -> list[str]:
    ordered = found[np.lexsort(found.T[::-1])]
    wanted = wanted[np.lexsort(wanted.T[::-1])]
    if ordered.shape == wanted.shape and np.array_equal(ordered, wanted):
        return []
    have, want = Counter(map(tuple, ordered.tolist())), Counter(map(tuple, wanted.tolist()))
    lost, surplus = want - have, have - want
    return [
        f"{what} has {len(found)} results of {len(wanted)}; lost {lost.total()} {sorted(lost)[:3]}, "
        f"surplus {surplus.total()} {sorted(surplus)[:3]}"
    ]


def _of_fates(tables: TableSet, recorded: dict[str, Recorded]) -> list[str]:
    """Compare the ledger's counts, and the rows that are kept of records that were not joined."""
    found = []
    ledger = _rows(tables.ledger).to_pylist()
    kept = {"late": tables.late, "rejected": tables.rejects}
    rows = {fate: Counter(_rows(path)["stream"].to_pylist()) for fate, path in kept.items()}
    for name in NAMES:
        for fate, count in {"read": len(recorded[name]), **recorded[name].fates}.items():
            said = sum(row[fate] for row in ledger if row["stream"] == name)
            if said != count:
                found.append(f"the ledger says {said} {fate} of stream {name}, not {count}")
            if fate in rows and rows[fate][name] != count:
                found.append(f"{rows[fate][name]} rows are kept of {count} {fate} of stream {name}")
    return found


def _of_files(tables: TableSet, dropped: Counter[tuple[str, str]]) -> list[str]:
    """Check that the rejects name every bad file once."""
    rows = [row for row in _rows(tables.rejects).to_pylist() if (row["text"] or "").endswith(_ASIDE)]
    named = Counter((row["stream"], "" if row["text"] == _CHANGED else Path(row["file"]).name) for row in rows)
    lost, surplus = dropped - named, named - dropped
    return [f"the rejects lack files {dict(lost)}, and have {dict(surplus)}"] if lost or surplus else []
