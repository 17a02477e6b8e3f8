"""The findings of the suite of streams, and the settings by which it measures."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.suites.sides import check_peers

__all__ = ["Finding", "StreamSettings"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One measured number.

    Attributes
    ----------
    workload, measure : str
        Names of the workload and the measure.
    value : float
        The number.
    unit : str
        Its unit.
    at_least, at_most : float or None
        The bounds that it must keep; None in a quick look.
    peer : str
        Another way of doing the same, measured in the same run; "" for none.
    peer_value : float or None
        The peer's number.
    peak_mib : float or None
        Peak memory of our process and its children (`SideRun`).
    note : str
        How it was measured.
    others_cores : float
        Cores that everything else on the machine kept busy meanwhile.
    """

    workload: str
    measure: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    peer: str = ""
    peer_value: float | None = None
    peak_mib: float | None = None
    note: str = ""
    others_cores: float = 0.0

    @property
    def met(self) -> bool | None:
        """Whether the number keeps its bounds; None: it has none."""
        if self.at_least is None and self.at_most is None:
            return None
        over = self.at_least is None or self.value >= self.at_least
        return over and (self.at_most is None or self.value <= self.at_most)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How to measure.

    Parameters
    ----------
    peers : tuple of str
        Names of `SIDES` but ours.
    quick : bool
        Whether windows are seconds long and batches are few: this shows whether all works, not how fast it is. There
        are then no bounds.
    rate : int
        Tuples a second of each stream, for the measure "rate".
    batches : int
        Least number of batches of which a median is taken.
    limit_s : int
        Seconds after which a peer takes no further step.
    """

    peers: tuple[str, ...] = ("spark-tuned", "duckdb")
    quick: bool = False
    rate: int = 30_000
    batches: int = 5
    limit_s: int = 20

    def __post_init__(self) -> None:
        check_peers(self.peers)

    def bound(self, value: float) -> float | None:
        """Return a bound as it is in the full size; None in a quick look."""
        return None if self.quick else value
