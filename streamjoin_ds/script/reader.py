"""The reader of a text's statements, word by word.

::

    CREATE {STREAM | TABLE} name [(column [TYPE] [AS expression], ...)] [WITH (option = value, ...)]
    CREATE VIEW name AS SELECT * | column [AS name] | expression AS name, ... FROM stream [alias] [WHERE condition]
    SET option = value
    [EXPLAIN] INSERT INTO table [WITH (option = value, ...)] query
    [EXPLAIN] query

    query:  SELECT * | stream.* | stream.column [AS name] | expression AS name | aggregate(...) AS name, ...
            FROM stream [alias] {[INNER | LEFT | RIGHT | FULL | SEMI | ANTI | CROSS] JOIN stream [alias] [ON condition]}
            [WHERE condition] [GROUP BY column, ...]

    of two streams also:
            FROM stream [alias] [INNER | LEFT] ASOF JOIN stream [alias] MATCH_CONDITION (one >= other) [ON condition]
            FROM stream [alias] [INNER | LEFT] JOIN stream [alias] EXACT NEAREST [k] BY DISTANCE value [ON condition]

Types of columns have Spark SQL's names, and become the Arrow types that Spark itself would give. `NOT_HERE` has what
SQL has and a join of streams has not, and what to say of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

import pyarrow as pa
from msgspec.structs import replace

from streamjoin_ds.script.select_list import grouped_columns, select_item
from streamjoin_ds.script.sql_text import Cursor, Span, SqlText, Token
from streamjoin_ds.script.statements import Explained, Input, Option, Query, Ranking, Statement, StreamStatement, Value
from streamjoin_ds.spec.columns import MOST_PRECISION
from streamjoin_ds.spec.expression.predicate import quoted_name

__all__ = ["NOT_HERE", "TYPES", "AnyStatement", "column_type", "statements"]

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

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")

TYPES = (
    "a type: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(10, 2), STRING, BINARY, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY<INT>, STRUCT<a: INT, b: STRING>"
)
AnyStatement = StreamStatement | Option | Statement | Explained
_STATEMENTS = "CREATE STREAM, CREATE TABLE, CREATE VIEW, SET, INSERT INTO, SELECT or EXPLAIN"
_VALUE = "a value: 'text', a number, TRUE or FALSE"
_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL", "ASOF", "LATERAL")
# Words of a condition after which an operand follows.
_GOES_ON = ("AND", "OR", "NOT", "IS", "BETWEEN", "IN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "INTERVAL")
_AFTER_QUERY = "JOIN, WHERE, GROUP BY, or ; and the next statement"


def column_type(cursor: Cursor) -> pa.DataType:
    """Read a type.

    Raises
    ------
    SqlSyntaxError
        There is none that a stream's column can have.
    """
    token = cursor.next
    if token is None:
        cursor.refuse(TYPES)
    if token.word in _PLAIN:
        cursor.take()
        return _PLAIN[token.word]
    if token.word in _DECIMAL:
        cursor.take()
        return _decimal(cursor)
    if token.word == "ARRAY":
        cursor.take()
        cursor.expect("<")
        item = column_type(cursor)
        cursor.expect(">")
        return pa.list_(item)
    if token.word == "STRUCT":
        cursor.take()
        return _struct(cursor)
    cursor.refuse(TYPES)


def _decimal(cursor: Cursor) -> pa.DataType:
    precision, scale = 10, 0  # Spark's defaults
    if cursor.took("("):
        at = cursor.span
        precision = cursor.whole_number()
        scale = cursor.whole_number() if cursor.took(",") else 0
        cursor.expect(")")
        if not 1 <= precision <= MOST_PRECISION or scale > precision:
            why = "no decimal has this precision and scale"
            raise cursor.text.refused(at, why, f"DECIMAL(precision, scale), of at most {MOST_PRECISION} digits")
    return pa.decimal128(precision, scale)


def _struct(cursor: Cursor) -> pa.DataType:
    cursor.expect("<")
    fields = []
    while True:
        name = cursor.name("a field's name")
        cursor.took(":")
        fields.append(pa.field(name.value, column_type(cursor)))
        if not cursor.took(","):
            break
    cursor.expect(">")
    return pa.struct(fields)


def statements(text: SqlText) -> list[AnyStatement]:
    """Return the statements of a text.

    The options of SET are in each statement of a query that follows them; an option of its WITH wins.

    Raises
    ------
    SqlSyntaxError
        The text is not understood; the error says where, and what is valid there.
    """
    return _Reader(text).statements()


class _Reader:
    def __init__(self, text: SqlText) -> None:
        self._text = text
        self._cursor = Cursor(text)
        self._set: dict[str, Option] = {}
        self._created: dict[str, StreamStatement] = {}

    def statements(self) -> list[AnyStatement]:
        found: list[AnyStatement] = []
        while self._cursor.next is not None:
            if self._cursor.took(";"):
                continue
            found.append(self._statement())
            if self._cursor.next is not None and self._cursor.word != ";":
                self._not_here(_AFTER_QUERY if isinstance(found[-1], (Statement, Explained)) else ";")
        return found

    def _statement(self) -> AnyStatement:
        cursor = self._cursor
        if cursor.word == "CREATE":
            made = self._view() if cursor.after() == "VIEW" else self._stream()
            self._created.setdefault(made.name.casefold(), made)
            return made
        if cursor.word == "SET":
            option = self._setting()
            self._set[option.name] = option
            return option
        if cursor.took("EXPLAIN"):
            if cursor.word not in ("INSERT", "SELECT"):
                cursor.refuse("INSERT INTO or SELECT")
            return Explained(self._asked())
        if cursor.word in ("INSERT", "SELECT"):
            return self._asked()
        if cursor.word == "WITH":
            cursor.refuse(f"{_STATEMENTS}; a query has no tables of its own, so join streams by their names")
        cursor.refuse(_STATEMENTS)

    # CREATE and SET

    def _stream(self) -> StreamStatement:
        cursor = self._cursor
        cursor.expect("CREATE")
        is_table = cursor.took("TABLE")
        if not is_table:
            cursor.expect("STREAM", "STREAM, TABLE or VIEW")
        name = cursor.name(f"the {'table' if is_table else 'stream'}'s name")
        columns, computed = self._columns(name.value) if cursor.word == "(" else (None, {})
        if computed and is_table:
            why = f"the table {name.value} has a computed column"
            raise self._text.refused(name.span, why, "compute it of a stream, or in the condition", name.value)
        options: dict[str, Option] = {}
        if cursor.took("WITH"):
            options = self._options()
        elif cursor.next is not None and cursor.word != ";":
            cursor.refuse(("(, " if columns is None else "") + "WITH or ;")
        return StreamStatement(name.value, columns, options, name.span, is_table, computed)

    def _view(self) -> StreamStatement:
        """Read a view of one stream: its columns and its conditions are added to the stream's."""
        cursor = self._cursor
        cursor.expect("CREATE")
        cursor.expect("VIEW")
        name = cursor.name("the view's name")
        cursor.expect("AS")
        cursor.expect("SELECT")
        items = [select_item(self._text, cursor)]
        while cursor.took(","):
            items.append(select_item(self._text, cursor))
        cursor.expect("FROM", ", or FROM")
        one = cursor.name("a stream")
        made = self._created.get(one.value.casefold())
        if made is None or made.is_table:
            hint = f"write CREATE STREAM {one.value} WITH (source = ...) before it"
            raise self._text.refused(one.span, f"'{one.value}' is no stream that was created before", hint, one.value)
        cursor.took("AS")
        is_named = cursor.next is not None and cursor.next.is_name and cursor.word != "WHERE"
        names = {made.name.casefold(), one.value.casefold(), *({cursor.take().value.casefold()} if is_named else ())}
        where = (self._value_text(self._condition(), names),) if cursor.took("WHERE") else ()
        if cursor.next is not None and cursor.word != ";":
            self._not_here("WHERE or ;")
        computed = dict(made.computed)
        shown: list[str] | None = []
        for item in items:
            if item.aggregate or (item.stream is not None and item.stream.casefold() not in names):
                why = "a view has columns of its stream, and expressions of them"
                raise self._text.refused(item.span, why, "aggregates stand in the query of a join", name.value)
            if item.tokens:
                computed[item.name or ""] = self._value_text(item.tokens, names)
                shown = None if shown is None else [*shown, item.name or ""]
            elif item.column is None:
                shown = None if made.shown is None or shown is None else [*shown, *made.shown]
            elif item.name is not None and item.name != item.column:
                computed[item.name] = computed.get(item.column, quoted_name(item.column))
                shown = None if shown is None else [*shown, item.name]
            else:
                shown = None if shown is None else [*shown, item.column]
        listed = None if shown is None else tuple(dict.fromkeys(shown))
        return replace(
            made, name=name.value, span=name.span, computed=computed, where=(*made.where, *where), shown=listed
        )

    def _value_text(self, tokens: Sequence[Token], names: Collection[str]) -> str:
        """Return an expression as `expression.parser` reads it, its columns without their stream."""
        pieces: list[str] = []
        for place, token in enumerate(tokens):
            if place and token.span.begin > tokens[place - 1].span.end:
                pieces.append(" ")
            following = tokens[place + 1].word if place + 1 < len(tokens) else ""
            if token.is_name and following == "." and token.value.casefold() in names:
                continue
            before = tokens[place - 1] if place else None
            if token.word == "." and before is not None and before.is_name and before.value.casefold() in names:
                continue
            if token.kind == "text":
                pieces.append("'" + token.value.replace("'", "''") + "'")
            else:
                pieces.append(quoted_name(token.value) if token.kind == "name" else self._text.slice(token.span))
        return "".join(pieces).strip()

    def _columns(self, stream: str) -> tuple[pa.Schema | None, dict[str, str]]:
        cursor = self._cursor
        cursor.expect("(")
        fields: list[pa.Field] = []
        computed: dict[str, str] = {}
        while True:
            name = cursor.name("a column's name")
            if name.value in computed or any(field.name == name.value for field in fields):
                why = f"the column '{name.value}' is there twice"
                raise self._text.refused(name.span, why, "give each column its own name", name.value)
            if cursor.word != "AS":
                fields.append(pa.field(name.value, column_type(cursor)))
            if cursor.took("AS"):
                computed[name.value] = self._value_text(self._expression(), {stream.casefold()})
            if not cursor.took(","):
                break
        cursor.expect(")", ", or )")
        return pa.schema(fields) if fields else None, computed

    def _expression(self) -> tuple[Token, ...]:
        """Return the tokens of the expression of a column: up to a comma, or to the bracket that closes the columns."""
        cursor, depth = self._cursor, 0
        found: list[Token] = []
        while cursor.next is not None and cursor.word != ";" and (depth or cursor.word not in (",", ")")):
            depth += (cursor.word == "(") - (cursor.word == ")")
            found.append(cursor.take())
        if not found or depth:
            cursor.refuse(")" if depth else "an expression, such as speed_kn * 0.514444")
        return tuple(found)

    def _options(self) -> dict[str, Option]:
        cursor = self._cursor
        cursor.expect("(")
        found: dict[str, Option] = {}
        while True:
            name = cursor.name("an option's name")
            key = name.value.lower()
            if key in found:
                raise self._text.refused(name.span, f"the option {key} is there twice", "give it once", key)
            cursor.expect("=")
            found[key] = Option(key, self._value(), name.span)
            if not cursor.took(","):
                break
        cursor.expect(")", ", or )")
        return found

    def _value(self) -> Value:
        cursor = self._cursor
        sign = -1 if cursor.took("-") else 1
        token = cursor.next
        if token is not None and _is_number(token):
            return sign * _number(cursor.take().value)
        if sign == 1 and token is not None and token.kind == "text":
            return cursor.take().value
        if sign == 1 and token is not None and token.word in ("TRUE", "FALSE"):
            return cursor.take().word == "TRUE"
        # What stands here may be a secret without its quotes, so it is not shown.
        raise self._text.refused(cursor.span, "this is no value", f"valid here is {_VALUE}")

    def _setting(self) -> Option:
        cursor = self._cursor
        cursor.expect("SET")
        first = cursor.name("an option's name")
        name, span = first.value, first.span
        while cursor.took("."):
            part = cursor.name("the rest of the name")
            name, span = f"{name}.{part.value}", span.to(part.span)
        key = name if "." in name else name.lower()
        cursor.expect("=")
        if cursor.next is None or cursor.word == ";":
            cursor.refuse(_VALUE)
        is_literal = cursor.next.kind == "text" or cursor.word in ("TRUE", "FALSE") or _is_number(cursor.next)
        if is_literal and cursor.ends_after():
            return Option(key, self._value(), span)
        begin, end = cursor.span.begin, cursor.span.end
        while cursor.next is not None and cursor.word != ";":  # as in Spark: all up to the semicolon is the value
            end = cursor.take().span.end
        return Option(key, self._text.slice(Span(begin, end)), span)

    # INSERT and SELECT

    def _asked(self) -> Statement:
        cursor = self._cursor
        if cursor.word == "SELECT":
            span = cursor.span
            return Statement(self._query(), None, False, span, dict(self._set))
        cursor.expect("INSERT")
        if cursor.word == "OVERWRITE":
            self._not_here("INTO")
        cursor.expect("INTO")
        if cursor.word == "TABLE" and cursor.after() != "WITH":
            cursor.take()
        span = cursor.span
        table, is_path = self._table()
        options: dict[str, Option] = {}
        if cursor.took("WITH"):
            options = self._options()
        if cursor.word == "(":
            hint = "name the columns of the results after SELECT: SELECT e.x AS a"
            raise self._text.refused(cursor.span, "a list of columns is not possible here", hint)
        if cursor.word != "SELECT":
            self._not_here("WITH (option = value) or SELECT" if not options else "SELECT")
        return Statement(self._query(), table, is_path, span, self._set | options, options)

    def _table(self) -> tuple[str, bool]:
        cursor = self._cursor
        if cursor.next is not None and cursor.next.kind == "text":
            return cursor.take().value, True
        first = cursor.name("a table: a name, 'a/path', or delta.`a/path`")
        if cursor.word != ".":
            return first.value, False
        if first.word == "DELTA":
            cursor.take()
            return cursor.name("a path in back-ticks").value, True
        hint = "a name without dots is a folder; write delta.`a/path` for a table elsewhere"
        raise self._text.refused(first.span.to(cursor.span), "results go to a folder, not to a catalog", hint)

    def _query(self) -> Query:
        cursor = self._cursor
        begin = cursor.place
        cursor.expect("SELECT")
        if cursor.word in ("DISTINCT", "ALL"):
            self._not_here("a column")
        items = [select_item(self._text, cursor)]
        while cursor.took(","):
            items.append(select_item(self._text, cursor))
        cursor.expect("FROM", ", or FROM")
        inputs = [self._input("inner", cursor.span)]
        while (joined := self._joined()) is not None:
            inputs.append(joined)
        where = self._condition() if cursor.took("WHERE") else ()
        span = cursor.span
        group = grouped_columns(cursor) if cursor.took("GROUP BY") else ()
        return Query(tuple(items), tuple(inputs), where, self._text.tokens[begin : cursor.place], group, span)

    def _joined(self) -> Input | None:
        """Read ``, stream`` or ``JOIN stream ON condition``; None if no stream follows."""
        cursor = self._cursor
        begin = cursor.span
        if cursor.took(","):
            return self._input("inner", begin)
        if cursor.word in ("NATURAL", "LATERAL"):
            self._not_here("JOIN")
        if cursor.word not in _JOIN_WORDS:
            return None
        is_cross, how, is_as_of = cursor.word == "CROSS", self._how(), cursor.took("ASOF")
        last = cursor.expect("JOIN")
        span = begin.to(last.span)
        if is_as_of and (is_cross or how not in ("inner", "left")):
            words = " ".join(self._text.slice(span).upper().split())
            raise self._text.refused(span, f"{words} is not possible", "write ASOF JOIN or LEFT ASOF JOIN", "how")
        return self._input(how, span, is_as_of=is_as_of)

    def _how(self) -> str:
        cursor = self._cursor
        if cursor.took("INNER") or cursor.took("CROSS"):
            return "inner"
        left = cursor.took("LEFT")
        for word in ("SEMI", "ANTI"):
            if cursor.took(word):
                return word.lower()
        if left:
            cursor.took("OUTER")
            return "left"
        for word in ("RIGHT", "FULL"):
            if cursor.took(word):
                if cursor.word in ("SEMI", "ANTI"):
                    cursor.refuse(f"JOIN; the first stream's rows are those of LEFT {cursor.word} JOIN")
                cursor.took("OUTER")
                return word.lower()
        return "inner"

    def _input(self, how: str, how_span: Span, *, is_as_of: bool = False) -> Input:
        cursor = self._cursor
        if cursor.word == "(":
            cursor.refuse("a stream's name; a query inside a query is not possible")
        if cursor.word == "LATERAL":
            self._not_here("a stream's name")
        first = cursor.name("a stream's name")
        source, span = [first.value], first.span
        while cursor.took("."):
            part = cursor.name("the rest of a table's name")
            source, span = [*source, part.value], span.to(part.span)
            first = part
        alias = first
        if cursor.took("AS"):
            alias = cursor.name("the stream's name in this query")
        elif cursor.next is not None and cursor.next.is_name and not self._ends_input():
            alias = cursor.take()
        ranking = self._matched() if is_as_of else self._nearest() if self._is_nearest() else None
        on: tuple[Token, ...] = ()
        if cursor.word == "USING":
            self._not_here("ON")
        if cursor.took("ON"):
            on = self._condition()
            if self._is_nearest():
                hint = "write it before ON: JOIN w EXACT NEAREST 1 BY DISTANCE abs(e.x - w.x) ON ..."
                raise self._text.refused(cursor.span, "NEAREST BY is not possible after ON", hint, "NEAREST")
        return Input(tuple(source), alias.value, how, on, span.to(alias.span), how_span, ranking)

    def _is_nearest(self) -> bool:
        return self._cursor.word in ("EXACT", "APPROX") and self._cursor.after() == "NEAREST"

    def _matched(self) -> Ranking:
        """Read ``MATCH_CONDITION (left >= right)``."""
        cursor = self._cursor
        begin = cursor.expect("MATCH_CONDITION", "MATCH_CONDITION (e.ts >= w.ts)").span
        cursor.expect("(")
        condition = self._condition(closes=True)
        return Ranking(1, condition, begin.to(cursor.expect(")").span), is_match=True)

    def _nearest(self) -> Ranking:
        """Read ``EXACT NEAREST k BY DISTANCE value``; an exact answer is an approximate one too."""
        cursor = self._cursor
        begin = cursor.take().span
        cursor.expect("NEAREST")
        k = 1 if cursor.word == "BY" else cursor.whole_number()
        cursor.expect("BY")
        if cursor.word not in ("DISTANCE", "SIMILARITY"):
            cursor.refuse("DISTANCE or SIMILARITY")
        is_similarity = cursor.take().word == "SIMILARITY"
        value = self._condition()
        return Ranking(k, value, begin.to(value[-1].span), is_similarity=is_similarity)

    def _ends_input(self) -> bool:
        words = ("ON", "WHERE", "GROUP BY", "SELECT", *_JOIN_WORDS, *NOT_HERE)
        return self._is_nearest() or self._cursor.word in words

    def _condition(self, *, closes: bool = False) -> tuple[Token, ...]:
        """Return the tokens up to what ends a condition outside of all brackets: a JOIN, WHERE, a comma, the end.

        If it `closes`, a closing bracket ends it too.
        """
        cursor, depth = self._cursor, 0
        found: list[Token] = []
        while cursor.next is not None and cursor.word != ";":
            word = cursor.word
            if depth == 0 and (self._ends_condition(word, found[-1] if found else None) or (closes and word == ")")):
                break
            depth += (word == "(") - (word == ")")
            if depth < 0:
                cursor.refuse("AND, OR, JOIN, WHERE or ;")
            found.append(cursor.take())
        if not found:
            cursor.refuse("a condition, such as abs(e.x - w.x) <= 0.1")
        if depth:
            cursor.refuse(")")
        return tuple(found)

    def _ends_condition(self, word: str, before: Token | None) -> bool:
        if before is not None and before.word == ".":
            return False  # a column of that name
        if self._is_nearest():
            return True
        if word in ("LEFT", "RIGHT"):  # they are functions too
            return self._cursor.after() != "("
        if word in NOT_HERE and word not in _JOIN_WORDS:  # after IS, = or AND it is something else
            return before is None or not (before.word in _GOES_ON or (before.kind == "sign" and before.word != ")"))
        return word in (",", "WHERE", "GROUP BY", "ON", "SELECT", "INSERT", *_JOIN_WORDS)

    def _not_here(self, valid: str) -> NoReturn:
        """Refuse the next token: by what is said of it in `NOT_HERE`, or as not understood."""
        if self._cursor.word in NOT_HERE:
            why, hint = NOT_HERE[self._cursor.word]
            raise self._text.refused(self._cursor.span, why, hint, self._cursor.word)
        self._cursor.refuse(valid)


def _is_number(token: Token) -> bool:
    """Whether a token is a plain number: not 1s, which is a duration here, and in Spark a number of 16 bits."""
    return token.kind == "number" and len(token.value) == token.span.end - token.span.begin


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)
