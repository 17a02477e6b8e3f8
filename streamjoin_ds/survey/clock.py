"""Which column is the event time, or which several, and how it is written: form, unit, zone.

Each column is read in the ways that its values allow. So are columns that go together: a date and a time of day; year,
month, day and hour; week and second. A way counts by how many values it reads, by the column's name, by whether the
times lie between 1990 and next year, and by how well they are in order. What the values do not decide is a guess, and
says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from streamjoin_ds.spec.columns import Int64, Mask, is_text
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.spec.member.time_column import is_event_time
from streamjoin_ds.spec.time_guess import guessed_forms
from streamjoin_ds.spec.time_text import event_times

__all__ = ["Clock", "clocks_of", "counting_from_a_start", "moment", "zone_of"]

_EARLY_US = int(np.datetime64("1990-01-01", "us").astype(np.int64))
_YEAR_US = 365 * DAY_US
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_LEAST_READ = 0.5  # the share of values that a way must read
_LEAST_OTHERS = 0.01  # the share of texts from which on a further form of theirs is looked for
_MOST_FORMS = 4
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,:]\d+)?)?( ?[AaPp]\.?[Mm]?\.?)?")
_LEAST_OF_A_TIME = 10  # characters of a date
_DAY = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")
_OFFSET = re.compile(r".*\d(Z| ?[+-]\d{2}(:?\d{2})?|.*\b(UTC|GMT|utc|gmt)\b\]?)(\[.*\])?$")
_BEST_NAMES = re.compile(
    r"#?\s*(ts|time|timestamp|date_?time|event_?time|event_?ts|utc|time_?utc|epoch|unix_?time|t)(_?utc|_m?s|_us|_ns)?"
)
_TIME_NAMES = re.compile(r"time|date|stamp|epoch|(^|_)ts($|_)|_at$|zeit|fecha|hora|heure", re.IGNORECASE)
_NO_TIME_NAMES = re.compile(r"zone|duration|elapsed|uptime|interval|expir|delta|timeout|runtime|_id$", re.IGNORECASE)
_LATER_NAMES = re.compile(r"create|update|modif|insert|process|ingest|logged", re.IGNORECASE)
# Parts of a date in several columns: what their names may be, and the least and the largest value.
_PARTS = {
    "year": (r"y+|year|yr|jahr", 1970, 2100),
    "month": (r"m+|mm|mon|month|mo", 1, 12),
    "day": (r"d+|day|dy|dom", 1, 31),
    "hour": (r"h+|hour|hr|hrs", 0, 24),
    "minute": (r"m+|mn|min|minute|minutes", 0, 59),
    "second": (r"s+|sec|second|seconds", 0, 60),
}
_DAY_OF_YEAR = re.compile(r"doy|jday|julian.*|yday|day.*of.*year|day", re.IGNORECASE)
_NO_YEAR = re.compile(r"([A-Z][a-z]{2} +\d{1,2}|\d\d-\d\d) \d\d:\d\d(:\d\d([.,]\d+)?)?")
_HOUR_US = 3_600_000_000
_ZONE_NAMES = re.compile(r"zone|^tz|tz$|offset|utc_?off", re.IGNORECASE)
_ZONE = re.compile(r"[A-Z]{2,5}|[A-Z][A-Za-z_]+(/[A-Za-z_+\-0-9]+)+|[+-]\d{2}:?\d{2}")
# What the name of a column says of its zone: Date Time, GMT-05:00; time (UTC); MTU (CET/CEST).
_OFFSET_IN_NAME = re.compile(
    r"\b(?:GMT|UTC) ?(?P<sign>[+-])(?P<hour>\d{1,2})(?::?(?P<minute>\d{2}))?\b|\b(?P<zone>UTC|GMT|CET|EET|WET)\b"
)
_CHANGING_ZONES = ("Europe/Berlin", "Europe/London", "Europe/Helsinki", "America/New_York", "Australia/Sydney")
_WEEK, _WEEK_SECOND = (
    re.compile(r"(gps|gnss)?_?(week|wk|wn)", re.IGNORECASE),
    re.compile(r"(gps|gnss)?_?(sow|tow|itow|sec.*|second.*)", re.IGNORECASE),
)


class Clock(Struct, frozen=True):
    """A way in which a sample's event times can be read.

    Attributes
    ----------
    time : str
        The column, or an expression over several.
    options : mapping
        Options of a stream beside `time`.
    words : str
        The form in words.
    guesses : tuple of str
        What the values do not decide; none where they decide all.
    times_us, valid : ndarray
        The times of the sampled records, in microseconds, and which could be read.
    score : float
        How likely it is; only the order of several counts.
    is_local : bool
        Whether the values say no zone.
    """

    time: str
    options: Mapping[str, Any]
    words: str
    times_us: Int64
    valid: Mask
    score: float
    guesses: tuple[str, ...] = ()
    is_local: bool = False


class _Way(Struct, frozen=True):
    """Values read as times, before they are judged."""

    words: str
    times_us: Int64
    valid: Mask
    options: Mapping[str, Any] = field(default_factory=dict)
    guesses: tuple[str, ...] = ()
    is_local: bool = False
    weight: float = 1.0


def moment(us: int) -> str:
    """Return an event time as a text in UTC."""
    text = str(np.datetime64(us, "us"))
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


def clocks_of(columns: Mapping[str, pa.Array], now_us: int, location: str = "") -> list[Clock]:
    """Return the ways in which event times can be read from sampled columns, the likeliest first.

    Parameters
    ----------
    columns : mapping of str to pyarrow.Array
        Texts, numbers, timestamps or dates; other columns are passed over.
    now_us : int
        The time now: event times are seldom more than a year ahead of it.
    location : str
        The source: its name may say the year of texts that say none.
    """
    plain = {name: _plain(values) for name, values in columns.items()}
    found = [
        _judged(name, name, way, now_us)
        for name, values in plain.items()
        if values is not None
        for way in _ways(values, name, now_us)
    ]
    texts = {name: _texts(values) for name, values in plain.items() if values is not None}
    together = [*_date_and_clock(texts), *_in_brackets(texts), *_wrapped(texts, now_us), *_parts(texts)]
    together += _without_year(texts, now_us, location)
    found += [_judged(names, expression, way, now_us) for names, expression, way in together]
    good = [clock for clock in found if clock is not None]
    return sorted(good, key=lambda clock: -clock.score)


def zone_of(clock: Clock, columns: Mapping[str, pa.Array]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the option that says the zone of times that say none, if anything tells it, and why it is a guess.

    A column may hold zones. An hour that a clock shows twice, where it is put back in some places, is theirs.
    """
    if not clock.is_local or "timezone" not in STREAM_KEYS:
        return {}, ()
    for name, values in columns.items():
        texts = _texts(values) if is_text(values.type) else []
        told = [text for text in texts if text]
        if told and _ZONE_NAMES.search(_last(name)) and all(map(_ZONE.fullmatch, told)):
            return {"timezone": name}, ()
    for name in (name for name in columns if _quoted(name) in clock.time or name == clock.time):
        if (said := _OFFSET_IN_NAME.search(name)) is not None:
            zone = said["zone"] or "".join([said["sign"], said["hour"].zfill(2), ":", said["minute"] or "00"])
            return {"timezone": zone}, (f"the times are those of {zone}, as the column's name '{name}' says",)
    times = clock.times_us[clock.valid]
    steps = np.diff(times)
    again = np.flatnonzero((steps <= 0) & (steps > -_HOUR_US))
    if len(steps) and (steps[again] == 0).any() and (len(again) > 1 or np.median(steps) != _HOUR_US):
        again = again[steps[again] < 0]  # equal times are those of several devices, where rows are not hourly
    for place in again:
        day = moment(int(times[place + 1]))[:10]
        ends = [datetime.fromtimestamp(int(us) / 1e6, timezone.utc) for us in times[place : place + 2]]
        for zone in _CHANGING_ZONES:
            if all(_is_twice(end, zone) for end in ends):
                why = f"the hour before {day} {ends[0].hour + 1:02}:00 is there twice, as when summer ends in {zone}"
                return {"timezone": zone}, (f"the times are those of {zone}: {why}; other zones change with it",)
    return {}, ()


