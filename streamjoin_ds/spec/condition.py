"""Conditions that kernels test: intervals of the difference of two keys, and what the window says as such."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamjoin_ds.spec.finder import Finders
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.window import WindowRule

__all__ = ["Condition", "Key", "key_number", "tighter_times", "window_conditions", "window_rules"]


@dataclass(frozen=True, slots=True)
class Key:
    """A column of one stream, and the form in which it is compared: ``kind`` is "float", "int", "ns" or "hash".

    The kind "limit" is of a `Limit`, and `column` is then its text.
    """

    column: str
    kind: str


@dataclass(frozen=True, slots=True)
class Condition:
    """``lo <= left key - right key <= hi``, both ends included, or an equality; the left stream has the lower number.

    Parameters
    ----------
    left_stream, right_stream : int
        Numbers of the streams, ``left_stream < right_stream``.
    left_key, right_key : int
        Numbers of the keys among their stream's keys.
    kind : str
        The kind of both keys.
    lo, hi : int or float
        Floats for the kinds "float" and "limit", integers within int64 for "int" and "ns"; both 0 for "hash". A
        condition that only finds may have an infinite end.
    text : str
        The predicate or rule that the condition stands for.
    interval_number : int
        Of a condition that is one end of an interval: the number of the interval. -1: it is none.
    is_equality : bool
        Whether floats are compared as values, so that infinities are equal to themselves; `lo` and `hi` are 0 then. Of
        other keys it says nothing: there a difference of 0 and equal values are one.
    """

    left_stream: int
    right_stream: int
    left_key: int
    right_key: int
    kind: str
    lo: int | float
    hi: int | float
    text: str
    interval_number: int = -1
    is_equality: bool = False


def window_rules(join: JoinParts) -> list[WindowRule]:
    """Return the window's rules for each pair of streams whose tuples may be partners."""
    rules = join.window.rules(join.names)
    return [rule for rule in rules if rule.left_stream == 0] if join.row_kind.of_each else rules


def window_conditions(join: JoinParts, keys: list[list[Key]]) -> list[Condition]:
    """Return the window's rules as conditions: ``pos_i - pos_j <= W_j`` and ``pos_j - pos_i <= W_i`` for each pair."""
    conditions = []
    for rule in window_rules(join):
        sides = ((rule.left_stream, rule.left_column), (rule.right_stream, rule.right_column))
        numbers = [0 if column is None else key_number(keys[stream], Key(column, "int")) for stream, column in sides]
        text = f"window of {join.names[rule.left_stream]} and {join.names[rule.right_stream]}"
        conditions.append(
            Condition(rule.left_stream, rule.right_stream, numbers[0], numbers[1], "int", rule.lo, rule.hi, text)
        )
    return conditions


def tighter_times(conditions: Sequence[Condition], finders: Finders) -> list[Condition]:
    """Return what is known of the event times of two streams, where it is more than the conditions on them say."""
    known: dict[tuple[int, int], tuple[int | float, int | float]] = {}
    for condition in conditions:
        if condition.left_key == condition.right_key == 0:
            pair = (condition.left_stream, condition.right_stream)
            lo, hi = known.get(pair, (-math.inf, math.inf))
            known[pair] = (max(lo, condition.lo), min(hi, condition.hi))
    tighter, texts = dict(known), {}
    for moment in finders.times:
        pair = (min(moment.left_stream, moment.right_stream), max(moment.left_stream, moment.right_stream))
        lo, hi = tighter.get(pair, (-math.inf, math.inf))
        is_turned = moment.left_stream > moment.right_stream
        tighter[pair] = (max(lo, -moment.most_us), hi) if is_turned else (lo, min(hi, moment.most_us))
        texts[pair] = moment.text
    found = []
    for pair, (lo, hi) in tighter.items():
        if known.get(pair) != (lo, hi) and lo <= hi:
            lo, hi = max(lo, -(1 << 63)), min(hi, (1 << 63) - 1)
            found.append(Condition(*pair, 0, 0, "int", int(lo), int(hi), texts[pair]))
    return found


def key_number(keys: list[Key], key: Key) -> int:
    """Return the number of a key among those of its stream, to which it is added where it is none of them."""
    if key not in keys:
        keys.append(key)
    return keys.index(key)
