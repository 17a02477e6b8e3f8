"""JSON lines: one object in each line. An absent key is a null, and keys that do not travel are passed over.

In a column of text a number, a boolean, an object or a list is its own JSON text, as it is written.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from streamjoin_ds.source.files.inner_records import NoRecords, elements, members, parts_of
from streamjoin_ds.source.files.lines import (
    DOUBTFUL,
    FINE,
    REFUSED,
    Lines,
    Rule,
    Sifted,
    check_digits,
    has_small_exponent,
    holds_decimals,
    json_rule,
)
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, not_of_type
from streamjoin_ds.spec.inside import holds_times
from streamjoin_ds.spec.nested_path import column_of, inner_path, inner_value, root_fields
from streamjoin_ds.spec.nested_values import is_list, with_leaves
from streamjoin_ds.spec.time_text import no_timestamps, timestamps

__all__ = ["JsonLines", "check_json_scales", "check_nulls", "from_texts", "told", "with_texts"]


# Types of the time column, in the order in which they are tried. A number with a point is read as an exact decimal, so
# that it parses alike beside any other records.
_TIME_DIGITS = 38
_TIME_TYPES = (pa.string(), pa.int64(), pa.decimal256(2 * _TIME_DIGITS, _TIME_DIGITS))
_ODD = len(_TIME_TYPES)  # the group of lines that Arrow decides alone
_WHOLE = r"^([+-]?[0-9]+)\.0+$"

_LONG_NUMBER = 300  # digits; a float64 has at most nine more
_LARGE, _LONG = re.compile(rb"[0-9][eE]\+?[0-9]{3}"), re.compile(rb"[0-9]{%d}" % _LONG_NUMBER)
_MINUS_ZERO = re.compile(rb"[:,\[ \t\r]-0[ \t\r]*[,}\]]")  # no unsigned number to Arrow, and 0 to Python
_KEY = re.compile(rb'"[ \t\r]*:')
# Numbers that may have more than 38 digits after their point: those with an exponent of two digits, or a long fraction.
_SMALL = [
    re.compile(rb"%b-(?<=[0-9.]%b-)(?:0*[1-9][0-9]|(?<=[0-9]{29}%b-)0*[1-9])" % (sign, sign, sign))
    for sign in (b"e", b"E")
]
_FINEST = Decimal((0, (1,), -(10**6)))  # stands for a number whose exponent is beyond Decimal's
_NO_TEXT_THERE = re.compile(r"Column\(/(.*)\) changed from string to")
_NO_TEXT = pa.null()  # stands for a column that is not read
_STRAY_NULL = re.compile(rb"^[^{\n]*null|\}[ \t\r]*null", re.MULTILINE)


_NULL = int.from_bytes(b"null", "little")
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_Got: TypeAlias = "Callable[[dict[str, Any]], Any]"  # gives a column's value that an object has


class JsonLines:
    """The format of one JSON file's lines, which are objects.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns that travel, with their inside types.
    time : str
        The time column: its values are texts or numbers.
    nested : collection of str
        Those columns that are paths into other ones.
    """

    def __init__(self, schema: pa.Schema, time: str, nested: Collection[str] = ()) -> None:
        self._schema = schema
        self._time = time
        self._time_type = pa.string()
        self._nested = frozenset(nested).intersection(schema.names)
        # The columns as they are written, but for the time, which may be written as anything.
        timeless = [f.with_type(pa.int64()) if f.name == time else f for f in schema]
        self._written = pa.struct(root_fields(timeless, self._nested))
        path = inner_path(time) if time in self._nested else None
        self._time_place = time if path is None else "/".join(map(str, (path[0], *path[1])))
        self._has_texts = _holds_texts(self._written)
        self._is_no_text = False  # whether a text was looked for where another value stands, when lines were refused
        self._tells = False  # whether values had to be made texts; other lines of the file will need it too

    def parse(self, data: bytes) -> pa.Table:
        """See `LineFormat.parse`."""
        if not data:
            return pa.table({f.name: pa.array([], self._read_type(f)) for f in self._schema})
        try:
            data.decode()  # Arrow would accept bytes that are not UTF-8
        except UnicodeDecodeError as error:
            msg = "not UTF-8"
            raise pa.ArrowInvalid(msg) from error
        check_nulls(data)
        _check_objects(data)
        if self._tells:
            data = told(data, self._written)
        try:
            table = self._read(data)
        except pa.ArrowInvalid:
            # The time may be written in another way: try those before calling the lines broken.
            table = self._read_otherwise(data)
            if table is None and self._is_no_text and (texts := told(data, self._written)) != data:
                table = self._read_otherwise(texts)
                self._tells = table is not None
            if table is None:
                raise
        for number, column in enumerate(self._schema):
            if column.name != self._time and holds_times(column.type):
                table = table.set_column(number, column.name, from_texts(table.column(number), column.type))
        return self._exact(table)

    def reason(self, line: bytes) -> tuple[str, str]:
        """See `LineFormat.reason`."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return "", "not JSON"
        if not isinstance(value, dict):
            return "", "not a JSON object"
        for column in self._schema:
            alone = JsonLines(pa.schema([column]), self._time, self._nested)
            try:
                alone.parse(line)
            except pa.ArrowInvalid:
                return column.name, not_of_type(column.type)
        return "", "the line cannot be read"

    def sift(self, lines: Lines) -> Sifted:
        """See `LineFormat.sift`: finds lines that are no JSON objects, and values that their columns cannot have.

        Groups are lines whose times are written alike, and those about which Python's parser is not sure.
        """
        decode = json.JSONDecoder(parse_float=Decimal).decode
        rules, time = self._rules(), self._got(self._time)
        has_unsigned = any(pa.types.is_unsigned_integer(kind) for kind in self._schema.types)
        groups: dict[int, list[int]] = {}
        broken: dict[int, tuple[str, str]] = {}
        keys: dict[int, int] = {}  # how many keys each object has
        wrong: dict[int, int] = {}  # the first column of a line that has a value that it cannot have
        texts = {number: ([0] * 0, [""] * 0) for number in self._timestamps()}
        for place, (begin, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
            line = lines.data[begin:end]
            try:
                value = decode(line.decode())
            except (ValueError, RecursionError, InvalidOperation) as error:  # the last: an exponent beyond Decimal's
                if _is_surely_refused(line, error):
                    broken[place] = "", "not JSON"
                else:
                    groups.setdefault(_ODD, []).append(place)
                continue
            if type(value) is not dict:
                broken[place] = "", "not a JSON object"
                continue
            refused, is_doubtful = _judged(value, rules)
            if is_doubtful or (has_unsigned and _MINUS_ZERO.search(line)):
                groups.setdefault(_ODD, []).append(place)
                continue
            keys[place] = len(value)
            groups.setdefault(_time_group(time(value)), []).append(place)
            if refused < len(rules):
                wrong[place] = refused
            for at, (places, told) in texts.items():
                if at < refused and (text := rules[at][0](value)) is not None:
                    places.append(place)
                    told.append(text)
        for at, (places, told) in texts.items():
            for k in no_timestamps(_as_texts(told), self._schema.field(at).type).tolist():
                wrong[places[k]] = min(at, wrong.get(places[k], at))
        reasons = [(field.name, not_of_type(field.type)) for field in self._schema]
        odd = groups.setdefault(_ODD, [])
        for place, number in wrong.items():
            if _is_ordinary(lines.text(place, place + 1), keys[place]):
                broken[place] = reasons[number]
            else:
                odd.append(place)
        taken = np.array([*broken, *(place for place in odd if place in wrong)], np.int64)
        alike = [np.setdiff1d(np.array(held, np.int64), taken) for kind, held in groups.items() if kind != _ODD]
        return Sifted(broken, [*alike, np.array(sorted(odd), np.int64)])

    def _rules(self) -> list[tuple[_Got, Rule]]:
        return [(self._got(field.name), self._rule(field)) for field in self._schema]

    def _got(self, name: str) -> _Got:
        """Return what gives the value of a column that an object has."""
        return partial(inner_value, name=name) if name in self._nested else lambda value: value.get(name)

    def _rule(self, field: pa.Field) -> Rule:
        return _time_rule if field.name == self._time else json_rule(field.type)

    def _timestamps(self) -> list[int]:
        return [
            number
            for number, field in enumerate(self._schema)
            if pa.types.is_timestamp(field.type) and field.name != self._time
        ]

    def _read_type(self, column: pa.Field) -> pa.DataType:
        if column.name == self._time:
            return self._time_type
        return with_texts(column.type)

    def _read(self, data: bytes) -> pa.Table:
        schema = pa.schema([pa.field(f.name, self._read_type(f)) for f in self._schema])
        held = pa.schema(root_fields(schema, self._nested)) if self._nested else schema
        if has_small_exponent(data) and any(map(holds_decimals, schema.types)):
            check_json_scales(data, self._rules())
        table = arrow_json.read_json(
            pa.BufferReader(data),
            arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            arrow_json.ParseOptions(explicit_schema=held, unexpected_field_behavior="ignore", newlines_in_values=False),
        )
        if self._nested:
            table = pa.table([column_of(table, field) for field in schema], schema=schema)
            table = self._with_own_names(table, data)
        return check_digits(table.select(schema.names))

    def _with_own_names(self, table: pa.Table, data: bytes) -> pa.Table:
        """Return a table in which the value of a key that is itself named as a path comes before what it leads to."""
        for name in self._nested:
            if not table.column(name).null_count or f'"{name}"'.encode() not in data:
                continue
            own = JsonLines(pa.schema([self._schema.field(name)]), self._time)
            own._time_type = self._time_type
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pc.coalesce(own._read(data).column(name), table.column(name)))
        return table

    def _read_otherwise(self, data: bytes) -> pa.Table | None:
        usual, self._is_no_text = self._time_type, False
        for kind in _TIME_TYPES:
            self._time_type = kind
            try:
                return self._read(data)
            except pa.ArrowInvalid as error:
                # Arrow says what stands in the place of which text; the time may be tried as one.
                found = _NO_TEXT_THERE.search(str(error)) if self._has_texts else None
                self._is_no_text |= found is not None and found[1] != self._time_place
        self._time_type = usual
        return None

    def _exact(self, table: pa.Table) -> pa.Table:
        # A decimal is made a text, which is read as the number that was written. Whole numbers stay: as texts a million
        # of them would take 1.8 s more to become event times, which are the same.
        place = self._schema.get_field_index(self._time)
        if place < 0 or not pa.types.is_decimal(table.column(place).type):
            return table
        texts = pc.replace_substring_regex(table.column(place).cast(pa.string()), _WHOLE, r"\1")
        return table.set_column(place, self._time, texts)


