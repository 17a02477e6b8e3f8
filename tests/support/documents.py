"""The pages that a reader has, and their blocks: README.md and all of `docs/`.

A block that is fenced as ``text`` and stands right below another one is that block's output.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["BESIDE", "PAGES", "ROOT", "Block", "Page", "anchors", "follow_recipe", "page"]

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two fences, and the output that the page shows below it."""

    language: str
    body: str
    output: str | None

    @property
    def command_lines(self) -> list[list[str]]:
        """Every ``streamjoin ...`` line of a block of the shell, split as the shell splits it."""
        if self.language not in ("sh", "console"):
            return []
        lines = self.body.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.startswith("streamjoin ")]


@dataclass(frozen=True)
class Page:
    """A page: its path in the repository, and its text."""

    name: str

    @cached_property
    def text(self) -> str:
        """The page as it stands."""
        return (ROOT / self.name).read_text()

    @cached_property
    def prose(self) -> str:
        """The page without its blocks."""
        return _FENCE.sub("\n", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        """The page's blocks in their order, outputs with the blocks that give them."""
        found: list[Block] = []
        end = -1
        for fence in _FENCE.finditer(self.text):
            language, body = fence[2], textwrap.dedent(fence[3])
            if language == "text" and found and not self.text[end : fence.start()].strip():
                found[-1] = Block(found[-1].language, found[-1].body, body)
            else:
                found.append(Block(language, body, None))
            end = fence.end()
        return found

    def of(self, *languages: str) -> list[Block]:
        """Return the blocks in some languages."""
        return [block for block in self.blocks if block.language in languages]

    @cached_property
    def links(self) -> list[str]:
        """Where the page's links lead that lead to no other site."""
        found = re.findall(r"\]\(([^)\s]+)\)", self.prose)
        return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """Return the names of a text's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("\n", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def page(name: str) -> Page:
    """Return a page by its path in the repository."""
    (found,) = [each for each in (*PAGES, *BESIDE) if each.name == name]
    return found


PAGES = [Page("README.md"), *(Page(str(each.relative_to(ROOT))) for each in sorted((ROOT / "docs").rglob("*.md")))]
_BESIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASE.md", "RUNBOOK.md")
BESIDE = [Page(name) for name in (*_BESIDE, "examples/kafka/README.md", "examples/mqtt_intake/README.md")]


def follow_recipe(heading: str, folder: Path, program: str) -> None:
    """Put the lines that a recipe of CONTRIBUTING.md shows into a copy of the package, and run a program over it.

    Each block shows lines that one file of the package has, and what is put in after them.
    """
    recipe = (ROOT / "CONTRIBUTING.md").read_text().partition(f"### {heading}\n")[2].partition("\n### ")[0]
    blocks = re.findall(r"```diff\n((?: .*\n)+)((?:\+.*\n)+)```", recipe)
    shutil.copytree(ROOT / "streamjoin_ds", folder / "streamjoin_ds", ignore=shutil.ignore_patterns("__pycache__"))
    places = set()
    for context, added in blocks:
        before, more = (re.sub(r"^[ +]", "", part, flags=re.MULTILINE) for part in (context, added))
        (place,) = (file for file in (folder / "streamjoin_ds").rglob("*.py") if before in file.read_text())
        place.write_text(place.read_text().replace(before, before + more, 1))
        places.add(place)
    assert 1 <= len(places) <= 3
    command, path = [sys.executable, "-c", program], f"{folder}:{ROOT}"
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
