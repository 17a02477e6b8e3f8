"""The papers' figures: a workload's count against every pair, and the page of a quick run against its own trials."""

from __future__ import annotations

import builtins
import json
import math
import statistics
import time
from html.parser import HTMLParser

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, DependencyMissingError
from tests.bench.results import bench
from tests.bench.suites.figures import page
from tests.bench.suites.figures.basic_window_trial import NEVER, seal_sizes
from tests.bench.suites.figures.suite import figure_names, measure_figures
from tests.bench.suites.figures.trial import Trial, TrialOutcome
from tests.bench.suites.figures.trials import Pushes, joining
from tests.bench.suites.figures.worker import Workers, verified
from tests.bench.suites.figures.workload import KEYS, FigureWorkload
from tests.bench.suites.processes import BenchError
from tests.support.examples import examples


def every_pair(workload, begin_us, end_us):
    """Return the matches of a push of the tuples in ``[begin_us, end_us)``: DuckDB looks at every pair."""
    r, s = (workload.batch(stream, *workload.rows_within(stream, 0, end_us)) for stream in (0, 1))
    tables = {name: pa.Table.from_batches([batch]) for name, batch in (("r", r), ("s", s))}
    w_r, w_s = workload.windows_us
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    (count,) = connection.execute(
        f"""SELECT count(*) FROM r, s WHERE abs(r.x - s.x) <= {workload.eps}
        AND r._ts - s._ts <= {w_s} AND s._ts - r._ts <= {w_r}
        AND greatest(r._ts, s._ts) >= {begin_us} {"AND r._seq <> s._seq" if workload.is_self_join else ""}"""
    ).fetchone()
    return count


workloads = st.builds(
    FigureWorkload,
    window_rows=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    steps_us=st.sampled_from([(1, 1), (1, 3), (2, 1), (1, 15)]),
    keys=st.sampled_from(list(KEYS)),
    matches=st.floats(0.1, 40),
    drift=st.sampled_from([0.0, 0.5]),
    drift_rows=st.just((50, 400)),
    seed=st.integers(0, 9),
)


@examples(40)
@given(workloads, st.integers(0, 600), st.integers(1, 200), st.booleans())
def test_the_count_is_that_of_every_pair(workload, begin_us, span_us, is_self_join):
    if is_self_join:
        rows = workload.window_rows[0]
        workload = FigureWorkload((rows, rows), keys=workload.keys, is_self_join=True, seed=workload.seed)
    assert workload.matches_of_push(begin_us, begin_us + span_us) == every_pair(workload, begin_us, begin_us + span_us)


@examples(25)
@given(workloads, st.integers(1, 70), st.sampled_from([1, 2, 3]), st.sampled_from([2, 3, 50]))
def test_engines_find_what_is_counted_push_by_push(workload, push_rows, cells, merge_runs):
    pushes = Pushes(Trial(workload=workload, push_rows=push_rows, cells=cells, merge_runs=merge_runs))
    try:
        for _ in range(8):
            before, begin_us = pushes.matches, pushes.clock_us
            pushes.push()
            assert pushes.matches - before == workload.matches_of_push(begin_us, pushes.clock_us)
    finally:
        pushes.close()


@pytest.mark.parametrize("keys", list(KEYS))
def test_a_tuple_has_the_matches_that_are_asked_for(keys):
    workload = FigureWorkload((20_000, 20_000), keys=keys, matches=2.0)
    count = workload.matches_of_push(20_000, 40_000)
    assert count / 40_000 == pytest.approx(2.0, rel=0.05)


def test_keys_are_the_same_in_pieces_and_distributed_as_named():
    for keys, mean, deviation in (
        ("uniform", 0.5, math.sqrt(1 / 12)),
        ("gaussian", 0.5, 0.125),
        ("gamma(3, 3)", 9.0, math.sqrt(27)),
        ("gamma(1, 5)", 5.0, 5.0),
    ):
        workload = FigureWorkload(keys=keys)
        values = workload.key_values(0, 1_000, 150_000)
        pieces = [workload.key_values(0, first, first + 49_667) for first in range(1_000, 150_001 - 49_666, 49_667)]
        np.testing.assert_array_equal(np.concatenate(pieces)[: len(values)], values[: sum(map(len, pieces))])
        assert values.mean() / 2**32 == pytest.approx(mean, rel=0.02)
        assert values.std() / 2**32 == pytest.approx(deviation, rel=0.02)
    drifting = FigureWorkload((1_000, 1_000), drift=0.5, drift_rows=(1_000, 3_000))
    moved = drifting.key_values(0, 0, 5_000) - FigureWorkload((1_000, 1_000)).key_values(0, 0, 5_000)
    assert moved[[0, 1_000, 2_000, 3_000, 4_999]].tolist() == [0, 0, 2**31, 2**32, 2**32]