def _holds_texts(kind: pa.DataType) -> bool:
    if is_list(kind):
        return _holds_texts(kind.value_type)
    return any(_holds_texts(field.type) for field in kind) if pa.types.is_struct(kind) else pa.types.is_string(kind)


def told(data: bytes, kind: pa.DataType) -> bytes:
    """Return lines of JSON in which what stands in the place of a text, and is none, is one: as it is written.

    What it makes of a line is a function of that line. A line that is no object of `kind` stays as it is.
    """
    return b"\n".join([_texted(line, kind) for line in data.split(b"\n")])


def _texted(value: bytes, kind: pa.DataType) -> bytes:
    first = value[:1]
    if pa.types.is_string(kind):
        if first == b'"' or value == b"null":
            return value
        return json.dumps(value.decode()).encode() if first in (b"{", b"[") else b'"%b"' % value
    try:
        if pa.types.is_struct(kind) and first == b"{":
            return _with_texts(value, {field.name: field.type for field in kind})
        if is_list(kind) and first == b"[":
            written = elements(value)
            texts = [_texted(one, kind.value_type) for one in written]
            return value if all(map(operator.is_, texts, written)) else b"[%b]" % b",".join(texts)
    except NoRecords:
        pass
    return value


def _with_texts(value: bytes, types: dict[str, pa.DataType]) -> bytes:
    there = members(value)
    texts = {name: _texted(there[name], kind) for name, kind in types.items() if name in there}
    if all(there[name] is one for name, one in texts.items()):
        return value
    parts = [*(there | texts).items()]
    if len(_KEY.findall(value)) != len(there):  # a key that stands there twice stays so: it is refused
        parts = [(name, _texted(one, types.get(name, _NO_TEXT))) for name, one in parts_of(value, "{}")]
    return b"{%b}" % b",".join([b"%b:%b" % (_key(name), one) for name, one in parts])


