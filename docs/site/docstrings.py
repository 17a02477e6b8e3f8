"""The page of Python names: each point of its lists becomes the name's docstring.

On GitHub a point shows the name, the methods that a user calls, and the docstring's first line.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

__all__ = ["PAGE", "POINT", "named", "setup"]

PAGE = "docs/reference/python"
POINT = re.compile(r"^\* `([\w.]+)`(?: \(([^)]*)\))?: .*$", re.MULTILINE)


def named(name: str) -> Any:
    """Return the object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def _directive(point: re.Match[str]) -> str:
    name, members = point[1], (point[2] or "").replace("`", "")
    kind = "function"
    if isinstance(named(name), type):
        kind = "exception" if issubclass(named(name), Exception) else "class"
    lines = [f".. auto{kind}:: {name}", *([f"   :members: {members}"] if members else [])]
    last = name.rpartition(".")[2]
    return "\n".join([f"### {last}", "", "```{eval-rst}", *lines, "```", ""])


def _put_in(app: Any, name: str, source: list[str]) -> None:
    if name == PAGE:
        source[0] = POINT.sub(_directive, source[0])


def _without_values(app: Any, what: str, name: str, obj: object, options: Any, signature: str, more: str) -> Any:
    """Leave defaults out that are objects of the package's own: the docstring says what they mean."""
    if what == "class" and signature and inspect.isclass(obj):
        return re.sub(r"<[^<>]*>", "...", signature), more
    return None


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _put_in)
    app.connect("autodoc-process-signature", _without_values)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
