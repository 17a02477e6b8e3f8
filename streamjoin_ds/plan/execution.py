"""How the engine of each cell works: what may be another at every restart, because no row of a result depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.predicate import Column

__all__ = ["DEFAULT_EXECUTION", "KERNELS", "Execution"]

# What a machine may have; which of them it has, a worker finds out (the driver may be another kind of machine).
KERNELS = ("auto", "avx512", "avx2", "scalar", "reference")
_WORDS = ("auto", "scan")

Index = str | tuple[tuple[str, str | tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """Options of every cell's `WindowJoin`; they are no part of a join's fingerprint.

    Parameters
    ----------
    kernel : str
        "auto", or the name of one kernel implementation.
    threads : int
        Kernels of one cell that work side by side on a large batch.
    pin : bool
        Whether kernel threads are pinned to leased cores, where as many are free.
    index : "auto", "scan", sequence of "stream.column", or mapping of stream to columns
        How windows are laid out: one or two compared columns a stream, buckets of the first, each sorted by the second.
        As one text too: ``"e.latitude, e.longitude, w.latitude"``.
    order : "auto" or sequence of stream names
        In which the others join new tuples of a stream; as one text too: ``"e, w, x"``.
    merge_runs : int, optional
        Merge ratio: so many runs of like size become one. Where not given, what suits who keeps the windows.

    Raises
    ------
    ArgumentError
        What is not of its form. Names of streams and columns, and ranges, are checked by the engine, against a join.
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
        """The keywords of `WindowJoin`, but for the cores."""
        options: dict[str, Any] = {
            "kernel": self.kernel,
            "threads": self.threads,
            "index": self.index if isinstance(self.index, str) else dict(self.index),
            "order": self.order,
        }
        return options if self.merge_runs is None else {**options, "merge_runs": self.merge_runs}

    def to_facts(self) -> dict[str, object]:
        """As plain JSON values; `Execution.from_facts` is the way back."""
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
        """What `to_facts` described."""
        return cls(**facts)


def _check(name: str, value: object, kind: type, what: str) -> None:
    if type(value) is not kind:  # True is no number of threads
        msg = f"{name} is not {what}"
        raise ArgumentError(msg, name=name, hint=f"give {what}, or leave it out")


def _index(given: object) -> Index:
    if given in _WORDS:
        return str(given)
    if isinstance(given, Mapping):
        return tuple((str(stream), _columns(wanted)) for stream, wanted in given.items()) or "auto"
    if isinstance(given, tuple) and given and all(isinstance(part, tuple) for part in given):
        return given  # already as it is inside
    found: dict[str, tuple[str, ...]] = {}
    for text in _texts(given, "index", "auto, scan, or 'e.latitude, e.longitude, w.latitude'"):
        column = Column.of(text)
        found[column.stream] = (*found.get(column.stream, ()), column.name)
    return tuple(found.items())


def _columns(wanted: object) -> str | tuple[str, ...]:
    if wanted in _WORDS:
        return str(wanted)
    return tuple(_texts(wanted, "index", "one or two columns of each stream"))


def _order(given: object) -> str | tuple[str, ...]:
    return "auto" if given == "auto" else tuple(_texts(given, "order", "auto, or all streams: 'e, w, x'"))


def _texts(given: object, name: str, hint: str) -> list[str]:
    """Texts, or one text of several with commas between."""
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, str) and part for part in parts):
        msg = f"{name} is not of a form that is understood"
        raise ArgumentError(msg, name=name, hint=hint)
    return list(parts)


# One object for all who ask for nothing else.
DEFAULT_EXECUTION = Execution()
