"""The notebooks of `examples/notebooks`: their cells run in this process, and what they show is kept with them.

``python -m tests.support.notebooks`` runs them all and keeps what they show, which `tests/examples/test_notebooks.py`
compares.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "cells_run", "code_cells"]

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a notebook that are run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def cells_run(notebook: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Run the cells of a notebook in order, in an empty folder, and yield what each shows, as notebooks keep it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(Path(folder).resolve())
        try:
            for number, cell in enumerate(code_cells(notebook), 1):
                yield _shown("".join(cell["source"]), names, number)
        finally:
            os.chdir(before)


def _shown(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return what a cell prints, and its last expression if it ends with one that is not None."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        plain = repr(value).replace(f"{Path.cwd()}/", "")  # each run has a folder of its own
        data = {"text/plain": plain.splitlines(keepends=True)}
        html = value._repr_html_().replace(f"{Path.cwd()}/", "") if hasattr(value, "_repr_html_") else None
        data |= {"text/html": html.splitlines(keepends=True)} if html else {}
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def _keep(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), cells_run(notebook), strict=True), 1):
        cell |= {"execution_count": number, "outputs": outputs}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        _keep(each)
