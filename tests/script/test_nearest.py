"""ASOF JOIN and NEAREST BY: the rows that DuckDB gives over static tables, or a refusal where it stands."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.spec import Nearest
from tests.script.test_queries import NEAR, asked, duck, ours, plain

_RANKED = r"(SELECT .*) FROM e (LEFT )?JOIN w \w+ NEAREST (\d*) ?BY (\w+) (.*?) ON (.*?)( WHERE .*)?"
_MATCHED = r"(SELECT .*) FROM e (LEFT |INNER )?ASOF JOIN w MATCH_CONDITION \((.*)\) ON (.*?)( WHERE .*)?"


def theirs(text: str) -> Counter[tuple[Any, ...]]:
    """Return DuckDB's rows: all partners, of which a window function leaves the nearest."""
    found = re.fullmatch(_RANKED, text)
    if found is not None:
        items, left, k, kind, distance, condition, where = found.groups(default="")
    else:
        matched = re.fullmatch(_MATCHED, text)
        assert matched is not None, text
        items, left, match, condition, where = matched.groups(default="")
        one, _, other = match.split()
        k, kind, condition = "1", "DISTANCE", f"{condition} AND {match}"
        distance = f"abs({one.strip()} - {other.strip()})"
        distance = distance if "ts" not in match else f"abs(epoch_us({one}) - epoch_us({other}))"
    order = f"{distance} {'DESC' if kind == 'SIMILARITY' else ''}"
    ranked = f"row_number() OVER (PARTITION BY e.rowid ORDER BY {order}, w.ts) <= {k or 1}"
    joined = f"FROM e {'LEFT ' if left == 'LEFT ' else ''}JOIN w ON ({condition}) AND ({distance}) IS NOT NULL"
    return Counter(
        tuple(map(plain, row)) for row in duck().execute(f"{items} {joined}{where} QUALIFY {ranked}").fetchall()
    )


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT e.ts, w.ts AS other, e.n FROM e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON e.n = w.n AND {NEAR}",
        "SELECT e.ts, w.ts AS o FROM e ASOF JOIN w MATCH_CONDITION (e.ts > w.ts) ON e.ts <= w.ts + INTERVAL 9 SECONDS",
        f"SELECT e.ts, w.x FROM e LEFT ASOF JOIN w MATCH_CONDITION (w.ts >= e.ts) ON e.n = w.n AND {NEAR} WHERE e.x>1",
        f"SELECT e.ts, w.x FROM e INNER ASOF JOIN w MATCH_CONDITION (e.x <= w.x) ON e.s <> w.s AND {NEAR}",
        f"SELECT e.ts, w.ts AS o FROM e JOIN w EXACT NEAREST 3 BY DISTANCE abs(e.x - w.x) ON e.s <> w.s AND {NEAR}",
        f"SELECT e.ts, w.n FROM e LEFT JOIN w APPROX NEAREST BY SIMILARITY e.x * w.x - w.n ON e.n >= w.n AND {NEAR}",
        f"SELECT e.ts, w.ts AS o FROM e LEFT JOIN w EXACT NEAREST 2 BY DISTANCE w.n ON {NEAR} AND w.x > 1 WHERE e.n>2",
    ],
)
def test_a_text_gives_the_rows_of_duckdb(text: str) -> None:
    expected = theirs(text)
    assert len(expected) > 3
    assert ours(text) == expected


def test_an_as_of_join_is_duckdbs() -> None:
    """DuckDB's own words know of no limit: the latest earlier one is the partner, or none within the limit is."""
    text = (
        "SELECT e.ts, w.ts AS other FROM e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON e.n = w.n "
        "AND e.ts <= w.ts + INTERVAL 4 SECONDS"
    )
    duckdbs = (
        "SELECT e.ts, w.ts AS other FROM e ASOF JOIN w ON e.n = w.n AND e.ts >= w.ts "
        "WHERE e.ts <= w.ts + INTERVAL 4 SECONDS"
    )
    expected = Counter(tuple(map(plain, row)) for row in duck().execute(duckdbs).fetchall())
    assert len(expected) > 5
    assert ours(text) == expected


