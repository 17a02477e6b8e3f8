"""Options of the engine. They may change at every restart, because no result depends on them.

`Execution` is their one home: who joins takes it as one argument, and a new option is a field here and what reads it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypedDict

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["DEFAULT_EXECUTION", "EXECUTION_OPTIONS", "KERNELS", "Execution", "OldOptions", "execution_of"]

# Kernels that a machine may have. A worker finds out which of them it has: the driver may be another kind of machine.
KERNELS = ("auto", "avx512", "avx2", "scalar", "reference")
_WORDS = ("auto", "scan")

Index = str | tuple[tuple[str, str | tuple[str, ...]], ...]
_INDEXES = "auto, scan, or 'e.latitude, e.longitude, w.latitude'"


@dataclass(frozen=True, slots=True)
class Execution:
    """How the engine works: in this process (`JoinEngine`) or in each cell. No row of a result depends on it.

    Parameters
    ----------
    kernel : str
        "auto", or the name of one kernel implementation.
    threads : int, optional
        How many threads work side by side on a large probe, at most, the caller among them. A cell has in each batch as
        many as its work asks for. Where not given, the cells of a query on one machine share its cores, and a cell on a
        cluster or a `JoinEngine` has one thread. On a cluster there are as many times fewer cells, where no layout is
        given; set ``spark.task.cpus`` to the same number.
    pin : bool
        Whether kernel threads, if there are several, are pinned to cores that are leased: for a batch, or for as long
        as a `JoinEngine` lives. If too few cores are free, the threads run unpinned.
    index : "auto", "scan", sequence of "stream.column", or mapping of stream to "scan" or columns
        The sort layout of runs. "auto" chooses it run by run, "scan" leaves runs in order of arrival. Columns are one
        or two compared columns for each stream. With one, runs are sorted by it. With two, they are in buckets of the
        first, each sorted by the second. Columns may be one text: ``"e.latitude, e.longitude, w.latitude"``.
    order : "auto" or sequence of stream names
        The order in which the other streams join new tuples of a stream; all names, each once. It may be one text:
        ``"e, w, x"``. "auto" decides by estimated selectivity, push by push.
    merge_runs : int, optional
        The merge ratio: as soon as there are so many runs of like size, they are merged. A larger number copies fewer
        rows, and probes meet more runs. Where not given, it is four; windows in blocks are merged once, many runs at a
        time, so each row is written twice at most.
    window_server : bool
        Whether the windows of a host's cells live in one process there, which Spark's workers hand their cells to.
        False: each worker makes the windows of its cell anew from blocks in each batch, and keeps them as sorted runs.

    Raises
    ------
    ArgumentError
        An option does not have its form. The engine checks ranges and names of streams and columns, against a join.
    """

    kernel: str = "auto"
    threads: int | None = None
    pin: bool = True
    index: Any = "auto"  # inside: Index
    order: Any = "auto"  # inside: str, or tuple of str
    merge_runs: int | None = None
    window_server: bool = True

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            msg = "there is no kernel of this name"
            raise ArgumentError(msg, name="kernel", hint=f"one of {', '.join(KERNELS)}")
        _check("pin", self.pin, bool, "true or false")
        _check("window_server", self.window_server, bool, "true or false")
        for name in ("threads", "merge_runs"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), int, "a whole number")
        object.__setattr__(self, "index", _index(self.index))
        object.__setattr__(self, "order", _order(self.order))

    @property
    def sort_layouts(self) -> str | dict[str, str | tuple[str, ...]]:
        """The index as one text for all streams, or by their names."""
        return self.index if isinstance(self.index, str) else dict(self.index)

    def to_facts(self) -> dict[str, object]:
        """Return the options as plain JSON values, from which `Execution` makes them again."""
        return asdict(self) | {"index": self.sort_layouts}


def _check(name: str, value: object, kind: type, what: str) -> None:
    if type(value) is not kind:  # not isinstance: True must not count as a number of threads
        msg = f"{name} must be {what}"
        raise ArgumentError(msg, name=name, hint=f"give {what}, or leave it out")


def _index(given: object) -> Index:
    if given in _WORDS:
        return str(given)
    if isinstance(given, Mapping):
        return tuple((str(stream), _columns(wanted)) for stream, wanted in given.items()) or "auto"
    if isinstance(given, tuple) and given and all(isinstance(part, tuple) for part in given):
        return given  # already in the form of `Index`
    found: dict[str, tuple[str, ...]] = {}
    for text in _texts(given, "index", _INDEXES):
        try:
            column = Column.of(text)
        except ArgumentError as error:
            raise ArgumentError(error.message, name="index", hint=_INDEXES) from None
        found[column.stream] = (*found.get(column.stream, ()), column.name)
    return tuple(found.items())


def _columns(wanted: object) -> str | tuple[str, ...]:
    if wanted in _WORDS:
        return str(wanted)
    return tuple(_texts(wanted, "index", "one or two columns of each stream"))


def _order(given: object) -> str | tuple[str, ...]:
    return "auto" if given == "auto" else tuple(_texts(given, "order", "auto, or all streams: 'e, w, x'"))


def _texts(given: object, name: str, hint: str) -> list[str]:
    """Return a list of texts, from a sequence of texts or from one text with commas between them."""
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, str) and part for part in parts):
        msg = f"{name} must be a list of texts, or one text with commas"
        raise ArgumentError(msg, name=name, hint=hint)
    return list(parts)


# The default options, as one shared object.
DEFAULT_EXECUTION = Execution()
EXECUTION_OPTIONS = tuple(field.name for field in fields(Execution))


class OldOptions(TypedDict, total=False):
    """Options of an `Execution` that public calls still take one by one, with a warning."""

    kernel: str
    pin: bool
    index: Any
    order: Any
    merge_runs: int | None


def execution_of(execution: Execution | None, threads: int | None, old: OldOptions) -> Execution:
    """Return what a public call was given: an `Execution`, `threads` beside it, and options in the old way.

    Raises
    ------
    ArgumentError
        An option stands both in the `Execution` and beside it, with two values; or it does not have its form.
    TypeError
        The call has no such argument.
    """
    for name in old.keys() - OldOptions.__annotations__.keys():
        msg = f"unexpected keyword argument '{name}'"
        raise TypeError(msg)
    if old:
        text = f"{', '.join(old)}: give execution=Execution({', '.join(f'{name}=...' for name in old)})"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    given: dict[str, Any] = {**old, **({} if threads is None else {"threads": threads})}
    beside = replace(DEFAULT_EXECUTION, **given)
    for name in given if execution is not None else ():
        if getattr(execution, name) not in (getattr(DEFAULT_EXECUTION, name), getattr(beside, name)):
            msg = f"{name} is given twice, with two values"
            raise ArgumentError(msg, name=name, hint=f"give it once, in execution=Execution({name}=...)")
    return beside if execution is None else replace(execution, **given)
