"""The options of SET, WITH, CREATE STREAM and CREATE TABLE: which there are, and what each may hold.

They are those of the TOML file. Each is checked where it was written, so that a refusal says where that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamjoin_ds.errors import PredicateError, StreamJoinError
from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.request.request import described_streams, described_tables, texts_of
from streamjoin_ds.script.sql_text import Span, SqlText
from streamjoin_ds.script.statements import Option, StreamStatement
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.member.option_key import OptionKey
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.spec.member.table import TABLE_KEYS as BESIDE_KEYS

__all__ = ["TABLE_KEYS", "check_created", "check_stream", "checked_setting", "facts_of", "spark_text", "stream_facts"]


# What a stream may have only here, where it is a table or a view of Spark's catalog.
TABLE_KEYS = {
    "table": OptionKey("A table or a view of Spark's catalog.", example="readings"),
    "order_by": OptionKey(
        "Columns that number the rows of a table or view: partition,offset.", example="partition,offset"
    ),
}

_WRITTEN = {
    "on": "write the condition after ON",
    "where": "write the condition after WHERE",
    "select": "write the columns after SELECT",
    "how": "write LEFT JOIN, RIGHT JOIN, FULL JOIN, LEFT SEMI JOIN or LEFT ANTI JOIN",
    **dict.fromkeys(
        ("nearest", "nearest_by", "nearest_direction"),
        "write ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON ..., or JOIN w EXACT NEAREST 3 BY DISTANCE ... ON ...",
    ),
    "reduce": "write aggregates after SELECT, and GROUP BY the first stream's seq",
    "conf": "write SET spark.ui.enabled = false, for example",
}
_OF_SESSION = ("master", "local")
_SPARK = "spark."


def checked_setting(text: SqlText, option: Option) -> None:
    """Refuse an option of SET that there is not, or whose value is of another kind.

    Raises
    ------
    SqlSyntaxError, ArgumentError
        The error says where it stands.
    """
    if not option.name.startswith(_SPARK):
        _checked(text, option)


def facts_of(text: SqlText, options: Mapping[str, Option], *, is_with: Mapping[str, Option]) -> dict[str, Any]:
    """Return the options of a query as the keys of the TOML file, with Spark's settings under ``conf``.

    Parameters
    ----------
    text : SqlText
    options : mapping
        All of them.
    is_with : mapping
        Those that stand after WITH, among which those of the session are refused.
    """
    for name in is_with:
        if name in _OF_SESSION or name.startswith(_SPARK):
            hint = f"write SET {name} = ... before the statement"
            why = f"{name} is for all queries of a text"
            raise text.refused(is_with[name].span, why, hint, name)
        _checked(text, is_with[name])
    conf = {name: spark_text(option.value) for name, option in options.items() if name.startswith(_SPARK)}
    facts = {name: option.value for name, option in options.items() if not name.startswith(_SPARK)}
    return facts | ({"conf": conf} if conf else {})


def stream_facts(text: SqlText, statement: StreamStatement) -> dict[str, Any]:
    """Return the options of a stream as the keys of its table in the TOML file, and those of `TABLE_KEYS`.

    A table beside streams has the keys of its table in the file, or is one of Spark's catalog (``table``).

    Raises
    ------
    SqlSyntaxError, ArgumentError
        An option is unknown, or of another kind; the error says where it stands.
    """
    facts: dict[str, Any] = {}
    keys, what = {**STREAM_KEYS, **TABLE_KEYS}, "stream"
    if statement.is_table:
        keys, what = {**BESIDE_KEYS, "table": TABLE_KEYS["table"]}, "table"
    if statement.is_table and {"source", "table"} <= statement.options.keys():
        why = f"the table {statement.name} has both source and table"
        raise text.refused(statement.options["table"].span, why, "leave one of the two out", statement.name)
    if statement.is_table and not {"source", "table"} & statement.options.keys():
        why = f"the table {statement.name} has no source: a table of results is made by INSERT INTO"
        hint = (
            "WITH (source = 'a/path') is a Delta table or a file beside streams, WITH (table = 'name') one of Spark's"
        )
        raise text.refused(statement.span, why, hint, statement.name)
    for name, option in statement.options.items():
        if name == "schema":
            hint = "write the columns after the name: CREATE STREAM e (ts TIMESTAMP, x DOUBLE) WITH (...)"
            raise text.refused(option.span, "schema is no option here", hint, name)
        key = keys.get(name)
        if key is None:
            hint = names_hint(name, [*keys], f"a {what}'s options are")
            raise text.refused(option.span, f"'{name}' is not an option of a {what}", hint, name)
        _check(text, option, key, f"{name} of {what} {statement.name}")
        facts[name] = option.value
    if statement.columns is not None:
        facts["schema"] = statement.columns
    if statement.computed:
        named = [f"{expression} AS `{name.replace('`', '``')}`" for name, expression in statement.computed.items()]
        facts["columns"] = [*texts_of(facts.get("columns", ())), *named]
    if statement.where:
        facts["where"] = [*texts_of(facts.get("where", ())), *statement.where]
    return facts


def _checked(text: SqlText, option: Option) -> None:
    if option.name in _WRITTEN:
        raise text.refused(option.span, f"{option.name} is no option here", _WRITTEN[option.name], option.name)
    key = JOIN_KEYS.get(option.name)
    if key is None:
        valid = [name for name in JOIN_KEYS if name not in _WRITTEN]
        hint = names_hint(option.name, valid, "an option is a setting of Spark (spark...), or one of")
        raise text.refused(option.span, f"'{option.name}' is not an option", hint, option.name)
    is_table = isinstance(option.value, str) and any(kind is not bool and kind is not int for kind in key.kinds)
    if not is_table:  # a text may stand for a table: e=30s,w=0s, as in a flag
        _check(text, option, key, option.name)


def _check(text: SqlText, option: Option, key: OptionKey, what: str) -> None:
    try:
        key.check(option.value, what, option.name)
    except StreamJoinError as error:
        raise text.located(error, option.span) from None


def spark_text(value: object) -> str:
    """Return the value of a setting of Spark as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_created(text: SqlText, made: StreamStatement) -> None:
    """Refuse options of a statement, as far as that can be told without its source: also where no query names it.

    Raises
    ------
    StreamJoinError
        The error says where in the text the option stands.
    """
    given = {key: value for key, value in stream_facts(text, made).items() if key not in TABLE_KEYS}
    if not made.is_table:
        check_stream(text, made.name, given, made, made.span)
    elif "source" in given:
        try:
            described_tables({made.name: given}, {}, {})
        except StreamJoinError as error:
            raise text.located(error, _span_of(error, made)) from None


def check_stream(text: SqlText, name: str, given: Mapping[str, Any], made: StreamStatement | None, span: Span) -> None:
    """Refuse options of a stream where they were written.

    Parameters
    ----------
    text : SqlText
    name : str
        The stream's, in its query.
    given : mapping
        The options, as keys of the stream's table in the TOML file.
    made : StreamStatement or None
        What created it; None: it is of Spark's catalog.
    span : Span
        Where the query names it.
    """
    try:
        described_streams({name: given}, {}, {})
    except StreamJoinError as error:
        raise text.located(error, span if made is None else _span_of(error, made)) from None


def _span_of(error: StreamJoinError, made: StreamStatement) -> Span:
    """Return where the option stands that an error names."""
    option = error.name.partition(" of ")[0]
    option = "where" if isinstance(error, PredicateError) and "where" in made.options else option
    return made.options[option].span if option in made.options else made.span
