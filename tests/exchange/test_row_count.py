"""The rows that a layout ships are those that its cost says (Svingos, 2016, section 4.2); the metrics count them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamjoin_ds.plan import Layout, Load, layout_cost
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Generator, Join, Stream, bind
from tests.support.microbatch import MicroBatches

SECONDS = 20
RATES = {"l": 100, "r": 400, "s": 50}


@pytest.mark.parametrize("layout", ["4x4", "2x8", "1x16", "16x1", "2x2x4", "1x8x2"])
@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_the_model_of_the_bandwidth_is_what_is_shipped(tmp_path: Path, layout: str, exchange: str) -> None:
    names = "lrs"[: layout.count("x") + 1]
    streams = [
        Stream(
            name, Generator("sensor", {"rows": RATES[name] * SECONDS, "rate": RATES[name], "seed": place}), delay="1h"
        )
        for place, name in enumerate(names)
    ]
    on = [f"abs(l.temperature - {name}.temperature) <= 1" for name in names[1:]]
    bound = bind(Join(streams, on, "5s"), {stream.name: infer_schema(stream) for stream in streams})
    wanted = Layout.parse(layout, len(names))
    batches = MicroBatches(bound, tmp_path / "c", wanted, exchange=exchange, layout_schedule=((0, wanted),))
    start = batches.offset
    end = batches.reader.latestOffset(start, batches.reader.getDefaultReadLimit())
    shipped = sum(row.rows for row in batches.exchanged(start, end) if row.kind == "tuples")
    cost = layout_cost(wanted, Load.of_join(bound, [RATES[name] for name in names]))
    assert shipped == pytest.approx(cost.shipped_rows_per_s * SECONDS, rel=0.02)


@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_the_metrics_count_what_is_shipped_while_the_layout_changes(tmp_path: Path, exchange: str) -> None:
    streams = [
        Stream(name, Generator("sensor", {"rows": rows, "rate": rows // 20, "seed": rows, "late": 0}), delay="2s")
        for name, rows in (("l", 200), ("r", 400))
    ]
    join = Join(streams, "abs(l.temperature - r.temperature) <= 1", "1s")
    bound = bind(join, {stream.name: infer_schema(stream) for stream in streams})
    first, schedule = Layout((2, 3)), ((150, Layout((1, 6))), (400, Layout((4, 1))))
    batches = MicroBatches(
        bound, tmp_path, first, max_rows_per_batch=60, exchange=exchange, layout_schedule=schedule
    )  # fmt: skip
    batches.run()
    metrics = batches.companion("metrics").to_pylist()
    ledger = batches.companion("ledger").to_pylist()
    stored = {(row["batch_id"], row["stream"]): row["stored"] for row in ledger}
    kinds = set()
    for number in range(batches.batch_id):
        offset = json.loads((tmp_path / "offsets" / str(number)).read_text().splitlines()[-1])
        epochs = BatchPlan.from_offset(offset, bound.names).layout.epochs_from(first)
        kinds.add((str(epochs.current.layout), len(epochs.live)))
        shipped = sum(
            stored[number, name] * len(epoch.layout.cells_of(stream, 0))
            for stream, name in enumerate(bound.names)
            for epoch in epochs.live
        )
        of_batch = [row for row in metrics if row["batch_id"] == number]
        assert sum(row["shipped_rows"] for row in of_batch) == shipped > 0
        assert {row["layout"] for row in of_batch} == {str(epochs.current.layout)}
    assert kinds == {("2x3", 1), ("1x6", 2), ("1x6", 1), ("4x1", 2), ("4x1", 1)}