def _is_twice(moment_: datetime, zone: str) -> bool:
    """Whether a zone's clock shows a time twice."""
    shown = [moment_.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset() for fold in (0, 1)]
    return shown[0] != shown[1] and shown[0] > shown[1]  # type: ignore[operator]


def counting_from_a_start(columns: Mapping[str, pa.Array]) -> list[str]:
    """Return what is said of columns of numbers that are named as times, and are none since 1970: of no known start."""
    found = []
    for name, values in columns.items():
        texts = _texts(values) if is_text(values.type) or is_event_time(values.type) else []
        told = [text for text in texts if text]
        is_named = _TIME_NAMES.search(_last(name)) or _BEST_NAMES.fullmatch(_last(name).lower())
        if told and is_named and all(map(_NUMBER.fullmatch, told)):
            numbers = np.array([float(text.replace(",", ".")) for text in told])
            if len(numbers) > 1 and (np.diff(numbers) >= 0).all() and 0 <= numbers[0] < 1e8:
                found.append(
                    f"{name} may count from a start that the values do not say: time_start='2024-03-05T09:00:00Z' says "
                    "it, and time_unit of what it counts"
                )
    return found


def _plain(values: pa.Array) -> pa.Array | None:
    """Return a column that may hold times; None for another one."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    usable = is_text(kind) or is_event_time(kind) or pa.types.is_decimal(kind)
    return values if usable and len(values) and not pa.types.is_boolean(kind) else None


def _texts(values: pa.Array) -> list[str]:
    return ["" if value is None else str(value).strip() for value in values.to_pylist()]


def _ways(values: pa.Array, name: str, now_us: int) -> Iterator[_Way]:
    """Yield the ways to read one column."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times, valid = event_times(values, "us")
        is_local = kind.tz is None if pa.types.is_timestamp(kind) else False
        yield _Way(str(kind), times, valid, is_local=is_local, weight=1.2)
        return
    if not is_text(kind):
        yield from _of_numbers(values.cast(pa.float64(), safe=False), values, name, now_us)
        return
    texts = _texts(values)
    told = [text for text in texts if text and text.lower() != "nan"]
    if sum(1 for text in told if _NUMBER.fullmatch(text)) * 2 > len(told):
        exact = pa.array([text if _NUMBER.fullmatch(text) else None for text in texts])
        floats = pa.array([float(text.replace(",", ".")) if text else None for text in exact.to_pylist()], pa.float64())
        yield from _of_numbers(floats, exact, name, now_us)
        return
    usual = _usual(told)
    if not usual or not re.search(r"\d", usual[0]):
        return
    times, valid = event_times(pa.array(texts), "us")
    is_local = not all(_OFFSET.fullmatch(text) and not _DAY.fullmatch(text) for text in usual[:100])
    if valid.sum() >= _LEAST_READ * len(told) and not _CLOCK.fullmatch(usual[0]):
        way = _Way(f"texts such as '{usual[0]}'", times, valid, is_local=is_local, weight=1.1)
        yield from _with_others(texts, way)
        return
    for way in _of_forms(texts, usual, is_local=is_local):
        yield from _with_others(texts, way)


