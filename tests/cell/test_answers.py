"""Answers of several cells about the same tuples: together they are the contract's rows, in whatever grid."""

from __future__ import annotations

import random
from collections.abc import Generator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.cell.answers import PartialAnswers, whole_answers
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.errors import AggregateOverflowError, LedgerError
from streamjoin_ds.plan import Layout, copied_streams
from streamjoin_ds.spec import Join, Nearest, Stream, bind
from streamjoin_ds.spec.columns import SEQ
from streamjoin_ds.spec.row_kind import DIRECTIONS
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine import test_how, test_nearest, test_reduce
from tests.engine.scenarios import Scenario, cuts_of, scenarios
from tests.support.examples import examples

GRIDS = st.sampled_from(["1x2", "1x4", "2x2", "3x2", "2x1"])
FORMS = ["", "abs({left} - {right})", "{right} - {left}", "{right}", "({left} - {right}) * 2"]


class CellEngine(JoinEngine):
    """The engine of one cell: it judges all tuples, as all cells do, and is given its own groups'."""

    def __init__(self, join: Join, layout: Layout, cell: int, **options: Any) -> None:
        self._layout, self._cell = layout, cell
        super().__init__(join, **options)

    def _bind(self) -> None:
        bound = bind(self._asked, self._schemas.known)  # type: ignore[arg-type]
        self._options["copied"] = copied_streams(bound, self._layout)
        super()._bind()
        push = self._join.push

        def given(tuples: Any, *args: Any, **more: Any) -> Generator[pa.Table]:
            mine = {stream: self._mine(stream, rows) for stream, rows in tuples.items()}
            return push(mine, *args, **more)

        self._join.push = given  # type: ignore[method-assign]

    def _mine(self, stream: int, rows: Any) -> Any:
        group, groups = self._layout.group_in_cell(self._cell, stream), self._layout.counts[stream]
        numbers = rows[SEQ].to_pylist()
        return rows.filter(pa.array([number % groups == group for number in numbers], pa.bool_()))

    def chunks(self, rows: Any) -> list[pa.Table]:
        """Return the chunks of a push; None: those of the end."""
        return [*(self._ending() if rows is None else self._chunks(rows))]


class Cells:
    """The cells of a grid, and a commit after each push."""

    def __init__(self, join: Join, text: str, **options: Any) -> None:
        self.layout = Layout.parse(text, len(join.names))
        self.engines = [CellEngine(join, self.layout, cell, **options) for cell in range(self.layout.cells)]
        # Of a plan, which has no types that a Delta table has not.
        self.plan: Any = SimpleNamespace(bound=self.engines[0].bound, state_root="")

    def pushed(self, rows: Any) -> list[pa.Table]:
        """Return the rows of a push: those that a cell gives alone, and those that all make together."""
        alone, told = [], {}
        for cell, engine in enumerate(self.engines):
            answers = PartialAnswers(self.plan, self.layout, cell, "label")
            alone += [answers.taken_from(chunk) for chunk in engine.chunks(rows)]
            told[cell] = answers.reported()
        together = whole_answers(self.plan, self.layout, told)
        return [table for table in (*alone, *(rows for _, rows in together)) if table.num_rows]


def found_by(scenario: Scenario, text: str, seed: int, **options: Any) -> list[pa.Table]:
    cells, cuts = Cells(scenario.join, text, **options), cuts_of(scenario, seed)
    found: list[pa.Table] = []
    for push in range(max(len(pieces) for pieces in cuts.values())):
        found += cells.pushed({name: pieces[push] for name, pieces in cuts.items() if push < len(pieces)})
    found += cells.pushed(None)
    schemas = {table.schema for table in found}
    assert len(schemas) <= 1
    return found


