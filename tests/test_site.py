"""The site that `make docs` builds: its table of contents, its links, its pictures."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamjoin_ds
from docs.site.docstrings import POINT, named
from docs.site.drawing import COLOURS
from docs.site.figures import FIGURES, FOLDER
from docs.site.navigation import sections
from tests.support.documents import PAGES, ROOT, page


def test_each_page_of_the_index_is_in_one_section() -> None:
    found = sections(page("docs/index.md").text)
    listed = [name for section, names in found.items() for name in (section, *names)]
    assert len(listed) == len(set(listed))
    assert {each.name.removesuffix(".md") for each in PAGES} - {"docs/index"} <= set(listed)
    assert len(found) <= 8  # as many as the top of the page has room for


def test_the_figures_are_those_that_are_drawn() -> None:
    """Each is on a page, and its colours are names, so that it reads in light and dark."""
    for name, draw in FIGURES.items():
        drawn = draw().svg()
        assert (FOLDER / f"{name}.svg").read_text() == drawn, "python -m docs.site.figures"
        assert set(re.findall(r"(?:fill|stroke):([^;\"]+)", drawn)) <= {"none", *map("var(--{})".format, COLOURS)}
        assert any(link.endswith(f"images/{name}.svg") for each in PAGES for link in each.links)
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(FIGURES)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """A link or a reference that leads nowhere is a warning, and so is a page that no list names."""
    done = subprocess.run(
        [sys.executable, "-m", "docs.site", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for each in PAGES:
        assert (tmp_path / "site" / each.name).with_suffix(".html").exists()


def test_every_public_name_is_on_the_page_of_python() -> None:
    points = {found[1]: found[0] for found in POINT.finditer(page("docs/reference/python.md").text)}
    public = {f"streamjoin_ds.{name}" for name in streamjoin_ds.__all__} - {"streamjoin_ds.__version__"}
    assert public == {name for name in points if name.count(".") == 1}
    for name, point in points.items():
        first = (inspect.getdoc(named(name)) or "").partition("\n")[0]
        assert point.endswith(f": {re.sub(r':(?:func|class):', '', first).replace('``', '`')}"), name
