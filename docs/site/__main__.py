"""``python -m docs.site [FOLDER]`` builds the site, into build/docs where no folder is given."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import main

__all__ = ["build"]

ROOT = Path(__file__).resolve().parents[2]
_ENTRY = """<!doctype html>
<meta charset="utf-8"><title>streamjoin_ds</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">streamjoin_ds</a>
"""


def build(folder: Path) -> int:
    """Build the site into a folder, and return the exit status: not 0 where anything was warned of."""
    facts = folder.with_name(f"{folder.name}-facts")  # what Sphinx keeps from one build to the next
    status = main(["-q", "-W", "--keep-going", "-b", "html", "-d", str(facts), "-c", str(ROOT / "docs/site"),
                   str(ROOT), str(folder)])  # fmt: skip
    (folder / "index.html").write_text(_ENTRY)
    return status


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/docs"
    if status := build(place):
        raise SystemExit(status)
    print(f"docs: {place}/index.html")
