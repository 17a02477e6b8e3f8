"""Reads the text form of aggregates; no text is ever evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import NoReturn

from streamjoin_ds.errors import PredicateSyntaxError
from streamjoin_ds.spec.aggregate import FUNCTIONS, MAX_COLLECTED, NAMES, Aggregate
from streamjoin_ds.spec.expression.parser import parse_value
from streamjoin_ds.spec.expression.tree import Expression, Literal

__all__ = ["AGGREGATES", "parse_aggregate"]

AGGREGATES = (
    "count(*), count(x), sum(x), min(x), max(x), avg(x), stddev(x), first(x), last(x), arg_min(x, by), "
    "arg_max(x, by), quantile(x, 0.5), collect(x, 100)"
)
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.ASCII | re.DOTALL)
_QUOTES = "'\"`"
_SHOWN = 200  # characters of a text that an error shows

# What Spark has and a reduction has not: what to do instead, by the function's name.
_NOT_HERE = {
    "approx_percentile": "quantile(x, 0.5) is exact",
    "percentile_approx": "quantile(x, 0.5) is exact",
    "approx_quantile": "quantile(x, 0.5) is exact",
    "median": "write quantile(x, 0.5)",
    "collect_list": "write collect(x, 100), which has a bound: the first partners by event time and number",
    "array_agg": "write collect(x, 100), which has a bound: the first partners by event time and number",
    "list": "write collect(x, 100), which has a bound: the first partners by event time and number",
    "stddev_pop": "write stddev(x), of a sample",
    "any_value": "write first(x), the value of the first partner by event time and number",
}


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Return the aggregate in a text, such as ``avg(w.temperature)``, for a column of this name.

    Raises
    ------
    PredicateSyntaxError
        The text is not understood; the hint says what is.
    """
    call = _CALL.fullmatch(text)
    if call is None:
        _refuse("it is not a function and its arguments", text)
    written, inner = call[1].lower(), call[2]
    function = NAMES.get(written)
    if function is None:
        hint = _NOT_HERE.get(written)
        _refuse(f"there is no function {written}", text, hint and f"{hint}; valid are {AGGREGATES}")
    parts = list(_parts(inner, text))
    if function == "count" and parts == ["*"]:
        return Aggregate(name, function)
    if parts and parts[0].split()[:1] and parts[0].split()[0].upper() == "DISTINCT":
        _refuse("DISTINCT is not possible in it", text)
    wanted, has_constant = FUNCTIONS[function]
    if len(parts) != wanted + has_constant:
        _refuse(f"{written} takes {_TAKES[wanted, has_constant]}, not {len(parts)} arguments", text)
    values = [parse_value(part) for part in parts]
    constant = _constant(function, values.pop(), text) if has_constant else None
    return Aggregate(name, function, tuple(values), constant)


_TAKES = {(1, False): "one expression", (2, False): "two expressions", (1, True): "an expression and a number"}


def _constant(function: str, value: Expression, text: str) -> Decimal:
    plain = value.value if isinstance(value, Literal) else None
    number = Decimal(plain) if isinstance(plain, (int, Decimal)) and not isinstance(plain, bool) else None
    if function == "quantile":
        if number is None or not 0 <= number <= 1:
            _refuse("the share of a quantile is not a number from 0 to 1", text)
    elif number is None or number != int(number) or not 1 <= number <= MAX_COLLECTED:
        _refuse(f"the limit of collect is not a whole number from 1 to {MAX_COLLECTED}", text)
    return number.normalize()


def _parts(inner: str, text: str) -> Iterator[str]:
    """Give what lies between the commas that are in no brackets and no quotes."""
    depth, begin, quote = 0, 0, ""
    for place, character in enumerate(inner):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
            if depth < 0:
                _refuse("it is not one function and its arguments", text)
        elif character == "," and not depth:
            yield inner[begin:place].strip()
            begin = place + 1
    if inner.strip():
        yield inner[begin:].strip()


def _refuse(why: str, text: str, hint: str | None = None) -> NoReturn:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)
    msg = f"cannot read the aggregate '{shown}': {why}"
    raise PredicateSyntaxError(msg, name=shown, hint=hint or f"valid are {AGGREGATES}")
