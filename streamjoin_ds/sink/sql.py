"""The files of ``sql/``, with the path of a join's table filled in.

The files are Spark SQL as a user runs it: Spark itself replaces ``${streamjoin.root}`` after
``SET streamjoin.root=/data/matches`` (or ``spark-sql --conf``). This module does the same for programs. It reads the
files with sqlglot, puts the path into the quoted names that hold the placeholder, and quotes these names anew. It
refuses a path in which Spark would substitute again, and one that a user could not type in the same place.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.expressions import to_identifier

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.tables import TableSet

__all__ = ["SparkSql", "filled_in", "sql_names", "sql_statements", "sql_text", "statements_of"]

ROOT_PLACEHOLDER = "${streamjoin.root}"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_INSTALLED = "streamjoin_ds._sql"


class SparkSql(Spark):
    """Spark's SQL with every statement split into tokens: sqlglot's own dialect takes ``VACUUM ...;`` as one text."""

    class Tokenizer(Spark.Tokenizer):
        """Knows no statement that is one text."""

        COMMANDS = set()  # noqa: RUF012


def _folder() -> Path:
    found = find_spec(_INSTALLED)
    if found is not None and found.submodule_search_locations:  # a folder of data, without an __init__.py
        return Path(next(iter(found.submodule_search_locations)))
    return Path(__file__).resolve().parents[2] / "sql"


def sql_names() -> tuple[str, ...]:
    """Return the names of the files, without ``.sql``, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.sql")))


def sql_text(name: str, root: str) -> str:
    """Return the text of one file for one join's tables.

    Parameters
    ----------
    name : str
        File name without ``.sql``.
    root : str
        Path or URI of the matches table.

    Raises
    ------
    ArgumentError
        There is no such file, or the path holds a back-tick, a control character or ``${``.
    """
    text, path = _checked(name, root)
    return filled_in(text, path)


def sql_statements(name: str, root: str) -> list[str]:
    """Return the statements of one file, in order, each without the comments around it and its closing semicolon.

    Parameters and errors are those of :func:`sql_text`.
    """
    text, path = _checked(name, root)
    # The text is split before the path is put in: nothing in a user's path is read as SQL.
    return [filled_in(statement, path) for statement in statements_of(text)]


def _checked(name: str, root: str) -> tuple[str, str]:
    """Return the text of one file, placeholders included, and the path to put in their place."""
    if not _NAME.fullmatch(name) or name not in sql_names():
        message = "there is no SQL file of that name"
        raise ArgumentError(message, name="name", hint=f"one of {', '.join(sql_names())}")
    if "`" in root or "${" in root:
        message = "the table's path holds a back-tick or ${, which cannot be put into the SQL"
        raise ArgumentError(message, name="root", hint="use a path without these")
    path = TableSet(root).root  # refuses control characters
    return (_folder() / f"{name}.sql").read_text(encoding="utf-8"), path


def statements_of(text: str) -> list[str]:
    """Return the statements of a text, without the semicolons between them; a semicolon in a name or text ends none."""
    statements, begin, end = [], -1, 0
    for token in SparkSql().tokenize(text):
        if token.token_type is not TokenType.SEMICOLON:
            begin, end = token.start if begin < 0 else begin, token.end + 1
        elif begin >= 0:
            statements.append(text[begin:end])
            begin = -1
    return statements if begin < 0 else [*statements, text[begin:end]]


def filled_in(text: str, path: str) -> str:
    """Return the text with the path in place of the placeholders: quoted by sqlglot in names, plain in comments."""
    parts, end = [], 0
    for token in SparkSql().tokenize(text):
        if token.token_type is TokenType.IDENTIFIER and ROOT_PLACEHOLDER in token.text:
            name = to_identifier(token.text.replace(ROOT_PLACEHOLDER, path), quoted=True)
            parts += [text[end : token.start].replace(ROOT_PLACEHOLDER, path), name.sql(dialect=SparkSql)]
            end = token.end + 1
    return "".join([*parts, text[end:].replace(ROOT_PLACEHOLDER, path)])
