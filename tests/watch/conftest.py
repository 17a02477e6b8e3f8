"""A small join with late rows and rejects, run to its end without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.tables import LEDGER_SCHEMA, METRICS_SCHEMA, TableSet
from streamjoin_ds.sink.writer import TableWriter

ROWS = 400
CELLS, PARTITIONS = 100, 1_000


class Joined:
    """A join's folder, and how it is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table, self.checkpoint = str(folder / "near"), str(folder / "near.ckpt")
        for name, shift in (("a", 0.0), ("b", 0.01)):
            lines = [
                f"{1_700_000_000_000_000 + number * 100_000},{50 + number * 0.001 + shift},{8 + number * 0.001}\n"
                for number in range(ROWS)
            ]
            late = [line for number, line in enumerate(lines) if number % 100 == 50]  # again, when time has gone on
            (folder / f"{name}.csv").write_text("".join(["ts,lat,lon\n", *lines, *late, "never,1,2\n"]))

    def join(self) -> StreamJoin:
        sources = [Stream(name, str(self.folder / f"{name}.csv"), time="ts") for name in ("a", "b")]
        sources = [Stream(one.name, one.source, time="ts", schema=SCHEMA) for one in sources]
        return StreamJoin(sources, on="abs(a.lat - b.lat) <= 0.02 AND abs(a.lon - b.lon) <= 0.02", window="10s")

    def run(self, **options: object) -> None:
        query = self.join().run_local(
            self.table, self.checkpoint, available_now=True, max_rows_per_batch=150, **options
        )
        assert query.awaitTermination(120)


class Crowded(Joined):
    """A join that goes on with batches that are invented: of many cells, with a backlog of many partitions."""

    def __init__(self, folder: Path, cells: int = CELLS, partitions: int = PARTITIONS, matches: int = 1_000) -> None:
        super().__init__(folder)
        self.run()
        self.cells, self.partitions = cells, partitions
        place = checkpoint_place(self.checkpoint)
        identity = CheckpointIdentity.load(place)
        assert identity is not None
        self.query_id = json.loads((Path(str(identity.spark_folder(place))) / "metadata").read_text())["id"]
        self._schema = identity.bound.result_schema
        self._committer = Committer(
            TableSet(self.table),
            self._schema,
            join_id=identity.join_id,
            fingerprint=identity.bound.fingerprint,
            description="",
        )
        self._committer.open()
        *_, self._row = pa.table(DeltaTable(f"{self.table}_metrics").to_pyarrow_table()).to_pylist()
        self.batch = max(pa.table(DeltaTable(f"{self.table}_metrics").to_pyarrow_table())["batch_id"].to_pylist())
        some = pa.table(DeltaTable(self.table).to_pyarrow_table()).slice(0, 50)
        self._matches = pa.concat_tables([some] * max(1, matches // 50)).combine_chunks()
        self._largest_us = 1_700_000_100_000_000

    def commit(self) -> None:
        """Commit one more batch, whose numbers all differ from those of the one before."""
        self.batch += 1
        self._largest_us += 1_000_000
        partitions = {
            f"sensor-{k:04}": {"rows": (k * 7919 + self.batch) % 1000, "us": k * 1_000_000}
            for k in range(self.partitions)
        }
        rows = sum(one["rows"] for one in partitions.values())
        waits = {"rows": rows, "us": 10**9, "partitions": partitions}
        of_all = {
            "batch_id": self.batch,
            "layout": f"{self.cells // 10 or 1}x{min(self.cells, 10)}",
            "backlog": json.dumps({"a": waits}) if partitions else None,
            "backlog_rows": rows,
            "backlog_us": 10**9,
            "limited_by": "max_rows_per_batch",
            "held_by": "a/sensor-0007",
            "held_us": 86_400_000_000,
        }
        metrics = [
            {**self._row, **of_all, "cell": cell, "state_rows": (cell * 37 + self.batch) % 100 * 1000}
            for cell in range(self.cells)
        ]
        ledger = [
            {**dict.fromkeys(LEDGER_SCHEMA.names), "batch_id": self.batch, "stream": name, "read": 1000, "stored": 1000}
            | dict.fromkeys(("late", "rejected", "filtered", "null_keys", "duplicates", "lost_offsets"), 0)
            | {"largest_ts": self._largest_us}
            for name in ("a", "b")
        ]
        matches = self._matches
        for name, value in (("batch_id", self.batch), ("event_time", self._largest_us)):
            column = pa.array(np.full(matches.num_rows, value)).cast(self._schema.field(name).type)
            matches = matches.set_column(matches.schema.get_field_index(name), name, column)
        with TableWriter(
            self.table, self._schema, table="matches", batch_id=self.batch, label="0", durable=False
        ) as writer:
            writer.write(matches.cast(self._schema))
            files = writer.close()
        self._committer.commit(
            self.batch,
            self.query_id,
            files,
            punctuation_us=self._largest_us - 10_000_000,
            watermark_us=self._largest_us - 10_000_000,
            ledger=pa.Table.from_pylist(ledger, schema=LEDGER_SCHEMA),
            metrics=pa.Table.from_pylist(metrics, schema=METRICS_SCHEMA),
            largest_ts_us=self._largest_us,
        )


SCHEMA: dict[str, Any] = {"ts": "int64", "lat": "double", "lon": "double"}


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    run = Joined(tmp_path_factory.mktemp("joined"))
    run.run()
    return run