def test_a_wrong_count_ends_the_run():
    outcome = TrialOutcome({}, {}, 6, 7, [])
    with pytest.raises(BenchError, match="finds 6 matches, but an independent count 7"):
        verified(Trial(), outcome)


@pytest.mark.slow
def test_a_trial_whose_process_fails_is_told():
    with (
        Workers() as workers,
        pytest.raises(BenchError, match=r"a trial of kind join: .* failed: ARGUMENT: there is no kernel"),
    ):
        workers.done(Trial(kernel="no such kernel"))


def test_more_work_in_the_same_engine_takes_longer():
    """Real measurements: with 400 times the matches a row, the engine takes fewer than half the rows a second."""
    few, many = (
        joining(Trial(workload=FigureWorkload((1 << 14, 1 << 14), matches=m), push_rows=2048, runs=3, run_s=0.02))
        for m in (1.0, 400.0)
    )
    assert statistics.median(few.numbers["rows_per_second"]) > 2 * statistics.median(many.numbers["rows_per_second"])
    assert few.numbers["matches_per_row"][0] == pytest.approx(1.0, rel=0.2)
    assert many.numbers["matches_per_row"][0] == pytest.approx(400.0, rel=0.2)


def test_unknown_figures_and_a_missing_plotly_are_named(monkeypatch):
    with pytest.raises(ArgumentError, match="there is no figure 'pim-tree-99'"):
        measure_figures(["pim-tree-99"], True, 1, 1, print)
    real = builtins.__import__

    def without_plotly(name, *arguments, **options):
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_plotly)
    with pytest.raises(DependencyMissingError, match=r"plotly.*make bench"):
        page.load_plotly()


class Page(HTMLParser):
    """A parsed page: its sections with their tables and texts, its plots, its measures, and its links to outside."""

    def __init__(self):
        super().__init__()
        self.tables, self.plots, self.texts, self.sections, self.outside = {}, [], {}, [], []
        self.measures = ""
        self._section = self._cell = self._place = None

    def handle_starttag(self, tag, attributes):
        facts = dict(attributes)
        self.outside += [facts[name] for name in ("src", "href") if name in facts and not facts[name].startswith("#")]
        if tag == "section":
            self._section = facts["id"]
            self.sections.append(self._section)
            self.texts[self._section] = ""
        elif tag == "table" and self._section:
            assert facts["id"] == f"table-{self._section}"
            self.tables[self._section] = []
        elif tag == "tr" and self._section:
            self.tables[self._section].append([])
        elif tag in ("td", "th") and self._section:
            self.tables[self._section][-1].append("")
            self._cell = True
        elif tag == "div" and facts.get("id", "").startswith("plot-"):
            self.plots.append(facts["id"].removeprefix("plot-"))
        self._place = (tag, facts.get("id"))

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = None
        elif tag in ("td", "th"):
            self._cell = None
        self._place = None

    def handle_data(self, data):
        if self._place == ("script", "measures"):
            self.measures += data
        elif self._cell:
            self.tables[self._section][-1][-1] += data
        elif (self._section and self._place and self._place[0] != "script") or (self._section and not self._place):
            self.texts[self._section] += data


# One of each kind of trial; the campaign draws them all.
SOME = ("celljoin-7", "celljoin-9", "celljoin-12", "celljoin-13", "pim-tree-8a", "pim-tree-9b", "pim-tree-13a")
DRAWN = [pytest.param(SOME, id="some", marks=pytest.mark.long), pytest.param((), id="all", marks=pytest.mark.campaign)]


@pytest.fixture(scope="module", params=DRAWN)
def quick(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("figures") / "figures.html"
    began = time.monotonic()
    done = bench("figures", *request.param, "--quick", "--seed", "7", "--to", str(path))
    assert done.returncode == 0, done.stderr
    parsed = Page()
    text = path.read_text(encoding="utf-8")
    parsed.feed(text)
    return parsed, json.loads(parsed.measures), text, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [4, NEVER])
