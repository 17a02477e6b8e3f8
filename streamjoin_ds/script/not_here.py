"""What SQL has and a join of streams has not, or not where it stands: what to say of it."""

from __future__ import annotations

__all__ = ["NOT_HERE"]

# What SQL has and a join has not: what to say, by the word with which it begins.
NOT_HERE = {
    "NATURAL": ("NATURAL JOIN is not possible", "name the columns: JOIN w ON e.id = w.id"),
    "LATERAL": ("LATERAL is not possible", "join streams by their names"),
    "USING": ("USING is not possible", "write ON e.id = w.id"),
    "HAVING": (
        "HAVING is not possible: each tuple of the first stream has its row",
        "filter the table when you read it: SELECT * FROM results WHERE n > 1; conditions on streams stand after WHERE",
    ),
    "QUALIFY": ("QUALIFY is not possible", "write the condition after WHERE"),
    "ORDER BY": (
        "ORDER BY is not possible: results of streams have no last row",
        "order the table when you read it; its punctuations say up to which event time it is complete",
    ),
    "SORT BY": ("SORT BY is not possible: results of streams have no last row", "order the table when you read it"),
    "LIMIT": ("LIMIT is not possible: results of streams have no last row", "limit the rows when you read the table"),
    "OFFSET": ("OFFSET is not possible: results of streams have no order", "pass over rows when you read the table"),
    "DISTINCT": ("DISTINCT is not possible", "each result is there once; its numbers tell rows apart"),
    "UNION": ("UNION is not possible", "write two INSERT statements, each with a table and a checkpoint of its own"),
    "EXCEPT": ("EXCEPT is not possible", "write the condition after WHERE"),
    "INTERSECT": ("INTERSECT is not possible", "write the condition after ON"),
    "CLUSTER BY": ("CLUSTER BY is not possible", "leave it out: the layout option says how tuples are dealt"),
    "DISTRIBUTE BY": ("DISTRIBUTE BY is not possible", "leave it out: the layout option says how tuples are dealt"),
    "TABLESAMPLE": ("TABLESAMPLE is not possible", "leave it out"),
    "WINDOW": (
        "WINDOW is not possible here",
        "bound the event times after ON, or write INSERT INTO table WITH (window = 'last 1000')",
    ),
    "VALUES": ("VALUES is not possible", "select from a join of streams"),
    "OVERWRITE": ("OVERWRITE is not possible: results are only ever added", "write INSERT INTO"),
    "NEAREST": ("NEAREST BY begins with EXACT or APPROX", "write EXACT NEAREST 1 BY DISTANCE abs(e.x - w.x)"),
    "MATCH_CONDITION": ("MATCH_CONDITION belongs to an ASOF JOIN", "write ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts)"),
}
