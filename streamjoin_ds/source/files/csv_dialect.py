"""The dialect of CSV: how fields, nulls and numbers are written, and their reading by Arrow.

Arrow has no separators of thousands, and one list of null texts for all columns. Numbers with such separators are read
as texts, and again without them. Columns whose null texts differ are read one group after the other.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from streamjoin_ds.source.files.decoders import NO_BYTE, with_inner_lines
from streamjoin_ds.source.files.lines import check_digits, has_small_exponent, is_too_fine
from streamjoin_ds.spec.member.files import BLANKS, Files
from streamjoin_ds.spec.member.source import Topic

__all__ = ["NULL_TEXTS", "PLAIN", "CsvDialect", "check_csv_scales"]

# These texts are null in columns that are not text (NaN stays NaN). In columns of text only an empty field is null.
NULL_TEXTS = ("", " ", "null", "NULL", "NA", "N/A", "None")
_SWAPPED = bytes.maketrans(b",.", b".,")  # a number with a comma as one with a point, and the other way round
# A blank between thousands may be one that does not break, or a narrow one.
_SEPARATORS = {" ": "[ \u00a0\u202f]"}
_GROUPED = r"^(\s*[+-]?[0-9]{{1,3}}(?:{0}[0-9]{{2,3}})*{0}[0-9]{{3}}(?:[^0-9].*)?)$"


@dataclass(frozen=True)
class CsvDialect:
    """How a CSV text is written.

    Attributes
    ----------
    delimiter : str
        What separates fields, one character.
    decimal : {".", ","}
        The sign between a number's whole part and its fraction.
    thousands : str or None
        The sign between the thousands of a number.
    quote, escape : str or None
        What encloses a field that may hold a delimiter, and what stands before a character that means only itself.
    nulls : tuple of str
        Texts that are null in all columns, beside the usual ones of numbers.
    nulls_of : tuple of (column, texts)
        Texts that are null in one column.
    encoding : str
        The encoding of the file, for reasons.
    has_inner_lines : bool
        Whether signs may stand for line ends in quotes.
    """

    delimiter: str = ","
    decimal: str = "."
    thousands: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    nulls: tuple[str, ...] = ()
    nulls_of: tuple[tuple[str, tuple[str, ...]], ...] = ()
    encoding: str = "utf-8"
    has_inner_lines: bool = False

    @classmethod
    def of(cls, source: object) -> CsvDialect:
        """Return the dialect of a source's canonical text; the usual one of what is neither `Files` nor `Topic`."""
        if not isinstance(source, Files | Topic):
            return PLAIN
        delimiter = {BLANKS: " "}.get(source.delimiter, source.delimiter)
        encoding = "utf-8"
        if isinstance(source, Files):
            delimiter, encoding = "," if source.widths else delimiter, source.encoding
        given = source.null_values or ()
        of_columns = given if isinstance(given, Mapping) else {"": given}
        return cls(
            delimiter,
            source.decimal,
            source.thousands,
            None if source.quote == "none" else source.quote,
            source.escape,
            tuple(of_columns.get("", ())),
            tuple((name, tuple(texts)) for name, texts in of_columns.items() if name),
            encoding,
            isinstance(source, Files) and source.quoted_lines == "read",
        )

    @cached_property
    def _nulls_of(self) -> dict[str, tuple[str, ...]]:
        return {name: self.nulls + texts for name, texts in self.nulls_of}

    def named_nulls(self, column: str) -> tuple[str, ...]:
        """Return the texts that are null in a column of any type, beside an empty field."""
        return self._nulls_of.get(column, self.nulls)

    def null_texts(self, column: str) -> tuple[str, ...]:
        """Return the texts that are null in a column that is not text. A blank before a named one is none of it."""
        named = self.named_nulls(column)
        return (*NULL_TEXTS, *named, *(f" {text}" for text in named))

    def may_hide_delimiters(self, data: bytes) -> bool:
        """Whether a text may hold delimiters that separate no fields."""
        return any(sign is not None and sign.encode() in data for sign in (self.quote, self.escape))

    def fields(self, line: str) -> list[str]:
        """Return the fields of one line, as texts.

        Raises
        ------
        csv.Error
            A field is too long.
        """
        reader = csv.reader(
            io.StringIO(line),
            delimiter=self.delimiter,
            quotechar=self.quote or '"',
            escapechar=self.escape,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
        )
        return [*map(with_inner_lines, next(reader, []))]

    def refused_form(self, value: bytes, column: pa.Field) -> bytes:
        """Return a field as `csv_refuses` knows it: a number without thousands, and with a point."""
        if self.thousands is not None and _is_number(column.type):
            value = self._python_grouped.sub(self._ungrouped, value.decode("utf-8", "replace")).encode()
        return value if self.decimal == "." else value.translate(_SWAPPED)

    @cached_property
    def _separator(self) -> str:
        return _SEPARATORS.get(self.thousands or "", re.escape(self.thousands or ""))

    @cached_property
    def _python_grouped(self) -> re.Pattern[str]:
        return re.compile(_GROUPED.format(self._separator), re.ASCII)

    def _ungrouped(self, found: re.Match[str]) -> str:
        return re.sub(self._separator, "", found[0])

    def read(self, data: bytes, names: list[str], types: Mapping[str, pa.DataType]) -> pa.Table:
        """Return columns of a text of lines.

        Parameters
        ----------
        data : bytes
        names : list of str
            The columns of the text, in its order; they differ.
        types : mapping of str to pyarrow.DataType
            The wanted columns. A field of a text or of bytes is never null.

        Raises
        ------
        pyarrow.ArrowInvalid
            A line or a value is broken.
        """
        counted = {name for name, kind in types.items() if self.thousands is not None and _is_number(kind)}
        first = {name: pa.string() if name in counted else kind for name, kind in types.items()}
        groups: dict[tuple[str, ...], dict[str, pa.DataType]] = defaultdict(dict)
        for name, kind in first.items():
            groups[self.null_texts(name)][name] = kind
        if len(groups) < 2:
            table = self._read(data, names, first, *groups)
        else:
            parts = [self._read(data, names, group, nulls) for nulls, group in groups.items()]
            columns = {name: part.column(name) for part in parts for name in part.column_names}
            if len({part.num_rows for part in parts}) > 1:
                msg = "the columns differ in their numbers of rows"
                raise pa.ArrowInvalid(msg)
            table = pa.table({name: columns[name] for name in types})
        for number, (name, kind) in enumerate(types.items()):
            if name in counted:
                table = table.set_column(number, name, self._counted(table.column(name), name, kind))
        return table

    def infer(self, data: bytes, names: list[str], types: Mapping[str, pa.DataType], *, skips: bool = True) -> pa.Table:
        """Return all columns of a text of lines with the types that Arrow infers.

        With `skips`, lines that are broken are left out.

        Raises
        ------
        pyarrow.ArrowInvalid
            Nothing of it can be read.
        """
        data = data.removesuffix(NO_BYTE)  # of a character that has not ended yet
        if self.encoding != "utf-8":  # no byte that means nothing makes a column one of bytes
            data = data.decode("utf-8", "replace").encode()
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in names:
            groups[self.null_texts(name)].append(name)
        parts = [self._read(data, names, types, nulls, wanted=wanted, skips=skips) for nulls, wanted in groups.items()]
        table = pa.table({name: part.column(name) for part in parts for name in part.column_names}).select(names)
        if self.thousands is None:
            return table
        for number, name in enumerate(names):
            values = table.column(name)
            if pa.types.is_string(values.type) and name not in types:
                plain = self._without_thousands(values, name)
                if not plain.equals(values):
                    form = _PLAIN_NUMBERS[self.decimal]
                    told = form._read(_quoted(plain), [name], {}, self.null_texts(name), wanted=[name]).column(0)
                    table = table.set_column(number, name, values if pa.types.is_string(told.type) else told)
        return table

    def _without_thousands(self, values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
        is_grouped = pc.match_substring_regex(values, _GROUPED.format(self._separator))
        is_grouped = pc.and_not(is_grouped, pc.is_in(values, pa.array(self.null_texts(column), pa.string())))
        if not pc.any(is_grouped).as_py():
            return values
        return pc.if_else(is_grouped, pc.replace_substring_regex(values, self._separator, ""), values)

    def _counted(self, values: pa.ChunkedArray, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        """Return a column of numbers that were read as texts."""
        if not len(values):
            return pa.chunked_array([pa.array([], kind)])
        plain = _PLAIN_NUMBERS[self.decimal]
        text = _quoted(self._without_thousands(values, name))
        table = plain._read(text, [name], {name: kind}, self.null_texts(name))
        if table.num_rows != len(values):
            msg = "a number of several lines"
            raise pa.ArrowInvalid(msg)
        return table.column(0)

    def _read(
        self,
        data: bytes,
        names: list[str],
        types: Mapping[str, pa.DataType],
        nulls: Iterable[str],
        *,
        wanted: list[str] | None = None,
        skips: bool = False,
    ) -> pa.Table:
        decimals = [name for name, kind in types.items() if pa.types.is_decimal(kind)]
        if decimals and has_small_exponent(data):
            check_csv_scales(self._read(data, names, dict.fromkeys(decimals, pa.string()), nulls), self.decimal)
        return check_digits(
            arrow_csv.read_csv(
                pa.BufferReader(data),
                arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                arrow_csv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=self.quote or False,
                    escape_char=self.escape or False,
                    newlines_in_values=False,
                    invalid_row_handler=_passed_over if skips else None,
                ),
                arrow_csv.ConvertOptions(
                    include_columns=list(types) if wanted is None else wanted,
                    column_types=types,
                    null_values=list(nulls),
                    strings_can_be_null=False,
                    decimal_point=self.decimal,
                ),
            )
        )


PLAIN = CsvDialect()
_PLAIN_NUMBERS = {decimal: CsvDialect(decimal=decimal) for decimal in (".", ",")}


def _passed_over(row: object) -> str:
    del row
    return "skip"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _quoted(values: pa.ChunkedArray) -> bytes:
    """Return texts as a CSV text of one column."""
    doubled = pc.replace_substring(values, '"', '""')
    lines = pc.binary_join_element_wise('"', doubled, '"\n', "").combine_chunks()
    return lines.buffers()[2].to_pybytes() if len(lines) else b""


def check_csv_scales(texts: pa.Table, decimal: str = ".") -> None:
    """Raise ArrowInvalid where a decimal, read as text, has more digits after its point than Arrow can count."""
    for column in texts.columns:
        small = column.filter(pc.match_substring(column, "e-", ignore_case=True))
        if any(is_too_fine(text.replace(decimal, ".")) for text in small.to_pylist()):
            msg = "a number that no decimal holds"
            raise pa.ArrowInvalid(msg)
