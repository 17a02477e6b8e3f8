"""Columns whose values stand in the names of folders, such as ``date=2024-01-01/hour=3``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from urllib.parse import unquote

import pyarrow as pa

from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.source.files.csv_lines import CsvLines
from streamjoin_ds.source.records import RawRecords

__all__ = ["NO_COLUMNS", "FolderColumns", "folder_types", "folder_values", "with_row"]

_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark write for null
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)


def folder_values(folders: Sequence[str], time: str) -> dict[str, str | None]:
    """Return the columns that folders on the way to a file name, with their values as texts; None is null.

    The innermost folder of a name counts. The event time is never one of them: it is in the file.
    """
    values: dict[str, str | None] = {}
    for folder in folders:
        name, equals, text = folder.partition("=")
        name = unquote(name)
        if equals and name and name != time:
            values[name] = None if text in ("", _NULL) else unquote(text)
    return values


def folder_types(found: Iterable[Mapping[str, str | None]]) -> dict[str, pa.DataType]:
    """Return the type of each column that folders name: int64, date32 or string, whichever all its values fit."""
    texts: dict[str, set[str]] = {}
    for values in found:
        for name, text in values.items():
            texts.setdefault(name, set()).update(() if text is None else (text,))
    return {name: _type_of(seen) for name, seen in texts.items()}


def _type_of(texts: set[str]) -> pa.DataType:
    if texts and all(_WHOLE.fullmatch(text) for text in texts):
        return pa.int64()
    return pa.date32() if texts and all(map(_is_date, texts)) else pa.string()


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class FolderColumns:
    """The columns of one file that its folders name.

    Parameters
    ----------
    values : mapping of str to str or None
        See `folder_values`.
    """

    values: Mapping[str, str | None]

    def rest(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that the file itself must have."""
        if not self.values:
            return schema
        return pa.schema([column for column in schema if column.name not in self.values])

    def row(self, schema: pa.Schema, stream: str, path: str) -> pa.Table | None:
        """Return one row of those columns of `schema` that the folders name; None where they name none.

        A value is read as the field of a CSV file is.

        Raises
        ------
        SchemaDriftError
            A value cannot have the column's type; the error names the column and the file.
        """
        if not self.values:
            return None
        wanted = [column for column in schema if column.name in self.values]
        fields = []
        for column in wanted:
            form = CsvLines([column.name], pa.schema([column]), "", stream, path)
            text = self.values[column.name]
            try:
                table = form.parse(_field(text))
                fits = table.num_rows == 1 and (text is None) >= (table.column(0).null_count == 1)
            except pa.ArrowInvalid:
                fits = False
            if not fits:
                msg = f"a folder of the file {path} gives column '{column.name}' a value that is no {column.type}"
                hint = "rename the folder, or declare the column in another type in a new join"
                raise SchemaDriftError(msg, name=column.name, hint=hint)
            fields.append(table.column(0))
        return pa.table(fields, names=[column.name for column in wanted]) if wanted else None


def with_row(raw: RawRecords, row: pa.Table | None) -> RawRecords:
    """Return records with the columns of one row, the same in each of them."""
    if row is None:
        return raw
    table = raw.table
    for name in row.column_names:
        table = table.append_column(name, pa.repeat(row.column(name)[0], table.num_rows))
    return replace(raw, table=table)


NO_COLUMNS = FolderColumns({})


def _field(text: str | None) -> bytes:
    return b'""\n' if text is None else ('"' + text.replace('"', '""') + '"\n').encode("utf-8", "surrogateescape")
