"""What the suite of streams finds, and how it is to look for it."""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin_ds.bench.sides import check_peers

__all__ = ["Finding", "StreamSettings"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One measured number.

    Attributes
    ----------
    workload, measure : str
    value : float
    unit : str
    at_least, at_most : float or None
        What it must reach; only in the full size.
    peer : str
        Another way of doing the same, measured in the same run; "" for none.
    peer_value : float or None
    peak_mib : float or None
        Of ours, as `Run`.
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
        """Whether it reached its bound; None without one."""
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
        Windows of seconds and a few batches: whether it all works, not how fast it is. No bounds are held.
    rate : int
        Of the measure "rate": tuples a second, each stream.
    batches : int
        Batches that a median is taken of, at least.
    limit_s : int
        Time after which a peer takes no further step.
    """

    peers: tuple[str, ...] = ("spark-tuned", "duckdb")
    quick: bool = False
    rate: int = 30_000
    batches: int = 5
    limit_s: int = 20

    def __post_init__(self) -> None:
        check_peers(self.peers)

    def bound(self, value: float) -> float | None:
        """A bound of the full size."""
        return None if self.quick else value
