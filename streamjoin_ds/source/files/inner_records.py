"""Unfolding: a text of JSON values, each of which gives records, made into JSON lines of one record each.

``records`` of `Files` says where the records are::

    $               each object is a record, wherever it ends; of an array each element
    values, a.b     each element of the array there is a record, with the fields that stand beside the array
    fields/data     the rows of the array behind the stroke, under the names in the one before it
    senml           each record of a pack (RFC 8428), with its base values

The lines hold the bytes that were written, so a number keeps its digits. A line end between values becomes a tab. What
is no record, or is damaged, becomes a line that is no JSON object, and so one reject.

A segment of a spool holds such a text in each message, and so does a topic. There records may also be lines of metrics
(``influx``, ``prometheus``). Those of a spool have the columns of the message's frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.files.decoders import Decoder
from streamjoin_ds.source.files.element_cut import BLANKS, ElementCut, is_json, values_of
from streamjoin_ds.source.files.metric_lines import LINE_FORMATS, metric_records
from streamjoin_ds.spec.nested_path import EACH, SENML, RecordsForm
from streamjoin_ds.spool.segment import FRAME_COLUMNS, HEADER_BYTES, Frames, header_facts, torn_segment, walk

__all__ = ["NoRecords", "Unfolded", "elements", "members", "message_records", "parts_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_BYTES = 256 << 20  # bytes of a value that has not ended, or of the records of one, at most: they are in memory
_MOST_BASE_BYTES = 4096  # bytes of base values of SenML, at most: each record of a pack may have them

_BASE = ("bn", "bt", "bu", "bv", "bs")
_LEAST_ABSOLUTE_S = 1 << 28  # a time of SenML before this is relative to the present
_MOST_DIGITS = 60  # before and after the point of a number that is added to another
_EXACT = Context(prec=3 * _MOST_DIGITS, traps=[Inexact, InvalidOperation])

Fields: TypeAlias = dict[str, bytes]  # of an object, each value as it is written
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_python = json.JSONDecoder()
_key_text = msgspec.json.encode


class NoRecords(ValueError):
    """A value of which no records can be made: what it says stands before the value; nothing, if that is no JSON."""


class Unfolded(Struct, frozen=True):
    """The unfolding of a file's text, or of the payloads of a segment of a spool.

    Parameters
    ----------
    form : RecordsForm
        Where the records are.
    is_segment : bool
        Whether the file is a segment.
    """

    form: RecordsForm
    is_segment: bool = False

    begin_bytes = 0

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        del begin
        return _SegmentUnfolding(self.form, path) if self.is_segment else _TextUnfolding(self.form, path)


class _TextUnfolding(Decoder):
    def __init__(self, form: RecordsForm, path: str) -> None:
        self._cut, self._records, self._path = ElementCut(), _Records(form), path

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        lines = b"".join([line + b"\n" for line in self._records.lines(self._cut.feed(data))])
        if self._cut.held_bytes > _MOST_BYTES:
            msg = f"a value in {self._path} is longer than {_MOST_BYTES} bytes, or damaged where it should end"
            self.fault = FileFormatError(msg, name=self._path, hint="check the file, and what records says of it")
        return lines

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        return b"\n".join(self._records.lines(self._cut.end()))

    def copy(self) -> _TextUnfolding:
        """See `Decoder.copy`."""
        other = copy(self)
        other._cut, other._records = self._cut.copy(), copy(self._records)
        return other


class _SegmentUnfolding(Decoder):
    """Makes lines of what lies before the last mark of a segment; each has the columns of its frame."""

    def __init__(self, form: RecordsForm, path: str) -> None:
        self._form, self._path = form, path
        self._rest, self._at = b"", 0
        self._salt: int | None = None

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        self._rest += data
        if self._salt is None:
            if len(self._rest) < HEADER_BYTES:
                return b""
            facts = header_facts(self._rest)
            if facts is None:
                msg = f"the file {self._path} is no segment of a spool, or its header is damaged"
                hint = "restore the file, or set the format of the stream"
                self.fault = FileFormatError(msg, name=self._path, hint=hint)
                return b""
            self._salt, self._at, self._rest = facts[0], HEADER_BYTES, self._rest[HEADER_BYTES:]
        found = walk(self._rest, self._salt, self._at, ended=False)
        found.cut_at_mark()
        return self._taken(found)

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        if self._salt is None:
            return b""
        lines = self._taken(walk(self._rest, self._salt, self._at, ended=True))
        if self._rest:
            self.fault = torn_segment(self._path, self._at)
        return lines

    def _taken(self, found: Frames) -> bytes:
        """Take frames from the rest, and return their lines."""
        self._rest, self._at = self._rest[found.end :], self._at + found.end
        about = zip(
            found.payloads, found.topics(), found.received_us(), found.numbers(), found.deliveries(), strict=True
        )
        lines: list[bytes] = []
        for place, (payload, topic, received_us, number, delivery) in enumerate(about):
            if place in found.damaged:
                lines.append(found.damaged[place].encode())
                continue
            moment = (_EPOCH + timedelta(microseconds=received_us)).isoformat().encode()
            said = _key_text(topic.decode("utf-8", "replace"))
            outer = {"spool_received": b'"%b"' % moment, "spool_topic": said, "spool_number": b"%d" % number}
            if delivery is not None:  # the text of frames of before it was told stays as it was
                is_retained, qos = delivery
                outer |= {"spool_retained": b"true" if is_retained else b"false", "spool_qos": b"%d" % qos}
            lead = _Lead(outer)
            given = message_records(payload, self._form)
            lines += [lead.before(_without_columns(line)) if line.startswith(b"{") else line for line in given]
        return b"".join([line + b"\n" for line in lines])


def message_records(message: bytes, form: RecordsForm) -> list[bytes]:
    """Return the records of one message, a line each: JSON objects, and what is none, maybe with the reason before it.

    Parameters
    ----------
    message : bytes
        A text by itself.
    form : RecordsForm
        Where the records are.
    """
    if not message.strip(BLANKS):
        return [b"an empty message"]
    if form.kind in LINE_FORMATS:
        return metric_records(message, form.kind)
    return _Records(form).lines(values_of(message))


def _without_columns(line: bytes) -> bytes:
    """Return a record without fields that are named as the columns of a frame."""
    if b'"spool_' not in line and b"\\" not in line:
        return line
    try:
        return _object_of({name: value for name, value in members(line).items() if name not in FRAME_COLUMNS})
    except NoRecords:
        return line


class _Records:
    """Makes lines of values, a record each."""

    def __init__(self, form: RecordsForm) -> None:
        self._form, self._pack = form, _Pack()

    def lines(self, values: Iterator[bytes | None]) -> list[bytes]:
        """Return the records of values, and what is no record as it is, or with the reason before it."""
        lines: list[bytes] = []
        for value in values:
            if value is None:
                self._pack = _Pack()
                continue
            try:
                lines += self._of(value)
            except NoRecords as error:
                lines.append(b"%b: %b" % (str(error).encode(), value) if str(error) else value)
        return [_one_line(line) for line in lines]

    def _of(self, value: bytes) -> Iterable[bytes]:
        if self._form == EACH:
            return (value,)
        if self._form == SENML:
            self._pack, line = self._pack.with_record(value)
            return (line,)
        # A value gives all its records or none. What stands beside an array is in each record, which can be a lot.
        rows = self._form.rows
        given = _rows(value, self._form.names, rows) if self._form.names else _unfolded(value, rows)
        lines, size_bytes = [b""] * 0, 0
        for line in given:
            size_bytes += len(line)
            if size_bytes > _MOST_BYTES:
                msg = f"its records have more than {_MOST_BYTES} bytes"
                raise NoRecords(msg)
            lines.append(line)
        return lines


def _one_line(text: bytes) -> bytes:
    """Return a value with tabs for line ends: blanks between values, which no text may hold either."""
    text = text.strip(BLANKS)
    return text.replace(b"\n", b"\t").replace(b"\r", b"\t") if b"\n" in text or b"\r" in text else text


def _unfolded(value: bytes, path: Sequence[str]) -> Iterator[bytes]:
    """Yield the records in the array that a path names, each with the fields beside the array."""
    _check_text(value)
    for outer, array in _arrays(members(value), path):
        lead = _Lead(outer)
        for element in array:
            yield lead.before(element if element.startswith(b"{") else _object_of({path[-1]: element}))


def _rows(value: bytes, names: Sequence[str], rows: Sequence[str]) -> Iterator[bytes]:
    """Yield the rows in the array that one path names, under the names in that of another."""
    _check_text(value)
    shared = 0  # how many parts the paths have in common: what these name may lie in arrays
    while shared < min(len(names), len(rows)) - 1 and names[shared] == rows[shared]:
        shared += 1
    around: Iterable[tuple[Fields, list[bytes]]] = [({}, [value])]
    for outside, tables in _arrays(members(value), rows[:shared]) if shared else around:
        for table in tables:
            fields = members(table)
            keys = [_key_of(name) for name in elements(_taken(fields, names[shared:]))]
            given, taken = elements(_taken(fields, rows[shared:])), set(keys)
            lead = _Lead({name: one for name, one in (outside | fields).items() if _key_text(name) not in taken})
            yield from (_row(row, keys, lead) for row in given)


def _row(row: bytes, keys: Sequence[bytes], lead: _Lead) -> bytes:
    if row.startswith(b"{"):
        return lead.before(row)
    values = elements(row) if row.startswith(b"[") else [row]
    if len(values) != len(keys):
        return b"%d values for %d names: %b" % (len(values), len(keys), row)
    return lead.with_text(b",".join([b"%b:%b" % pair for pair in zip(keys, values, strict=True)]))


def _key_of(name: bytes) -> bytes:
    """Return the name of a column as a key: a text, or the field `name` of an object."""
    if name.startswith(b"{"):
        name = members(name).get("name", b"")
    if not name.startswith(b'"'):
        msg = "a column has no name"
        raise NoRecords(msg)
    return name


def _arrays(fields: Fields, path: Sequence[str]) -> Iterator[tuple[Fields, list[bytes]]]:
    """Yield the elements of each array that a path names, and the fields outside. An object stands for one element."""
    first, *rest = path
    if first not in fields:
        msg = f"{first} is not there"
        raise NoRecords(msg)
    inner = fields[first]
    outer = {name: value for name, value in fields.items() if name != first}
    found = [] if inner == b"null" else [inner] if inner.startswith(b"{") else elements(inner)
    if not rest:
        yield outer, found
        return
    for element in found:
        for beside, array in _arrays(members(element), rest):
            yield outer | ({first: _object_of(beside)} if beside else {}), array


def _taken(fields: Fields, path: Sequence[str]) -> bytes:
    """Take the value that a path names out of an object's fields."""
    first, *rest = path
    if first not in fields:
        msg = f"{first} is not there"
        raise NoRecords(msg)
    if not rest:
        return fields.pop(first)
    inner = members(fields[first])
    found = _taken(inner, rest)
    fields[first] = _object_of(inner)
    return found


