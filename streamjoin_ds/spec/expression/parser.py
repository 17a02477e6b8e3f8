"""Reads the text form of predicates with sqlglot's parser; no text is ever evaluated."""

from __future__ import annotations

import contextlib
import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from sqlglot import expressions as sql
from sqlglot import parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from streamjoin_ds.errors import PredicateSyntaxError
from streamjoin_ds.spec.aggregate import NAMES as AGGREGATES
from streamjoin_ds.spec.band_terms import band_and_term, bound_of
from streamjoin_ds.spec.expression.predicate import Column, negated
from streamjoin_ds.spec.expression.tree import CONDITIONS, MAX_DEPTH, Call, Expression, Literal, Predicate, call
from streamjoin_ds.spec.functions import FUNCTION_NAMES, FUNCTIONS
from streamjoin_ds.spec.parse_literals import Node, is_moment, literal_value, type_name

__all__ = ["UNDERSTOOD", "parse_condition", "parse_predicates", "parse_value"]


UNDERSTOOD = (
    "abs(l.a - r.b) <= c or |l.a - r.b| <= c, l.a - r.b BETWEEN c AND d, l.a BETWEEN r.b - c AND r.b + d, l.a = r.b, "
    "l.a IS NOT DISTINCT FROM r.b, l.a BETWEEN r.lo AND r.hi (these find pairs), and conditions with = <> < <= > >=, "
    "+ - * / %, AND, OR, NOT, IS NULL, IS DISTINCT FROM, BETWEEN, IN and functions (these decide which of the pairs "
    "stay); quote a column name that holds a dot: u.`PM2.5`"
)
_FUNCTIONS_HINT = f"functions are {', '.join(function.written for function in FUNCTIONS.values())}"

_QUOTED = re.compile(r"""('[^']*'|"[^"]*"|`[^`]*`)""")
_MAX_TEXT = 10_000  # most characters of a predicate
_SHOWN = 200  # characters of it that an error shows

_BINARY = {
    sql.EQ: "=",
    sql.NEQ: "<>",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
    sql.Add: "+",
    sql.Sub: "-",
    sql.Mul: "*",
    sql.Div: "/",
    sql.Mod: "%",
}
_WITH_A_FORM = ("case", "cast", "like", "extract")  # functions that are not written name(x, y)