def test_the_model_of_seal_sizes_stands_beside_what_was_measured(ratio):
    workload = FigureWorkload((2000, 2000), seed=3)
    outcome = seal_sizes(Trial("seal-sizes", workload, 50, merge_runs=ratio, runs=2))
    assert outcome.found == outcome.expected > 0
    assert all(every_pair(workload, *span) > 0 for span in outcome.checked_us)
    measured, predicted = outcome.curves["measured"], outcome.curves["predicted"]
    assert [rows for rows, _ in measured] == [rows for rows, _ in predicted] == [256, 512]
    assert all(us > 0 for _, us in measured)
    ((best, _),) = outcome.curves["predicted_best"]
    assert outcome.numbers["predicted_rows"] == [best] * 2
    assert set(outcome.numbers["measured_rows"]) <= {256, 512}


@pytest.mark.slow
def test_each_figure_has_its_plot_its_table_and_its_words(quick):
    parsed, measures, text, _ = quick
    assert parsed.sections == parsed.plots == list(parsed.tables) == list(measures["panels"])
    assert parsed.sections in (list(figure_names()), [place for place in figure_names() if place.startswith(SOME)])
    for place in parsed.sections:
        lines = measures["panels"][place]["lines"]
        head, *rows = parsed.tables[place]
        assert head == [measures["panels"][place]["x"], *(line["name"] for line in lines)]
        assert len(rows) >= 1
        assert "Measured:" in parsed.texts[place]
        assert "What the paper reported:" in parsed.texts[place]
        assert "seed 7" in parsed.texts[place]
    assert parsed.outside == []
    assert text.count("Plotly.newPlot(") >= len(parsed.sections)
    assert len(text) > 3_000_000, "the library is inside"


@pytest.mark.slow
def test_tables_hold_the_medians_of_the_runs(quick):
    parsed, measures, _, _ = quick
    for place, panel in measures["panels"].items():
        shown = 0
        for column, line in enumerate(panel["lines"], start=1):
            if line["runs"]:
                assert line["values"] == [statistics.median(runs) for runs in line["runs"]]
            assert all(math.isfinite(value) and value >= 0 for value in line["values"])
            values = {f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in line["values"]}
            cells = {row[column] for row in parsed.tables[place][1:]} - {""}
            assert cells <= values
            shown += len(cells)
        assert shown > 0


@pytest.mark.slow
def test_every_trial_was_checked_and_the_check_is_right(quick):
    _, measures, _, _ = quick
    seen = {}
    for panel in measures["panels"].values():
        for line in panel["lines"]:
            for trial, found, expected, spans in zip(
                line["trials"], line["found"], line["expected"], line["checked_us"], strict=True
            ):
                assert found == expected > 0
                assert trial["workload"]["seed"] == 7
                seen[json.dumps(trial)] = (Trial.from_facts(trial), expected, spans)
    pushed = [(trial, expected, spans) for trial, expected, spans in seen.values() if spans]
    assert {trial.kind for trial, _, _ in pushed} == {"join", "steps", "drift", "seal-sizes"}
    assert len(pushed) > (30 if len(measures["panels"]) == len(figure_names()) else 15)
    counted = [each for each in pushed if max(each[0].workload.windows_us) <= 1 << 12 and each[0].kind != "drift"]
    for trial, expected, spans in counted[::6]:
        assert sum(every_pair(trial.workload, *span) for span in spans) == expected
    assert len(counted[::6]) >= (5 if len(measures["panels"]) == len(figure_names()) else 2)


@pytest.mark.slow
def test_it_is_quick_and_says_where_and_with_what(quick):
    _, measures, text, elapsed_s = quick
    assert measures["wall_s"] < elapsed_s
    assert {"CPU", "cores used", "git commit", "plotly", "numpy", "Python"} <= set(measures["machine"])
    assert "A quick look:" in text
    assert f"{measures['wall_s']:.1f} s" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--to", "nowhere/figures.html"], "the folder of the page to write does not exist"),
        (["pim-tree-99", "--to", "figures.html"], "there is no figure 'pim-tree-99'"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_measured(tmp_path, arguments, told):
    done = bench("figures", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"bench: ARGUMENT: {told}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
