"""Pictures of the repository stand in the page itself, so that they follow the page's theme, light or dark.

On GitHub, where they are files beside the page, they follow the reader's system.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes

__all__ = ["setup"]


def _inline(app: Any, tree: nodes.document, name: str) -> None:
    for image in list(tree.findall(nodes.image)):
        path = app.srcdir / image["uri"]
        if path.suffix == ".svg" and path.is_file():
            text = f'<div class="picture">{path.read_text()}</div>'
            raw = nodes.raw("", text, format="html")
            image.parent.replace(image, raw)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", _inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
