"""A bug is a set of edits of the package's functions, planted for as long as a context lasts.

An edit names a function by its room and replaces some of its tokens. Files, lines, spaces and comments do not count: a
function that is moved within its room or laid out anew is still found, with the same tokens. Where it or they are no
longer there, planting fails, so a table of bugs cannot become outdated unnoticed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.rooms import modules, parsed

__all__ = ["Bug", "Edit", "bug", "planted"]

# A string, a comment, a word or one other character. Python's own tokenizer refuses a part that closes a bracket only.
_TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\#[^\n]*|\w+|[^\w\s]""")


@dataclass(frozen=True)
class Edit:
    """A replacement of the tokens of `old` by `new` in a function.

    It is named ``room:Class.function``, as only one file of that room of the package defines it, or by the name of a
    module of the tests: ``tests.faults.x:Class.function``.
    """

    where: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A name, edits, and what a schedule must ask for to meet them (`ASKS`; nothing: a plain join does)."""

    name: str
    edits: tuple[Edit, ...]
    asks: tuple[str, ...] = ()


def bug(name: str, *edits: tuple[str, str, str], asks: tuple[str, ...] = ()) -> Bug:
    """Return a bug, with each edit as (where, old, new)."""
    return Bug(name, tuple(Edit(*edit) for edit in edits), asks)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Plant a bug in the package, for as long as the context lasts."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        text = texts.get(edit.where) or textwrap.dedent(inspect.getsource(_found(edit.where)[2]))
        texts[edit.where] = _edited(text, edit)
    with pytest.MonkeyPatch.context() as patch:
        for where, text in texts.items():
            owner, module, function = _found(where)
            made: dict[str, Any] = {}
            exec(compile(text, f"<planted {where}>", "exec"), vars(module), made)
            patch.setattr(owner, function.__name__, made[function.__name__])
            for other in list(sys.modules.values()):
                if vars(other).get(function.__name__) is function and other.__name__.startswith("streamjoin_ds"):
                    patch.setattr(other, function.__name__, made[function.__name__])
        yield


def _edited(text: str, edit: Edit) -> str:
    """Return a function's text after an edit. The tokens that it replaces must be there exactly once."""
    within, sought = _tokens(text), [token for token, _, _ in _tokens(edit.old)]
    found = [
        begin
        for begin in range(len(within) - len(sought) + 1)
        if [token for token, _, _ in within[begin : begin + len(sought)]] == sought
    ]
    assert len(found) == 1, f"{edit.where} does not hold once: {edit.old}"
    (begin,) = found
    return text[: within[begin][1]] + edit.new + text[within[begin + len(sought) - 1][2] :]


def _tokens(text: str) -> list[tuple[str, int, int]]:
    """Return the tokens of a text that may be a part of a statement, and where each begins and ends in the text."""
    found = ((match.group(), *match.span()) for match in _TOKEN.finditer(text))
    return [token for token in found if not token[0].startswith("#")]


def _found(where: str) -> tuple[Any, Any, Any]:
    """Return owner, module and function of ``room:Class.function`` or ``module:Class.function``."""
    room, _, path = where.partition(":")
    module = importlib.import_module(room if "." in room else _module(room, path))
    owner: Any = module
    *folders, last = path.split(".")
    for folder in folders:
        owner = getattr(owner, folder)
    return owner, module, getattr(owner, last)


@cache
def _module(room: str, path: str) -> str:
    """Return the name of the one module of a room that defines a function."""
    of_room = {name: file for name, file in modules().items() if name.split(".")[1:2] == [room]}
    found = [name for name, file in of_room.items() if _defines(parsed(file), path.split("."))]
    assert len(found) == 1, f"{room}:{path} is defined by {found}"
    return found[0]


def _defines(node: ast.Module | ast.ClassDef, path: list[str]) -> bool:
    """Whether a module or class defines the function or class of this path."""
    named = [inner for inner in node.body if getattr(inner, "name", None) == path[0]]
    return bool(named) and (len(path) == 1 or any(isinstance(i, ast.ClassDef) and _defines(i, path[1:]) for i in named))
