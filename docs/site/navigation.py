"""The site's table of contents is the list in docs/index.md, which is what GitHub's readers see.

A point of the list is a section, named by its first link, and the links below the point are the section's pages. A page
of a folder that the list leaves out goes to the section that has a page in that folder.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

__all__ = ["INDEX", "sections", "setup"]

INDEX = "docs/index"
_LINK = re.compile(r"\]\(([^)\s#]+)\.md\)")


def sections(text: str) -> dict[str, list[str]]:
    """Return the pages of each section by the section's own page, as names of documents; `text` is the index's."""
    found: dict[str, list[str]] = {}
    for point in re.split(r"^\* ", text, flags=re.MULTILINE)[1:]:
        first, *others = [posixpath.normpath(f"docs/{link}") for link in _LINK.findall(point)]
        found[first] = others
    return found


def _with_left_out(found: dict[str, list[str]], known: set[str]) -> dict[str, list[str]]:
    placed = {INDEX, *found, *(name for names in found.values() for name in names)}
    for name in sorted(known - placed):
        folder = posixpath.dirname(name)
        homes = [section for section in found if folder in (posixpath.dirname(section), section) and folder != "docs"]
        homes += [section for section, names in found.items() if any(posixpath.dirname(n) == folder for n in names)]
        found[(homes or list(found))[0 if homes else -1]].append(name)
    return found


def _add_tree(app: Any, name: str, source: list[str]) -> None:
    """Put a hidden toctree at the end of the index and of each section."""
    text = (app.srcdir / f"{INDEX}.md").read_text()
    found = _with_left_out(sections(text), set(app.env.found_docs))
    pages = list(found) if name == INDEX else found.get(name, [])
    if pages:
        listed = "\n".join(f"/{page}" for page in pages)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _always_read(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Read the sections anew in each build: a page may have come."""
    return [name for name in sections((app.srcdir / f"{INDEX}.md").read_text()) if name in env.found_docs]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("env-get-outdated", _always_read)
    app.connect("source-read", _add_tree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
