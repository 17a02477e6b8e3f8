"""GROUP BY and aggregates: a text gives the rows that DuckDB gives over tables, or is refused where it stands."""

from __future__ import annotations

import re

import pytest

from streamjoin_ds.errors import StreamJoinError
from tests.script.test_queries import NEAR, STREAMS, asked, ours, theirs

ON = f"FROM e JOIN w ON abs(e.x - w.x) <= 1 AND {NEAR}"
LEFT = ON.replace("JOIN", "LEFT JOIN")
RIGHT = ON.replace("JOIN", "RIGHT JOIN")


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT e.ts, count(*) AS n, sum(w.n) AS total, max(w.s) AS most {ON} GROUP BY e.ts",
        f"SELECT e.ts, e.n, min(abs(e.x - w.x)) AS gap, avg(w.x) AS mean_x, count(w.s) AS k {ON} GROUP BY e.ts, e.n",
        f"SELECT e.n, count(w.ts) AS k, max(e.x * w.x) AS own, e.ts, sum(w.n * 2) AS t {LEFT} AND e.s <> 'b' "
        "GROUP BY e.ts, e.n",
        f"SELECT E.ts, max(w.day) AS d, AVG(w.n - e.n) AS m {ON} WHERE w.s <> 'a' AND e.n > 1 GROUP BY e.TS",
        f"SELECT e.ts, min(w.ts) AS first_ts, arg_min(w.ts, w.ts) AS by_ts {LEFT} WHERE e.x > 1 GROUP BY e.ts",
    ],
)  # fmt: skip
def test_a_text_gives_the_rows_of_duckdb(text: str) -> None:
    expected = theirs(text)
    assert len(expected) > 3
    assert ours(text) == expected


def test_the_number_of_a_tuple_groups_by_it_and_all_its_columns_may_be_selected() -> None:
    for group in ("e.seq", "e_seq", "e.ts, e.seq", "SEQ"):
        join = asked(f"SELECT e.*, quantile(w.x, 0.5) AS q {LEFT} GROUP BY {group}").request.join
        assert join.select == ("e.*",)
        assert {one.name: str(one) for one in join.reduce} == {"q": "quantile(w.x, 0.5)"}
        assert join.how == "left"


def test_aggregates_may_stand_alone() -> None:
    join = asked(f"SELECT count(*) AS n {ON} GROUP BY e.seq").request.join
    assert join.select == ()
    assert ours(f"SELECT count(*) AS n {ON} GROUP BY e.seq").total() == len(
        theirs(f"SELECT e.ts, count(*) AS n {ON} GROUP BY e.ts")
    )


def test_a_column_of_that_name_is_that_column() -> None:
    streams = "".join(f"CREATE STREAM {name} (ts TIMESTAMP, seq INT) WITH (source = '{name}');" for name in "ew")
    on = "FROM e JOIN w ON e.ts = w.ts GROUP BY"
    assert asked(f"SELECT e.seq AS s, count(*) AS n {on} e.ts, e.seq", streams).request.join.select == (
        "e.`seq` AS `s`",
    )
    with pytest.raises(StreamJoinError, match=r"e\.ts is selected, but rows are not grouped by it"):
        asked(f"SELECT e.ts, count(*) AS n {on} e.seq", streams)
    with pytest.raises(StreamJoinError, match=r"a group of several tuples of e.*name e\.ts there too"):
        asked(f"SELECT e.seq, count(*) AS n {on} e.seq", streams)


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        (f"SELECT e.ts, count(*) AS n {ON}", "count(*)", "an aggregate needs GROUP BY"),
        (f"SELECT e.ts {ON} GROUP BY e.ts", "GROUP BY", "write LEFT SEMI JOIN"),
        (f"SELECT e.s, count(*) AS n {ON} GROUP BY e.s", "GROUP BY", "write GROUP BY e.seq"),
        (f"SELECT median(w.x) AS m {ON} GROUP BY e.seq", "median(w.x)", "write quantile(x, 0.5)"),
        (f"SELECT e.ts, count(*) {ON} GROUP BY e.ts", "FROM", "valid here is AS and a name"),
        (f"SELECT e.ts, e.n, count(*) AS n {ON} GROUP BY e.ts", "e.n,", "e.n is selected, but rows are not grouped"),
        (f"SELECT e.*, count(*) AS n {ON} GROUP BY e.ts", "e.*", "GROUP BY e.seq"),
        (f"SELECT e.n + 1 AS m, count(*) AS n {ON} GROUP BY e.n", "e.n + 1", "GROUP BY e.seq"),
        (f"SELECT *, count(*) AS n {ON} GROUP BY e.seq", "*,", "select the columns of e"),
        (f"SELECT w.ts, count(*) AS n {ON} GROUP BY e.seq", "w.ts", "a row of reduce has a tuple of e alone"),
        (f"SELECT count(*) AS n {ON} GROUP BY w.ts", "w.ts", "names a column of w"),
        (f"SELECT count(*) AS n {ON} GROUP BY w.seq", "w.seq", "names a column of w"),
        (f"SELECT count(*) AS n {ON} GROUP BY ALL", "ALL", "GROUP BY ALL is not possible"),
        (f"SELECT count(*) AS n {ON} GROUP BY 1", "1", "valid here is a column of the first stream"),
        (f"SELECT count(*) AS n {ON} GROUP BY e.seq HAVING n > 1", "HAVING", "filter the table when you read it"),
        (f"SELECT count(*) AS n {LEFT} GROUP BY e.seq", "count(*)", "count(w.ts) counts partners"),
        (f"SELECT max(e.x) AS m {LEFT} GROUP BY e.seq", "max(e.x)", "also over the row of a tuple that has no"),
        (f"SELECT sum(w.s) AS m {ON} GROUP BY e.seq", "sum(w.s)", "which are no numbers"),
        (f"SELECT count(DISTINCT w.s) AS m {ON} GROUP BY e.seq", "count(DISTINCT", "DISTINCT is not possible"),
        (f"SELECT sum(w.n, 2) AS m {ON} GROUP BY e.seq", "sum(w.n, 2)", "takes one expression"),
        (f"SELECT sum(v.n) AS m {ON} GROUP BY e.seq", "v.n", "'v' is not a stream of this query"),
        (f"SELECT sum(w.n) OVER (x) AS m {ON} GROUP BY e.seq", "OVER", "OVER is not possible here"),
        (f"SELECT sum(w.n AS m {ON} GROUP BY e.seq", "", "valid here is )"),
        (f"SELECT count(w.n) AS m {RIGHT} GROUP BY e.seq", "RIGHT JOIN", "not possible with reduce"),
        (f"SELECT count(*) AS n {ON} JOIN v ON v.ts = e.ts GROUP BY e.seq", "GROUP BY", "reduce needs two streams"),
        (
            "INSERT INTO t WITH (window = 'last 3') SELECT count(*) AS n FROM e JOIN w ON e.x = w.x GROUP BY e.seq",
            "GROUP BY",
            "reduce needs a time window",
        ),
        (f"SET reduce = 'n=count(*)'; SELECT e.ts {ON}", "reduce", "reduce is no option here"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_refused_where_it_stands(text: str, at: str, says: str) -> None:
    with pytest.raises(StreamJoinError) as caught:
        asked(text, f"{STREAMS}\n")
    error = caught.value
    assert says in str(error), str(error)
    column = int(re.findall(r"column (\d+):", str(error))[0])
    assert text[column - 1 :].startswith(at) if at else column == len(text) + 1
