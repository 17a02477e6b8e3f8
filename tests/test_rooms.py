"""Imports between rooms follow the flow of the data, none run in a circle, and private names stay at home."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest

from tests.rooms import PACKAGE, ROOT, borrowed, circles, drawn, modules

# The lowest floor first. A room imports only from its own floor and from floors before it. Modules without a folder are
# rooms too.
ROOMS = (
    ("version", "errors", "machine", "logs", "duration"),
    ("_kernels",),
    ("spec",),
    ("plan",),
    ("blocks",),
    ("delta",),
    ("kafka",),
    ("spool",),
    ("sink",),
    ("source",),
    ("survey",),
    ("exchange",),
    ("engine",),
    ("exploration",),
    ("cell",),
    ("spark",),
    ("checkpoint",),
    ("watch",),
    ("stream",),
    ("request",),
    ("script",),
    ("testing",),
    ("cli",),
)
# A folder shows its concepts at a glance, and a file is one of them.
MOST_FILES, MOST_LINES, FEWEST_LINES = 20, 600, 75
# Smaller ones, with the reason why they have a file of their own.
SMALL = {
    "cli.data": "a command",
    "cli.explore": "a command",
    "cli.explain": "a command; it loads half of what `run` does",
    "cli.look": "a command",
    "cli.schema": "a command",
    "cli.watch": "a command",
    "spark.worker_daemon": "Spark starts it as a program",
    "spec.table_rows": "needs a bound join, as no other file about rows does",
    "version": "read before everything else",
}
# Words that look like participles and are things.
NOUNS = {"binding", "feed", "listing", "loading", "packing", "sizing", "training", "tuning", "waiting"}
# Folders of tests that are of no room: of other folders beside the package, or of all rooms together.
BESIDE_ROOMS = {"bench", "examples", "faults", "golden", "kernels", "sql", "support"}
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}


def room_of(name: str) -> str:
    """Return the room of a module; "" for the package's own ``__init__``, which hands on what a user imports."""
    return [*name.split("."), ""][1]


def test_every_room_has_its_floor() -> None:
    assert {room_of(name) for name in drawn()} - {""} == set(FLOOR)


def test_imports_follow_the_flow() -> None:
    against = [
        f"{name} imports {other}"
        for name, others in drawn().items()
        for other in others
        if room_of(name) and FLOOR[room_of(name)] < FLOOR.get(room_of(other), len(ROOMS))
    ]
    assert not against


def test_no_import_runs_in_a_circle() -> None:
    """Imports inside functions and imports for type checkers alone count too."""
    assert not circles(drawn())


def test_only_loading_asks_for_the_twins() -> None:
    """A type or a number of the kernels comes from the contract, never from what the tests compare kernels with."""
    twins = "streamjoin_ds.engine.kernels.twins"
    asking = [name for name, others in drawn().items() if any(other.startswith(twins) for other in others)]
    assert [name for name in asking if not name.startswith(twins)] == ["streamjoin_ds.engine.kernels.loading"]


def test_no_module_needs_anothers_private_names() -> None:
    assert not borrowed()


def test_a_folder_shows_at_most_twenty_files() -> None:
    folders = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert {str(folder) for folder, files in folders.items() if files > MOST_FILES} == set()


def test_the_top_level_holds_nothing_that_a_run_left() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git repository: its files cannot be told from others")
    folders = {path.split("/")[0] for path in listed.stdout.splitlines() if "/" in path}
    assert folders == {".ci", "cython_kernels", "docs", "examples", "sql", "streamjoin_ds", "tests"}


def test_a_file_is_one_concept() -> None:
    lines = {name: path.read_text().count("\n") for name, path in modules().items() if path.name != "__init__.py"}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    small = {name.removeprefix("streamjoin_ds.") for name, count in lines.items() if count < FEWEST_LINES}
    assert small == set(SMALL)


def test_a_file_is_named_by_a_noun() -> None:
    last_words = {path.stem: path.stem.split("_")[-1] for path in modules().values()}
    assert {name for name, word in last_words.items() if word.endswith(("ed", "ing")) and word not in NOUNS} == set()


def test_tests_stand_where_their_room_stands() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    of_rooms = {folder for folder in folders if folder.parts and folder.parts[0] not in BESIDE_ROOMS}
    assert {str(folder) for folder in of_rooms if not (ROOT / PACKAGE / folder).is_dir()} == set()


def test_the_circle_of_two_is_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(arrows) == [["b", "c"]]
