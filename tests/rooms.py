"""The package's imports: which module imports which, wherever the import stands."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "streamjoin_ds"


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    """Return the path of every module of the package by its name; a folder's module is its ``__init__``.

    The kernels' ``__init__`` lies in a folder of its own, which `setup.py` maps into the package.
    """
    found = {module_name(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}
    return {**found, f"{PACKAGE}._kernels": ROOT / "cython_kernels" / "__init__.py"}


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree; nobody changes it."""
    return ast.parse(path.read_text())


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a file imports: at its top, in functions, and for type checkers alone.

    A name imported from a folder's ``__init__`` counts as an import of that ``__init__``, unless the name is a module.
    """
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= {name if name in known else node.module for name in names}
    return {name for name in found if name in known}


def owned(tree: ast.AST) -> set[str]:
    """Return the private names that a module defines, its classes' attributes among them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if is_private(name)}


def is_private(name: str) -> bool:
    """Whether a name begins with an underscore, and is not one of Python's own."""
    return name.startswith("_") and not name.startswith("__")


def borrowed() -> list[str]:
    """Return the places at which a module uses a private name that only other modules of the package define."""
    trees = {name: parsed(path) for name, path in modules().items()}
    owners = {name: owned(tree) for name, tree in trees.items()}
    everywhere = set().union(*owners.values())
    found = []
    for name, tree in trees.items():
        foreign = everywhere - owners[name]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                found += [f"{name}:{node.lineno} {alias.name}" for alias in node.names if alias.name in foreign]
            elif isinstance(node, ast.Attribute) and node.attr in foreign:
                found.append(f"{name}:{node.lineno} {node.attr}")
    return found


@cache
def drawn() -> dict[str, set[str]]:
    """Return the modules that each module imports, by its name."""
    known = modules()
    return {name: imported(path, known) - {name} for name, path in known.items()}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the first circle of imports that is found, as one sorted list of modules; an empty list if none is."""
    try:
        TopologicalSorter({name: sorted(arrows[name]) for name in sorted(arrows)}).prepare()
    except CycleError as error:
        return [sorted(set(error.args[1]))]
    return []
