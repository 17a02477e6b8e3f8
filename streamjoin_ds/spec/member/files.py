"""A stream's source of files: a file, a folder that grows or a spool, and the options of each.

An option is a field: it says what it is for, and which values it has. What reads the files has the object.
"""

from __future__ import annotations

import codecs
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from streamjoin_ds.duration import Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.member.location import Located
from streamjoin_ds.spec.member.option_key import INTS, LIST, LISTS, option
from streamjoin_ds.spec.nested_path import RecordsForm, records_form

__all__ = [
    "BLANKS",
    "METRIC_ENDINGS",
    "Files",
    "NullValues",
    "Spool",
    "checked_csv",
    "checked_records",
    "csv_option",
    "delimiter_of",
    "metric_format",
    "partitioned_by",
    "records_option",
    "refused_option",
]

NullValues: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]] | str | None

_FORMATS = (
    "auto",
    "csv",
    "json",
    "parquet",
    "orc",
    "avro",
    "arrow",
    "influx",
    "prometheus",
    "spool",
    "delta",
    "results",
)
_MOST_LINES, _MOST_DIGITS = 1000, 5  # before the records of a CSV file
# Codecs of Python that are of no files, or whose text cannot be told piece by piece.
_NO_ENCODINGS = frozenset(("utf-7", "idna", "punycode", "charmap", "raw-unicode-escape", "unicode-escape"))
_COLUMN = "column:"  # before the name of a column in a text
_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "space": " "}
METRIC_ENDINGS = {"influx": (".lp", ".influx"), "prometheus": (".prom",)}  # of files' names
BLANKS = "blanks"  # the delimiter that is any number of blanks and tabs
_OF_CSV = ("thousands", "null_values", "quote", "escape", "quoted_lines", "widths")
_THOUSANDS = (",", ".", " ", "'", "_")
_MOST_WIDTH = 10_000  # characters
_DELIMITERS = frozenset(" \t!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def csv_option(name: str) -> Any:
    """Return the field of an option of CSV that files and messages have."""
    return option(**_CSV_OPTIONS[name])


_CSV_OPTIONS: dict[str, dict[str, Any]] = {
    "decimal": {
        "default": ".",
        "help_": "The sign between the whole part and the fraction of numbers in CSV.",
        "one_of": (".", ","),
        "example": ",",
        "identity": "decimal sign",
    },
    "thousands": {
        "default": None,
        "help_": "The sign between the thousands of numbers in CSV: a comma, a point, a blank, ' or _.",
        "note": "[default: there is none]",
        "example": ",",
        "metavar": "CHARACTER",
        "identity": "sign of thousands",
    },
    "null_values": {
        "default": None,
        "help_": "Texts of CSV that are null in all columns, or by columns. In a text | stands between them, and "
        "temp=-9999 is of one column.",
        "kinds": (str, LIST, LISTS),
        "note": "[default: an empty field, and in columns of numbers NA, N/A, null, NULL, None]",
        "example": ["MM", "-9999"],
        "identity": "null values",
    },
    "quote": {
        "default": '"',
        "help_": "What encloses fields of CSV that hold a delimiter: one character, or none.",
        "example": "'",
        "metavar": "CHARACTER",
        "identity": "quotes",
    },
    "escape": {
        "default": None,
        "help_": "What stands in CSV before a character that means only itself.",
        "note": "[default: nothing]",
        "example": "\\",
        "metavar": "CHARACTER",
        "identity": "escapes",
    },
}


def records_option() -> Any:
    """Return the field of the option that says where records lie in a text of JSON, which files and messages have."""
    return option(
        None,
        "Where the records are in JSON: $ (each value of a file or message, each element of its array), the path of an "
        "array, such as values or a.b, names/rows (two arrays: fields/data), or senml. Of a spool's messages also "
        "influx or prometheus.",
        note="[default: each line, or message, is one]",
        example="values",
        metavar="PATH",
        identity="place of records",
        numbers=True,
    )


def checked_records(given: object, stream: str) -> None:
    """Raise ArgumentError where what says where records lie names no place."""
    if given is not None and records_form(str(given)) is None:
        msg = f"records of stream {stream} names no place of records"
        hint = "$ for each value of a file or message, a path such as values or a.b, fields/data, or senml"
        raise ArgumentError(msg, name="records", hint=hint)


@dataclass(frozen=True, slots=True)
class Files(Located):
    """A file, or a folder that grows: CSV, JSON lines, Parquet, compressed or not, here or in an object store.

    Parameters
    ----------
    path : str
        The file, the folder, or ``/folder/*.extension``; ``s3://bucket/folder``, whose credentials come from the
        environment.
    format : {"auto", "csv", "json", "parquet", "orc", "avro", "arrow", "influx", "prometheus"}
        The format of the files; "auto" goes by their names, and knows a Delta table by its folder.
    delimiter : str
        The delimiter of CSV files: one ASCII character that is no letter, digit, double quote or line end; "tab" is a
        tab. "blanks" are any number of blanks and tabs; those at a line's beginning and end separate nothing.
    skip_lines : int
        Lines of CSV files before the header, which are passed over.
    header : int or bool
        Lines of the header of CSV files, after those. The first one names the columns; units and the like may follow.
        False or 0: there is none. Then `schema` names all columns in their order, or they are ``column_1``,
        ``column_2``, ...
    decimal : {".", ","}
        The sign between the whole part and the fraction of numbers in CSV files; not the delimiter.
    thousands : {",", ".", " ", "'", "_"}, optional
        The sign between the thousands of numbers in CSV files. A number with it must have groups of two or three
        digits, the last one of three; another one is refused, so that a decimal comma is never passed over.
    null_values : list of str, or mapping of str to list of str, optional
        Texts of CSV files that are null, in columns of text too, quoted or not; by the column, or in all of them. They
        are null beside an empty field, and beside ``NA``, ``null``, ... in columns of other types. A text such as
        ``"MM|temp=-9999"`` is the same as ``{"": ["MM"], "temp": ["-9999"]}``.
    quote : str
        What encloses a field of CSV files that holds a delimiter: one character, or "none".
    escape : str, optional
        What stands in CSV files before a character that means only itself: a backslash.
    quoted_lines : {"reject", "read"}
        "read" reads a field in quotes that holds line ends, which are part of it. A quote that is never closed takes
        all up to the next one with it then. By default a record is one line: a line end in quotes breaks the lines
        around it, and no others.
    widths : list of int, optional
        The columns of files have these widths in characters, and no delimiter; a negative width is passed over. Blanks
        around a value are none of it. A line that ends early has nulls, and what stands after the last column is not
        read. Lines of the header are cut in the same way.
    comment : str, optional
        Lines of CSV files that begin with this character are passed over, also before and in the header. One ASCII
        character as of `delimiter`, and another one. `skip_lines` counts them.
    encoding : str
        The encoding of files of text, by a name of Python's codecs. A file that begins with a byte order mark of UTF-8,
        UTF-16 or UTF-32 has that one. A record with a byte that is no character is broken, where its columns hold it.
    records : str, optional
        Where records lie in JSON that is no line for each. "$": each object of a file is one, over several lines or one
        after the other, and each element of an array that is none of an object's. ``"values"`` or a path ``"a.b"``:
        each element of the array there, with the fields that stand beside the array; a field of its own wins, and an
        element that is no object is a column of the array's name. ``"fields/data"``: each row of an array, under the
        names in another one. "senml": each record of a pack of RFC 8428, with its base values. A path or its JSONPath
        (``$.a.b[*]``); odd names in back-ticks. The records of a spool's messages are found in the same way; "influx"
        and "prometheus" are the lines of messages in these formats.
    on_bad_file : {"stop", "quarantine"}
        What happens when a file cannot be read any further, came too late, or is not what was read before. "stop" stops
        the stream. "quarantine" sets aside the rest of the file as one rejected row that names it. It may differ at
        each restart.
    partition_by : {"file", "folder"}, or columns, optional
        The stream has many partitions, each with an order of its own, and no order among them: each file of the folder
        is one, or each sub-folder. Lateness is judged in each partition, and the stream's watermark is the smallest of
        its partitions' that are not idle (ARCHITECTURE.md, "Partitions"). By default the stream has one order. A list
        of columns, or another text, such as "device" or "site,device": the records keep their one order, and each value
        has a clock of its own (ARCHITECTURE.md, "Devices").
    sub_folders : {"skip", "read"}
        "read" reads the files of all sub-folders too, in the order of their paths (ARCHITECTURE.md, "Folders"). Names
        such as ``date=2024-01-01`` are columns, which may be declared in `schema`. By default sub-folders are passed
        over, and a warning names one.
    file_order : {"name", "modified"}
        The order of a folder's files: by their names, or by the times of their last changes and, where these are equal,
        by their names. By "modified" each file must be whole: it is read once `finished_after` has passed (10 s by
        default) and must not change any more; one that is written again is a new file. Files without any order among
        them are partitions: ``partition_by="file"``.
    finished_after : str or timedelta, optional
        A file is finished once it has not been changed for so long, by the machine's clock. Until then no file after it
        is begun, and a Parquet or compressed file is not begun. By default a file is finished as soon as one after it
        is there. It moves the ends of batches and may differ at each restart.
    """

    path: str
    format: str = option(
        "auto", "Format of the files.", note="[default: auto, by their names]", one_of=_FORMATS, example="csv"
    )
    delimiter: str = option(
        ",",
        "What separates the fields of CSV files: one character, tab, or blanks (any number of blanks and tabs).",
        example=";",
        metavar="CHARACTER",
    )
    skip_lines: int = option(
        0,
        "Lines of CSV files before the header, which are passed over.",
        (int,),
        example=6,
        limits={"minimum": 0},
        metavar="N",
        identity="lines before the header",
        numbers=True,
    )
    header: int = option(
        1,
        "Lines of the header of CSV files: the first one names the columns. 0 or false: there is none, and the columns "
        "are those of schema in their order, or column_1, column_2, ...",
        (int, bool),
        "[default: 1]",
        example=0,
        limits={"minimum": 0},
        metavar="N",
        identity="lines of the header",
        numbers=True,
    )
    decimal: str = csv_option("decimal")
    thousands: str | None = csv_option("thousands")
    null_values: NullValues = csv_option("null_values")
    quote: str = csv_option("quote")
    escape: str | None = csv_option("escape")
    quoted_lines: str = option(
        "reject",
        "Whether fields of CSV in quotes may hold line ends: read, or reject (a record is one line).",
        one_of=("reject", "read"),
        example="read",
        identity="line ends in quotes",
        numbers=True,
    )
    widths: Sequence[int] | str | None = option(
        None,
        "Widths of the columns of files whose columns have one each, in characters; a negative one is passed over.",
        (str, INTS),
        "[default: fields are separated by delimiter]",
        example=[4, 3, 3],
        identity="widths",
        numbers=True,
    )
    comment: str | None = option(
        None,
        "Lines of CSV files that begin with this character are passed over.",
        note="[default: none are]",
        example="#",
        metavar="CHARACTER",
        identity="comments",
        numbers=True,
    )
    encoding: str = option(
        "utf-8",
        "Encoding of files of CSV and JSON, by its name. A mark of UTF-16 or UTF-32 decides without it.",
        example="cp1252",
        metavar="NAME",
        identity="encoding",
        numbers=True,
    )
    records: str | None = records_option()
    on_bad_file: str = option(
        "stop",
        "What happens at a file that cannot be read: stop (the join stops) or quarantine (the file is set aside, as a "
        "row of the rejects).",
        one_of=("stop", "quarantine"),
        example="quarantine",
    )
    partition_by: str | Sequence[str] | None = option(
        None,
        "A stream has many partitions, each with an order of its own: each file of its folder (file) or each "
        "sub-folder (folder). Or columns, such as device: its values have clocks of their own.",
        (str, LIST),
        "[default: one order]",
        example="device",
        numbers=True,
    )
    sub_folders: str = option(
        "skip",
        "Whether the files of sub-folders are read too, their names such as date=2024-01-01 as columns (read), or "
        "passed over (skip).",
        one_of=("skip", "read"),
        example="read",
        identity="sub-folders",
        numbers=True,
    )
    file_order: str = option(
        "name",
        "The order of a folder's files: by their names (name), or by their times of change (modified).",
        one_of=("name", "modified"),
        example="modified",
        identity="order of files",
        numbers=True,
    )
    finished_after: Duration | None = option(
        None,
        "Time without a change after which a file is finished, and the next one may be begun.",
        note="[default: once a later file is there]",
        example="30s",
        metavar="DURATION",
    )

    @property
    def partition_kind(self) -> str | None:
        """What a partition of the stream is: a "file" or a "folder"; None: it has one order."""
        return self.partition_by if isinstance(self.partition_by, str) else None

    @property
    def records_form(self) -> RecordsForm:
        """Where the records are; a source without `records` is not asked."""
        form = records_form(self.records or "")
        assert form is not None
        return form

    @property
    def quarantines(self) -> bool:
        """Whether a bad file is set aside."""
        return self.on_bad_file == "quarantine"

    @property
    def reads_sub_folders(self) -> bool:
        """Whether the files of sub-folders are read too."""
        return self.sub_folders == "read"

    @property
    def by_modification(self) -> bool:
        """Whether files are read in the order of their times of change."""
        return self.file_order == "modified"

    @property
    def finished_after_us(self) -> int | None:
        """After how many microseconds without a change a file is finished; None: where nothing is said."""
        return None if self.finished_after is None else duration_us(self.finished_after, "finished_after")

    def checked(self, stream: str) -> Files:
        """Return the source with its options in one form each; raise ArgumentError where one cannot be."""
        located = super(Files, self).checked(stream)
        if self.format in ("delta", "results"):
            msg = f"stream {stream} has the format of a table, and a source of files"
            raise ArgumentError(msg, name="format", hint=f"DeltaRows(path, format={self.format!r}) reads a table")
        delimiter = delimiter_of(self.delimiter, stream)
        skip_lines, header = (_lines(getattr(self, name), name, stream) for name in ("skip_lines", "header"))
        checked_records(self.records, stream)
        finished_after = self.finished_after
        if finished_after is not None:  # "0s" is one: a file counts as finished at once
            finished_after = duration_text(duration_us(finished_after, f"finished_after of {stream}"))
        if self.by_modification and self.format == "spool":
            raise refused_option(stream, "file_order", "reads a spool, whose segments have an order of their own")
        partition_by = partitioned_by(self.partition_by, stream, ("file", "folder"))
        if self.by_modification and partition_by == "file":
            msg = f"stream {stream} has no order among its files, so it cannot have file_order"
            hint = "leave it out, or leave out partition_by=file"
            raise ArgumentError(msg, name="file_order", hint=hint)
        if isinstance(partition_by, str) and self.quarantines:
            msg = f"stream {stream} has partitions, so it cannot have on_bad_file yet"
            raise ArgumentError(msg, name="on_bad_file", hint="leave it out, or leave out partition_by")
        for name in _OF_CSV if self.format not in ("auto", "csv", "spool") else ():
            if getattr(self, name) != Files.__dataclass_fields__[name].default:
                raise refused_option(stream, name, f"reads no CSV, but {self.format}")
        widths = None if self.widths is None else _widths(self.widths, stream)
        if widths is not None and delimiter != ",":
            msg = f"stream {stream} has columns of fixed widths, so it cannot have a delimiter"
            raise ArgumentError(msg, name="delimiter", hint="leave delimiter out, or widths")
        if self.quoted_lines == "read" and (self.quote == "none" or widths is not None):
            why = "has no quotes" if self.quote == "none" else "has columns of fixed widths"
            raise refused_option(stream, "quoted_lines", why)
        csv = checked_csv(self, "\0" if widths else delimiter, stream)
        if self.comment is not None and (self.comment == delimiter or self.comment not in _DELIMITERS):
            msg = f"the comment of stream {stream} is no character that begins a comment in a CSV file"
            raise ArgumentError(msg, name="comment", hint="for example #, or %; not the delimiter")
        counted = replace(located, skip_lines=skip_lines, header=header, encoding=_encoding(self.encoding, stream))
        counted = replace(counted, partition_by=partition_by)
        return replace(counted, delimiter=delimiter, finished_after=finished_after, widths=widths, **csv)


@dataclass(frozen=True, slots=True)
class Spool(Files):
    """A spool: what `streamjoin intake` writes. Each payload is a JSON object.

    A declared column ``spool_received`` (timestamp), ``spool_topic`` (string), ``spool_number`` (int64),
    ``spool_retained`` (bool) or ``spool_qos`` (int32) is when a message came, its topic, its number in the folder, and,
    of MQTT, whether the broker had retained it, and its QoS. One that `time`, `where`, `columns`, `unique` or
    `partition_by` names needs no declaration. The options are those of `Files`.
    """

    format: str = field(default="spool", init=False)


def metric_format(path: str) -> str:
    """Return the format of lines of metrics that the name of a file tells, compressed or not; empty for none."""
    name = path.lower()
    return next((form for form, ends in METRIC_ENDINGS.items() if any(f"{e}." in f"{name}." for e in ends)), "")


def refused_option(stream: str, name: str, why: str) -> ArgumentError:
    """Return the error for an option that the stream cannot have."""
    return ArgumentError(f"stream {stream} {why}, so it cannot have {name}", name=name, hint=f"leave {name} out")


def partitioned_by(given: object, stream: str, kinds: Sequence[str] = ()) -> str | tuple[str, ...] | None:
    """Return what a stream is partitioned by: one of the kinds, or columns; None: by nothing.

    A list names columns. A text is a kind, or names columns with commas between them; ``column:file`` is one whose name
    is that of a kind.

    Raises
    ------
    ArgumentError
        It is neither, names no column, or names one twice.
    """
    if given is None or (isinstance(given, str) and given in kinds):
        return given
    columns: Any = given
    if isinstance(given, str):
        columns = [part.strip().removeprefix(_COLUMN) for part in given.split(",")]
    is_list = isinstance(columns, Sequence) and all(isinstance(one, str) and one for one in columns)
    if not is_list or not columns or len(set(columns)) < len(columns):
        others = "".join(f", nor {kind}" for kind in kinds)
        msg = f"partition_by of stream {stream} is no list of different columns{others}"
        raise ArgumentError(msg, name="partition_by", hint="for example device, or ['site', 'device']")
    return tuple(columns)


def delimiter_of(given: object, name: str) -> str:
    """Return a delimiter as one character; raise ArgumentError where no CSV file can have it."""
    character = _DELIMITER_NAMES.get(given, given) if isinstance(given, str) else ""
    if character == BLANKS:
        return BLANKS
    if len(character) != 1 or character not in _DELIMITERS:
        msg = f"the delimiter of stream {name} cannot be used in a CSV file"
        raise ArgumentError(msg, name="delimiter", hint="for example , ; | : a space, tab, or blanks")
    return character


def checked_csv(source: Any, delimiter: str, stream: str) -> dict[str, Any]:
    """Return the options of CSV that a source has (`csv_option`), in one form each; its delimiter is checked already.

    Raises
    ------
    ArgumentError
        One of them cannot be, or not beside another.
    """
    separates = " " if delimiter == BLANKS else delimiter
    if source.decimal == delimiter:
        msg = f"stream {stream} has one character as its delimiter and its decimal sign"
        raise ArgumentError(msg, name="decimal", hint="set delimiter=; or tab, by which the fields are told apart")
    thousands = {"space": " "}.get(source.thousands, source.thousands)
    if thousands is not None and (thousands not in _THOUSANDS or thousands == source.decimal):
        msg = f"stream {stream} has a sign of thousands that is none, or that is its decimal sign"
        raise ArgumentError(msg, name="thousands", hint="one of , . ' _ or space; a point needs decimal=,")
    quote = source.quote
    if quote != "none" and (quote not in {*_DELIMITERS, '"'} or quote in {separates, source.decimal, thousands}):
        msg = f"the quote of stream {stream} is no character that encloses fields"
        raise ArgumentError(msg, name="quote", hint="for example ', or none; not the delimiter or a sign of numbers")
    if thousands == separates and quote == "none":
        msg = f"stream {stream} has one character as its delimiter and its sign of thousands, and no quotes"
        raise ArgumentError(msg, name="thousands", hint="leave quote out, or set another delimiter")
    escape = source.escape
    signs = {separates, source.decimal, thousands, quote}
    if escape is not None and (escape not in _DELIMITERS or escape in signs):
        msg = f"the escape of stream {stream} is no character that stands before others"
        raise ArgumentError(msg, name="escape", hint="for example \\; a doubled quote is one anyway")
    return {"thousands": thousands, "null_values": _null_values(source.null_values, stream)}


def _null_values(given: object, stream: str) -> Any:
    """Return texts that are null as a tuple, or by the names of columns, "" for all; None where there are none."""
    found: dict[str, tuple[str, ...]] = {}
    if isinstance(given, str):
        by_column: dict[str, list[str]] = {}
        for part in given.split("|"):
            column, is_given, text = part.rpartition("=")
            by_column.setdefault(column if is_given else "", []).append(text)
        given = by_column
    parts = given if isinstance(given, Mapping) else {"": () if given is None else given}
    for column, texts in parts.items():
        each: Any = (texts,) if isinstance(texts, str) else texts
        is_valid = isinstance(column, str) and isinstance(each, Sequence)
        if not is_valid or not all(isinstance(text, str) and not {"\n", "\r"} & {*text} for text in each):
            msg = f"null_values of stream {stream} are no texts"
            raise ArgumentError(msg, name="null_values", hint="for example ['MM', '-9999'], or {'temp': ['-9999']}")
        if each:
            found[column] = tuple(dict.fromkeys(each))
    return found.get("") if found.keys() <= {""} else found


def _widths(given: object, stream: str) -> tuple[int, ...]:
    """Return widths of columns, given as numbers or as a text of them."""
    parts = given.replace(",", " ").split() if isinstance(given, str) else given
    try:
        widths = tuple(int(part) if isinstance(part, str) else operator.index(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        widths = ()
    if not any(width > 0 for width in widths) or not all(0 < abs(width) <= _MOST_WIDTH for width in widths):
        msg = f"widths of stream {stream} are no widths of columns"
        raise ArgumentError(msg, name="widths", hint="whole numbers, for example [4, 3, 3]; -2 passes over two")
    return widths


def _encoding(given: object, stream: str) -> str:
    """Return the name of an encoding in one form."""
    try:
        name = codecs.lookup(given.strip()).name if isinstance(given, str) else ""
        codecs.getincrementaldecoder(name)().decode(b"", final=True).encode()
    except (LookupError, AttributeError, TypeError, ValueError):
        name = ""
    if not name or name in _NO_ENCODINGS:
        msg = f"the encoding of stream {stream} is none that there is"
        raise ArgumentError(msg, name="encoding", hint="for example utf-16, latin-1, cp1252 or shift_jis")
    return "utf-8" if name == "utf-8-sig" else name


def _lines(given: object, name: str, stream: str) -> int:
    """Return a number of lines, given as one, as a text, or as true or false."""
    number = {"false": 0, "true": 1}.get(given.strip().lower(), given.strip()) if isinstance(given, str) else given
    number = int(number) if isinstance(number, str) and number.isdecimal() and len(number) < _MOST_DIGITS else number
    if not isinstance(number, int) or not 0 <= number <= _MOST_LINES:
        msg = f"{name} of stream {stream} is no number of lines"
        raise ArgumentError(msg, name=name, hint=f"a whole number from 0 to {_MOST_LINES}")
    return int(number)
