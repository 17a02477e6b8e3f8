"""The page ``docs/reference/errors.md``, made of the table of errors, and of errors that tests provoke.

``python -m tests.support.error_page`` writes it anew.
"""

from __future__ import annotations

import ast
import inspect
import os
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from streamjoin_ds.errors import StreamJoinError, hinted, named_in, table_of_errors
from tests.cli.test_hints import FLAGS, TEXTS, explained, inputs, read
from tests.support.documents import ROOT

__all__ = ["PLACE", "text"]

PLACE = ROOT / "docs" / "reference" / "errors.md"
_HEAD = """# Errors

This page is made of the package itself: `python -m tests.support.error_page` writes it. `streamjoin help error CODE`
says the same without a network.

The first word of an error is its code, and its class is an exception of Python in `streamjoin_ds.errors`. All are a
`StreamJoinError`. It has the attributes `code`, `name` (the offending column, stream, file or option) and `hint`. The
hint of a message says what to do in the case at hand; here stands what helps in general. What an operator meets has a
line in the [runbook](../../RUNBOOK.md), too. Those that may pass are tried again by `--restart`.

In the examples `e.csv` and `w.csv` have the columns `ts, x, y, name, flag, day`; `…` stands for what a case puts in.
"""
# Told by Spark, raised by nobody.
_SPARK_SAYS = {"WORKER_MEMORY": "java.lang.OutOfMemoryError", "WORKER_START": "Python worker failed to connect"}
# The slips that show best what is meant; of other codes the first one that the tests have.
_SHOWN = (
    "--window 5",
    "--on 'e.xx = w.x'",
    "--on 'e.name < w.x'",
    "SELECT e.x FROM e JOIN w ON e.x = w.x AND w.ts >= e.ts",
)


def _command(flags: str) -> str:
    """Return the command with flags that stand for those of the plain one."""
    words = [f"--stream {name}={name}.csv" for name in "ew" if f"--stream {name}=" not in flags]
    words.insert(0 if "--stream e=" in flags else len(words), flags)
    words += [usual for usual in ("--on '|e.x - w.x| <= 1'", "--window 5s") if usual.split()[0] not in flags]
    return " ".join(["streamjoin explain", *words])


def _wrapped(words: str) -> str:
    lines = [
        textwrap.fill(line, 112, break_on_hyphens=False) if len(line) > 116 else line for line in words.split("\n")
    ]
    return "\n".join(["```text", *lines, "```"])


@cache
def _provoked() -> dict[str, str]:
    """Return an example by code: what was typed, what it says, and what is typed in its place."""
    found: dict[str, str] = {}
    before = Path.cwd()
    rows = [(row, run) for rows, run in ((FLAGS, explained), (TEXTS, read)) for row in rows]
    with tempfile.TemporaryDirectory() as name:
        inputs(Path(name))
        os.chdir(name)
        try:
            for (asked, code, _, followed), run in sorted(rows, key=lambda each: each[0][0] not in _SHOWN):
                if code in found or not isinstance(asked, str) or not isinstance(followed, str):
                    continue
                try:
                    run(Path(), asked)
                except StreamJoinError as error:
                    typed, mended = (_command(line) if run is explained else line for line in (asked, followed))
                    language = "sh" if run is explained else "sql"
                    typed, mended = (f"```{language}\n{line}\n```" for line in (typed, mended))
                    found[code] = "\n\n".join([typed, _wrapped(str(error)), "This works:", mended])
        finally:
            os.chdir(before)
    return found


def _words(node: ast.AST | None, known: dict[str, str]) -> str:
    """Return a text of the source; what it puts in is an ellipsis."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part, known) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""


def _raised(path: Path) -> Iterator[tuple[str, str]]:
    """Return the errors that a module raises, as the name of a class and the text."""
    known: dict[str, str] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        for part in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
                known[part.targets[0].id] = _words(part.value, {})
            made = part.exc if isinstance(part, ast.Raise) else part.value if isinstance(part, ast.Return) else None
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.args:
                hint = next((each.value for each in made.keywords if each.arg == "hint"), None)
                yield made.func.id, hinted(_words(made.args[0], known), _words(hint, known))


@cache
def _in_source() -> dict[str, str]:
    """Return the longest text by class that the package raises and that says everything itself."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "streamjoin_ds").rglob("*.py")):
        for name, words in _raised(path):
            if words.count("…") <= 4 and not words.startswith((".", "…")) and len(words) > len(found.get(name, "")):
                found[name] = words
    return found


def _example(kind: type[StreamJoinError]) -> str:
    if kind.code in _provoked():
        return _provoked()[kind.code]
    if kind.code in _SPARK_SAYS:
        named = named_in(RuntimeError(_SPARK_SAYS[kind.code]))
        assert named is not None
        words = named[1]
    else:
        words = f"{kind.code}: {_in_source()[kind.__name__]}" if kind.__name__ in _in_source() else ""
    return _wrapped(words) if words else ""


def text() -> str:
    """Return the page."""
    parts = [_HEAD]
    for code, kind in table_of_errors().items():
        about = [part.replace("\n", " ") for part in (inspect.getdoc(kind) or "").split("\n\n")]
        about.append(f"{kind.mend} It may pass: `--restart` tries it again." if kind.passes else kind.mend)
        parts.append("\n\n".join(filter(None, [f"## {code}", *about, _example(kind)])))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(text())
