"""What the code cites of ARCHITECTURE.md is there, and so are the files and modules that documents and code name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
HEADINGS = set(re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE))
FOLDERS = ("streamjoin_ds", "cython_kernels", "tests", "sql", "examples", ".ci")
SOURCES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".pyx", ".pyi", ".pxi", ".c", ".h", ".sql", ".md"} and path != Path(__file__)
]
CITED = re.compile(r'ARCHITECTURE\.md,\s+(?:#\s*|\*\s*|//\s*)?"([^"]+)"')
PACKAGE = ROOT / "streamjoin_ds"
ROOMS = {path.parent.name for path in PACKAGE.rglob("__init__.py")} - {PACKAGE.name}
# Citations of documents that lie outside the repository, so that its readers cannot find them.
OUTSIDE = re.compile(r"\bdesign(?:\.md)?, section|\bnotes, (?:M|section|reliability)|reliability notes|\bhouse\.md")

QUESTIONS = {
    "Where is lateness judged?": "engine/intake/lateness.py",
    "Where is a match decided?": "engine/probe/residual.py",
    "Where is a Delta commit refused?": "sink/guard.py",
    "Where is a block deleted?": "cell/cell_windows.py",
    "Where is a layout of cells chosen?": "plan/layout_choice.py",
    "Where is the AVX-512 scan?": "cython_kernels/scan/scan_avx512.c",
}


def table(heading: str) -> dict[str, list[str]]:
    """Return the files that each row of the table under a heading names, by the row's first column."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = [line.split("|")[1:-1] for line in section[1].splitlines() if line.startswith("| ")]
    files = re.compile(r"`([\w./]+\.(?:py|pyx|c|h))`")
    return {row[0].strip(): files.findall(row[1]) for row in rows[1:]}


def resolved(name: str, before: str | None) -> Path | None:
    """Return the file that a name in the table means; None if there is none.

    A name is relative to the package, to the repository, or to the folder of the name before it. It may also be that of
    a file anywhere below `cython_kernels`.
    """
    places = [ROOT / "streamjoin_ds" / name, ROOT / name]
    if before is not None and "/" not in name:
        places += [(place / before).parent / name for place in (ROOT / "streamjoin_ds", ROOT)]
        places += sorted((ROOT / "cython_kernels").rglob(name))
    return next((place for place in places if place.is_file()), None)


def test_every_citation_resolves() -> None:
    cited = 0
    for path in SOURCES:
        text = path.read_text()
        assert not OUTSIDE.findall(text), path
        assert set(CITED.findall(text)) <= HEADINGS, path
        cited += len(CITED.findall(text))
    assert cited > 15


def test_links_within_lead_to_headings() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADINGS}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_every_question_is_answered_by_a_file_that_is_there() -> None:
    answers = table("Where to find it")
    assert len(answers) > 30
    for question, names in answers.items():
        for before, name in zip([None, *names], names, strict=False):
            assert resolved(name, before) is not None, (question, name)
    for question, name in QUESTIONS.items():
        assert name in answers[question]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "RELEASE.md"])
def test_every_file_and_folder_that_a_document_names_is_there(document: str) -> None:
    """A name may lack the folders before it. ``<name>`` stands for any name."""
    paths = [path for folder in (*FOLDERS, "docs") for path in (ROOT / folder, *(ROOT / folder).rglob("*"))]
    paths += ROOT.glob("*.py")
    there = "\n".join(f"/{path.relative_to(ROOT)}{'/' * path.is_dir()}" for path in paths)
    named = set(re.findall(r"`([\w./<>-]+(?:\.(?:py|pyx|pxi|c|h)|/))`", (ROOT / document).read_text()))
    assert named
    for name in named:
        shape = r"\w+".join(re.escape(part) for part in re.split(r"<\w+>", name))
        assert re.search(rf"/{shape}$", there, re.MULTILINE), name


def test_every_module_that_the_code_names_is_there() -> None:
    """A name between backticks that begins with a room, such as `spec.window`, goes on with what that room has."""
    named = [
        (path, name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in re.findall(r"(?<!`)`([a-z_]+\.[a-z_]+)(?:\.\w+)*`(?!`)", path.read_text())
        if name.partition(".")[0] in ROOMS
    ]
    assert len(named) > 10
    for path, name in named:
        room, _, module = name.partition(".")
        places = [place.parent for place in PACKAGE.rglob("__init__.py") if place.parent.name == room]
        assert any((place / module).is_dir() or (place / f"{module}.py").is_file() for place in places), (path, name)


def test_every_room_is_in_its_table() -> None:
    rooms = {path.parent.name for path in (ROOT / "streamjoin_ds").glob("*/__init__.py")}
    section = TEXT[TEXT.index("## Rooms") : TEXT.index("## Windows")]
    assert rooms == set(re.findall(r"^\| `(\w+)/` \|", section, re.MULTILINE))
