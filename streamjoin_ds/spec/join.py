"""The join a user asks for, before the types of its columns are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.duration import Duration
from streamjoin_ds.spec.parse import parse_predicates
from streamjoin_ds.spec.predicate import Band, Bound, Column, NotEqual, Predicate
from streamjoin_ds.spec.stream import Stream
from streamjoin_ds.spec.window import TimeWindow

__all__ = ["MAX_STREAMS", "Join"]

MAX_STREAMS = 8


@dataclass(frozen=True, init=False)
class Join:
    """N >= 2 streams, the predicates between them, and a window: one result is one tuple of each stream.

    Parameters
    ----------
    streams : sequence of Stream
        Two or more, in the order of the result's columns.
    on : str, sequence of str, or sequence of Predicate
        ``"abs(e.x - w.x) <= 0.1 AND e.id <> w.id"``, or ``[band("e.x", "w.x", 0.1), ...]``; all must hold. Empty: a
        cross product inside the window.
    window : str, timedelta, mapping or TimeWindow
        ``"15s"`` for every stream, or ``{"e": "6h", "w": "0s"}``: how long a tuple of that stream waits for others.
    select : sequence of str, optional
        ``"e.icao24"`` or ``"w.*"``; all columns where not given.
    include_self_pairs : bool
        Whether a self-join also pairs a tuple with itself.

    Raises
    ------
    ArgumentError, PredicateError, WindowError, ColumnError
        What is wrong is named, with what would be valid.
    """

    streams: tuple[Stream, ...]
    predicates: tuple[Predicate, ...]
    window: TimeWindow
    select: tuple[str, ...]
    include_self_pairs: bool

    def __init__(
        self,
        streams: Sequence[Stream],
        on: str | Iterable[str] | Iterable[Predicate] = (),
        window: Duration | Mapping[str, Duration] | TimeWindow = "0s",
        select: Sequence[str] | None = None,
        *,
        include_self_pairs: bool = False,
    ) -> None:
        streams = tuple(streams)
        names = [stream.name for stream in streams]
        if not 2 <= len(streams) <= MAX_STREAMS:
            msg = f"a join has 2 to {MAX_STREAMS} streams, not {len(streams)}"
            raise ArgumentError(msg, name="streams", hint="for a self-join list the input twice, under two names")
        for name in names:
            if names.count(name) > 1:
                msg = f"two streams are named '{name}'"
                raise ArgumentError(msg, name=name, hint="give each stream its own name")
        predicates = _predicates(on)
        for predicate in predicates:
            for column in (predicate.left, predicate.right):
                if column.stream not in names:
                    msg = f"'{predicate}' names the stream '{column.stream}', which is not in the join"
                    raise ArgumentError(msg, name=column.stream, hint=f"the streams are {', '.join(names)}")
        if not isinstance(window, TimeWindow):
            window = TimeWindow.of(window, names)
        set_field = object.__setattr__
        set_field(self, "streams", streams)
        set_field(self, "predicates", predicates)
        set_field(self, "window", window)
        set_field(self, "select", _selected(select, names))
        set_field(self, "include_self_pairs", include_self_pairs)
        declared = {stream.name: stream.schema for stream in streams if stream.schema is not None}
        if len(declared) == len(streams):
            from streamjoin_ds.spec.bound import bind  # the bound join is made of joins

            bind(self, declared)  # type: ignore[arg-type]

    @property
    def names(self) -> tuple[str, ...]:
        """The streams' names, in order."""
        return tuple(stream.name for stream in self.streams)

    def to_facts(self) -> dict[str, object]:
        """The join as plain JSON values; `Join.from_facts` is the way back."""
        return {
            "streams": [stream.to_facts() for stream in self.streams],
            "predicates": [_predicate_facts(predicate) for predicate in self.predicates],
            "window": self.window.to_facts(),
            "select": list(self.select),
            "include_self_pairs": self.include_self_pairs,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> Join:
        """The join that `to_facts` described."""
        join = Join.__new__(cls)
        Join.__init__(
            join,
            [Stream.from_facts(stream) for stream in facts["streams"]],  # type: ignore[attr-defined]
            [_predicate_from(predicate) for predicate in facts["predicates"]],  # type: ignore[attr-defined]
            TimeWindow(tuple(facts["window"]["windows_us"])),  # type: ignore[index]
            facts["select"],  # type: ignore[arg-type]
            include_self_pairs=bool(facts["include_self_pairs"]),
        )
        return join


def _predicates(on: str | Iterable[str] | Iterable[Predicate]) -> tuple[Predicate, ...]:
    items: list[str | Predicate] = [on] if isinstance(on, (str, Band, NotEqual)) else list(on)
    predicates: list[Predicate] = []
    for item in items:
        if isinstance(item, str):
            predicates.extend(parse_predicates(item))
        elif isinstance(item, (Band, NotEqual)):
            predicates.append(item)
        else:
            msg = f"a predicate is a text, band(), equal() or not_equal(), not {type(item).__name__}"
            raise ArgumentError(msg, name="on", hint="for example 'abs(e.x - w.x) <= 10'")
    return tuple(predicates)


def _selected(select: Sequence[str] | None, names: list[str]) -> tuple[str, ...]:
    if select is None:
        return tuple(f"{name}.*" for name in names)
    if isinstance(select, str):
        select = [part.strip() for part in select.split(",")]
    for text in select:
        column = Column.of(text)
        if column.stream not in names:
            msg = f"select names the stream '{column.stream}', which is not in the join"
            raise ColumnError(msg, name=text, hint=f"the streams are {', '.join(names)}")
    return tuple(select)


def _bound_fact(bound: Bound) -> str:
    # Text keeps ints, decimals and floats apart and exact (repr of a float is its shortest exact form).
    if isinstance(bound, timedelta):
        return f"us:{bound // timedelta(microseconds=1)}"
    return f"{'float' if isinstance(bound, float) else 'number'}:{bound!r}" if isinstance(bound, (int, float)) else f"number:{bound}"


def _bound_from(text: str) -> Bound:
    from decimal import Decimal

    kind, _, value = text.partition(":")
    if kind == "us":
        return timedelta(microseconds=int(value))
    if kind == "float":
        return float(value)
    number = Decimal(value)
    return int(number) if "." not in value and "E" not in value.upper() else number


def _predicate_facts(predicate: Predicate) -> dict[str, object]:
    sides: dict[str, object] = {
        "left": [predicate.left.stream, predicate.left.name],
        "right": [predicate.right.stream, predicate.right.name],
    }
    if isinstance(predicate, Band):
        return {"kind": "band", **sides, "lo": _bound_fact(predicate.lo), "hi": _bound_fact(predicate.hi)}
    return {"kind": "not_equal", **sides}


def _predicate_from(facts: Mapping[str, object]) -> Predicate:
    left, right = Column(*facts["left"]), Column(*facts["right"])  # type: ignore[misc]
    if facts["kind"] == "not_equal":
        return NotEqual(left, right)
    return Band(left, right, _bound_from(str(facts["lo"])), _bound_from(str(facts["hi"])))
