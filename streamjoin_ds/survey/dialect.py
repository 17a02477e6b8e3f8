"""How a text of records is written, found out from its beginning: encoding, delimiter, header, comments, signs.

Each delimiter is tried. That one wins by which most lines have as many fields as the others, and the fields of a column
are alike: numbers, times or words. Then the first line whose fields are like those of the lines after it begins the
records, and what names columns is looked for before it.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from msgspec import Struct, field

from streamjoin_ds.source.files.decoders import QuotedLines, with_inner_lines
from streamjoin_ds.spec.member.stream import STREAM_KEYS

__all__ = ["BLANK_NAMES", "Dialect", "decoded", "dialect_of", "text_kind"]

_LINES = 1000  # lines by which a dialect is told
_LEAST_LINES, _MOST_WIDTH = 3, 2000  # of a text of fixed widths
_MOSTLY = 0.9  # the share of lines that have as many fields as the others
_KNOWN_NULLS = frozenset({"", " ", "null", "NULL", "NA", "N/A", "None"})  # nulls without any option
_NO_NUMBERS = frozenset({"nan", "+nan", "-nan", "inf", "-inf", "+inf", "infinity", "-infinity"})
_DELIMITERS = (",", ";", "\t", "|", "blanks")
BLANK_NAMES = {"\t": "tab", " ": "space"}
_DELIMITER_NAMES = {"\t": "tab", " ": "space", "blanks": "runs of blanks", "widths": "fixed widths"}
_COMMENTS = "#%!"
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_UNDEFINED_IN_CP1252 = frozenset(b"\x81\x8d\x8f\x90\x9d")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_GROUPED = {
    ",": re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"),
    ".": re.compile(r"[+-]?\d{1,3}(\.\d{3}){2,}|[+-]?\d{1,3}(\.\d{3})+,\d*"),
    "'": re.compile(r"[+-]?\d{1,3}('\d{3})+(\.\d*)?"),
    " ": re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f]\d{3})+([.,]\d*)?"),
}
_THOUSANDS = {sign: re.compile(rf"[+-]?\d{{1,3}}({re.escape(sign)}\d{{3}})+") for sign in ",."}
_TIME = re.compile(
    r"(?=.*\d)(?!.*([;|\t]|,(?! ?\d| [A-Z][a-z])))"  # no delimiter but that of '5 Mar, 2024', and of a fraction
    r"(\d{1,4}[-/.]\w{1,9}[-/.]\d{1,4}|\d{1,2} [A-Za-z]{3,9}\.?,? \d{2,4}|\d{1,2}:\d{2}"
    r"|[A-Z][a-z]{2,8},? .*\d{1,2}:\d{2}|\d\d-\d\d \d\d:\d\d|\d{8}T\d{4}).*"
)
_LINE_PROTOCOL = re.compile(r"[^\s,=]+(,[^\s,=]+=(\\.|[^\s,])+)* (\\.|[^\s=])+=(\"[^\"]*\"|\S)+( -?\d{9,20})?")
_PROMETHEUS = re.compile(r"# (HELP|TYPE) [a-zA-Z_:]")


def decoded(raw: bytes) -> tuple[str, str, str]:
    """Return a text, its encoding, and why that is a guess; "" where it is none.

    The bytes may end in the middle of a character.
    """
    for bom, name in _BOMS.items():
        if raw.startswith(bom):
            return codecs.getincrementaldecoder(name)("replace").decode(raw).lstrip("\ufeff"), name, ""
    zeros = [raw[place : 1 << 12 : 2].count(0) for place in (0, 1)]
    if max(zeros) > min(len(raw), 1 << 12) // 5:
        name = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
        return raw.decode(name, "replace"), name, "every other byte is 0, and no byte order mark says it"
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw), "utf-8", ""
    except UnicodeDecodeError:
        name = "latin-1" if _UNDEFINED_IN_CP1252 & set(raw) else "cp1252"
        return raw.decode(name), name, "its bytes are not UTF-8, and those of many encodings look alike"


def text_kind(text: str) -> str:
    """Return what a text is: "json", "influx" (lines, or annotated CSV), "prometheus", or "csv" for all else."""
    lines = [line for line in text[: 1 << 18].splitlines() if line.strip()][:_LINES]
    begin = text.lstrip()[:1]
    if begin == "{" or (begin == "[" and re.match(r"\[\s*[\[{\]]", text.lstrip())):
        return "json"
    if any(map(_PROMETHEUS.match, lines[:20])):
        return "prometheus"
    if any(re.match(r'"?#(datatype|group),', line) for line in lines[:5]):
        return "influx"
    plain = [line for line in lines if not line.startswith("#")]
    is_protocol = plain and sum(1 for line in plain if _LINE_PROTOCOL.fullmatch(line.strip())) * 10 >= 9 * len(plain)
    return "influx" if is_protocol else "csv"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text of fields is written.

    Attributes
    ----------
    options : mapping
        The options of `Files` that say it; none of those at their defaults.
    columns : mapping of str to list of str
        The fields of the first records, by the names of their columns; nulls are empty.
    words : mapping of str to str
        What was found, for people.
    guesses : tuple of str
        What is not sure.
    score : float
        How well the lines agree, up to 1.
    """

    options: Mapping[str, Any]
    columns: Mapping[str, Sequence[str]]
    words: Mapping[str, str]
    guesses: tuple[str, ...] = ()
    score: float = 0.0