def _with_others(texts: Sequence[str], way: _Way) -> Iterator[_Way]:
    """Yield a way, after the one that has forms for texts that it does not read, where there are such texts."""
    left = [text for text, is_read in zip(texts, way.valid.tolist(), strict=True) if text and not is_read]
    forms = tuple(str(way.options.get("time_format", "iso")).split("|"))
    usual = _usual(left)
    if len(forms) < _MOST_FORMS and len(usual) > _LEAST_OTHERS * len(texts):
        is_local = not all(map(_OFFSET.fullmatch, usual[:100]))
        more = next(_of_forms(texts, usual, is_local=way.is_local or is_local, before=forms), None)
        if more is not None and more.valid.sum() > way.valid.sum():
            words, weight = f"{way.words} and '{usual[0]}'", way.weight
            guesses = (*way.guesses, *more.guesses)
            both = replace(more, words=words, weight=weight, guesses=guesses)
            yield from _with_others(texts, both)
    yield way


def _usual(texts: Sequence[str]) -> list[str]:
    """Return the texts of the shape that most have."""
    shapes = [re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text)) for text in texts]
    if not shapes:
        return []
    most = Counter(shapes).most_common(1)[0][0]
    return [text for text, shape in zip(texts, shapes, strict=True) if shape == most]


