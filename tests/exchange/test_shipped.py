"""The rows that a layout ships are those that its cost says (Svingos, 2016, section 4.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamjoin_ds.plan import Layout, Load, layout_cost
from streamjoin_ds.source.infer import infer_schema
from streamjoin_ds.spec import Generator, Join, Stream, bind
from tests.support.microbatch import MicroBatches

SECONDS = 20
RATES = {"l": 100, "r": 400, "s": 50}


@pytest.mark.parametrize("layout", ["4x4", "2x8", "1x16", "16x1", "2x2x4", "1x8x2"])
@pytest.mark.parametrize("exchange", ["reference", "packed", "rows"])
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
