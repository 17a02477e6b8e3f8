"""A small join with late rows and rejects, run to its end without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamjoin_ds import Stream, StreamJoin

ROWS = 400


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


SCHEMA = {"ts": "int64", "lat": "double", "lon": "double"}


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    run = Joined(tmp_path_factory.mktemp("joined"))
    run.run()
    return run