@examples(60)
@given(
    scenario=scenarios(streams=(2, 2), kinds=("time",), rows=20),
    how=st.sampled_from(["inner", "left"]),
    text=GRIDS,
    seed=st.integers(0, 1000),
    tuning=st.sampled_from([DEFAULT, test_reduce.FEW]),
)
def test_sums(scenario: Scenario, how: str, text: str, seed: int, tuning: Any) -> None:
    given_join, chooser = scenario.join, random.Random(seed)
    chosen = test_reduce.counts_of(given_join) if seed % 4 == 0 else test_reduce.aggregates_of(scenario, chooser)
    join = Join(given_join.streams, given_join.predicates, given_join.window, ["s0.*"], how=how, reduce=chosen)
    found = found_by(Scenario(join, scenario.tables), text, seed, chunk_rows=64, tuning=tuning)
    assert test_reduce.rows_of(join, *found) == test_reduce.expected_rows(join, scenario.tables)


@examples(60)
@given(
    scenario=scenarios(streams=(2, 2), kinds=("time",)),
    k=st.sampled_from([1, 1, 2, 5]),
    how=st.sampled_from(["inner", "left"]),
    direction=st.sampled_from(DIRECTIONS),
    form=st.sampled_from(FORMS),
    text=GRIDS,
    seed=st.integers(0, 1000),
    tuning=st.sampled_from([DEFAULT, test_nearest.FEW_KEPT]),
)
def test_nearest_partners(
    scenario: Scenario, k: int, how: str, direction: str, form: str, text: str, seed: int, tuning: Any
) -> None:
    scenario = test_nearest.nearest_of(scenario, k, how, direction, form)
    found = found_by(scenario, text, seed, chunk_rows=64, tuning=tuning)
    assert test_nearest.numbers_of(scenario.join, *found) == oracle_numbers(scenario.join, scenario.tables)
    if found:
        test_nearest.assert_rows(scenario, pa.concat_tables(found))


@examples(60)
@given(
    scenario=scenarios(streams=(2, 2), kinds=("time",)),
    how=st.sampled_from(test_how.KINDS),
    bar=st.sampled_from(["", "s0.note <> 'n'", "s1.note = 'n' AND s0.note IS NOT NULL"]),
    text=GRIDS,
    seed=st.integers(0, 1000),
)
def test_rows_of_one_tuple(scenario: Scenario, how: str, bar: str, text: str, seed: int) -> None:
    scenario = test_how.of_kind(scenario, how, bar)
    found = found_by(scenario, text, seed, chunk_rows=64)
    assert test_how.numbers_of(scenario.join, *found) == oracle_numbers(scenario.join, scenario.tables)


@examples(60)
@given(given_join=test_how.of_each(), seed=st.integers(0, 1000), shape=st.randoms(use_true_random=False))
def test_rows_about_each_of_several_streams(given_join: Any, seed: int, shape: random.Random) -> None:
    scenario, _ = given_join
    text = "x".join(str(shape.choice((1, 1, 2, 3))) for _ in scenario.join.names)
    found = found_by(scenario, text, seed, chunk_rows=64)
    assert test_how.numbers_of(scenario.join, *found) == oracle_numbers(scenario.join, scenario.tables)


# ---------------------------------------------------------------------- what cannot be

SCHEMA = {"ts": "int64", "x": "float64", "y": "int64"}


def cells_of(text: str, **options: Any) -> Cells:
    streams = [Stream(name, schema=SCHEMA) for name in "ew"]
    return Cells(Join(streams, "abs(e.x - w.x) <= 9", "100us", **options), text)


def told_by(cells: Cells, rows: Any) -> dict[int, Any]:
    told = {}
    for cell, engine in enumerate(cells.engines):
        answers = PartialAnswers(cells.plan, cells.layout, cell, "label")
        for chunk in (*engine.chunks(rows), *engine.chunks(None)):
            answers.taken_from(chunk)
        told[cell] = answers.reported()
    return told


def row(ts: int, x: float = 0.0, y: int = 0) -> dict[str, Any]:
    return {"ts": ts, "x": x, "y": y}


