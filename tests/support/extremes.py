"""Rows of extremes, and an expression for each function and type, for tests beside Spark and DuckDB."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

UTC = timezone.utc
_OF = {
    "i": (pa.int32(), [0, 1, -1, 7, -(2**31), 2**31 - 1, 12345]),
    "j": (pa.int64(), [0, 1, -1, 3, -(2**63), 2**63 - 1, 2**53 + 1, -250]),
    "x": (
        pa.float64(),
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 2.675, 1e300, -1e300, 1e-300, math.nan, math.inf, -math.inf, 9e18],
    ),
    "y": (pa.float64(), [0.0, 1.0, -1.0, 2.0, 0.1, math.nan, math.inf, -math.inf, 1234567.891, 1e21, 123456789012.5]),
    "d": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (0, 1, -1, 50, 150, 250, -250, 2115, 99999999, -99999999)]),
    "s": (
        pa.string(),
        [
            "",
            "a",
            "it's",
            "Stra\u00dfe",
            "\u00c4\u00d6\u00fc",
            "\u039f\u0394\u039f\u03a3",
            "100%",
            "a_b",
            "\U0001f986x",
            "A\nB",
            "a\\b",
        ],
    ),
    "n": (
        pa.string(),
        [
            "",
            "12",
            " 12 ",
            "-7",
            "+7",
            "1.5",
            "1e3",
            "abc",
            "NaN",
            "Infinity",
            "-inf",
            "9223372036854775808",
            "128",
            ".5",
            "5.",
            "true",
            "F",
            "yes",
            "1",
            "0",
            "2024-02-29",
            "2024-2-9",
            "2024-02-30",
            "2024",
            "2024-02",
            "0001-01-01",
            "9999-12-31",
            "2024-02-29 12:34:56.789",
            "2024-02-29T01:02:03Z",
            "2024-02-29 12:34:56+05:30",
            "2024-02-29 25:00:00",
            "2024-02-29 1:2:3",
        ],
    ),
    "b": (pa.bool_(), [True, False]),
    "t": (
        pa.timestamp("us", tz="UTC"),
        [
            datetime(*of, tzinfo=UTC)
            for of in (
                (1970, 1, 1),
                (1969, 12, 31, 23, 59, 59, 999999),
                (2024, 2, 29, 12, 34, 56, 789000),
                (1, 1, 1),
                (9999, 12, 31, 23, 59, 59),
                (2000, 12, 31),
                (2021, 1, 3, 5),
                (2020, 12, 28),
                (1582, 10, 15),
            )
        ],
    ),
    "u": (
        pa.timestamp("us", tz="UTC"),
        [datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(1999, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
    "day": (pa.date32(), [date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(2021, 1, 3)]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _OF.items()])

# What means the same to Spark (`CAST` is `try_cast` there).
EXPRESSIONS = [
    "abs(x)",
    "abs(d)",
    "sqrt(x)",
    "sqrt(i)",
    "power(x, y)",
    "pow(i, 2)",
    "exp(y)",
    "exp(-x)",
    "ln(x)",
    "ln(j)",
    "sin(y)",
    "cos(y)",
    "tan(y)",
    "atan2(x, y)",
    "atan2(y, x)",
    "radians(y)",
    "degrees(y)",
    "floor(d)",
    "ceil(d)",
    "ceiling(i)",
    "floor(j)",
    "floor(y)",
    "ceil(x / 3)",
    "round(x)",
    "round(x, 2)",
    "round(y, 1)",
    "round(y, -3)",
    "round(d, 1)",
    "round(d)",
    "round(i, 2)",
    "round(d, -1)",
    "greatest(x, y)",
    "least(x, y)",
    "greatest(i, j, 5)",
    "least(i, d)",
    "greatest(s, n)",
    "least(t, u)",
    "greatest(i, x)",
    "coalesce(x, y, 0)",
    "coalesce(i, d, 1)",
    "coalesce(s, n, '-')",
    "coalesce(t, u)",
    "coalesce(NULL, i)",
    "nullif(i, 1)",
    "nullif(s, 'a')",
    "nullif(d, i)",
    "CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END",
    "CASE i WHEN 1 THEN x ELSE d END",
    "CASE WHEN b THEN i ELSE NULL END",
    "CASE WHEN i = NULL THEN 1 ELSE 2 END",
    "if(b, s, n)",
    "nvl(i, 7)",
    "ifnull(b, FALSE)",
    "s LIKE 'a%'",
    "s LIKE '%'",
    "s LIKE '_'",
    "s LIKE '100!%' ESCAPE '!'",
    "s LIKE '%B'",
    "s NOT LIKE '%_b'",
    "s LIKE n",
    "s LIKE s ESCAPE '!'",
    "s RLIKE '^[a-z]'",
    "s NOT RLIKE 'b$'",
    "regexp_extract(s, '([a-z])_([a-z])', 2)",
    "regexp_extract(s, '([a-z])_([a-z])')",
    "regexp_extract(s, '[A-Za-z]+', 0)",
    "length(s)",
    "char_length(n)",
    "trim(n)",
    "ltrim(n)",
    "rtrim(n)",
    "replace(s, 'a', 'xy')",
    "replace(n, '1')",
    "replace(s, s, n)",
    "lpad(s, 3, 'xy')",
    "rpad(s, 3)",
    "split_part(n, '-', 2)",
    "split_part(n, '-', -1)",
    "split_part(s, '', 1)",
    "hex(s)",
    "hex(j)",
    "unhex(n)",
    "make_timestamp(2024, 2, 29, 23, 59, 59.999999)",
    "to_timestamp(i)",
    "to_timestamp(d)",
    "upper(s)",
    "lower(s)",
    "substr(s, 2)",
    "substr(s, 0, 2)",
    "substr(s, -2)",
    "substr(s, -5, 4)",
    "substring(s, 2, 0)",
    "substr(s, i, 2)",
    "substr(s, 1, -1)",
    "concat(s, n)",
    "concat(s, '-', n, s)",
    "s || n || 'x'",
    *(
        f"date_trunc('{unit}', t)"
        for unit in ("YEAR", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
    ),
    "date_trunc('month', day)",
    *(
        f"extract({field} FROM t)"
        for field in ("YEAR", "quarter", "month", "week", "day", "dayofweek", "doy", "hour", "minute", "second")
    ),
    "extract(year FROM day)",
    "extract(doy FROM day)",
    "extract(hour FROM t - u)",
    "extract(second FROM t - u)",
    "extract(day FROM t - u)",
    *(
        f"CAST(j AS {kind})"
        for kind in (
            "TINYINT",
            "INT",
            "BIGINT",
            "DOUBLE",
            "FLOAT",
            "DECIMAL(20, 1)",
            "DECIMAL(5, 2)",
            "STRING",
            "BOOLEAN",
        )
    ),
    *(f"CAST(x AS {kind})" for kind in ("TINYINT", "INT", "BIGINT", "FLOAT", "DECIMAL(10, 2)", "STRING", "BOOLEAN")),
    *(f"CAST(y AS {kind})" for kind in ("INT", "BIGINT", "DECIMAL(38, 3)", "STRING")),
    *(
        f"CAST(d AS {kind})"
        for kind in ("SMALLINT", "INT", "DOUBLE", "FLOAT", "DECIMAL(4, 1)", "DECIMAL(30, 10)", "STRING", "BOOLEAN")
    ),
    *(
        f"CAST(n AS {kind})"
        for kind in ("TINYINT", "INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(10, 1)", "BOOLEAN", "DATE", "TIMESTAMP")
    ),
    *(f"try_cast(n AS {kind})" for kind in ("INT", "DATE")),
    *(f"CAST(b AS {kind})" for kind in ("INT", "DOUBLE", "DECIMAL(3, 1)", "STRING")),
    *(f"CAST(t AS {kind})" for kind in ("DATE", "STRING", "BIGINT", "DOUBLE", "DECIMAL(20, 3)")),
    *(f"CAST(day AS {kind})" for kind in ("TIMESTAMP", "STRING")),
    "i + j / 2",
    "d * 2 - 1.5",
    "d - y",
    "x % 0.7",
    "t - INTERVAL 3 SECONDS",
    "power(d - 3, 2) + round(d * 2, 1)",
]


def table() -> pa.Table:
    """Return rows in which each column's extremes meet many of the others', and nulls."""
    longest = max(len(values) for _, values in _OF.values())
    columns = {}
    for place, (name, (kind, values)) in enumerate(_OF.items()):
        turned = [*values, None]
        columns[name] = pa.array(
            [turned[(row * (place * 2 + 1) + row // len(turned)) % len(turned)] for row in range(12 * longest)], kind
        )
    return pa.table(columns, schema=SCHEMA)