def test_a_match_condition_on_event_times_is_a_side_of_the_window() -> None:
    join = asked(f"SELECT * FROM e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON {NEAR}").request.join
    assert [join.window.extent(stream) for stream in (0, 1)] == [0, 5_000_000]
    assert join.nearest == Nearest(by="abs(e.ts - w.ts)")


BOTH = f"e.n = w.n AND {NEAR}"


@pytest.mark.parametrize(
    ("query", "at", "says"),
    [
        ("ASOF JOIN w ON e.n = w.n", "ON", "valid here is MATCH_CONDITION"),
        ("RIGHT ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON " + BOTH, "RIGHT", "write ASOF JOIN or LEFT ASOF JOIN"),
        ("CROSS ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON " + BOTH, "CROSS", "write ASOF JOIN or LEFT ASOF JOIN"),
        ("ASOF JOIN w MATCH_CONDITION (e.ts = w.ts) ON " + BOTH, "MATCH", "is one comparison by"),
        ("ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts AND e.x > w.x) ON " + BOTH, "MATCH", "is one comparison by"),
        ("ASOF JOIN w MATCH_CONDITION (e.ts >= e.ts) ON " + BOTH, "MATCH", "is one comparison by"),
        ("ASOF JOIN w MATCH_CONDITION (e.s >= w.s) ON " + BOTH, "e.s", "calculates string - string"),
        ("ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON e.n = w.n", "w MATCH", "nothing bounds how much later"),
        ("ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON " + BOTH + " WHERE w.x > 1", "w.x > 1", "other than e"),
        ("JOIN w MATCH_CONDITION (e.ts >= w.ts) ON " + BOTH, "MATCH", "belongs to an ASOF JOIN"),
        ("JOIN w NEAREST 2 BY DISTANCE abs(e.x - w.x) ON " + BOTH, "NEAREST", "begins with EXACT or APPROX"),
        ("JOIN w EXACT NEAREST x BY DISTANCE e.x ON " + BOTH, "x BY", "a whole number"),
        ("JOIN w EXACT NEAREST 0 BY DISTANCE e.x ON " + BOTH, "EXACT", "from 1 to 100000"),
        ("JOIN w EXACT NEAREST 2 BY e.x ON " + BOTH, "e.x", "DISTANCE or SIMILARITY"),
        ("JOIN w EXACT NEAREST 2 BY DISTANCE e.x < w.x ON " + BOTH, "EXACT", "of type boolean"),
        ("JOIN w EXACT NEAREST 2 BY DISTANCE e.q - w.x ON " + BOTH, "e.q", "no column 'q'"),
        ("JOIN w EXACT NEAREST 2 BY SIMILARITY e.s ON " + BOTH, "e.s", "needs a number"),
        ("JOIN w ON " + BOTH + " EXACT NEAREST 2 BY DISTANCE e.x", "EXACT", "write it before ON"),
        ("SEMI JOIN w EXACT NEAREST 2 BY DISTANCE e.x ON " + BOTH, "EXACT", "how=semi has no nearest partners"),
        ("JOIN w EXACT NEAREST 2 BY DISTANCE e.x ON " + BOTH + " JOIN v ON e.n = v.n", "EXACT", "needs two streams"),
    ],
)
def test_what_has_no_meaning_is_refused_where_it_stands(query: str, at: str, says: str) -> None:
    text = f"SELECT e.ts FROM e {query}"
    with pytest.raises(StreamJoinError) as caught:
        asked(text)
    assert says in str(caught.value)
    column = int(re.findall(r"column (\d+):", str(caught.value))[0])
    head = len(asked_text("")) - 1
    assert asked_text(text)[column - 1 :].startswith(at), asked_text(text)[column - 1 :][:20]
    assert column > head


def asked_text(text: str) -> str:
    from tests.script.test_queries import STREAMS

    return STREAMS + text


def test_a_stream_may_be_named_exact() -> None:
    text = f"SELECT e.ts FROM e JOIN w exact ON e.n = exact.n AND {NEAR.replace('w.', 'exact.')}"
    assert asked(text).request.join.names == ("e", "exact")


def test_the_option_is_written_in_sqls_words() -> None:
    with pytest.raises(StreamJoinError, match="write ASOF JOIN"):
        asked(f"INSERT INTO t WITH (nearest = 1) SELECT e.ts FROM e JOIN w ON {BOTH}")
