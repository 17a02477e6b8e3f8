"""The panels of DP-Join, DAB Join, LLHJ and CellJoin: their series, their words, and what a quick run measures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamjoin_ds.plan import Layout
from tests.bench.suites.figures.cell_join import cell_join_panels
from tests.bench.suites.figures.dab_join import dab_join_panels
from tests.bench.suites.figures.dp_join import dp_join_panels
from tests.bench.suites.figures.handshake_join import handshake_join_panels
from tests.bench.suites.figures.page import page
from tests.bench.suites.figures.panel import Extent
from tests.bench.suites.figures.suite import measure_figures
from tests.bench.suites.figures.trials import TRIALS

EXTENTS = [Extent.quick(2, 7), Extent.full(2, 5, 7)]
PAPERS = [cell_join_panels, dp_join_panels, dab_join_panels, handshake_join_panels]
# What each paper draws, in the order of the paper.
NUMBERS = {
    dp_join_panels: ["4", "4-shipped", "5a", "5b", "table-I", "6a", "6b", "7a", "7b"],
    dab_join_panels: ["13", "14", "15", "16", "17"],
    handshake_join_panels: ["17", "18", "19a", "19b", "20", "21", "21-batch", "table-2"],
}


def without_words(panel):
    """Return what a panel does not say, of what every panel says; the Cell's Figure 13 is drawn elsewhere."""
    said = {name: getattr(panel, name) for name in ("measured", "reported", "differs", "title", "x_title", "y_title")}
    return [] if panel.place == "celljoin-13" else [name for name, text in said.items() if not text.strip()]


@pytest.mark.parametrize("extent", EXTENTS, ids=["quick", "full"])
@pytest.mark.parametrize("panels", PAPERS)
def test_each_panel_says_how_it_differs_from_the_paper(panels, extent):
    for panel in panels(extent):
        assert without_words(panel) == [], panel.place


@pytest.mark.parametrize("panels", PAPERS)
def test_a_panel_without_its_line_is_found(panels):
    panel = panels(EXTENTS[0])[0]
    assert without_words(replace(panel, differs="")) == ["differs"]


@pytest.mark.parametrize("extent", EXTENTS, ids=["quick", "full"])
@pytest.mark.parametrize("panels", PAPERS)
def test_each_series_has_points_that_can_be_done(panels, extent):
    for panel in panels(extent):
        assert panel.series, panel.place
        for series in panel.series:
            assert series.points, (panel.place, series.name)
            for _, trial in series.points:
                assert trial.kind in TRIALS
                if trial.streams is not None:
                    assert trial.streams.seed == 7
                    assert trial.layout == "adaptive" or Layout.parse(trial.layout, 2).cells <= 16


@pytest.mark.parametrize("panels", list(NUMBERS))
def test_the_papers_pictures_are_all_there(panels):
    assert [panel.number for panel in panels(EXTENTS[1])] == NUMBERS[panels]


def test_cells_of_simulated_layouts_are_said_to_be_simulated():
    for panels in NUMBERS:
        for panel in panels(EXTENTS[1]):
            kinds = {trial.kind for series in panel.series for _, trial in series.points}
            has_cells = any(trial.layout != "1x1" for series in panel.series for _, trial in series.points)
            if has_cells and kinds & {"offered", "sustained", "latency", "moving", "changing"}:
                told = panel.measured + panel.differs
                assert "Simulated: S cells one after the other" in told or "The same trials" in told, panel.place


@pytest.fixture(scope="module")
def report():
    names = ["dp-join", "dab-join", "llhj", "celljoin-10", "celljoin-11"]
    return measure_figures(names, True, 5, 7, lambda line: None)


@pytest.mark.long
def test_a_quick_run_has_every_line_and_predicts_the_bandwidth(report):
    drawn = {each.panel.place: each for each in report.drawn}
    assert len(drawn) == sum(map(len, NUMBERS.values())) + 4
    for each in drawn.values():
        assert [line.name for line in each.lines] == [series.name for series in each.panel.series]
        for line in each.lines:
            assert len(line.values) == len(line.places) > 0
            assert all(value >= 0 for value in line.values), (each.panel.place, line.name)
            for outcome in line.outcomes:
                assert outcome.found == outcome.expected > 0, (each.panel.place, line.name)
    for line in drawn["dp-join-4"].lines:
        for outcome in line.outcomes:
            numbers = outcome.numbers
            assert numbers["most_results"] == pytest.approx(numbers["predicted_most_results"], rel=0.02)
            assert numbers["shipped"] == pytest.approx(numbers["predicted_shipped"], rel=0.02)
    shipped = {line.name: line.values for line in drawn["dab-join-14"].lines}
    assert shipped["fixed, 2x2"] == pytest.approx(shipped["fixed, predicted"], rel=0.02)
    assert shipped["adaptive"][-1] < shipped["fixed, 2x2"][-1]


@pytest.mark.long
def test_the_page_has_each_panels_command_and_differences(report):
    text = page(report)
    for drawn in report.drawn:
        section = text.split(f'<section id="{drawn.panel.place}"')[1].split("</section>")[0]
        assert "Differs from the paper:" in section
        assert f"python -m tests.bench figures {drawn.panel.place} --quick --seed 7 --to figures.html" in section
    assert "DP-Join, Table I:" in text
    assert "LLHJ, Figure 19a:" in text
