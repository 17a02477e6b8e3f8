"""The name of a file: its format and compression, its place in the order, and columns in the names of folders.

The order of a folder's files stands in labels. A label is a text that holds the file's path, and labels sort as the
files are read.

==========================  ====================================================
order                       the label of ``day=2/a.csv``
==========================  ====================================================
by name                     the path in the folder: ``day=1:2/a.csv``
by modification             the time of the last change before it:
                            ``1704067200000000000/day=1:2/a.csv``
==========================  ====================================================

A whole number in the name of a sub-folder has its number of digits before it, so ``hour=9`` sorts before ``hour=10``. A
file of the folder itself keeps its name.

Folders such as ``date=2024-01-01/hour=3`` hold the values of columns in their names.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from urllib.parse import unquote

import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import ArgumentError, FileFormatError, SchemaDriftError
from streamjoin_ds.source.files.csv_lines import CsvLines
from streamjoin_ds.source.files.decoders import (
    Blanks,
    Decoding,
    Encoded,
    FixedWidths,
    LoneReturns,
    Members,
    QuotedLines,
)
from streamjoin_ds.source.files.metric_lines import LINE_FORMATS, Influx, Prometheus
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.member.files import METRIC_ENDINGS, Files
from streamjoin_ds.spool.segment import SUFFIX

__all__ = [
    "ARCHIVES",
    "BY_NAME",
    "COMPRESSIONS",
    "EXTENSIONS",
    "NO_COLUMNS",
    "ROW_FORMATS",
    "FileOrder",
    "FolderColumns",
    "archive_of",
    "compression_of",
    "decodings_of",
    "folder_types",
    "folder_values",
    "format_of",
    "format_told",
    "is_label",
    "near_names",
    "refuse_foreign",
    "with_row",
    "without_compression",
]

# Endings of names, in any case: .CSV too.
EXTENSIONS = {
    "csv": (".csv", ".txt"),
    "json": (".json", ".jsonl", ".ndjson", ".geojson"),
    "parquet": (".parquet",),
    "orc": (".orc",),
    "avro": (".avro",),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    **METRIC_ENDINGS,
    "spool": (SUFFIX,),
}

# Formats of rows: a file is complete when it appears, and its records are known by number.
ROW_FORMATS = ("parquet", "orc", "avro", "arrow")

# Endings of compressed texts, with the compression's name.
COMPRESSIONS = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".lz4": "lz4",
    ".bz2": "bz2",
    ".snappy": "snappy",
    ".sz": "snappy",
}
# Endings of archives, whose members are one text.
_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.zst", ".tzst", ".tar.xz", ".txz", ".tar.lz4", ".tar")
ARCHIVES = {".zip": "zip", **dict.fromkeys(_TAR, "tar")}
_NUMBER = re.compile(r"([^=]+)=(\d+)", re.ASCII)
_COUNTED = re.compile(r"([^=]+)=(\d+):(.*)", re.ASCII)
_TIME_DIGITS = 20  # digits of a time of change, in nanoseconds: all that int64 can hold
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark write for null
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_KNOWN_VALUES = 1 << 12  # of folders, which are asked for three times a file
_KNOWN_NAMES = 1 << 14  # each look at a folder asks what its files are, of their names alone


# What other files begin with, their endings, what they are, and what makes lines or rows of them.
_FOREIGN = (
    (rb"PK\x03\x04(?s:.{0,2000})\[Content_Types\]\.xml|\xd0\xcf\x11\xe0", (".xlsx", ".xlsm", ".xls", ".ods"),
     "a workbook of Excel", "save its sheet as CSV, or pandas.read_excel(...).to_csv(...)"),
    (rb"(?i:\s*<!doctype html|\s*<html)", (".html", ".htm"), "a page of HTML", "get the data: it may be a login"),
    (rb"\s*<(?:\?xml|gpx|kml)", (".xml", ".gpx", ".kml", ".tcx"), "XML", "pandas.read_xml(...).to_csv(...)"),
    (rb"\x89HDF\r\n", (".h5", ".hdf5", ".hdf"), "HDF5 (or netCDF, MATLAB)", "pandas or xarray, and to_parquet(...)"),
    (rb"CDF[\x01\x02\x05]", (".nc",), "netCDF", "xarray.open_dataset(...).to_dataframe().to_parquet(...)"),
    (rb"MATLAB 5\.0 MAT-file", (".mat",), "a file of MATLAB", "scipy.io.loadmat(...), and pandas' to_parquet(...)"),
    (rb"SQLite format 3\0", (".db", ".sqlite", ".sqlite3"), "a database of SQLite",
     "pandas.read_sql(...).to_parquet(...)"),
    (rb"%PDF-", (".pdf",), "a PDF", "get the data in another format"),
    (rb"\xd4\xc3\xb2\xa1|\xa1\xb2\xc3\xd4|\x0a\x0d\x0d\x0a", (".pcap", ".pcapng"), "a capture of packets",
     "tshark -T fields -E header=y -E separator=, writes CSV"),
    (rb"MDF     ", (".mf4", ".mdf"), "a measurement (MDF)", "asammdf's to_dataframe(...).to_parquet(...)"),
    (rb"GRIB", (".grib", ".grib2", ".grb"), "GRIB", "xarray with cfgrib, and to_dataframe().to_parquet(...)"),
    (rb"(?s:.{8})\.FIT", (".fit",), "a FIT file", "fitdecode, and CSV or JSON lines"),
)  # fmt: skip


def refuse_foreign(begin: bytes, path: str) -> None:
    """Refuse a file of a format that is known and not read, by what it begins with, or by its name where that is empty.

    Raises
    ------
    FileFormatError
        It is one; the hint says what makes lines or rows of it.
    """
    for pattern, endings, what, how in _FOREIGN:
        if re.match(pattern, begin) if begin else path.lower().endswith(endings):
            hint = f"{how}; what pandas or Spark reads is joined as it is: start(frames=...), JoinEngine.push"
            msg = f"the file {path} is {what}, which is not read"
            raise FileFormatError(msg, name=path, hint=hint)


@lru_cache(maxsize=_KNOWN_NAMES)
def near_names(path: str) -> str:
    """Return the beginning of a hint: what a local folder has that is named nearly as a path that is not there."""
    folder, name = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return ""
    near = [one for one in names if name and one.startswith(f"{name}.")] or difflib.get_close_matches(name, names, 2)
    return f"did you mean {' or '.join(os.path.join(folder, one) for one in near[:2])}? " if near else ""


def archive_of(name: str) -> str | None:
    """Return which archive a file of this name is, "zip" or "tar"; None: none."""
    lower = name.lower()
    return next((kind for end, kind in ARCHIVES.items() if lower.endswith(end)), None)


@lru_cache(maxsize=_KNOWN_NAMES)
def compression_of(name: str) -> str | None:
    """Return how a file of this name is compressed, one of `COMPRESSIONS` or `ARCHIVES`; None: not at all."""
    return archive_of(name) or COMPRESSIONS.get(os.path.splitext(name)[1].lower())


def without_compression(name: str) -> str:
    """Return a name without the ending that says how the file is compressed."""
    lower = name.lower()
    ending = next((end for end in (*ARCHIVES, *COMPRESSIONS) if lower.endswith(end)), "")
    return name.removesuffix(name[len(name) - len(ending) :]) if ending else name


@lru_cache(maxsize=_KNOWN_NAMES)
def format_of(name: str, declared: str) -> str | None:
    """Return the declared format, or for "auto" the format by the name's extension; None where that does not tell."""
    if declared != "auto":
        return declared
    plain = without_compression(name).lower()
    return next((kind for kind, ends in EXTENSIONS.items() if plain.endswith(ends)), None)