@lru_cache(maxsize=1024)
def _key(name: str) -> bytes:
    return json.dumps(name).encode()


def check_json_scales(data: bytes, rules: list[tuple[_Got, Rule]]) -> None:
    """Raise ArrowInvalid where a decimal has more digits after its point than Arrow's reader can count (`is_too_fine`).

    Only lines are looked at that may hold such a number.
    """
    for pattern in _SMALL:
        for match in pattern.finditer(data):
            begin, end = data.rfind(b"\n", 0, match.start()) + 1, data.find(b"\n", match.end())
            try:
                value = json.loads(data[begin : end if end >= 0 else len(data)], parse_float=_decimal)
            except (ValueError, RecursionError):
                value = None
            if type(value) is not dict or _judged(value, rules)[0] < len(rules):
                msg = "a number that no decimal holds"
                raise pa.ArrowInvalid(msg)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return _FINEST if "-" in text[1:] else Decimal(text.lower().partition("e")[0]).scaleb(400)


def _judged(value: dict[str, Any], rules: list[tuple[_Got, Rule]]) -> tuple[int, bool]:
    """Return the first column that surely refuses its value, and whether one before it is doubtful."""
    is_doubtful = False
    for number, (got, rule) in enumerate(rules):
        verdict = rule(got(value))
        if verdict == REFUSED:
            return number, is_doubtful
        is_doubtful |= verdict == DOUBTFUL
    return len(rules), is_doubtful


