"""Notebooks run from their first cell to their last, and show what is kept with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.notebooks import NOTEBOOKS, cells_run, code_cells


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_shows_what_it_keeps(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    shown = 0
    for cell, outputs in zip(code_cells(notebook), cells_run(notebook), strict=True):
        assert cell["outputs"] == outputs, "".join(cell["source"])
        shown += len(outputs)
    assert shown >= 4