class _Fields(Struct):
    """The lines of a text, cut at one delimiter."""

    delimiter: str
    rows: list[list[str]]  # of all lines
    is_passed: list[bool]  # which lines are blank, or begin as comments do
    width: int = 0
    share: float = 0.0
    kinds: list[str] = field(default_factory=list)  # of each column: n a number, c with a comma, g grouped, t, w
    markers: list[set[str]] = field(default_factory=list)  # of each column: what stands for null in it
    quality: float = 0.0
    widths: tuple[int, ...] = ()

    @property
    def score(self) -> float:
        return self.share * self.quality * (0.6 if self.width < 2 else 1 + min(self.width, 20) / 1000)


def dialect_of(text: str, *, is_cut: bool = False) -> Dialect:
    """Return how a text is written whose records are lines of fields.

    Parameters
    ----------
    text : str
        The beginning of a file.
    is_cut : bool
        Whether it ends in the middle of a line.
    """
    lines = _lines(text, is_cut)
    found = max((_cut(lines, delimiter) for delimiter in _DELIMITERS), key=lambda one: one.score)
    widths = _widths(lines) if "widths" in STREAM_KEYS and found.share * found.quality < _MOSTLY else None
    if widths is not None and (fixed := _cut(lines, "widths", widths)).score > found.score:
        found = fixed
    options: dict[str, Any] = {}
    for delimiter in _DELIMITERS if '"' in text else ():
        joined = _with_quoted_lines(text, delimiter)
        if joined != text and (whole := _cut(_lines(joined, is_cut), delimiter)).score > found.score:
            lines, found, options = _lines(joined, is_cut), whole, {"quoted_lines": "read"}
    if found.delimiter == "blanks" and not any(re.search(r"  |\t|^ ", line) for line in lines):
        found.delimiter = " "
    return _described(lines, found, options)


def _lines(text: str, is_cut: bool) -> list[str]:
    lines = re.split(r"\r\n|\n|\r", text)
    lines = (lines[:-1] if is_cut and len(lines) > 1 else lines)[:_LINES]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _with_quoted_lines(text: str, delimiter: str) -> str:
    """Return a text in which fields in quotes hold no line ends, but what stands for them."""
    decoder = QuotedLines(" \t" if delimiter == "blanks" else delimiter, '"', None, None).decoder(b"", "")
    made = decoder.feed(text.encode("utf-8", "replace")) + decoder.finish()
    return made.decode("utf-8", "replace")