def _of_forms(
    texts: Sequence[str], usual: Sequence[str], *, is_local: bool, before: tuple[str, ...] = ()
) -> Iterator[_Way]:
    """Yield the ways to read texts in strptime's letters; of several that fit, the likeliest first.

    Forms in `before` are tried first, and the usual texts are of none of them.
    """
    forms = ["|".join((*before, form)) for form in guessed_forms(usual[:1000])]
    read = [(form, *event_times(pa.array(texts), "us", forms=tuple(form.split("|")))) for form in forms]
    if not read:
        return
    half = any(re.search(r"\d ?[AaPp]\.?[Mm]?\.?$", text) for text in usual[:10])
    if half and len(read) > 1:
        # Where hours are counted to 12, the month stands first.
        read.sort(key=lambda one: one[0].rpartition("|")[2].startswith("%d"))
    orders = [_disorder(times[valid]) for _, times, valid in read]
    best = int(np.argmin(orders))
    shown = usual[0]
    for place, (form, times, valid) in enumerate(read):
        guesses: tuple[str, ...] = ()
        other = next((n for n in range(len(read)) if n != place), None)
        if other is not None and (read[other][1] != times).any():
            is_sure = place == best and orders[other] > 2 * orders[best] + 0.05
            means, instead = (moment(int(one[1][texts.index(shown)])) for one in (read[place], read[other]))
            why = "so the times are in order" if is_sure else "no value decides"
            guesses = (f"'{shown}' is {means}, not {instead} ({why}): time_format='{read[other][0]}' says the other",)
        weight = 1.0 if place == best or orders[place] <= orders[best] + 0.05 else 0.6
        weight -= place * 0.02
        yield _Way(f"texts such as '{shown}'", times, valid, {"time_format": form}, guesses, is_local, weight)


def _disorder(times_us: Int64) -> float:
    """Return the share of steps that go against the usual direction, and of those that leap over a week."""
    steps = np.diff(times_us)
    if not len(steps):
        return 0.0
    back = min(np.count_nonzero(steps < 0), np.count_nonzero(steps > 0)) / len(steps)
    return back + np.count_nonzero(np.abs(steps) > 7 * DAY_US) / len(steps)