def _time_rule(value: Any) -> int:
    """Return what a value is in the time column, which may be written as any of `_TIME_TYPES`."""
    if type(value) is Decimal:
        digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
        if exponent < -2 * _TIME_DIGITS:  # none of Arrow's decimals has so many digits after its point
            return REFUSED
        return FINE if len(digits) <= _TIME_DIGITS and -_TIME_DIGITS <= exponent <= 0 else DOUBTFUL
    if value is None or type(value) is str:
        return FINE
    if type(value) is int:
        return FINE if abs(value) < 10**_TIME_DIGITS else DOUBTFUL
    return REFUSED  # NaN and Infinity too, the only floats here


def _time_group(value: Any) -> int:
    """Return the place in `_TIME_TYPES` of the type by which a time is read alone."""
    if value is None or type(value) is str:
        return 0
    return 1 if type(value) is int and INT64_MIN <= value <= INT64_MAX else 2


def _is_surely_refused(line: bytes, error: Exception) -> bool:
    """Whether Arrow refuses a line too, which Python's parser refuses, and both do for the same reason.

    Arrow knows ``Inf``, passes over a mark of byte order, and ends at a zero byte. Python has a bound of digits, and
    one of depth, and takes surrogates for UTF-8.
    """
    if b"\0" in line or b"Inf" in line or b"\xef\xbb\xbf" in line:
        return False
    return type(error) is json.JSONDecodeError or (type(error) is UnicodeDecodeError and b"\xed" not in line)


def _is_ordinary(line: bytes, keys: int) -> bool:
    """Whether an object is none that Arrow refuses as a whole, and Python does not.

    That is one with a number beyond a float64's, half a surrogate, or a key twice.
    """
    if b"\\u" in line or _LARGE.search(line) or (len(line) > _LONG_NUMBER and _LONG.search(line)):
        return False
    if len(_KEY.findall(line)) == keys:
        return True
    try:
        json.loads(line, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):  # a hook is a little deeper than the reader without
        return False
    return True


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a key twice"
        raise ValueError(msg)
    return found


def _as_texts(values: list[str]) -> pa.Array:
    """Return texts as an array. What UTF-8 does not have is no timestamp in any form."""
    return pa.array([value.encode("utf-8", "replace") for value in values], pa.binary()).cast(pa.string())


def with_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts for timestamps and dates: JSON has none, and Arrow's reader converts few."""
    types = pa.types
    if types.is_list(kind):
        return pa.list_(with_texts(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, with_texts(field.type)) for field in kind])
    return pa.string() if types.is_timestamp(kind) or types.is_date32(kind) else kind


def from_texts(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values of a type of a column that was read as `with_texts` of it.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no timestamp, or no date.
    """
    return with_leaves(column.combine_chunks(), kind, _from_text)


def _from_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return timestamps(pa.chunked_array([values]), kind)
    return values.cast(kind)  # a date, or what is no text


def check_nulls(data: bytes) -> None:
    """Raise ArrowInvalid where a ``null`` is outside of any object.

    Arrow's reader writes such a null into a column that does not exist, and the process dies (apache/arrow#47409). The
    null is the first thing in its line, or follows an object.
    """
    # Four bytes at a time: a search takes six times as long, a tenth of what reading the lines takes.
    words = (np.frombuffer(data, "<u4", (len(data) - begin) // 4, begin) for begin in range(min(4, len(data))))
    if not any((each == _NULL).any() for each in words):
        return
    for match in _STRAY_NULL.finditer(data):
        begin, end = data.rfind(b"\n", 0, match.start() + 1) + 1, data.find(b"\n", match.end())
        try:
            is_object = isinstance(json.loads(data[begin : end if end >= 0 else len(data)]), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:  # in an object, the null that was found is inside a text
            msg = "a null outside of an object"
            raise pa.ArrowInvalid(msg)


def _check_objects(data: bytes) -> None:
    """Raise `pyarrow.ArrowInvalid` where one of several lines does not begin with ``{`` and end with ``}``.

    To Arrow a line end is a blank. A broken line could go on in the next one, and two objects in another line would
    make up for the lost row. Of lines that begin and end so none can go on in the next: an object cannot follow another
    without a comma. A line alone has no neighbours, and Arrow decides.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    if not len(ends) or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    if len(ends) == 1:
        return
    starts = np.append(np.zeros(1, np.int64), ends[:-1] + 1)
    last = text[np.maximum(ends - 1, starts)]
    last = np.where(last == _RETURN, text[np.maximum(ends - 2, starts)], last)
    first = text[np.minimum(starts, len(data) - 1)]
    for place in np.flatnonzero((first != _OPEN) | (last != _CLOSE)).tolist():
        line = data[starts[place] : ends[place]].strip(b" \t\r")
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            msg = "a line is not an object"
            raise pa.ArrowInvalid(msg)
