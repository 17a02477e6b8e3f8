"""A proposal as it is pasted: a stream in TOML, SQL, Python and on the command line, and a join of two.

The texts are read back by the package's own readers (`tests/cli/test_look.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.survey.survey import Survey

__all__ = ["location_shown", "python_stanza", "sql_stanza", "stanzas", "toml_stanza", "toml_value"]

_LOGIN = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^/@\s:]*):[^/@\s]+@")
_BARRED = ("time_format", "null_values")  # lists whose texts may have commas: a text has bars between them
_SQL_TYPES = {"timestamp": "TIMESTAMP", "int64": "BIGINT", "int32": "INT", "bool": "BOOLEAN", "date32": "DATE"}
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def location_shown(found: Survey) -> str:
    """Return the source as it was given, without a password."""
    return found.location if is_local(found.location) else _LOGIN.sub(r"\1:...@", found.location)


def toml_stanza(found: Survey) -> str:
    """Return the stream as a table of the TOML file."""
    pairs = {"source": location_shown(found), **found.options}
    simple = {name: value for name, value in pairs.items() if not isinstance(value, Mapping)}
    tables = {name: value for name, value in pairs.items() if isinstance(value, Mapping)}
    lines = [f"[streams.{found.name}]", *(f"{name} = {toml_value(value)}" for name, value in simple.items())]
    for name, table in tables.items():
        lines += ["", f"[streams.{found.name}.{name}]"]
        names = {key: key if _BARE.fullmatch(key) else toml_value(key) for key in table}
        lines += [f"{names[key]} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines)


def toml_value(value: Any) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if not isinstance(value, str):
        return str(value)
    return f"'{value}'" if "\\" in value and "'" not in value else json.dumps(value, ensure_ascii=False)


def sql_stanza(found: Survey) -> str:
    """Return the stream as a statement of SQL."""
    pairs = {"source": location_shown(found), **found.options}
    columns, schema = pairs.pop("columns", {}), pairs.pop("schema", {})
    typed = [f"{_named(name)} {_sql_type(kind)}" for name, kind in schema.items()]
    made = ", ".join([*typed, *(f"{_named(name)} AS {text}" for name, text in columns.items())])
    options = ", ".join(f"{name} = {_sql(name, value)}" for name, value in pairs.items())
    return f"CREATE STREAM {found.name} {f'({made}) ' if made else ''}WITH ({options});"


def _sql_type(kind: str) -> str:
    return _SQL_TYPES.get(kind.partition("[")[0], kind.upper())


def _named(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name}`"


def _sql(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    text = _joined(name, value).replace("\\", "\\\\")
    return f'"{text}"' if "'" in text and '"' not in text else "'" + text.replace("'", "\\'") + "'"


def _joined(name: str, value: Any) -> str:
    """Return a value as one text: a list or a table as a flag has it."""
    if isinstance(value, Mapping) and name == "columns":
        return ", ".join(f"{expression} AS {_named(column)}" for column, expression in value.items())
    if isinstance(value, Mapping):
        return ", ".join(f"{_named(column)} {kind}" for column, kind in value.items())
    return (
        value
        if isinstance(value, str)
        else ("|" if name in _BARRED else ",").join(map(str, value))
        if _is_many(value)
        else str(value)
    )


def _is_many(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def python_stanza(found: Survey) -> str:
    """Return the stream in Python."""
    options = "".join(f", {name}={_python(value)}" for name, value in found.options.items())
    location = f", {_python(location_shown(found))}" if found.location else ""
    return f"Stream({_python(found.name)}{location}{options})"


def _python(value: Any) -> str:
    if _is_many(value):
        return f"[{', '.join(map(_python, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(key)}: {_python(each)}" for key, each in value.items()) + "}"
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text.startswith("'") and '"' not in text else text


def flag_stanza(found: Survey) -> str:
    """Return the stream as a flag of the command line, quoted for a shell."""
    import shlex

    pairs = [(name, _joined(name, value)) for name, value in found.options.items()]
    query = "&".join(f"{name}={value.replace('%', '%25').replace('&', '%26')}" for name, value in pairs)
    mark = "&" if "?" in found.location else "?"
    return "--stream " + shlex.quote(f"{found.name}={location_shown(found)}" + (f"{mark}{query}" if query else ""))


def stanzas(found: Survey) -> dict[str, str]:
    """Return a proposal in each form that it has: rows that are handed over have only one in Python."""
    written = {"TOML": toml_stanza, "SQL": sql_stanza, "Python": python_stanza, "command line": flag_stanza}
    if found.stream is None:
        return {}
    return {form: one(found) for form, one in written.items() if found.location or form == "Python"}
