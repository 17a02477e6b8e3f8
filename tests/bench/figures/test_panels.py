"""The panels: each picture that a paper draws of a measurement, their words, and what a quick run must show of each."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from streamjoin_ds.plan import Layout
from tests.bench.suites.figures.cell_join import cell_join_panels
from tests.bench.suites.figures.dab_join import dab_join_panels
from tests.bench.suites.figures.dp_join import dp_join_panels
from tests.bench.suites.figures.handshake_join import handshake_join_panels
from tests.bench.suites.figures.page import page
from tests.bench.suites.figures.panel import Extent
from tests.bench.suites.figures.suite import figure_names, measure_figures
from tests.bench.suites.figures.trials import TRIALS

EXTENTS = [Extent.quick(2, 7), Extent.full(2, 5, 7)]
PAPERS = [cell_join_panels, dp_join_panels, dab_join_panels, handshake_join_panels]
TEXTS = Path(__file__).resolve().parents[3].parent / "shared" / "papers"
# Each paper's text, the first figure and the first table of a measurement, and what is not drawn of those, with why.
MEASURED = {
    "celljoin": ("cell_join", 7, 1, {"8": "cycles per instruction: a guest system cannot count them"}),
    "dp-join": ("dp_join", 4, 1, {}),
    "dab-join": ("dab_join", 13, 3, {}),
    "llhj": ("low_latency_handshake_join", 17, 2, {}),
    "pim-tree": ("pim_tree", 8, 1, {"14": "what a merge costs is a step of Figure 9b"}),
}
ROMAN = {"I": "1"}


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


@pytest.mark.shared
@pytest.mark.skipif(not TEXTS.is_dir(), reason="../shared/papers is not here")
@pytest.mark.parametrize("paper", list(MEASURED))
def test_the_papers_pictures_are_all_there(paper):
    """What there must be is read from the paper's own text: every figure and table that it speaks of."""
    name, first_figure, first_table, left_out = MEASURED[paper]
    text = (TEXTS / f"{name}.txt").read_text()
    figures = {
        number + part
        for number, part in re.findall(r"(?:Figures?|Fig\.|diagram)\s*(\d+)\s*\(?([a-d]?)\b", text)
        if int(number) >= first_figure
    }
    tables = {ROMAN.get(number, number) for number in re.findall(r"(?i:table)\s+([I1-9])\b", text)}
    spoken = figures | {f"table-{number}" for number in tables if int(number) >= first_table}
    drawn = [place.removeprefix(f"{paper}-") for place in figure_names() if place.startswith(f"{paper}-")]
    drawn = [f"table-{ROMAN['I']}" if number == "table-i" else number for number in drawn]
    assert {one for one in spoken if not any(number.startswith(one) for number in drawn)} == set(left_out)
    numbers = {re.sub("[a-d]$", "", one) for one in spoken}
    assert [number for number in drawn if not number.startswith(tuple(numbers))] == []


def test_every_picture_is_of_a_paper():
    assert {place for place in figure_names() if not place.startswith(tuple(MEASURED))} == set()
    assert len(set(figure_names())) == len(figure_names())


def test_cells_of_simulated_layouts_are_said_to_be_simulated():
    for panels in (dp_join_panels, dab_join_panels, handshake_join_panels):
        for panel in panels(EXTENTS[1]):
            kinds = {trial.kind for series in panel.series for _, trial in series.points}
            has_cells = any(trial.layout != "1x1" for series in panel.series for _, trial in series.points)
            if has_cells and kinds & {"offered", "sustained", "latency", "moving", "changing"}:
                told = panel.measured + panel.differs
                assert "Simulated: S cells one after the other" in told or "The same trials" in told, panel.place


# Whose lines a quick run draws, and how many panels that are: the counts of these are the same on each machine.
DRAWN = {"dp-join": 9, "dab-join": 5, "llhj": 8, "celljoin-10": 2, "celljoin-11": 2, "celljoin-7": 2, "pim-tree-13a": 1}


@pytest.fixture(scope="module")
def report():
    return measure_figures(list(DRAWN), True, 5, 7, lambda line: None)


@pytest.fixture(scope="module")
def drawn(report):
    return {each.panel.place: each for each in report.drawn}


def curves(each):
    """Return the lines of a panel by name, as values by place."""
    return {line.name: dict(zip(line.places, line.values, strict=True)) for line in each.lines}