class _StreamJoinPredicates(Dialect):
    """Standard SQL with both ways of quoting a name."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012
        QUOTES = ["'"]  # noqa: RUF012

    class Parser(parser.Parser):
        # The table of functions says which there are: sqlglot is to know none but those with a form of their own.
        FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: read
            for name, read in parser.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT")
        }


def parse_predicates(texts: str | Iterable[str]) -> tuple[Predicate, ...]:
    """Return the predicates in a text, such as ``abs(e.x - w.x) <= 0.1 AND (e.id <> w.id OR e.id IS NULL)``.

    The text's ANDs part it into terms. A term that is a band or an equality between two streams becomes a `Band`, any
    other an expression. ``l.a BETWEEN r.b - c AND r.b + d`` becomes the band ``-c <= l.a - r.b <= d``: the contract
    knows only the form with the subtraction, because the two round differently (ARCHITECTURE.md, "Band").
    ``abs(l.a - r.b) < c`` becomes both: the band finds, the expression decides.

    Raises
    ------
    PredicateSyntaxError
        A text is not understood; the hint says what is.
    """
    predicates: list[Predicate] = []
    for text in [texts] if isinstance(texts, str) else texts:
        for node in _conjuncts(_tree(text)):
            predicates.extend(band_and_term(_Reader(text).condition(node)))
    return tuple(predicates)


def parse_condition(text: str, stream: str | None = None) -> Expression:
    """Return the condition in a text.

    If `stream` is given, the condition is on that stream alone, and its columns may be written without the stream.

    Raises
    ------
    PredicateSyntaxError
        The text is not understood, or names another stream.
    """
    return _Reader(text, stream).condition(_tree(text))


def parse_value(text: str, stream: str | None = None) -> Expression:
    """Return the expression in a text, of any type; arguments and errors as for `parse_condition`."""
    try:
        return _Reader(text, stream).expression(_tree(text), MAX_DEPTH)
    except PredicateSyntaxError as error:
        message = error.message.replace("read the predicate", "read the expression", 1)
        raise PredicateSyntaxError(message, name=error.name, hint=error.hint) from None


def _tree(text: str) -> Node:
    if len(text) > _MAX_TEXT:
        _refuse(f"it is longer than {_MAX_TEXT} characters", text)
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs") and not character.isspace() for character in text):
        _refuse("it holds invisible characters", text)
    try:
        # The text must be one condition and nothing more: `parse_one` would drop what follows a semicolon.
        trees = _StreamJoinPredicates().parse_into(sql.Condition, _without_bars(text))
    except (SqlglotError, RecursionError):
        _refuse("it is not an SQL condition", text)
    if len(trees) != 1 or trees[0] is None:
        _refuse("it is not one SQL condition", text)
    if any(node.comments for node in trees[0].walk()):
        _refuse("it holds a comment", text)
    return trees[0]


def _without_bars(text: str) -> str:
    """Return the text with ``abs(x)`` for ``|x|``; bars inside quotes stay, and pairs of bars cannot be nested."""
    parts = _QUOTED.split(text)  # every second part is quoted
    bars = 0
    for place in range(0, len(parts), 2):
        pieces = parts[place].split("|")
        for number in range(1, len(pieces)):
            bars += 1
            pieces[number] = ("abs(" if bars % 2 else ")") + pieces[number]
        parts[place] = "".join(pieces)
    return text if bars % 2 or "||" in text else "".join(parts)


def _conjuncts(node: Node) -> list[Node]:
    found, open_nodes = [], [node]
    while open_nodes:
        node = open_nodes.pop().unnest()
        if isinstance(node, sql.And):
            open_nodes += [node.expression, node.this]
        else:
            found.append(node)
    return found


class _Reader:
    """Reads nodes of sqlglot's tree; every kind of node that is not named here is refused.

    Parameters
    ----------
    text : str
        The whole text, for errors.
    stream : str, optional
        The stream of columns that are written without one.
    """

    def __init__(self, text: str, stream: str | None = None) -> None:
        self._text = text
        self._stream = stream

    def condition(self, node: Node) -> Expression:
        """Return the expression of a node, which must be a condition: one that can be TRUE."""
        found = self.expression(node, MAX_DEPTH)
        is_value = not _is_condition(found.op) if isinstance(found, Call) else not _may_be_true(found)
        if is_value:
            self._refuse("a part of it is a value, not a condition: it is not compared with anything")
        return found

    def expression(self, node: Node, depth: int) -> Expression:
        """Return the expression of any node, which may have `depth` levels."""
        node = node.unnest()
        if depth == 0:
            self._refuse(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, (sql.And, sql.Or)):
            return self._flat(node, depth)
        if type(node) in _BINARY:
            left, right = (self.expression(side, depth - 1) for side in (node.this, node.expression))
            return _folded(_BINARY[type(node)], left, right)
        if isinstance(node, (sql.Not, sql.Neg)):
            return self._unary(node, depth)
        if isinstance(node, (sql.NullSafeEQ, sql.NullSafeNEQ)):
            same = call("same", *(self.expression(side, depth - 1) for side in (node.this, node.expression)))
            return same if isinstance(node, sql.NullSafeEQ) else call("not", same)
        if isinstance(node, sql.Is):
            if not isinstance(node.expression, sql.Null):
                self._refuse("IS may only be followed by NULL or NOT NULL")
            return call("is_null", self.expression(node.this, depth - 1))
        if isinstance(node, sql.Between):
            if node.args.get("symmetric"):
                self._refuse("BETWEEN SYMMETRIC is not supported; write the lower end first")
            parts = (node.this, node.args["low"], node.args["high"])
            return call("between", *(self.expression(part, depth - 1) for part in parts))
        if isinstance(node, sql.In):
            items = node.args.get("expressions")
            if not items or any(node.args.get(name) for name in ("query", "unnest", "field")):
                self._refuse("IN must be followed by a list in parentheses")
            return call("in", *(self.expression(part, depth - 1) for part in (node.this, *items)))
        if isinstance(node, sql.Column):
            return self._column(node)
        return self._function(node, depth)

    def _function(self, node: Node, depth: int) -> Expression:
        """Return a function as its entry in the table has it, or a literal."""
        args: tuple[Expression, ...]
        if isinstance(node, sql.Anonymous):
            name = FUNCTION_NAMES.get(node.name.lower())
            if name is None or name in _WITH_A_FORM:
                self._refuse_function(node.name)
            args = tuple(self.expression(argument, depth - 1) for argument in node.expressions)
            return self._called(name, args)
        if isinstance(node, (sql.Case, sql.If)):
            return self._called("case", self._case(node, depth))
        if isinstance(node, sql.DPipe):
            sides = [self.expression(side, depth - 1) for side in (node.this, node.expression)]
            return self._called("concat", tuple(_flat_concat(sides)))
        if isinstance(node, sql.Extract) and isinstance(node.this, sql.Var):
            return self._called("extract", (Literal(node.name.lower()), self.expression(node.expression, depth - 1)))
        if isinstance(node, sql.Like):
            return self._like(node, (), depth)
        if isinstance(node, sql.Escape) and isinstance(node.this, sql.Like):
            return self._like(node.this, (self.expression(node.expression, depth - 1),), depth)
        if isinstance(node, sql.Cast) and not is_moment(node):
            if any(node.args.get(name) for name in ("format", "default", "action")):
                self._refuse("CAST has only a value and a type")
            return self._called(
                "cast", (self.expression(node.this, depth - 1), Literal(type_name(node.args["to"], self._refuse)))
            )
        return Literal(literal_value(node, self._refuse))

    def _like(self, node: Node, escape: tuple[Expression, ...], depth: int) -> Expression:
        sides = (self.expression(side, depth - 1) for side in (node.this, node.expression))
        like = self._called("like", (*sides, *escape))
        # Newer versions of sqlglot have NOT LIKE in one node, where older ones put a Not around it.
        return call("not", like) if node.args.get("negate") else like

    def _called(self, name: str, args: tuple[Expression, ...]) -> Call:
        function = FUNCTIONS[name]
        if not function.least <= len(args) <= function.most:
            self._refuse(f"{name} has {len(args)} operands; it is written {function.written}")
        return Call(name, args)

    def _case(self, node: Node, depth: int) -> tuple[Expression, ...]:
        """Return conditions and results in turn, then what stands after ELSE; ``CASE x WHEN y`` compares x with y."""
        branches = node.args["ifs"] if isinstance(node, sql.Case) else [node]
        default = node.args.get("default" if isinstance(node, sql.Case) else "false")
        subject = node.this if isinstance(node, sql.Case) else None
        found: list[Expression] = []
        for branch in branches:
            when = self.expression(branch.this, depth - 1)
            if subject is not None:
                when = call("=", self.expression(subject, depth - 1), when)
            found += [when, self.expression(branch.args["true"], depth - 1)]
        return (*found, *(() if default is None else (self.expression(default, depth - 1),)))

    def _refuse_function(self, name: str) -> NoReturn:
        bare = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), self._text)
        found = re.search(rf"\b{re.escape(name)}\s*\(", bare, re.IGNORECASE)
        place = f" at character {found.start() + 1}" if found else ""
        near = difflib.get_close_matches(name.lower(), FUNCTION_NAMES, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        if name.lower() in AGGREGATES:
            meant = f"an aggregate stands in reduce, as n={name.lower()}(...); "
        why = f"the function '{name[:60]}'{place} is not supported"
        _refuse(why, self._text, f"{meant}{_FUNCTIONS_HINT}", name=name[:60])

    def _flat(self, node: Node, depth: int) -> Call:
        """Return a chain such as ``a AND b AND c`` as one AND, which counts as one level."""
        kind, operands, open_nodes = type(node), [], [node]
        while open_nodes:
            inner = open_nodes.pop().unnest()
            if type(inner) is kind:
                open_nodes += [inner.expression, inner.this]
            else:
                operands.append(self.expression(inner, depth - 1))
        return Call("and" if kind is sql.And else "or", tuple(operands))

    def _unary(self, node: Node, depth: int) -> Expression:
        inner = self.expression(node.this, depth - 1)
        if isinstance(node, sql.Not):
            return call("not", inner)
        bound = bound_of(inner)
        return call("neg", inner) if bound is None else Literal(negated(bound))  # type: ignore[arg-type]

    def _column(self, node: Node) -> Column:
        if node.args.get("db") is not None:
            dotted = ".".join(part.name for part in node.parts)
            stream, _, rest = dotted.partition(".")
            hint = (
                f"write {stream}.`{rest}` if that is the column's name; a field inside a column cannot be named: make "
            )
            hint += "it a column in the input"
            _refuse(f"it names {dotted}, which is not written as stream.column", self._text, hint)
        plain = isinstance(node.this, sql.Identifier) and node.name and node.args.get("db") is None
        if not plain or not (node.table or self._stream):
            example = f"write it with its stream, such as e.{node.name}; " if plain else ""
            why = "a column in it is not written as stream.column"
            _refuse(why, self._text, f"{example}valid are {UNDERSTOOD}")
        if self._stream and node.table not in ("", self._stream):
            self._refuse(f"it names the stream '{node.table}', but may only name {self._stream}")
        return Column(node.table or self._stream or "", node.name)

    def _refuse(self, why: str) -> NoReturn:
        _refuse(why, self._text)


def _flat_concat(sides: Sequence[Expression]) -> Iterator[Expression]:
    for side in sides:
        if isinstance(side, Call) and side.op == "concat":
            yield from side.args
        else:
            yield side


def _is_condition(op: str) -> bool:
    return op in CONDITIONS or (op in FUNCTIONS and FUNCTIONS[op].is_condition)


def _may_be_true(leaf: Expression) -> bool:
    return not isinstance(leaf, Literal) or leaf.value is None or isinstance(leaf.value, bool)


def _folded(op: str, left: Expression, right: Expression) -> Expression:
    """Return a sum or difference of two whole numbers or two durations as one literal, anything else as a call."""
    one: Any = bound_of(left)
    other: Any = bound_of(right)
    if type(one) is type(other) and isinstance(one, (int, timedelta)) and op in ("+", "-"):
        with contextlib.suppress(OverflowError):
            return Literal(one + other if op == "+" else one - other)
    return call(op, left, right)


def _refuse(why: str, text: str, hint: str = "", name: str = "") -> NoReturn:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)
    msg = f"cannot read the predicate '{shown}': {why}"
    raise PredicateSyntaxError(msg, name=name or shown, hint=hint or f"valid are {UNDERSTOOD}") from None