def format_told(name: str, path: str, declared: str) -> str:
    """Return the format of a file, as `format_of` does.

    Raises
    ------
    FileFormatError
        The file's name does not tell its format, and none was declared.
    """
    kind = format_of(name, declared)
    if kind is None:
        refuse_foreign(b"", path)
        endings = ", ".join(end for ends in EXTENSIONS.values() for end in ends)
        compressed = ", ".join([*COMPRESSIONS, ".zip", ".tar", ".tar.gz"])
        msg = f"the name of {path} does not tell its format"
        hint = f"set format, for example to csv, or end the name with one of {endings} (and {compressed})"
        raise FileFormatError(msg, name=path, hint=hint)
    return kind


def decodings_of(files: Files, kind: str | None, name: str) -> tuple[Decoding, ...]:
    """Return what the bytes of a source's file of this format and name go through, the first one first."""
    found = _decodings(files, kind)
    return found if archive_of(name) is None else (Members(kind or "", files), *found)


def _decodings(files: Files, kind: str | None) -> tuple[Decoding, ...]:
    if kind in LINE_FORMATS and files.records is None:
        return Encoded(files.encoding), Influx() if kind == "influx" else Prometheus()
    if files.records is None:
        if kind != "csv":
            return (Encoded(files.encoding),) if kind == "json" else ()
        shapes = QuotedLines.of(files), Blanks.of(files), FixedWidths.of(files)
        return (Encoded(files.encoding), LoneReturns(), *(shape for shape in shapes if shape is not None))
    if kind == "json" and files.records_form.kind in LINE_FORMATS:
        msg = f"records={files.records} is of a spool's messages, and {files.path} is a file"
        raise ArgumentError(msg, name="records", hint=f"format={files.records}; $.{files.records} names an array")
    if kind not in ("json", "spool"):
        msg = f"records says where records lie in JSON, and a file of {files.path} is {kind or 'in no known format'}"
        raise ArgumentError(msg, name="records", hint="leave records out, or set format=json")
    # Imported here: few sources have values that are unfolded.
    from streamjoin_ds.source.files.inner_records import Unfolded

    if kind == "spool":
        return (Unfolded(files.records_form, is_segment=True),)
    return Encoded(files.encoding), Unfolded(files.records_form)