def _of_numbers(floats: pa.Array, exact: pa.Array, name: str, now_us: int) -> Iterator[_Way]:
    """Yield the ways to read numbers: a unit since 1970, digits of a date, days or seconds of another epoch."""
    known = floats.drop_null().to_numpy(zero_copy_only=False)
    known = known[np.isfinite(known)]
    if not len(known):
        return
    low, middle = float(known.min()), float(np.median(known))
    written = _number_texts(exact, known[:1000])
    shown = written[0]
    ends = _EARLY_US, now_us + _YEAR_US
    for unit, factor in (("s", 1e6), ("ms", 1e3), ("us", 1.0), ("ns", 1e-3)):
        if ends[0] <= middle * factor <= ends[1] and low * factor >= 0:
            times, valid = event_times(exact, unit)
            first = moment(int(known[0] * factor))
            guess = f"the numbers are {_UNIT_NAMES[unit]} since 1970: {shown} is then {first}"
            options = {} if unit == "us" else {"time_unit": unit}
            yield _Way(f"{_UNIT_NAMES[unit]} since 1970", times, valid, options, (guess,), weight=0.95)
    last = _last(name)
    is_named = bool(_TIME_NAMES.search(last) or _BEST_NAMES.fullmatch(last.lower())) and not _NO_TIME_NAMES.search(last)
    if "time_format" not in STREAM_KEYS:
        return
    if len({len(text) for text in written}) == 1 and len(shown) in (8, 10, 12, 14) and low > 19_000_000:
        forms = [form for form in guessed_forms(written) if form.startswith("%Y")]
        for form in forms[:1]:
            times, valid = event_times(exact, "us", forms=(form,))
            if valid.any() and ends[0] <= np.median(times[valid]) <= ends[1]:
                yield _Way(f"digits of a date such as {shown}", times, valid, {"time_format": form}, (), True)
    for form, words, begin, length, least in (
        ("excel", "days of Excel, since 1899-12-30", -25_569 * DAY_US, DAY_US, 0.5),
        ("labview", "seconds since 1904, LabVIEW's", -2_082_844_800_000_000, 1e6, 0.7),
        ("gps", "seconds of GPS, since 1980-01-06", 315_964_800_000_000, 1e6, 0.3),
    ):
        if not ends[0] <= begin + middle * length <= ends[1] or (form == "gps" and "gps" not in name.lower()):
            continue
        is_whole = bool((known == np.floor(known)).all())
        moves = np.diff(known)
        if not is_named and (is_whole or len(moves) < 1 or (moves < 0).mean() > 0.1):
            continue
        times, valid = event_times(exact, "us", forms=(form,))
        first = moment(int(times[valid][0])) if valid.any() else ""
        guess = f"the numbers are {words}: {shown} is then {first}"
        yield _Way(words, times, valid, {"time_format": form}, (guess,), form == "excel", least)


def _number_texts(exact: pa.Array, values: np.ndarray) -> list[str]:
    """Return numbers as they are written in a column of texts, or as Python writes those of another column."""
    if is_text(exact.type):
        written = {float(text.replace(",", ".")): text for text in reversed(exact.to_pylist()) if text}
        return [written.get(value, repr(value)) for value in values.tolist()]
    return [str(int(value)) if value.is_integer() else repr(value) for value in values.tolist()]


def _judged(name: str, expression: str, way: _Way, now_us: int) -> Clock | None:
    """Return a way as a clock with its score; None where it reads too little, or one time alone again and again."""
    count = np.count_nonzero(way.valid)
    if not count or count < _LEAST_READ * len(way.valid):
        return None
    times = way.times_us[way.valid]
    share = count / len(way.valid)
    plausible = float(((times >= _EARLY_US) & (times <= now_us + _YEAR_US)).mean())
    score = way.weight * share * (0.4 + 0.6 * plausible) + _name_score(name)
    if len(times) > 2:
        score += 0.2 * (1 - min(_disorder(times) * 2, 1.0))
        score += 0.1 * len(np.unique(times)) / len(times) - 0.5 * (times == times[0]).all()
        score -= 0.3 * (not (times % DAY_US).any())
    guesses = way.guesses
    return Clock(expression, way.options, way.words, way.times_us, way.valid, score, guesses, way.is_local)


def _name_score(name: str) -> float:
    last = _last(name)
    if _NO_TIME_NAMES.search(last):
        return -0.4
    later = 0.15 if _LATER_NAMES.search(last) else 0.0
    if _BEST_NAMES.fullmatch(last.lower()):
        return 0.4
    return 0.25 - later if _TIME_NAMES.search(last) else -later


