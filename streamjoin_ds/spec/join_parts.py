"""The parts of a join as the user gave them, for its binding, and as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from streamjoin_ds.spec.aggregate import Aggregate
from streamjoin_ds.spec.expression.predicate import Band, Bound, Column
from streamjoin_ds.spec.expression.tree import Predicate, expression_facts, expression_from
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.nearest import Nearest
from streamjoin_ds.spec.row_kind import RowKind, row_kind
from streamjoin_ds.spec.selected import Selected, selected_facts
from streamjoin_ds.spec.window import WindowKind

__all__ = ["JoinParts", "predicate_from"]


@dataclass(frozen=True, init=False)
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
