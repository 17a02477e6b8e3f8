"""Which form times may have, guessed by some of them, and the refusal of a column whose texts are none that are read.

A guess is no option: it stands in a hint or a proposal. Where texts are of several forms it says all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.columns import is_text
from streamjoin_ds.spec.member.computed_columns import TIME_NAME
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_format import LETTERS, NAMED_FORMS, TimeForm
from streamjoin_ds.spec.time_text import number_texts, to_timestamp

__all__ = ["check_readable", "forms_tried", "guessed_forms"]

_LOOKED_AT = 1000  # texts by which a form is guessed
_MOST_SHOWN = 60  # characters of a value in an error
# Dates as they are written, and the forms that each may be, the likelier one first.
_DATES = (
    (r"\d{1,2}([/.-])\d{1,2}[/.-]\d{4}", ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y")),
    (r"\d{1,2}([/.-])\d{1,2}[/.-]\d{2}", ("%d{0}%m{0}%y", "%m{0}%d{0}%y", "%y{0}%m{0}%d")),
    (r"\d{4}([/.-])\d{1,2}[/.-]\d{1,2}", ("%Y{0}%m{0}%d",)),
    (r"\d{1,2}([ /.-])[A-Za-z]{3,9}\.?[ /.-]\d{4}", ("%d{0}%b{0}%Y",)),
    (r"\d{1,2}([ /.-])[A-Za-z]{3,9}\.?[ /.-]\d{2}", ("%d{0}%b{0}%y",)),
    (r"[A-Za-z]{3,9}\.? +\d{1,2}(,? )\d{4}", ("%b %d{0}%Y",)),
    (r"\d{4}([/.-])\d{3}(?=[T :])", ("%Y{0}%j",)),  # alone it may be any number of something
    (r"\d{4}( )[A-Za-z]{3,9}\.? +\d{1,2}", ("%Y{0}%b{0}%d",)),
    (r"\d{4}( )\d\d-\d\d", ("%Y{0}%m-%d",)),
    (r"\d{8}", ("%Y%m%d", "%d%m%Y", "%m%d%Y")),
)
_CLOCK = re.compile(
    r"(?P<between>T|[ :_]+)(?P<clock>\d{1,2}:\d{2}(?P<second>:\d{2}(?P<fraction>[.,:]\d+)?)?|\d{6}|\d{4})"
    r"(?P<half> ?[AaPp]\.?[Mm]?\.?)?(?P<zone> ?(?:Z|[+-]\d{2}:?\d{2}|[A-Z]{3,5}|[A-Z][a-z]+/\w+))?$"
)


def guessed_forms(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the forms of which all texts are, the likelier one first; several mean that a choice is a guess."""
    told = [text.strip() for text in texts if text.strip()]
    if not told:
        return ()
    values = pa.array(told)
    return tuple(form for form in _forms_like(told[0]) if TimeForm.of(form).read(values).valid.all())


def _forms_like(text: str) -> list[str]:
    """Return forms that look like a text."""
    if re.fullmatch(r"\d{10}|\d{12}|\d{14}", text):
        return ["%Y%m%d%H%M%S"[: len(text) - 2]]
    if unix := re.fullmatch(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d{2}:\d{2}:\d{2}( [A-Z]{3,4})? \d{4}", text):
        return ["%a %b %d %H:%M:%S %Z %Y" if unix[1] else "%a %b %d %H:%M:%S %Y"]
    if day := re.match(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?(,? +)", text):
        return [f"%a{day[1]}{form}" for form in _forms_like(text[day.end() :])]
    # The time of day before the date: 09:00:07 05-Mar-2024.
    if first := re.fullmatch(r"(\d{1,2}:\d{2}(?::\d{2})?)([ ,]+)(\d.*[-/.].*)", text):
        form = "%H:%M:%S"[: 3 * (1 + first[1].count(":")) - 1]
        return [f"{form}{first[2]}{date}" for date in _forms_like(first[3]) if "%H" not in date]
    for pattern, dates in _DATES:
        match = re.match(pattern, text)
        rest = "" if match is None else text[match.end() :]
        clock = _CLOCK.match(rest)
        if match is None or (rest and clock is None):
            continue
        separator = match[1] if match.groups() else ""
        return [date.format(separator) + (_clock_form(clock) if clock else "") for date in dates]
    return []


def _clock_form(match: re.Match[str]) -> str:
    half, zone = match["half"] or "", (match["zone"] or "")
    if ":" in match["clock"]:
        form = ("%I" if half else "%H") + ":%M" + (":%S" if match["second"] else "")
        form += f"{match['fraction'][0]}%f" if match["fraction"] else ""
    else:
        form = "%H%M%S"[: len(match["clock"])]
    blank = " " if zone.startswith(" ") else ""
    said = blank + ("%z" if zone.strip()[:1] in ("Z", "+", "-") else "%Z") if zone else ""
    return match["between"] + form + (half[:1].strip("AaPp") + "%p" if half else "") + said


def check_readable(values: pa.Array | pa.ChunkedArray, valid: np.ndarray, stream: Stream) -> None:
    """Refuse a column of which most values are no event times; the first one that is none is shown.

    Raises
    ------
    ColumnError
        Always, but for a column without values.
    """
    texts = values.cast(pa.string()) if is_text(values.type) else number_texts(values)
    broken = [text for text in texts.filter(pa.array(~valid)).slice(0, _LOOKED_AT).to_pylist() if (text or "").strip()]
    if not broken:
        return
    shown, tried = broken[0][:_MOST_SHOWN], forms_tried(stream)
    msg = f"column '{stream.time}' of stream {stream.name} cannot be an event time: '{shown}' is not {tried}"
    raise ColumnError(msg, name=stream.time, hint=_format_hint(broken, stream.time))


def forms_tried(stream: Stream) -> str:
    """Return in words the forms in which a stream's event times may be."""
    if stream.time_forms:
        return f"of the form {' or '.join(stream.time_forms)}"
    return f"ISO 8601 (2024-03-05T09:00:07Z) or nearly that, and no number in time_unit={stream.time_unit}"


def _format_hint(texts: Sequence[str], column: str) -> str:
    """Return the forms that texts may be of."""
    forms = guessed_forms(texts)
    if not forms and (after := guessed_forms([f"2024 {text}" for text in texts])):
        computed = f"\"'2024 ' || {column}\""
        time = f"columns={{'at': {computed}}}, time='at'" if column == TIME_NAME else f"time={computed}"
        return f"they say no year: {time} and time_format='{after[0]}' give them one"
    if not forms:
        return f"time_format says how they are written: {LETTERS}; or one of {', '.join(NAMED_FORMS)}"
    if len(forms) == 1:
        return f"time_format='{forms[0]}'"
    first, second = (to_timestamp(pa.array(texts[:1]), form)[0].as_py() for form in forms[:2])
    return (
        f"time_format='{forms[0]}' where '{texts[0]}' is {first:%Y-%m-%d}, or '{forms[1]}' where it is "
        f"{second:%Y-%m-%d}: the values do not tell"
    )