def _last(name: str) -> str:
    """Return the last part of a path."""
    return re.split(r"[.|]", name)[-1].strip().strip("`")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name}`"


def _date_and_clock(texts: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, _Way]]:
    names = list(texts)
    for place, name in enumerate(names):
        clock = next((text for text in texts[name] if text), "")
        if not _CLOCK.fullmatch(clock):
            continue
        around = sorted((abs(place - n), n > place, n) for n in range(len(names)) if n != place)
        for _, _, n in around[:4]:
            day = next((text for text in texts[names[n]] if text), "")
            if not re.fullmatch(r"\d{1,4}[-/.]\w{1,9}[-/.]\d{1,4}|\d{8}|\d{6}", day):
                continue
            joined = [f"{a} {b}" if a and b else "" for a, b in zip(texts[names[n]], texts[name], strict=True)]
            expression = f"{_quoted(names[n])} || ' ' || {_quoted(name)}"
            for way in _ways(pa.array(joined), "", 0):
                yield f"{names[n]}|{name}", expression, _weighed(way, 1.15)
            break


def _in_brackets(texts: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, _Way]]:
    """Yield times in brackets that a blank cuts in two, as logs of web servers have them."""
    for (name, begins), (after, ends) in pairwise(texts.items()):
        joined = [f"{a} {b}" for a, b in zip(begins, ends, strict=True)]
        inner = [text[1:-1] for text in joined if text.startswith("[") and text.endswith("]")]
        for form in guessed_forms(inner[:1000]) if len(inner) * 2 > len(joined) else ():
            times, valid = event_times(pa.array(joined), "us", forms=(f"[{form}]",))
            way = _Way(f"texts such as '{joined[0]}'", times, valid, {"time_format": f"[{form}]"}, weight=1.2)
            yield "time", f"{_quoted(name)} || ' ' || {_quoted(after)}", way


def _without_year(texts: Mapping[str, Sequence[str]], now_us: int, location: str) -> Iterator[tuple[str, str, _Way]]:
    """Yield times that say no year, as syslog writes them: in a column, or month, day and time of day in three."""
    names = list(texts)
    groups = [[name] for name in names] + [names[place : place + 3] for place in range(len(names) - 2)]
    last = datetime.fromtimestamp(now_us / 1e6, timezone.utc).year
    told = re.findall(r"(?<!\d)(?:19|20)\d\d(?=\D|\d{4}(?!\d)|\d\d(?!\d)|$)", location.rpartition("/")[2])
    named = {int(year) for year in told if 1990 <= int(year) <= last}
    for group in groups:
        joined = [" ".join(parts).strip() for parts in zip(*(texts[name] for name in group), strict=True)]
        usual = _usual([text for text in joined if text])
        if not usual or not _NO_YEAR.fullmatch(usual[0]):
            continue
        for form in guessed_forms([f"2024 {text}" for text in usual[:1000]]):
            years = [*named] if len(named) == 1 else [last, last - 1]
            read = [event_times(pa.array([f"{year} {text}" for text in joined]), "us", forms=(form,)) for year in years]
            place = 0 if len(read) == 1 or read[0][0].max() <= now_us + DAY_US else 1
            year, (times, valid) = years[place], read[place]
            why = "as the name of the source has it" if len(read) == 1 else "the last one in which none is to come"
            expression = " || ' ' || ".join(map(_quoted, group))
            guesses = [f"'{usual[0]}' says no year and is taken as of {year}, {why}: time=\"'{year} ' || ...\" says it"]
            if (np.abs(np.diff(times[valid])) > 300 * DAY_US).any():
                guesses.append("the times pass a New Year's Eve, and one year is right for one side of it alone")
            way = _Way(f"texts such as '{usual[0]}'", times, valid, {"time_format": form}, tuple(guesses), True)
            yield group[0] if len(group) == 1 else "time", f"'{year} ' || {expression}", way


def _wrapped(texts: Mapping[str, Sequence[str]], now_us: int) -> Iterator[tuple[str, str, _Way]]:
    """Yield times in brackets of their own, and the beginnings of intervals."""
    for name, values in texts.items():
        told = [text for text in values if text]
        quoted, inner = _quoted(name), list[str]()
        expression = ""
        for begin, end in ("()", "[]"):
            if told and all(text[0] == begin and text[-1] == end for text in told):
                inner = [text[1:-1] for text in values]
                expression = f"replace(replace({quoted}, '{begin}', ''), '{end}', '')"
        for between in (" - ", " \u2013 ", "/"):
            parts = [text.split(between) for text in told]
            if parts and all(len(part) == 2 and min(map(len, part)) >= _LEAST_OF_A_TIME for part in parts):
                inner = [text.partition(between)[0] for text in values]
                expression = f"split_part({quoted}, '{between}', 1)"
        for way in _ways(pa.array(inner), name, now_us) if inner else ():
            yield name, expression, way


def _weighed(way: _Way, factor: float) -> _Way:
    return _Way(way.words, way.times_us, way.valid, way.options, way.guesses, way.is_local, way.weight * factor)


def _parts(texts: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, _Way]]:
    """Yield year, month, day and so on in columns that follow each other, day of the year, GNSS week and second."""
    names = list(texts)
    whole = {name: [int(text) for text in texts[name] if re.fullmatch(r"\d{1,6}", text)] for name in names}
    for place, name in enumerate(names[:-1]):
        found = _parts_from(names[place:], whole)
        if len(found) >= 3:
            yield "time", *_of_parts(found, texts)
        after = names[place + 1]
        years = whole[name]
        if years and whole[after] and 1970 <= min(years) <= max(years) <= 2100 and max(whole[after]) <= 366:
            named = _DAY_OF_YEAR.fullmatch(after) or max(whole[after]) > 31
            hours = names[place + 2] if place + 2 < len(names) and named else ""
            if hours and whole[hours] and max(whole[hours]) <= 2400:
                yield from _of_form([name, after, hours], texts, "doy", "year, day of the year, hhmm")
        if _WEEK.fullmatch(name) and _WEEK_SECOND.fullmatch(after):
            yield from _of_form([name, after], texts, "gps", "GPS's week and second of the week")


def _parts_from(names: Sequence[str], whole: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the columns at the beginning of these that are year, month, day and so on, as far as they go."""
    found = []
    for (pattern, least, most), name in zip(_PARTS.values(), names, strict=False):
        values = whole[name]
        is_named = re.fullmatch(pattern, name.strip("# "), re.IGNORECASE) or name.startswith("column_")
        if not values or min(values) < least or max(values) > most or not is_named:
            break
        found.append(name)
    return found


def _of_parts(names: Sequence[str], texts: Mapping[str, Sequence[str]]) -> tuple[str, _Way]:
    signs = ["-", "-", " ", ":", ":"]
    pieces, joined = [_quoted(names[0])], list(texts[names[0]])
    for sign, name in zip(signs, names[1:], strict=False):
        pieces += [f"'{sign}'", f"lpad({_quoted(name)}, 2, '0')" if sign == ":" else _quoted(name)]
        joined = [f"{before}{sign}{part}" for before, part in zip(joined, texts[name], strict=True)]
    if len(names) == 4:
        pieces, joined = [*pieces, "':00'"], [f"{text}:00" for text in joined]
    times, valid = event_times(pa.array(joined), "us")
    words = f"{', '.join(list(_PARTS)[: len(names)])} in columns of their own"
    return " || ".join(pieces), _Way(words, times, valid, is_local=True, weight=1.4)


def _of_form(
    names: Sequence[str], texts: Mapping[str, Sequence[str]], form: str, words: str
) -> Iterator[tuple[str, str, _Way]]:
    joined = [" ".join(parts) for parts in zip(*(texts[name] for name in names), strict=True)]
    times, valid = event_times(pa.array(joined), "us", forms=(form,))
    expression = " || ' ' || ".join(map(_quoted, names))
    yield "time", expression, _Way(words, times, valid, {"time_format": form}, is_local=form == "doy", weight=1.4)
