"""Lines with values of every kind in columns of every type: each is what it is alone, and broken ones cost little."""

from __future__ import annotations

import json
import time
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.source.files import lines as lines_room
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.csv_lines import CsvLines
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import REFUSED, LineFormat, Lines, csv_refuses, json_rule, parse_lines
from streamjoin_ds.spec.columns import TIMESTAMP
from tests.support.examples import examples

PLAIN = {
    "i8": pa.int8(),
    "u16": pa.uint16(),
    "i64": pa.int64(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "b": pa.bool_(),
    "s": pa.string(),
    "raw": pa.binary(),
    "d": pa.date32(),
    "dec": pa.decimal128(5, 2),
    "at": TIMESTAMP,
    "fine": pa.timestamp("ns", tz="UTC"),
    "berlin": pa.timestamp("us", tz="Europe/Berlin"),
}
NESTED = {
    "l": pa.list_(pa.int32()),
    "st": pa.struct([("x", pa.int16()), ("y", pa.string())]),
    "ll": pa.list_(pa.struct([("t", TIMESTAMP), ("d", pa.decimal128(6, 1))])),
}
NUMBERS = [
    "0", "-0", "5", "-7", "127", "128", "-129", "65535", "65536", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "-1", "5.5", "5.0", "0.125", "123.45", "12.345", "12.340", "1e3", "1E-3", "1e38", "-1e39",
    "1e308", "1e400", "-1e400", "1e-400", "99999", "100000", "1234567", "0.1e2", "999.99", "999.995", "1" + "0" * 80,
    "894536", "-12345", "1e-40", "1e-60", "2e-77",
    "1e99999999999999999999", "-1e-99999999999999999999",
    "0.00", "1e2", "12e-1", "100.000", "123456.7", "00", "NaN", "Infinity", "-Infinity", "Inf", "-Inf",
]  # fmt: skip
TEXTS = [
    "", " ", "a", "5", "5.5", " 5", "5 ", "+5", "0x10", "-0x1", "true", "True", "TRUE", "false", "FALSE", "yes", "null",
    "NA", "None", "nan", "inf", "-inf", "infinity", "2024-01-01", "2024-02-30", "2024-1-1", " 2024-01-01", "0000-01-01",
    "9999-12-31", "10000-01-01", "2024-01-01T00:00:00", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00.123456789+02:00",
    "20240101", "1e5", ".5", "5.", "-.5", "-", "+", ".", "e", "1e", "1_000", "1 000", "\t5", "12,5", "0012", "-00.50",
    "00123456", "0.10000", "\u0661", "2024-01-01T25:00:00Z", "1700000000", "t", "\x7f", "\xa05", "5f", "0x", "1.2.3",
]  # fmt: skip
JSON_TOKENS = [*NUMBERS, *map(json.dumps, TEXTS), "true", "false", "null", "[]", "[1]", "[5.5]", "[null]", '["a"]',
               "{}", '{"x":1}', '{"x":70000}', '{"x":"1","y":"a"}', '{"y":5}', '[{"t":"2024-01-01","d":1.5}]',
               '[{"t":"x"}]', '[{"d":1.55}]', '[{"d":true}]', '{"x":1,"x":2}', '"\\ud800"', "[[1]]", '[{"t":5}]',
               ]  # fmt: skip


def alone(form: LineFormat, line: bytes) -> tuple[str, str] | None:
    """Return why a line is refused when it is read by itself, by Arrow alone; None where it is read."""
    try:
        if form.parse(line).num_rows == 1 and b"\r" not in line:
            return None
    except pa.ArrowInvalid:
        pass
    return form.reason(line)


def plain(value: pa.Scalar) -> object:
    """Return a value as Python has it; a date as its days, as Python's begin with the year 1."""
    return value.cast(pa.int32()).as_py() if pa.types.is_date32(value.type) else value.as_py()


def check(form: LineFormat, lines: list[bytes]) -> None:
    """Compare lines that are read together, and in parts of two, with each that is read alone."""
    told = {place: why for place, line in enumerate(lines) if (why := alone(form, line)) is not None}
    for part_records in (1024, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines_room, "_PART_RECORDS", part_records)
            text = b"".join(line + b"\n" for line in lines)
            raw = parse_lines(Lines.of(text), form, file="f", at_file_start=False)
        assert {place: (column, reason) for place, column, reason, _ in raw.broken} == told
        places = list(range(len(lines))) if raw.index is None else raw.index.tolist()
        assert places == [place for place in range(len(lines)) if place not in told]
        for row, place in enumerate(places):
            one = form.parse(lines[place])
            for name in one.column_names:
                value, expected = (plain(found) for found in (raw.table.column(name)[row], one.column(name)[0]))
                assert value == expected or str(value) == str(expected), (name, lines[place])


@pytest.mark.parametrize("kind", [*PLAIN.values(), *NESTED.values()], ids=str)
def test_what_a_rule_refuses_in_json_arrow_refuses(kind: pa.DataType) -> None:
    form, rule = JsonLines(pa.schema([("x", kind)]), "ts"), json_rule(kind)
    refused = []
    for token in JSON_TOKENS:
        try:
            value = json.loads(token, parse_float=Decimal)
        except (ValueError, InvalidOperation):
            continue
        if rule(value) == REFUSED:
            refused.append(token)
            assert alone(form, b'{"x":%s}' % token.encode()) is not None, token
    assert refused or kind == pa.string()  # there anything is a text


@pytest.mark.parametrize("kind", PLAIN.values(), ids=str)
def test_what_a_rule_refuses_in_csv_arrow_refuses(kind: pa.DataType) -> None:
    form, refuses = CsvLines(["x", "y"], pa.schema([("x", kind)]), "ts", "s", "f"), csv_refuses(kind)
    for text in [*NUMBERS, *TEXTS]:
        field = text.encode()
        if b"," not in field and refuses(field) and field.decode() not in ("", " ", "null", "NA", "None"):
            assert alone(form, field + b",1") is not None, text
    assert refuses(b"\xff") or kind == pa.binary() or pa.types.is_timestamp(kind)


# Arrow's readers take these: the digits of a whole number are counted before it is scaled, and a number with more than
# 38 digits after its point is scaled by what lies behind a table in memory (apache/arrow#50964).
BEYOND = ["894536", "-100000", "999999.0", "1e5", "1E-39", "1e-40", "1e-60", "0." + "0" * 36 + "1e-5", "1e-77"]


@pytest.mark.parametrize("token", BEYOND)
@pytest.mark.parametrize("is_json", [True, False])
def test_a_decimal_has_the_digits_of_its_type_or_the_line_is_a_reject(token: str, is_json: bool) -> None:
    kind = pa.decimal128(6, 1)
    schema = pa.schema([("x", kind), ("s", pa.string())])
    form: LineFormat = JsonLines(schema, "ts") if is_json else CsvLines(["x", "s"], schema, "ts", "s", "f")

    def line(token: str, text: str) -> bytes:
        return (f'{{"x":{token},"s":"{text}"}}\n' if is_json else f"{token},{text}\n").encode()

    lines = [line("99999.9", "1e-60"), line(token, "a"), line("-99999.9", "0c3e-44f0: 5e-77")]
    raw = parse_lines(Lines.of(b"".join(lines)), form, file="f", at_file_start=False)
    assert [(place, column, reason) for place, column, reason, _ in raw.broken] == [
        (1, "x", "the value is not of type decimal128(6, 1)")
    ]
    assert raw.table.column("x").to_pylist() == [Decimal("99999.9"), Decimal("-99999.9")]
    nested = JsonLines(pa.schema([("x", pa.list_(pa.struct([("d", kind)])))]), "ts")
    assert alone(nested, b'{"x":[{"d":%s}]}' % token.encode()) is not None
    assert alone(JsonLines(pa.schema([("x", pa.float64())]), "ts"), b'{"x":%s}' % token.encode()) is None


@pytest.mark.parametrize("token", ["1e-115", "7e-200", "-1e-99999999999999999999"])
def test_an_event_time_of_so_many_digits_is_a_reject(token: str) -> None:
    form = JsonLines(pa.schema([("ts", pa.int64())]), "ts")
    lines = [b'{"ts":1.5}\n', b'{"ts":%s}\n' % token.encode(), b'{"ts":2.5}\n']
    raw = parse_lines(Lines.of(b"".join(lines)), form, file="f", at_file_start=False)
    assert [place for place, *_ in raw.broken] == [1]


def json_object(held: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{token}' for name, token in held.items()) + "}"


def json_lines() -> st.SearchStrategy[bytes]:
    names = ["ts", *PLAIN, *NESTED, "other"]
    pair = st.tuples(st.sampled_from(names), st.sampled_from(JSON_TOKENS))
    ordinary = st.lists(pair, max_size=3).map(lambda pairs: json_object(dict(pairs)))
    odd = st.sampled_from(["{", "[1]", "5", "null", '"a"', '{"ts":1,"ts":2}', '{"i8":1,"i8":"a"}', "{}{}", '{"ts":1}x',
                           '\ufeff{"ts":1}', '{"ts":1}\0', '{"o":1e999}', '{"ts":"\t"}', "[" * 2000, '{"o":"\\ud800"}',
                           '{"ts":Inf}', '{"f64":Inf}', '{"o":' + "9" * 5000 + "}"])  # fmt: skip
    raw = st.sampled_from([b'{"s":"\xff"}', b'{"s":"\xed\xa0\x80"}', b'{"at":"\xed\xa0\x80"}', b"\x00", b"{\x00}\x00"])
    return ordinary.map(str.encode) | odd.map(str.encode) | raw


@examples(150)
@given(st.lists(json_lines(), min_size=1, max_size=12))
def test_a_line_of_json_is_what_it_is_alone(lines: list[bytes]) -> None:
    schema = pa.schema([("ts", pa.int64()), *PLAIN.items(), *NESTED.items()])
    check(JsonLines(schema, "ts"), lines)


def test_a_line_as_deep_as_the_reader_goes_is_a_reject_like_any() -> None:
    """A reader with a hook goes less deep than one without. The word for it depends on how deep its caller is."""
    lines = [b'{"i8":"a","o":%s1%s}' % (b'{"o":' * depth, b"}" * depth) for depth in range(600, 1010)]
    form = JsonLines(pa.schema([("i8", pa.int8())]), "ts")
    raw = parse_lines(Lines.of(b"".join(line + b"\n" for line in lines)), form, file="f", at_file_start=False)
    assert [place for place, *_ in raw.broken] == [*range(len(lines))]
    assert {reason for _, _, reason, _ in raw.broken} == {"not JSON", "the value is not of type int8"}


GROUPED = ["1,234", "1,234.5", "-12,345,678", "12,34,567", "1,2", "1,23", ",123", "1234,567", "1,234e-40", "1,234,5",
           "1.234", "1.234,5", "1 234", "1\u202f234,5", "1'234.5", "65,536", "0,127", "?", "MM", "-9,999",
           "-9999", " ?",
           "a\\", "\\,", "it's", "'a,b'", "2024,5", "nan,5"]  # fmt: skip
DIALECTS = [
    CsvDialect(thousands=","), CsvDialect(";", ",", "."), CsvDialect(";", thousands=" "), CsvDialect("|", ",", " "),
    CsvDialect(thousands="'", quote=None), CsvDialect(quote="'", escape="\\"), CsvDialect(quote=None, escape="\\"),
    CsvDialect(nulls=("?", "MM", "-9999")), CsvDialect("\t", nulls_of=(("i64", ("-9999",)), ("s", ("?", "5")))),
    CsvDialect(" ", ",", nulls=("?",), nulls_of=(("f64", ("-9999",)), ("at", ("MM",)))),
    CsvDialect(thousands=",", nulls=("-9,999",), nulls_of=(("dec", ("1,234",)), ("ts", ("5",)))),
]  # fmt: skip


@examples(150)
@given(st.data(), st.booleans(), st.just(CsvDialect()) | st.sampled_from(DIALECTS))
def test_a_line_of_csv_is_what_it_is_alone(data: st.DataObject, has_quotes: bool, dialect: CsvDialect) -> None:
    header, quote = ["ts", *PLAIN], dialect.quote or ""
    schema = pa.schema([("ts", pa.int64()), *PLAIN.items()])
    more = GROUPED if dialect != CsvDialect() else []
    value = st.sampled_from([*NUMBERS, *(text for text in [*TEXTS, *more] if "," not in text or has_quotes or more)])
    lines = []
    for _ in range(data.draw(st.integers(1, 8))):
        fields = dict.fromkeys(header, "")
        for _ in range(data.draw(st.integers(0, 3))):
            fields[data.draw(st.sampled_from(header))] = data.draw(value)
        texts = [f"{quote}{text}{quote}" if has_quotes and text else text for text in fields.values()]
        joined = dialect.delimiter.join
        lines.append(data.draw(st.sampled_from([joined(texts)] * 5 + [joined(texts[1:]), joined("1" + "\xff" * 14)])))
    encoded = [line.encode("latin-1" if "\xff" in line else "utf-8") for line in lines]
    check(CsvLines(header, schema, "ts", "s", "f", dialect), encoded)


GOOD = {"ts": '"2024-01-01T00:00:00Z"', "i64": "5", "u16": "5", "f64": "5.5", "f32": "0.25", "b": "true", "s": '"abc"',
        "d": '"2024-01-01"', "dec": "1.25", "at": '"2024-01-01T00:00:00Z"', "i8": "1"}  # fmt: skip
BROKEN = {
    "i64": ["5.5", '"x"', "1e3", str(1 << 70)],
    "u16": ["-1", "70000"],
    "i8": ["128", "true"],
    "f64": ['"x"', "true"],
    "b": ["2", '"no"'],
    "s": ["5", "[1]"],
    "d": ['"2024-02-30"', '"soon"'],
    "dec": ["1.255", "123456"],
    "at": ['"soon"', "5"],
    "ts": ["true", "[1]"],
}
WAYS = [(name, token) for name, tokens in BROKEN.items() for token in tokens]


def _cost(form: LineFormat, lines: list[bytes]) -> float:
    """Return the least CPU seconds of some readings."""
    data, least = b"".join(lines), float("inf")
    for _ in range(4):
        begun = time.process_time()
        parse_lines(Lines.of(data), form, file="f", at_file_start=False)
        least = min(least, time.process_time() - begun)
    return least


@pytest.mark.bench
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_broken_lines_cost_at_most_ten_times_good_ones(kind: str) -> None:
    schema = pa.schema([(name, pa.int64() if name == "ts" else PLAIN[name]) for name in GOOD])

    def line(number: int, broken: dict[str, str]) -> bytes:
        held = {**GOOD, "i64": str(number), "f64": f"{number}.5", "s": f'"s{number}"', **broken}
        if kind == "csv":
            return ",".join(text.strip('"') for text in held.values()).encode() + b"\n"
        return json_object(held).encode() + b"\n"

    form = JsonLines(schema, "ts") if kind == "json" else CsvLines(schema.names, schema, "ts", "s", "f")
    count = 8_000
    good = _cost(form, [line(number, {}) for number in range(count)])
    for every in (1, 100):
        for name, token in WAYS:
            if kind == "csv" and name in ("s", "ts"):  # a field is a text, and so is a time
                continue
            # Each value is another one: nothing is told twice.
            told = [token if token[0] in '"t[' or "e" in token else f"{token}{number}" for number in range(count)]
            told = [t[:-1] + f'{n}"' if t[0] == '"' and name != "d" else t for n, t in enumerate(told)]
            lines = [line(n, {name: told[n]} if n % every == 0 else {}) for n in range(count)]
            ratio = _cost(form, lines) / good
            print(f"{kind} {name}={token} one in {every}: {ratio:.1f} times a good line")
            assert ratio <= 10, (name, token, every)