def _widths(lines: Sequence[str]) -> tuple[int, ...] | None:
    """Return the widths of fields, by the places at which all lines have blanks; None where there are too few."""
    body = [line for line in lines if line.strip() and line[:1] not in _COMMENTS][-500:]
    longest = max(map(len, body), default=0)
    if len(body) < _LEAST_LINES or longest > _MOST_WIDTH or any("\t" in line for line in body):
        return None
    used = [any(line[place : place + 1].strip() for line in body) for place in range(longest)]
    begins = [place for place in range(longest) if used[place] and (not place or not used[place - 1])]
    ends = [*begins[1:], longest]
    return tuple(end - begin for begin, end in zip([0, *begins[1:]], ends, strict=True)) if len(begins) > 2 else None


def _split(line: str, delimiter: str, widths: Sequence[int] = ()) -> list[str]:
    if widths:
        ends = list(accumulate(widths))
        return [line[end - width : end].strip() for end, width in zip(ends, widths, strict=True)]
    if delimiter == "blanks":
        return line.split()
    try:
        return [*map(with_inner_lines, next(csv.reader([line], delimiter=delimiter), []))]
    except csv.Error:
        return [line]


def _cut(lines: Sequence[str], delimiter: str, widths: tuple[int, ...] = ()) -> _Fields:
    begins = Counter(line[:1] for line in lines if line[:1] in _COMMENTS)
    passed = [not line.strip() or line[:1] in begins for line in lines]
    found = _Fields(delimiter, [_split(line, delimiter, widths) for line in lines], passed, widths=widths)
    body = [row for row, over in zip(found.rows, passed, strict=True) if not over]
    if not body:
        return found
    half = [len(row) for row in body[len(body) // 2 :]]
    most = max(Counter(half).values())
    found.width = next(width for width in reversed(half) if half.count(width) == most)
    alike = [n for n, row in enumerate(body) if len(row) == found.width]
    begin = next((n for n in alike if _agree(body[n:], found.width)), alike[0])
    found.share = min(1.0, (len(body) - begin) / len(half)) * _share(body[begin:], found.width)
    tail = _without_heads([row for row in body[begin:] if len(row) == found.width])
    for column in zip(*tail, strict=True):
        kind, markers, quality = _column(column)
        found.kinds.append(kind)
        found.markers.append(markers)
        found.quality += quality / found.width
    if delimiter != "\t" and sum("\t" in line for line in lines) * 2 > len(lines):
        found.quality *= 0.8  # tabs separate fields that may hold blanks and signs
    ends_empty = found.width > 1 and found.kinds[-1] == "e"  # a delimiter at the end of each line
    if len(body[0]) != found.width - (ends_empty and len(body[0]) < found.width):
        found.quality *= 0.85  # nothing names the columns, or more stands before them
    return found


def _share(rows: Sequence[Sequence[str]], width: int) -> float:
    return sum(len(row) == width for row in rows) / len(rows)


def _agree(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether rows begin with one of a width that nearly all of them have."""
    return len(rows[0]) == width and (_share(rows, width) >= _MOSTLY or len(rows) == 1)


def _without_heads(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return rows without those at their beginning that have words alone, where others have numbers or times."""
    typed = (n for n, row in enumerate(rows) if any(_kind(value) in "ncgt" for value in row))
    return rows[next(typed, 0) :]


def _kind(value: str) -> str:
    """Return what a field is: n, c or g a number, t a time, w a word; e where it is empty."""
    value = value.strip()
    if value in _KNOWN_NULLS:
        return "e"
    if _NUMBER.fullmatch(value) or value.lower() in _NO_NUMBERS:
        return "n"
    if _COMMA_NUMBER.fullmatch(value):
        return "c"
    if any(pattern.fullmatch(value) for pattern in _GROUPED.values()):
        return "g"
    return "t" if _TIME.fullmatch(value) else "w"


def _column(values: Sequence[str]) -> tuple[str, set[str], float]:
    """Return the kind of a column's fields, what stands for null among them, and how alike they are."""
    kinds = [_kind(value) for value in values]
    counts = Counter("n" if kind in "cg" else kind for kind in kinds if kind != "e")
    if not counts:
        return "e", set(), 0.7
    usual = counts.most_common(1)[0][0]
    words = Counter(value.strip() for value, kind in zip(values, kinds, strict=True) if kind == "w")
    typed = counts.total() - counts["w"]
    if usual == "w" and typed and len(words) <= 2 and typed >= max(2, counts.total() // 20):
        usual = "n" if counts["n"] >= counts["t"] else "t"  # mostly missing
    if usual == "w":
        mixed = sum(1 for word in words if re.search(r"[,;|\t]", word)) / max(len(words), 1)
        return "w", set(), 0.6 - 0.4 * mixed
    markers = {word for word in words if len(words) <= 3 and (words[word] > 1 or not re.search(r"[A-Za-z]{5}", word))}
    fits = counts[usual] + sum(words[word] for word in markers)
    if usual == "n":
        signs = Counter(kind for kind in kinds if kind in "cg")
        usual = "c" if signs["c"] > signs["g"] else "g" if signs["g"] else "n"
    return usual, markers, fits / counts.total()


def _described(lines: Sequence[str], found: _Fields, options: dict[str, Any]) -> Dialect:
    rows, width = found.rows, found.width
    begin = next((n for n in range(len(rows)) if _is_record(found, n)), len(rows))
    heads = [n for n in range(begin) if _names_columns(rows[n], found)]
    passed = {line[:1] for n, line in enumerate(lines) if n > begin and found.is_passed[n] and line.strip()}
    if found.widths:
        options["widths"] = found.widths
    elif found.delimiter != ",":
        options["delimiter"] = BLANK_NAMES.get(found.delimiter, found.delimiter)
    before = {line[:1] for n, line in enumerate(lines[:begin]) if found.is_passed[n] and line.strip()}
    head = _head(heads, found, passed)
    comment = next(iter(sorted(passed)), None)
    if comment is None and head is not None and head and before and all(found.is_passed[:head]):
        comment = min(before)  # comments alone stand before the header
    if comment is not None:
        options["comment"] = comment
    counted = [n for n in range(begin) if comment is None or not lines[n].startswith(comment)]
    if head is None:
        names = [f"column_{number}" for number in range(1, width + 1)]
        options |= {"header": 0} | ({"skip_lines": begin} if begin and counted else {})
    else:
        names = _numbered(rows[head])
        after = sum(1 for n in counted if n >= head)
        options |= {"header": after} if after != 1 else {}
        options |= {"skip_lines": head} if [n for n in counted if n < head] else {}
    return _with_signs(found, options, names, head, begin)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names of columns as the source has them: without a #, and those that come again with a number."""
    found: list[str] = []
    for place, name in enumerate(names):
        plain = name if place else re.sub(r"^\ufeff?#\s*", "", name)
        count = sum(1 for other in names[:place] if other == name)
        found.append(f"{plain}_{count + 1}" if count and plain else plain)
    return found


def _with_signs(found: _Fields, options: dict[str, Any], names: list[str], head: int | None, begin: int) -> Dialect:
    records = [row for row, over in zip(found.rows[begin:], found.is_passed[begin:], strict=True) if not over]
    records = [row for row in records if len(row) == found.width]
    columns = {
        name: [row[place] for row in records]
        for place, name in enumerate(names[: found.width])
        if name and names.count(name) == 1
    }
    kinds = dict(zip(names, found.kinds, strict=False))
    numbers = {name: [text.strip() for text in columns.get(name, ())] for name, kind in kinds.items() if kind in "ncg"}
    signs, guesses = _number_signs(numbers, may_have_commas=found.delimiter != ",")
    options |= signs
    markers = sorted(set().union(*found.markers) - _KNOWN_NULLS) if found.markers else []
    if markers and "null_values" in STREAM_KEYS:
        options["null_values"] = markers
    words = {
        "delimiter": _DELIMITER_NAMES.get(found.delimiter, found.delimiter),
        "header": "none" if head is None else f"line {head + 1}, records from line {begin + 1}",
    }
    if head is None:
        words["header"] += f", records from line {begin + 1}"
    words |= {"null": ", ".join(markers)} if markers else {}
    if found.width < 2:
        del words["delimiter"]
    return Dialect(options, columns, words, tuple(guesses), min(found.share * found.quality, 1.0))


def _number_signs(numbers: Mapping[str, Sequence[str]], *, may_have_commas: bool) -> tuple[dict[str, str], list[str]]:
    """Return the options that say the decimal sign and the sign that groups digits, and what is not sure of them.

    Parameters
    ----------
    numbers : mapping of str to sequence of str
        The texts of each column of numbers.
    may_have_commas : bool
        Whether a comma may be a decimal sign: no comma separates fields.
    """
    found: dict[str, str] = {}
    guesses: list[str] = []
    for name, texts in numbers.items():
        commas, grouped = ([text for text in texts if _kind(text) == kind] for kind in "cg")
        sign = next((one for one, form in _GROUPED.items() if grouped and all(map(form.fullmatch, grouped))), None)
        are_thousands = all(_THOUSANDS[","].fullmatch(text) for text in commas)
        is_decimal = commas and not (sign == "," and are_thousands)
        says_commas = sign == "." or (sign not in (None, ",") and any("," in text for text in grouped))
        if may_have_commas and (is_decimal or says_commas):
            if commas and are_thousands and sign is None and "decimal" not in found:
                guesses.append(
                    f"the comma of '{commas[0]}' ({name}) is a decimal sign, as nothing shows that it groups digits"
                )
            found["decimal"] = ","
        if sign is not None:
            found.setdefault("thousands", sign)
    if found.get("thousands") == found.get("decimal", "."):
        del found["thousands"]
    if found.get("decimal") == "," and "thousands" not in found:
        for name, texts in numbers.items():  # 1.234 beside 0,5
            points = [text for text in texts if "." in text]
            if points and all(map(_THOUSANDS["."].fullmatch, points)):
                found["thousands"] = "."
                guesses.append(f"the point of '{points[0]}' ({name}) groups digits, as decimal commas stand beside it")
                break
    return found, guesses


def _is_record(found: _Fields, number: int) -> bool:
    """Whether a line is like the records of the text."""
    row = found.rows[number]
    if found.is_passed[number] or len(row) != found.width:
        return False
    kinds = [_kind(value) for value in row]
    typed = [place for place, kind in enumerate(found.kinds) if kind in "ncgt"]
    alien = [
        place
        for place in typed
        if (kinds[place] == "w" and row[place].strip() not in found.markers[place])
        or (kinds[place] == "t" and found.kinds[place] != "t")
    ]
    if not typed:
        return number > 0 or not _is_head_of_words(found)
    return not alien and any(kinds[place] != "e" for place in typed)


def _is_head_of_words(found: _Fields) -> bool:
    """Whether the first line of a text of words alone names its columns: what it says is not said again."""
    first, *rest = [row for row, over in zip(found.rows, found.is_passed, strict=True) if not over] or [[]]
    return all(name and all(row[place : place + 1] != [name] for row in rest) for place, name in enumerate(first))


def _names_columns(row: Sequence[str], found: _Fields) -> bool:
    """Whether a line before the records may name their columns."""
    names = [name.strip() for name in row]
    if names and re.fullmatch(r"sep=.?", names[0]):  # Excel's word for the delimiter
        return False
    while names and not names[-1]:
        names.pop()
    is_long = found.width - 1 <= len(names) <= found.width
    return is_long and len(names) > 0 and all(names) and not any(_kind(name) in "ncgt" for name in names)


def _head(heads: Sequence[int], found: _Fields, passed: set[str]) -> int | None:
    """Return the line that names the columns: the first one that may; one that comments would hide is none."""
    for n in heads:
        first = found.rows[n][0][:1]
        if not (found.is_passed[n] and first in passed):
            return n
    return None
