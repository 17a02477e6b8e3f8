"""Whatever the text, it is understood, or refused by an error of this package that points into it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.script.script import Script
from tests.support.examples import examples

TEXT = """CREATE STREAM e (ts TIMESTAMP, x DOUBLE, n BIGINT, s STRING) WITH (source = 'e.csv', delay = '3s');
CREATE STREAM w (ts TIMESTAMP, x DOUBLE, n BIGINT, s STRING) WITH (source = 'w.csv', where = 'x > 1', rate = 5e3);
SET cells = 2; SET spark.ui.enabled = false; SET trigger = 500ms;
INSERT INTO near WITH (checkpoint = 'c', window = '15s', pace = 2) SELECT e.ts AS t, w.*, n FROM e LEFT JOIN w AS v
ON abs(e.x - v.x) <= 0.1 AND e.n BETWEEN v.n - 1 AND v.n + 1 AND (e.s = v.s OR e.s IN ('a', "b") AND NOT v.s IS NULL)
AND e.ts BETWEEN v.ts - INTERVAL 15 SECONDS AND v.ts + INTERVAL '1' MINUTE WHERE e.x > -1.5e1 AND e.`n` <> 3;
EXPLAIN SELECT * FROM e, w WHERE e.ts = w.ts AND CASE WHEN e.n = 1 THEN w.n ELSE 3 END = 3"""
WORDS = re.findall(r"\s+|\w+|'[^']*'|[^\w\s]", TEXT)
EXTRA = [
    "(",
    ")",
    ";",
    ",",
    "'",
    '"',
    "`",
    "--",
    "/*",
    "*/",
    "JOIN",
    "SELECT",
    "AND",
    "OR",
    "INTERVAL",
    ".",
    "=",
    "\x00",
]

KINDS = ("drop", "twice", "put")
FAULT = st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from(KINDS), st.sampled_from(EXTRA))


def check(text: str) -> None:
    """Read a text; an error of another kind passes through."""
    refused: StreamJoinError | None = None
    try:
        for step in Script(text).steps:
            if not step.asked.needs_catalog:
                step.asked.joined()
    except StreamJoinError as error:
        refused = error
    assert refused is None or re.search(r"line \d+, column \d+: .*\^", str(refused), re.DOTALL), refused


@given(st.lists(FAULT, min_size=1, max_size=4))
@examples(60)
def test_a_text_with_faults_is_refused_by_name(faults: list[tuple[int, str, str]]) -> None:
    words = list(WORDS)
    for place, kind, word in faults:
        words[place] = {"drop": "", "twice": words[place] * 2, "put": f"{words[place]} {word} "}[kind]
    check("".join(words))


@given(st.text(max_size=60))
@examples(40)
def test_no_text_is_refused_in_another_way(text: str) -> None:
    check(text)
    check(TEXT + text)
    check(f"SELECT * FROM e JOIN w ON {text}")