ROWS = {"e": [row(1), row(2)], "w": [row(3, 1.0, 2**62), row(4, 2.0, -(2**62)), row(5, 3.0, 2**62)]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"how": "left", "reduce": {"n": "count(*)"}}, "not decided the same tuples"),
        ({"nearest": Nearest(2, "abs(e.x - w.x)")}, "two cells have found one pair"),
    ],
)
def test_answers_that_do_not_fit_together_are_a_defect(options: dict[str, Any], says: str) -> None:
    cells = cells_of("1x2", **options)
    told = told_by(cells, ROWS)
    assert [*whole_answers(cells.plan, cells.layout, told)]
    wrong = {**told, 1: {}} if "reduce" in options else {**told, 1: told[0]}
    with pytest.raises(LedgerError, match=says):
        [*whole_answers(cells.plan, cells.layout, wrong)]


def test_the_sum_in_all_cells_may_overflow_and_a_part_of_it_need_not() -> None:
    """It is the whole sum that counts: neither is a part that is too large an error, nor do parts that fit hide one."""
    reduce = {"total": "sum(w.y)"}
    for rows, is_error in ((ROWS["w"], False), (ROWS["w"][::2], True)):
        cells = cells_of("1x2", reduce=reduce)
        told = told_by(cells, {"e": ROWS["e"], "w": rows})
        if is_error:
            with pytest.raises(AggregateOverflowError, match="sum"):
                [*whole_answers(cells.plan, cells.layout, told)]
        else:
            ((_, found),) = whole_answers(cells.plan, cells.layout, told)
            assert found["total"].to_pylist() == [2**62, 2**62]


@pytest.mark.parametrize("name", ["near", "near_rest", "near_us", "met"])
def test_a_column_of_the_result_may_have_any_name(name: str) -> None:
    rows = {"e": [row(1), row(2)], "w": [row(3, 1.0), row(4, 2.0), row(5, 3.0)], "z": [row(3), row(4)]}
    streams = [Stream(one, schema=SCHEMA) for one in "ewz"]
    asked: dict[str, Any] = {"nearest": Nearest(2, "abs(e.x - w.x)"), "how": "left"}
    if name == "met":
        join = Join(
            streams, "e.y = w.y AND e.y = z.y", "9us", [f"e.ts AS {name}", f"e.x + 1 AS more_{name}"], how="semi"
        )
    else:
        join = Join(streams[:2], "e.y = w.y", "9us", [f"w.x - e.x AS {name}"], **asked)
    found = []
    for text in ("1x1", "1x2", "1x3"):
        cells = Cells(join, text if name != "met" else f"{text}x2")
        given_rows = {one: rows[one] for one in join.names}
        found.append(pa.concat_tables([*cells.pushed(given_rows), *cells.pushed(None)]).sort_by("e_seq").to_pylist())
    assert found[0] == found[1] == found[2]
    assert [one[name] for one in found[0]] == (
        [1.0, 2.0] * 2 if name != "met" else [one["event_time"] for one in found[0]]
    )


def test_floats_in_several_cells_are_added_exactly() -> None:
    values = [1e16, 1.0, -1e16, 1e-3, 0.1, 0.2, 3e300, -3e300, 5e-324, -7.0]
    rows = {"e": [row(1)], "w": [row(2 + n, 0.0) | {"x": x} for n, x in enumerate(values)]}
    streams = [Stream(name, schema=SCHEMA) for name in "ew"]
    join = Join(streams, "e.y = w.y", "100us", reduce={"total": "sum(w.x)", "n": "count(*)"})
    for text in ("1x1", "1x2", "1x5"):
        cells = Cells(join, text)
        found = pa.concat_tables([*cells.pushed(rows), *cells.pushed(None)])
        assert found["total"].to_pylist() == [float(sum(map(Fraction, values)))]
        assert pc.sum(found["n"]).as_py() == len(values)
