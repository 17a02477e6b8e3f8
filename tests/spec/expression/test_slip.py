"""A slip is shown at its place, with what is valid there; what is told, mended, is read."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Join, Stream
from streamjoin_ds.errors import ArgumentError, PredicateSyntaxError, WindowError
from streamjoin_ds.spec.expression.parser import UNDERSTOOD, parse_predicates
from streamjoin_ds.spec.expression.slip import shown_at
from streamjoin_ds.spec.window import TimeWindow
from tests.support.examples import examples

# A text, what is underlined in it, the beginning of the hint, and the text that follows the hint.
SLIPS = [
    ("k.d BETWEN n.d - 1 AND n.d + 1", "BETWEN", "did you mean BETWEEN?", "k.d BETWEEN n.d - 1 AND n.d + 1"),
    ("k.d = n.d AD k.x = n.x", "AD", "did you mean AND?", "k.d = n.d AND k.x = n.x"),
    ("k.d = n.d & k.x = n.x", "&", "write AND", "k.d = n.d AND k.x = n.x"),
    ("k.d = n.d && k.x = n.x", "&&", "write AND", "k.d = n.d AND k.x = n.x"),
    ("abs(k.d - n.d) =< 10", "=<", "write <=", "abs(k.d - n.d) <= 10"),
    ("abs(d - n.d) <= 10", "d", "did you mean k.d?", "abs(k.d - n.d) <= 10"),
    ("|k.d - d| <= 10", "d", "did you mean n.d?", "|k.d - n.d| <= 10"),
    ("k.x = n.x AND abs(k.d - `a b`) < 3", "", "write it with its stream", "k.x = n.x AND abs(k.d - n.`a b`) < 3"),
    ("abs(k.d - n.d <= 10", "(", "put a )", "abs(k.d - n.d) <= 10"),
    ("k.d = n.d)", ")", "leave it out", "k.d = n.d"),
    ("k.name = n.name AND k.name <> 'a", "'", "close it with '", "k.name = n.name AND k.name <> 'a'"),
    ("k.d = n.d AND", "", "a condition stands there", "k.d = n.d AND k.x = n.x"),
    ("k.d = n.d k.x = n.x", "k", "an operator stands there", "k.d = n.d AND k.x = n.x"),
    ("k.d = = n.d", "=", "a column such as", "k.d = n.d"),
    ("k.d = n.d\n  AND k.x == = n.x", "=", "a column such as", "k.d = n.d AND k.x = n.x"),
]


@pytest.mark.parametrize(("text", "underlined", "hint", "mended"), SLIPS)
def test_a_slip_is_shown_at_its_place(text: str, underlined: str, hint: str, mended: str) -> None:
    with pytest.raises(PredicateSyntaxError) as caught:
        parse_predicates(text, ["k", "n"])
    assert caught.value.hint.startswith(hint)
    assert parse_predicates(mended)
    if underlined:
        _, line, carets = caught.value.hint.split("\n")
        begin = carets.index("^")
        assert line[begin : begin + carets.count("^")] == underlined
        assert line.strip() in text
        assert UNDERSTOOD not in caught.value.hint


@examples(60)
@given(st.text(st.characters(exclude_categories=["C"], exclude_characters="\u2028\u2029\x85"), max_size=300), st.data())
def test_what_is_underlined_is_what_was_meant(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    _, line, carets = shown_at(text, begin, begin + 1).split("\n")
    assert len(line) <= 120
    assert carets.strip() == "^"
    if begin < len(text) and text[begin].isprintable():
        assert line[carets.index("^")] == text[begin]


@pytest.mark.parametrize("word", ["AND", "BETWEEN", "IS", "LIKE"])
def test_any_text_is_read_or_refused_by_name(word: str) -> None:
    for cut in range(1, 30):
        text = f"k.d {word} n.d - 1 AND (n.d + 'x') <= |k.x|"[:cut]
        with contextlib.suppress(PredicateSyntaxError):
            parse_predicates(text, ["k", "n"])


def joined(on: object, **window: str) -> Join:
    return Join([Stream("k"), Stream("n")], on, **window)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "on",
    [
        "abs(k.d - n.d) <= 1 WITHIN 15 MINUTES",
        "abs(k.d - n.d) <= 1 within 900s",
        ["abs(k.d - n.d) <= 1", "k.x = n.x WITHIN INTERVAL '15' MINUTES"],
        "abs(k.d - n.d) <= 1 AND k.name <> ' WITHIN ' WITHIN 15m",
    ],
)
def test_a_condition_may_end_with_the_window(on: object) -> None:
    assert joined(on).window == TimeWindow.of("15m", ["k", "n"])
    assert joined(on, window="15m").window == TimeWindow.of("15m", ["k", "n"])
    with pytest.raises(WindowError, match="another window"):
        joined(on, window="10m")


def test_a_window_that_is_none_is_refused() -> None:
    with pytest.raises(ArgumentError, match="not followed by a duration"):
        joined("abs(k.d - n.d) <= 1 WITHIN AN HOUR")
    with pytest.raises(ArgumentError, match="WITHIN"):
        joined("abs(k.d - n.d) <= 1 WITHIN 15 APPLES")
    with pytest.raises(WindowError, match="two conditions"):
        joined(["abs(k.d - n.d) <= 1 WITHIN 1m", "k.x = n.x WITHIN 1m"])
    with pytest.raises(PredicateSyntaxError, match="WITHIN stands at the end"):
        parse_predicates("abs(k.d - n.d) <= 1 WITHIN 15 MINUTES AND k.x = n.x")