class _Lead:
    """The fields that stand before those of each record; a record's own field of the same name wins."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._keys = [_key_text(name) for name in fields]
        self._text = _text_of(fields)

    def before(self, record: bytes) -> bytes:
        """Return an object with these fields too."""
        lead, is_there = self._text, record.__contains__
        if is_there(b"\\") or any(map(is_there, self._keys)):
            names = members(record)
            lead = _text_of({name: one for name, one in self._fields.items() if name not in names})
        if not lead or (record[1:2] != b'"' and not record[1:-1].strip(BLANKS)):
            return b"{%b}" % lead if lead else record
        return b"{%b,%b" % (lead, record[1:])

    def with_text(self, text: bytes) -> bytes:
        """Return an object of these fields and of some that none of them is named as."""
        return b"{%b,%b}" % (self._text, text) if self._text and text else b"{%b%b}" % (self._text, text)


def _object_of(fields: Fields) -> bytes:
    return b"{%b}" % _text_of(fields)


def _text_of(fields: Fields) -> bytes:
    return b",".join([b"%b:%b" % (_key_text(name), value) for name, value in fields.items()])


class _Pack(Struct, frozen=True):
    """The base values of a pack of SenML, as far as it was read; None: they cannot be known any more."""

    base: Fields | None = field(default_factory=dict)

    def with_record(self, value: bytes) -> tuple[_Pack, bytes]:
        """Return the pack after a record, and the record with its base values.

        A record is refused that cannot be resolved. If it may hold base values, so is the rest of its pack. A time that
        is relative to the present is left out.
        """
        if self.base is None:
            return self, b"base values before it cannot be read: %b" % value
        try:
            _check_text(value)
            fields = members(value)
            base = self.base | {name: fields.pop(name) for name in [*fields] if name in _BASE}
            if sum(map(len, base.values())) > _MOST_BASE_BYTES:
                raise ValueError
            return _Pack(base), _object_of(_resolved(fields, base))
        except (ValueError, ArithmeticError):
            line = b"no name or number where one is due: %b" % value if is_json(value) else value
            return _Pack(None) if b'"b' in value or b"\\" in value else self, line


def _resolved(fields: Fields, base: Fields) -> Fields:
    """Return the fields of a record of SenML with base values."""
    found: Fields = {}
    if "bn" in base:
        found["n"] = _key_text(_word(base["bn"]) + _word(fields.get("n", b'""')))
    if "bu" in base:
        found["u"] = base["bu"]
    found |= {name: value for name, value in fields.items() if name not in ("bver", *(("n",) if "bn" in base else ()))}
    for name, of_base, is_zero_absent in (("t", "bt", True), ("v", "bv", False), ("s", "bs", True)):
        if of_base in base and (name in found or is_zero_absent):
            found[name] = _sum(base[of_base], found.get(name, b"0"))
    if "t" in found and _number(found["t"]) < _LEAST_ABSOLUTE_S:
        del found["t"]
    return found


def _word(text: bytes) -> str:
    word = json.loads(text)
    if not isinstance(word, str):
        raise ValueError
    return word


def _number(text: bytes) -> Decimal:
    number = Decimal(text.decode())
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError
    return number


def _sum(one: bytes, other: bytes) -> bytes:
    return format(_EXACT.add(_number(one), _number(other)), "f").encode()


def _check_text(value: bytes) -> None:
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            raise NoRecords from None


def members(text: bytes) -> Fields:
    """Return the fields of an object, each value as it is written; of two of one name the last."""
    try:
        return {name: bytes(value) for name, value in _object(text).items()}
    except (msgspec.DecodeError, RecursionError):
        return {name: value for name, value in parts_of(text, "{}")}


def elements(text: bytes) -> list[bytes]:
    """Return the elements of an array, each as it is written; none of a null."""
    if text == b"null":
        return []
    try:
        return [bytes(value) for value in _array(text)]
    except (msgspec.DecodeError, RecursionError):
        return [value for _, value in parts_of(text, "[]")]


def parts_of(text: bytes, brackets: str) -> Iterator[tuple[str, bytes]]:
    """Yield what an object or an array holds, as Python's own reader reads it: that one takes NaN too.

    Raises
    ------
    NoRecords
        It does not read it, or the text is something else.
    """
    written, at = text.decode("utf-8", "surrogateescape"), 1
    is_object = brackets == "{}"
    try:
        if written[:1] != brackets[0]:
            msg = f"not {'an object' if is_object else 'an array'}"
            raise NoRecords(msg if is_json(text) or written[:1] in '{["' else "")
        at = _past_blanks(written, 1)
        while written[at] != brackets[1]:
            name = ""
            if is_object:
                name, at = _python.raw_decode(written, at)
                at = _past_blanks(written, at)
                if not isinstance(name, str) or written[at] != ":":
                    raise NoRecords
                at = _past_blanks(written, at + 1)
            end = _python.raw_decode(written, at)[1]
            yield name, written[at:end].encode("utf-8", "surrogateescape")
            at = _past_blanks(written, end)
            if written[at] == ",":
                at = _past_blanks(written, at + 1)
                if written[at] == brackets[1]:
                    raise NoRecords
            elif written[at] != brackets[1]:
                raise NoRecords
    except (json.JSONDecodeError, RecursionError, IndexError):
        raise NoRecords from None
    if at + 1 != len(written):
        raise NoRecords


def _past_blanks(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
