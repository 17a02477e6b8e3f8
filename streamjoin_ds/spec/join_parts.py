"""The parts of a join as the user gave them, for its binding, and as plain JSON values.

`JoinParts` holds them and checks nothing. `Join` checks them. A part that is at its default is left out of the facts,
so that older joins keep their text.

What a join selects is columns of its streams, and columns that are calculated, ``expression AS name``::

    "e.x"  "e.x AS y"  "w.*"              columns, kept as they were written
    "abs(e.x - w.x) AS gap"               an expression and its name: `Calculated`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from html import escape
from typing import Any

from streamjoin_ds.errors import ColumnError, PredicateSyntaxError
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.expression.predicate import PLAIN_NAME, QUOTED, Band, Bound, Column, renamed, sql_parts
from streamjoin_ds.spec.expression.tree import (
    Aggregate,
    Expression,
    Predicate,
    columns_of,
    expression_facts,
    expression_from,
    streams_of,
)
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.row_kind import Nearest, RowKind, row_kind
from streamjoin_ds.spec.window import WindowKind

__all__ = [
    "Calculated",
    "JoinParts",
    "Selected",
    "facts_html",
    "named_columns",
    "predicate_from",
    "selected",
    "selected_facts",
    "selected_from",
]


# What a column that is written without quotes does not hold, if it is not the name of an odd column.
_OPERATORS = frozenset("()+-*/%|<>=:")


@dataclass(frozen=True, slots=True)
class Calculated:
    """A column of the result that is calculated from columns of any streams."""

    name: str
    expression: Expression

    def __str__(self) -> str:
        quoted = self.name.replace("`", "``")
        return f"{self.expression} AS `{quoted}`"


Selected = str | Calculated


def selected(
    select: str | Iterable[Selected] | None, names: Sequence[str], shown: Sequence[str], asked: str
) -> tuple[Selected, ...]:
    """Return what a join selects; columns stay texts, expressions are read.

    Parameters
    ----------
    select : str, or iterable of str or Calculated, or None
        Parts of one text are separated by commas outside of brackets. None and ``*``: all columns of the streams of
        `shown`.
    names, shown : sequence of str
        The join's streams, and those whose columns its rows have.
    asked : str
        What of the join says which streams are shown (`JoinParts.asked`), for errors.

    Raises
    ------
    ColumnError
        It names a stream that is not there, or an expression has no name.
    PredicateSyntaxError
        An expression is not understood.
    """
    if select is None:
        return tuple(f"{name}.*" for name in shown)
    parts = sql_parts(select) if isinstance(select, str) else select
    parts = [each for part in parts for each in ((f"{name}.*" for name in shown) if part == "*" else (part,))]
    found = tuple(_selected(part) if isinstance(part, str) else part for part in parts)
    for one in found:
        streams = streams_of(one.expression) if isinstance(one, Calculated) else (Column.of(_column_text(one)).stream,)
        for stream in streams:
            if stream not in names:
                msg = f"select names the stream '{stream}', which is not in the join"
                raise ColumnError(msg, name=str(one), hint=names_hint(stream, names, "the streams are"))
            if stream not in shown:
                msg = f"select names the stream '{stream}', but a row of {asked} has a tuple of {names[0]} alone"
                others = ", and aggregates of the other's" if asked == "reduce" else ", or use inner or left"
                raise ColumnError(msg, name=str(one), hint=f"select columns of {names[0]}{others}")
    return found


def selected_facts(one: Selected) -> object:
    """Return what is selected as plain JSON values; `selected_from` makes it of them again."""
    return one if isinstance(one, str) else {"name": one.name, "expression": expression_facts(one.expression)}


def selected_from(facts: str | Mapping[str, Any]) -> Selected:
    """Return what `selected_facts` described."""
    return facts if isinstance(facts, str) else Calculated(facts["name"], expression_from(facts["expression"]))


def _selected(text: str) -> Selected:
    """Return a selected text as it is where it is a column, else as an expression and its name."""
    written, name = renamed(text)
    if name is not None and "(" in text and ("`" not in text[-1:]) and ")" in name:  # the AS of a CAST
        written, name = text, None
    stream, _, rest = written.partition(".")
    bare = QUOTED.sub("", rest)
    if rest and PLAIN_NAME.fullmatch(stream) and (rest == "*" or not (_OPERATORS | {" "}) & set(bare)):
        return text
    # Imported here: a worker is sent facts, and needs no SQL parser.
    from streamjoin_ds.spec.expression.parser import parse_value

    try:
        expression = parse_value(written)
    except PredicateSyntaxError:
        if name is None and "(" not in QUOTED.sub("", written):
            return text  # a column with an odd name, such as e.a b, or none
        raise
    if isinstance(expression, Column):
        return text
    if name is None:
        msg = f"the expression '{text[:64]}' has no name in the result"
        raise ColumnError(
            msg, name=text[:64], hint=f"write {text[:64]} AS name; quote a column's odd name in back-ticks"
        )
    return Calculated(name, expression)


def _column_text(text: str) -> str:
    column, name = renamed(text)
    if name is not None and column.endswith(".*"):
        msg = f"'{text[:64]}' gives one name to all columns of a stream"
        raise ColumnError(msg, name=name, hint="select each column that gets a name of its own")
    return column


@dataclass(frozen=True, init=False, repr=False)
class JoinParts:
    """The streams, tables, predicates, window and selection of a join; `Join` checks them and says what each may be."""

    streams: tuple[Stream, ...]
    predicates: tuple[Predicate, ...]
    window: WindowKind
    select: tuple[Selected, ...]
    include_self_pairs: bool
    how: str
    nearest: Nearest | None
    reduce: tuple[Aggregate, ...]

    tables: tuple[Table, ...]

    def __repr__(self) -> str:
        return str(self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The streams' names, in order."""
        return tuple(stream.name for stream in self.streams)

    @cached_property
    def row_kind(self) -> RowKind:
        """What the rows of the join are about."""
        of_table = len(self.streams) == len(self.tables) == 1
        asked = {"of_nearest": self.nearest is not None, "of_partners": bool(self.reduce), "of_table": of_table}
        return row_kind(self.how, len(self.members), **asked)

    @property
    def asked(self) -> str:
        """What of the join has its tuples decided at their horizon, as a user wrote it: "how=left", "nearest"."""
        return "reduce" if self.reduce else f"how={self.how}" if self.nearest is None else "nearest"

    @cached_property
    def members(self) -> tuple[Stream | Table, ...]:
        """The streams, then the tables. A table's number is its place here."""
        return (*self.streams, *self.tables)

    @cached_property
    def member_names(self) -> tuple[str, ...]:
        """The names of the streams, then of the tables."""
        return tuple(member.name for member in self.members)

    @property
    def columns_named(self) -> list[Column]:
        """The columns that the join names, but for those of its streams' own options."""
        said: list[Expression] = [one.expression for one in self.select if isinstance(one, Calculated)]
        said += [argument for one in self.reduce for argument in one.args]
        said += [one.where for one in self.members if one.where is not None]  # type: ignore[misc]
        said += [one for one in self.predicates if not isinstance(one, Band)]
        said += [] if self.nearest is None or self.nearest.by is None else [self.nearest.by]
        plain = [renamed(one)[0] for one in self.select if not isinstance(one, Calculated)]
        bands = [column for one in self.predicates if isinstance(one, Band) for column in (one.left, one.right)]
        of_select = [Column.of(text) for text in plain if not text.endswith(".*")]
        return [*bands, *of_select, *(column for one in said for column in columns_of(one))]

    @property
    def told(self) -> list[tuple[str, str]]:
        """What the join says, for people: a word, and what it stands for; nothing that is at its default."""
        conditions = [str(one) for one in self.predicates]
        found = [("" if place else "on", text) for place, text in enumerate(conditions)]
        found.append(("window", self.window.describe(self.names)))
        found += [("how", self.how)] if self.how != "inner" else []
        if self.nearest is not None:
            by = "" if self.nearest.by is None else f" by {self.nearest.by}"
            found.append(("nearest", f"{self.nearest.k}{by}, {self.nearest.direction}"))
        found += [("reduce", f"{one} AS {one.name}") for one in self.reduce]
        if any(not str(one).endswith(".*") for one in self.select):
            found.append(("select", ", ".join(map(str, self.select))))
        return [
            *found,
            *(("stream", repr(one)) for one in self.streams),
            *(("table", repr(one)) for one in self.tables),
        ]

    def __str__(self) -> str:
        title = f"{type(self).__name__} of {', '.join(self.member_names)}"
        return "\n".join([title, *(f"  {word:<8} {text}" for word, text in self.told)])

    def _repr_html_(self) -> str:
        """Return the join as notebooks show it."""
        return facts_html(f"{type(self).__name__} of {', '.join(self.member_names)}", self.told)

    def to_facts(self) -> dict[str, object]:
        """Return the join as plain JSON values; `Join.from_facts` makes the join of them again."""
        return {
            "streams": [stream.to_facts() for stream in self.streams],
            "predicates": [_predicate_facts(predicate) for predicate in self.predicates],
            "window": self.window.to_facts(),
            "select": [selected_facts(one) for one in self.select],
            "include_self_pairs": self.include_self_pairs,
            # left out at its default, so that older joins keep their text
            **({} if self.how == "inner" else {"how": self.how}),
            **({} if self.nearest is None else {"nearest": self.nearest.to_facts()}),
            **({"tables": [table.to_facts() for table in self.tables]} if self.tables else {}),
            **({"reduce": [one.to_facts() for one in self.reduce]} if self.reduce else {}),
        }


