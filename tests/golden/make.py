"""Make a golden checkpoint, once for each format: ``python -m tests.golden.make v1``. One that is there is kept."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.infer import infer_schema
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind
from tests.support.microbatch import MicroBatches

FOLDER = Path(__file__).parent
LAYOUT = Layout((1, 2))
MAX_ROWS = 90
BATCHES = 7
BLOCK_BYTES = 1_800


def golden_join() -> BoundJoin:
    """Return a join of columns of every kind: integers, floats of both widths, fixed and long texts, booleans."""
    streams = [
        Stream(side, Generator("band2d", {"side": side, "rate": 50, "rows": 450, "seed": 3, "low": 1, "high": 60}))
        for side in ("r", "s")
    ]
    join = Join(streams, "abs(r.x - s.a) <= 3 AND abs(r.y - s.b) <= 3", {"r": "5s", "s": "3s"})
    return bind(join, {stream.name: infer_schema(stream) for stream in streams})


def batches(folder: Path) -> MicroBatches:
    """Return the query of the golden checkpoint in another folder."""
    return MicroBatches(
        golden_join(), folder, LAYOUT, max_rows_per_batch=MAX_ROWS, block_bytes=BLOCK_BYTES, retain_batches=2
    )


def held(plan_of: MicroBatches) -> list[list[list[int]]]:
    """Return the sorted numbers of the tuples in each cell's windows."""
    windows = [CellWindows(plan_of.plan, cell, blob).engine.windows for cell, blob in sorted(plan_of.states.items())]
    return [[sorted(seq for run in w.runs for seq in run.tuples["_seq"].to_pylist()) for w in cell] for cell in windows]


def gone_on(query: MicroBatches) -> list[list[object]]:
    """Return the results from here to the end of the input, found by the cells alone, without a commit.

    A result is a list of its columns as text, without the batch id.
    """
    query.reader.prepareForTriggerAvailableNow()
    found = []
    while True:
        end = json.loads(json.dumps(query.reader.latestOffset(query.offset, ReadMaxRows(MAX_ROWS))))
        if end == query.offset:
            return sorted(found, key=repr)
        for report in query.cells(query.exchanged(query.offset, end)):
            facts = json.loads(report.facts)
            if report.kind == "file" and facts["table"] == "matches":
                table = pq.read_table(Path(query.plan.table_root) / facts["path"]).drop_columns(["batch_id"])
                found += [[str(value) for value in row.values()] for row in table.to_pylist()]
        query.offset, query.batch_id = end, query.batch_id + 1


def main() -> None:
    """Write the folder of the version that the command line names."""
    target = FOLDER / sys.argv[1]
    target.mkdir()  # fails where the folder is there
    with tempfile.TemporaryDirectory() as name:
        query = batches(Path(name) / "checkpoint")
        query.reader.prepareForTriggerAvailableNow()
        for number in range(BATCHES):  # there are runs in blocks, runs inline, and a tail
            with pytest.MonkeyPatch.context() as patch:
                tail = TailTuning(most_arrived_rows=0 if number % 3 else MAX_ROWS)
                patch.setattr(CellWindows, "tuning", Tuning(tail=tail))
                assert query.step()
        CheckpointIdentity.create(query.folder, query.bound, LAYOUT, LAYOUT.cells)
        shutil.copy(query.folder / "join.json", target)
        shutil.copytree(query.plan.state_root, target / "blocks")
        for cell, blob in query.states.items():
            (target / f"state-{cell}.bin").write_bytes(blob)
        (target / "offset.json").write_text(json.dumps(query.offset))
        expected = {"batch_id": query.batch_id, "held": held(query), "results": gone_on(query)}
        (target / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
