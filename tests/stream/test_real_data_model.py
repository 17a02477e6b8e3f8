"""All known counts, and every row, through source, cells and commit with the model of Spark's micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamjoin_ds.plan import EXCHANGES, Layout
from tests.support.further import further
from tests.support.microbatch import MicroBatches
from tests.support.real_data import REAL_JOINS, RealJoin, answer, assert_same_rows, needs_data

pytestmark = [pytest.mark.shared, needs_data]

LAYOUTS = ("1x1", "1x2", "2x2")
BATCHES = (1_000, 50_000, 10_000_000)
# Every layout, way and batch size is paired with each of the others at least once, spread over the joins. The smallest
# batches are those of the smallest join, since they take a minute with the others. `make test` runs every second pair;
# the campaign runs the others, and below every combination.
_SPREAD = [
    (
        real,
        LAYOUTS[(number + shift) % 3],
        EXCHANGES[shift % 2],
        50_000 if batch_rows < 50_000 and number else batch_rows,
    )
    for number, real in enumerate(REAL_JOINS)
    for shift, batch_rows in enumerate((BATCHES[number % 3], BATCHES[(number + 2) % 3], BATCHES[(number + 1) % 3]))
]


def _name(value: object) -> str:
    return value.name if isinstance(value, RealJoin) else str(value)


def check(real: RealJoin, layout: str, exchange: str, batch_rows: int, folder: Path) -> None:
    run = MicroBatches(real.bound(), folder, Layout.parse(layout, 2), exchange, batch_rows)
    matches = run.run()
    assert matches.num_rows == real.matches
    assert_same_rows(matches, answer(real.name))


@pytest.mark.parametrize(
    ("real", "layout", "exchange", "batch_rows"),
    [
        *_SPREAD[::4],
        *further(*_SPREAD[2::4]),
        *(pytest.param(*way, marks=pytest.mark.campaign) for way in _SPREAD[1::2]),
    ],
    ids=_name,
)
def test_every_row_is_the_oracles(real: RealJoin, layout: str, exchange: str, batch_rows: int, tmp_path: Path) -> None:
    check(real, layout, exchange, batch_rows, tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("batch_rows", BATCHES)
@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("real", REAL_JOINS, ids=_name)
def test_every_combination(real: RealJoin, layout: str, exchange: str, batch_rows: int, tmp_path: Path) -> None:
    check(real, layout, exchange, batch_rows, tmp_path)