@pytest.mark.long
def test_a_quick_run_has_every_line(drawn):
    assert {name: sum(place.startswith(name) for place in drawn) for name in DRAWN} == DRAWN
    for each in drawn.values():
        assert [line.name for line in each.lines] == [series.name for series in each.panel.series]
        for line in each.lines:
            assert len(line.values) == len(line.places) > 0
            may_be_none = each.panel.place.endswith("-dropped") or each.panel.place == "pim-tree-13a"
            assert min(line.values) >= 0 if may_be_none else min(line.values) > 0, (each.panel.place, line.name)
            for outcome in line.outcomes:
                assert outcome.found == outcome.expected > 0, (each.panel.place, line.name)


@pytest.mark.long
def test_dp_join_s_layouts_give_and_send_what_its_equations_say(drawn):
    for line in drawn["dp-join-4"].lines:
        for outcome in line.outcomes:
            numbers = outcome.numbers
            assert numbers["most_results"] == pytest.approx(numbers["predicted_most_results"], rel=0.02)
            assert numbers["shipped"] == pytest.approx(numbers["predicted_shipped"], rel=0.02)
    sent = curves(drawn["dp-join-4-shipped"])
    square, rectangular, linear = (sent[f"{name}, counted"] for name in ("square", "rectangular", "linear"))
    assert square[4] < linear[4], "a square sends each tuple twice, a line one stream's four times"
    assert rectangular[6] < linear[6]
    assert all(fewer < more for fewer, more in itertools.pairwise(linear.values()))
    predicted = curves(drawn["dp-join-table-i"])["predicted, equation 4"]
    assert predicted["6"] == pytest.approx(predicted["4"] * 6 / 4), "each cell adds what a cell tests"


@pytest.mark.long
def test_dab_join_ships_less_the_more_unequal_the_rates(drawn):
    lines = curves(drawn["dab-join-14"])
    fixed, adaptive = lines["fixed, 2x2"], lines["adaptive"]
    assert fixed == pytest.approx(lines["fixed, predicted"], rel=0.02)
    assert adaptive[1] == pytest.approx(fixed[1]), "equal rates: the square is the best layout"
    assert lines["read"][20] < lines["the best layout at once, predicted"][20] <= adaptive[20] < 0.9 * fixed[20]


@pytest.mark.long
def test_llhj_holds_a_batch_of_sorted_results_and_no_window(drawn):
    for place, grows in (("llhj-21", False), ("llhj-21-batch", True)):
        held, batch, window = curves(drawn[place]).values()
        for at, most in held.items():
            assert batch[at] <= most < window[at], (place, at)
        values = list(held.values())
        assert (values == sorted(set(values))) if grows else (len(set(values)) == 1), place


@pytest.mark.long
def test_cell_join_s_loop_is_faster_with_simd_and_gives_more_the_more_comes(drawn):
    lines = curves(drawn["celljoin-7"])
    if "SIMD" in lines:
        assert lines["SIMD"][1 << 14] < lines["plain C, not vectorised"][1 << 14]
    assert lines["copy from memory (for the DMA transfer)"][1 << 14] > 0
    for place in ("celljoin-10", "celljoin-11"):
        dropped = curves(drawn[f"{place}-dropped"])
        for name, results in curves(drawn[place]).items():
            low, high = sorted(results)
            if not dropped[name][high]:
                assert results[low] < results[high], (place, name)


@pytest.mark.long
def test_pim_tree_s_inserts_are_even_where_keys_stand_and_crowd_where_they_drift(drawn):
    still, drifting = (list(line.values()) for line in curves(drawn["pim-tree-13a"]).values())
    assert still == sorted(still, reverse=True)
    assert still[0] < 2 < 20 < drifting[0]


@pytest.mark.long
def test_the_page_has_each_panels_command_and_differences(report):
    text = page(report)
    for drawn in report.drawn:
        section = text.split(f'<section id="{drawn.panel.place}"')[1].split("</section>")[0]
        assert ("Differs from the paper:" in section) == bool(drawn.panel.differs)
        assert f"python -m tests.bench figures {drawn.panel.place} --quick --seed 7 --to figures.html" in section
    assert "DP-Join, Table I:" in text
    assert "LLHJ, Figure 19a:" in text