class FileOrder(Struct, frozen=True):
    """How labels are made of paths.

    Parameters
    ----------
    by_modification : bool
        Whether files sort by the times of their last changes, then by their paths; False: by their paths alone.
    """

    by_modification: bool = False

    def label(self, path: str, mtime_ns: int) -> str:
        """Return the label of a file.

        Parameters
        ----------
        path : str
            Its path in the folder, with ``/`` between the parts.
        mtime_ns : int
            When it was changed last, in nanoseconds since 1970; times before are taken as 0.
        """
        label = path
        if "/" in path:
            *folders, name = path.split("/")
            label = "/".join((*map(_with_count, folders), name))
        return f"{max(mtime_ns, 0):0{_TIME_DIGITS}d}/{label}" if self.by_modification else label

    def path(self, label: str) -> str:
        """Return the path in the folder that a label tells."""
        path = label.partition("/")[2] if self.by_modification else label
        if "/" not in path:
            return path
        *folders, name = path.split("/")
        return "/".join((*map(_without_count, folders), name))

    def mtime_ns(self, label: str) -> int | None:
        """Return the time of the last change that a label tells; None where it tells none."""
        digits = label.partition("/")[0]
        return int(digits) if self.by_modification and digits.isdecimal() else None


BY_NAME = FileOrder()


def is_label(text: str) -> bool:
    """Whether a text can be a label: it leads to no place outside of the folder."""
    if "\0" in text or text.startswith("/"):
        return False
    return not text or all(part not in ("", ".", "..") for part in text.split("/"))


def _with_count(name: str) -> str:
    number = _NUMBER.fullmatch(name)
    if number is not None:
        return f"{number[1]}={len(number[2])}:{number[2]}"
    counted = _COUNTED.fullmatch(name)  # a name that looks like a label's part is marked as none
    return name if counted is None else f"{counted[1]}=0:{name[len(counted[1]) + 1 :]}"


def _without_count(part: str) -> str:
    counted = _COUNTED.fullmatch(part)
    return part if counted is None else f"{counted[1]}={counted[3]}"


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
            field = _folder_field(self.values[column.name], column.type)
            if field is None:
                msg = f"a folder of the file {path} gives column '{column.name}' a value that is no {column.type}"
                hint = "rename the folder, or declare the column in another type in a new join"
                raise SchemaDriftError(msg, name=column.name, hint=hint)
            fields.append(field)
        return pa.table(fields, names=[column.name for column in wanted]) if wanted else None


def with_row(raw: RawRecords, row: pa.Table | None) -> RawRecords:
    """Return records with the columns of one row, the same in each of them."""
    if row is None:
        return raw
    table = raw.table
    for name in row.column_names:
        table = table.append_column(name, pa.repeat(row.column(name)[0], table.num_rows))
    return replace(raw, table=table, timed=None if raw.timed is None else with_row(raw.timed, row))


NO_COLUMNS = FolderColumns({})


@lru_cache(maxsize=_KNOWN_VALUES)
def _folder_field(text: str | None, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Return a folder's value as a column of one row; None where it is none of this type."""
    form = CsvLines(["value"], pa.schema([("value", kind)]), "", "", "")
    try:
        table = form.parse(_field(text))
    except pa.ArrowInvalid:
        return None
    fits = table.num_rows == 1 and (text is None) >= (table.column(0).null_count == 1)
    return table.column(0) if fits else None


def _field(text: str | None) -> bytes:
    return b'""\n' if text is None else ('"' + text.replace('"', '""') + '"\n').encode("utf-8", "surrogateescape")
