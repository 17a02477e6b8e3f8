"""A survey as people read it, one fact a line, and as plain JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from streamjoin_ds.duration import duration_text
from streamjoin_ds.survey.clock import moment
from streamjoin_ds.survey.stanza import location_shown, stanzas
from streamjoin_ds.survey.survey import ColumnSeen, Survey, TimesOrder, first_tuples

__all__ = ["survey_facts", "survey_text", "tuple_texts"]

_MOST_COLUMNS = 60  # that are shown
_MOST_TEXT = 40  # characters of a value


def survey_text(found: Survey) -> str:
    """Return a survey as text."""
    return "\n".join(_lines(found))


def _line(name: str, text: str) -> str:
    return f"  {name:<11} {text}"


def _lines(found: Survey) -> Iterator[str]:
    yield f"{found.name} = {location_shown(found) or 'rows that are handed over'}"
    yield from (_line(name, text) for name, text in found.words.items())
    for number, column in enumerate(found.columns[:_MOST_COLUMNS]):
        yield _line("" if number else "columns", _column(column))
    if len(found.columns) > _MOST_COLUMNS:
        yield _line("", f"and {len(found.columns) - _MOST_COLUMNS} more")
    if found.stream is None:
        yield _line("no proposal", "no way that was tried gives tuples with times")
    else:
        clock = found.clock
        how = f": {clock.words}" if clock is not None else ""
        yield _line("event time", f"{found.options.get('time', found.stream.time)}{how}")
    yield from (_line("guess", text) for text in found.guesses)
    if found.order is not None:
        yield from _times(found.order)
    if found.records:
        yield _line("records", f"{found.tuples:,} of the first {found.records:,} become tuples")
        yield from (_line("rejects", f"{count:,}: {reason}") for reason, count in found.rejects)
    yield from (_line("note", text) for text in found.remarks)
    for number, row in enumerate(found.first):
        yield _line("" if number else "tuples", _tuple_text(row))
    for form, text in stanzas(found).items():
        yield form
        yield from (f"  {line}".rstrip() for line in text.splitlines())


def tuple_texts(tuples: pa.Table) -> list[str]:
    """Return the first tuples as texts: the event time, and the columns with their names."""
    return [_tuple_text(row) for row in first_tuples(tuples)]


def _tuple_text(row: Mapping[str, Any]) -> str:
    first, *rest = row.items()
    told = ", ".join(f"{name}={_value(value)}" for name, value in rest[:_MOST_COLUMNS])
    return f"{first[1]}  {told}".rstrip()


def _value(value: Any) -> str:
    text = "null" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
    text = text.replace("\r", "\\r").replace("\n", "\\n")
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _column(column: ColumnSeen) -> str:
    text = f"{column.name}: {column.type}"
    if column.least is not None:
        text += f", {_value(column.least)} .. {_value(column.most)}"
    return text + (f", {column.nulls:.1%} null" if column.nulls else "")


def _times(order: TimesOrder) -> Iterator[str]:
    yield _line("from, to", f"{moment(order.first_us)} .. {moment(order.last_us)}")
    back = "newest first" if order.is_newest_first else f"{order.back:.2%} of the records are older than the one before"
    yield _line("order", back if order.back else "by time")
    if order.rate is not None:
        step = f", a step of {duration_text(order.step_us)} in the middle" if order.step_us else ""
        yield _line("rate", f"{order.rate:,.6g} records a second{step}")
    if order.gaps:
        longest = f"{duration_text(order.longest_us - order.longest_us % 1000)} from {moment(order.longest_at_us)} on"
        yield _line("gaps", f"{order.gaps:,} of more than ten steps, the longest {longest}")
    told = [f"{share:.2%} with {duration_text(delay)}" for delay, share in order.late if share]
    told += [f"none with {duration_text(delay)}" for delay, share in order.late if not share][:1]
    yield _line("late", ", ".join(told))


def survey_facts(found: Survey) -> dict[str, Any]:
    """Return a survey as plain JSON values."""
    order = found.order
    return {
        "name": found.name,
        "source": location_shown(found),
        "found": dict(found.words),
        "works": found.stream is not None,
        "options": {name: _plain(value) for name, value in found.options.items()},
        "event_time": None if found.clock is None else {"column": found.clock.time, "form": found.clock.words},
        "guesses": list(found.guesses),
        "notes": list(found.remarks),
        "columns": [
            {"name": one.name, "type": one.type, "least": one.least, "most": one.most, "nulls": round(one.nulls, 4)}
            for one in found.columns
        ],
        "records": found.records,
        "tuples": found.tuples,
        "rejects": [{"reason": reason, "records": count} for reason, count in found.rejects],
        "times": None if order is None else _order_facts(order),
        "first": [dict(row) for row in found.first],
        "stanza": stanzas(found),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _order_facts(order: TimesOrder) -> dict[str, Any]:
    return {
        "from": moment(order.first_us),
        "to": moment(order.last_us),
        "back": round(order.back, 6),
        "newest_first": order.is_newest_first,
        "rate": order.rate,
        "step_us": order.step_us,
        "gaps": order.gaps,
        "longest_gap_us": order.longest_us,
        "late": {duration_text(delay): round(share, 6) for delay, share in order.late},
        "delay_us": order.delay_us,
    }
