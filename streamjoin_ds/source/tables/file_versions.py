"""The versions of a file as a table beside streams: what its bytes are."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq
import xxhash

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.errors import FileFormatError, FileMissingError
from streamjoin_ds.source.event_time import timestamps
from streamjoin_ds.source.files.csv_lines import NULL_TEXTS
from streamjoin_ds.source.files.file_format import compression_of
from streamjoin_ds.source.files.json_lines import check_nulls, from_texts, with_texts
from streamjoin_ds.source.records import empty_as_null
from streamjoin_ds.spec.conforming import holds_times

__all__ = ["FileVersions"]


class FileVersions:
    """A file of Parquet, CSV with a header, or JSON lines. Its version is the digest of its bytes.

    Parameters
    ----------
    path : str
    kind : {"parquet", "csv", "json"}
    name : str
        The name of the table in the join, for errors.
    """

    def __init__(self, path: str, kind: str, name: str) -> None:
        self._path, self._kind, self._name = path, kind, name
        self._stamp: tuple[int, int, int] | None = None
        self._data: tuple[str, bytes] | None = None

    def schema(self) -> pa.Schema:
        """Return the columns of the file as it is; of text their types are inferred from all of it."""
        return self._parsed(self._read()[1], None).schema

    def newest(self, known: str | None) -> str:
        """Return the name of the version that the file has now.

        A file whose size and time of change are those of the last look is taken to be the `known` version.

        Raises
        ------
        FileMissingError
            There is no file.
        """
        stamp = self._stamped()
        if known is None or stamp != self._stamp:
            found = self._read()
            self._data, self._stamp = (None if found[0] == known else found), stamp
            return found[0]
        return known

    def rows(self, version: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a version, in the file's order.

        Parameters
        ----------
        version : str
            As `newest` returned it last.
        schema : pyarrow.Schema
            The columns that are read.

        Raises
        ------
        FileFormatError
            The file is in another format, is cut off, or has a value that is not of its column's type.
        """
        found, data = self._data or self._read()
        self._data = None  # it is asked for once
        if found != version:
            msg = f"the file of table {self._name} was replaced while it was read"
            raise FileFormatError(msg, name=self._path, hint="write it under another name, and rename it then")
        return self._parsed(data, schema)

    def _stamped(self) -> tuple[int, int, int]:
        try:
            found = files_at(self._path).stat(self._path)
        except FileNotFoundError:
            raise self._gone() from None
        return found.st_size, found.st_mtime_ns, found.st_ino

    def _read(self) -> tuple[str, bytes]:
        try:
            file = files_at(self._path).open(self._path)
        except FileNotFoundError:
            raise self._gone() from None
        try:
            data = file.read_at(0, file.stamp[0])
        finally:
            file.close()
        return xxhash.xxh3_64_hexdigest(data), data

    def _gone(self) -> FileMissingError:
        msg = f"the file of table {self._name} is not there: {self._path}"
        return FileMissingError(msg, name=self._path, hint="put it back; batches go on from where they are")

    def _parsed(self, data: bytes, schema: pa.Schema | None) -> pa.Table:
        try:
            return _table(data, self._kind, os.path.basename(self._path), schema)
        except (pa.ArrowException, KeyError, OSError) as error:
            msg = f"the file of table {self._name} cannot be read as {self._kind}, or lacks a column of the join"
            hint = "mend the file, set its format, or correct the schema"
            raise FileFormatError(msg, name=self._path, hint=hint) from error


def _table(data: bytes, kind: str, name: str, schema: pa.Schema | None) -> pa.Table:
    if kind == "parquet":
        return pq.read_table(pa.BufferReader(data), columns=None if schema is None else schema.names, use_threads=False)
    compression = compression_of(name)
    plain = data
    if compression is not None:
        with pa.CompressedInputStream(pa.BufferReader(data), compression) as stream:
            plain = stream.read()
    written = with_texts if kind == "json" else _written
    types = {} if schema is None else {field.name: written(field.type) for field in schema}
    found = _csv(plain, types) if kind == "csv" else _json(plain, types)
    if schema is None:
        return found
    columns = []
    for field in schema:
        values = found.column(field.name)
        if pa.types.is_timestamp(field.type):
            values = timestamps(empty_as_null(values), field.type)
        elif kind == "json" and holds_times(field.type):
            values = from_texts(values, field.type)
        columns.append(values)
    return pa.table(columns, names=schema.names)


def _written(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a column is read: times are texts, which may be written in several ways."""
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _csv(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        arrow_csv.ReadOptions(use_threads=False, block_size=max(len(data), 1)),
        arrow_csv.ParseOptions(newlines_in_values=True),
        arrow_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=NULL_TEXTS, strings_can_be_null=True
        ),
    )


def _json(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    check_nulls(data)
    schema = pa.schema(list(types.items())) if types else None
    if not data.strip():
        return schema.empty_table() if schema is not None else pa.table({})
    return arrow_json.read_json(
        pa.BufferReader(data),
        arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=False,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )
