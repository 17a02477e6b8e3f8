"""Options of the engine of each cell. They may change at every restart, because no result depends on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.predicate import Column

__all__ = ["DEFAULT_EXECUTION", "KERNELS", "Execution"]

# Kernels that a machine may have. A worker finds out which of them it has: the driver may be another kind of machine.
KERNELS = ("auto", "avx512", "avx2", "scalar", "reference")
_WORDS = ("auto", "scan")

Index = str | tuple[tuple[str, str | tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """Options of every cell's `WindowJoin`. They are no part of a join's fingerprint.

    Parameters
    ----------
    kernel : str
        "auto", or the name of one kernel implementation.
    threads : int
        Number of kernel threads of one cell, at most: a batch has as many as its work asks for.
    pin : bool
        Whether kernel threads are pinned to leased cores, where as many are free.
    index : "auto", "scan", sequence of "stream.column", or mapping of stream to columns
        The sort layout of runs. "auto" chooses it run by run, "scan" leaves runs in order of arrival. Columns are one
        or two compared columns for each stream. With one, runs are sorted by it. With two, they are in buckets of the
        first, each sorted by the second. Columns may be one text: ``"e.latitude, e.longitude, w.latitude"``.
    order : "auto" or sequence of stream names
        The order in which the other streams join new tuples of a stream. It may be one text: ``"e, w, x"``.
    merge_runs : int, optional
        The merge ratio: so many runs of like size become one. Where not given, the engine chooses by whether the
        windows are blocks.

    Raises
    ------
    ArgumentError
        An option does not have its form. The engine checks ranges and names of streams and columns, against a join.
    """

    kernel: str = "auto"
    threads: int = 1
    pin: bool = True
    index: Any = "auto"  # inside: Index
    order: Any = "auto"  # inside: str, or tuple of str
    merge_runs: int | None = None

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            msg = "there is no kernel of this name"
            raise ArgumentError(msg, name="kernel", hint=f"one of {', '.join(KERNELS)}")
        _check("threads", self.threads, int, "a whole number")
        _check("pin", self.pin, bool, "true or false")
        if self.merge_runs is not None:
            _check("merge_runs", self.merge_runs, int, "a whole number")
        object.__setattr__(self, "index", _index(self.index))
        object.__setattr__(self, "order", _order(self.order))

    def engine_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `WindowJoin`, without the cores."""
        options: dict[str, Any] = {
            "kernel": self.kernel,
            "threads": self.threads,
            "index": self.index if isinstance(self.index, str) else dict(self.index),
            "order": self.order,
        }
        return options if self.merge_runs is None else {**options, "merge_runs": self.merge_runs}

    def to_facts(self) -> dict[str, object]:
        """Return the options as plain JSON values, which `Execution.from_facts` reads."""
        return {
            "kernel": self.kernel,
            "threads": self.threads,
            "pin": self.pin,
            "index": self.index if isinstance(self.index, str) else dict(self.index),
            "order": self.order,
            "merge_runs": self.merge_runs,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Execution:
        """Return the options that `to_facts` wrote."""
        return cls(**facts)


def _check(name: str, value: object, kind: type, what: str) -> None:
    if type(value) is not kind:  # not isinstance: True must not count as a number of threads
        msg = f"{name} must be {what}"
        raise ArgumentError(msg, name=name, hint=f"give {what}, or leave it out")


_INDEXES = "auto, scan, or 'e.latitude, e.longitude, w.latitude'"


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