def facts_html(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return facts as a small table of HTML, for notebooks: a word, and what it stands for."""
    cell = '<td style="text-align:left;white-space:pre-wrap'
    rows = "".join(
        f'<tr>{cell};opacity:.7">{escape(word)}</td>{cell};font-family:monospace">{escape(text)}</td></tr>'
        for word, text in facts
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table></div>"


def named_columns(stream: Stream) -> set[str]:
    """Return the names of columns that a stream's own options name, computed ones among them."""
    zone = set() if stream.zone_column is None else {stream.zone_column}
    needed = set() if stream.columns is None else {*stream.columns.needed}
    where = set() if stream.where is None else {column.name for column in columns_of(stream.where)}  # type: ignore[arg-type]
    return {stream.time, *stream.unique_key, *stream.device_columns} | zone | needed | where


def _bound_fact(bound: Bound) -> str:
    # A text keeps ints, decimals and floats apart and exact (the repr of a float is its shortest exact form).
    if isinstance(bound, timedelta):
        return f"us:{bound // timedelta(microseconds=1)}"
    return f"float:{bound!r}" if isinstance(bound, float) else f"number:{bound}"


def _bound_from(text: str) -> Bound:
    kind, _, value = text.partition(":")
    if kind == "us":
        return timedelta(microseconds=int(value))
    if kind == "float":
        return float(value)
    number = Decimal(value)
    return int(number) if "." not in value and "E" not in value.upper() else number


def _predicate_facts(predicate: Predicate) -> dict[str, object]:
    if not isinstance(predicate, Band):
        return {"kind": "condition", "expression": expression_facts(predicate)}
    return {
        "kind": "band",
        "left": [predicate.left.stream, predicate.left.name],
        "right": [predicate.right.stream, predicate.right.name],
        "lo": _bound_fact(predicate.lo),
        "hi": _bound_fact(predicate.hi),
        # Left out of an equality: in facts from before there was a difference each band of no width is one.
        **({"is_equality": False} if predicate.has_no_width and not predicate.is_equality else {}),
    }


def predicate_from(facts: Mapping[str, Any]) -> Predicate:
    """Return the predicate whose facts `JoinParts.to_facts` gave."""
    if facts["kind"] == "condition":
        return expression_from(facts["expression"])
    left, right = Column(*facts["left"]), Column(*facts["right"])
    lo, hi = (_bound_from(str(facts[end])) for end in ("lo", "hi"))
    return Band(left, right, lo, hi, not lo and not hi and facts.get("is_equality", True))
