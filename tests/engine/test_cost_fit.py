"""The fit of costs: within a second, believable, and of the costs that a clock tells."""

from __future__ import annotations

import logging
import time

import pyarrow as pa
import pytest

from streamjoin_ds.engine import sizing
from streamjoin_ds.engine.cost_model import USUAL_COSTS, OperationCosts
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.sizing import believed_costs, fit_costs, fitted_costs, kinds_of
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind
from tests.engine.streams import TIME


def bound_on(on: str, streams: str = "rs") -> BoundJoin:
    schema = pa.schema([("ts", TIME), ("x", pa.int64()), ("y", pa.float64())])
    if "name" in on:
        schema = schema.append(pa.field("name", pa.string()))
    return bind(Join([Stream(name) for name in streams], on, "1s"), dict.fromkeys(streams, schema))


@pytest.mark.parametrize(
    ("on", "streams", "kinds"),
    [
        ("abs(r.x - s.x) <= 1", "rs", ("int",)),
        ("abs(r.x - s.x) <= 1 and abs(r.y - s.y) <= 1", "rs", ("int", "float")),
        ("r.name = s.name", "rs", ("int", "text")),
        ("abs(r.y - s.y) <= 1 and r.name <> s.name", "rs", ("float", "text")),
        ("abs(r.x - s.x) <= 1 and abs(s.x - t.x) <= 1 and abs(s.y - t.y) <= 1", "rst", ("int", "float")),
        ("r.x <> s.x", "rs", ()),
    ],
)
def test_a_twin_has_the_conditions_of_the_two_streams_with_the_most(
    on: str, streams: str, kinds: tuple[str, ...]
) -> None:
    assert kinds_of(bound_on(on, streams)) == kinds


def test_a_fit_takes_less_than_a_second_and_is_believable() -> None:
    began = time.process_time()
    costs = fit_costs(("int", "float"), load_kernels())
    assert time.process_time() - began < 1.0
    assert costs.scanned_row_ns < 100
    assert costs.sealed_run_ns > 1000  # a run is a dozen of Python objects


def test_a_join_without_bands_is_not_measured() -> None:
    assert fitted_costs(bound_on("r.x <> s.x")) is None


class BrokenClock:
    """A clock that stands still for some calls, and then jumps."""

    def __init__(self, step: int) -> None:
        self.now, self.step = 0, step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


@pytest.mark.parametrize("step", [0, 10**9])
def test_what_a_broken_clock_tells_is_not_believed(step: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, sizing.__name__):
        assert believed_costs(("int",), load_kernels(), BrokenClock(step)) is None
    assert "the usual sizes of runs hold" in caplog.text


def test_a_measurement_that_fails_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object) -> OperationCosts:
        raise MemoryError

    monkeypatch.setattr(sizing, "fit_costs", failing)
    with caplog.at_level(logging.DEBUG, sizing.__name__):
        assert believed_costs(("int",), load_kernels()) is None
    assert "could not be measured (MemoryError)" in caplog.text


def test_joins_of_one_kind_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*given: object) -> OperationCosts:
        asked.append(given)
        return USUAL_COSTS

    monkeypatch.setattr(sizing, "fit_costs", counted)
    # Nobody else asks for four conditions and the twins: what is kept of this test disturbs no other.
    bound = bound_on(" and ".join(f"abs(r.{name} - s.{name}) <= {eps}" for name in "xy" for eps in (1, 2)))
    assert fitted_costs(bound, "reference") == fitted_costs(bound, "reference") == USUAL_COSTS
    assert len(asked) == 1
