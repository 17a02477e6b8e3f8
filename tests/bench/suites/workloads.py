"""The fixed workloads (ARCHITECTURE.md, "Workloads"): the joins, and how much of the input each side is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Generator, Stream, band
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.query_options import DEFAULT_MAX_ROWS

__all__ = ["WORKLOADS", "Target", "Workload", "band2d", "make_workload"]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that a measure is held against.

    Parameters
    ----------
    measure : str
        Name of the measure: ``"rows_per_second"``, or ``"speedup"`` over `peer`.
    at_least : float
        The bound, included, in the measure's unit.
    peer : str
        The peer of a speed-up.
    """

    measure: str
    at_least: float
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """One join and how it is measured.

    Attributes
    ----------
    name, summary : str
        Its name (ARCHITECTURE.md, "Workloads"), and what it is, in a few words.
    join : StreamJoin
        The join: two streams, symmetric bands, a time window.
    max_rows_per_batch : int or None
        Most rows of our batches, both streams together. None: so many that we have about as many batches as Spark's own
        way. Only then are speeds compared.
    slices : int
        Number of parts of equal event time into which the peers' input is cut; Spark's own way takes one in each
        trigger. If the time limit stops a peer, it has taken in the first parts only. That flatters it, because its
        window is less full.
    cell_widths : int
        Width of a grid cell of the tuned peers, in units of eps (half a band's width): the best of 1, 2, 4, 8 and 32 by
        measurement.
    micro_batch_us : int
        Event time, in microseconds, of one of DuckDB's micro-batches.
    matches : int or None
        The known number of results of the whole input; each bench also counts them itself.
    peer_rows : int or None
        Tuples of each stream after which the peers' input is cut, if peers could not come near its end anyway. The
        whole input is then not counted again: `matches` says how many results it has.
    target : Target or None
        The target, if the workload has its fixed size.
    """

    name: str
    summary: str
    join: StreamJoin
    max_rows_per_batch: int | None
    slices: int
    cell_widths: int
    micro_batch_us: int
    matches: int | None = None
    peer_rows: int | None = None
    target: Target | None = None


# Generated tuples are the same everywhere, so the number of matches is a constant (`oracle` counted it once).
_INPUT_BOUND_ROWS = 12_000_000
_INPUT_BOUND_MATCHES = 23_976
_SLICE_ROWS = 50_000  # rows of a slice, about, both streams together
_LEAST_SLICES = 8  # least number of slices


def _slices(rows: int) -> int:
    return max(rows // _SLICE_ROWS, _LEAST_SLICES)


def band2d(
    rate: int | str,
    window: str,
    *,
    rows: int = 0,
    select: tuple[str, ...] | None = None,
    eps: int = 10,
    second_rate: int | str | None = None,
) -> StreamJoin:
    """Return the papers' join of two generated streams, ``abs(x - a) <= eps AND abs(y - b) <= eps``.

    Parameters
    ----------
    rate : int or str
        Tuples of each stream in a second of event time; or rates that change, as the generator's parameter `rates`.
    window : str
        The window of both streams.
    rows : int
        Tuples of each stream; 0 for endless streams.
    select : tuple of str, optional
        Columns of the result; by default all.
    eps : int
        Half of the bands' width; values are uniform from 1 to 10 000.
    second_rate : int or str, optional
        The rate of the second stream; by default that of the first.
    """
    rates = {"r": rate, "s": rate if second_rate is None else second_rate}
    streams = [
        Stream(side, Generator("band2d", {_rate_key(of): of, "rows": rows, "seed": 1, "side": side}))
        for side, of in rates.items()
    ]
    on = f"abs(r.x - s.a) <= {eps} AND abs(r.y - s.b) <= {eps}"
    return StreamJoin(streams, on=on, window=window, select=select)


def _rate_key(rate: int | str) -> str:
    return "rates" if isinstance(rate, str) else "rate"


def _band2d_small(data: Path | None, rows: int | None) -> Workload:
    count = rows or 200_000
    rate = 1_000
    # The window is half of the input: it shrinks with the number of rows, while the rate stays.
    window_us = count * 1_000_000 // rate // 2
    return Workload(
        "band2d-small",
        f"{count:,} tuples a side, two bands, window = half the input",
        band2d(rate, f"{window_us}us", rows=count),
        max_rows_per_batch=None,
        slices=_slices(2 * count),
        cell_widths=8,
        micro_batch_us=1_000_000,
        matches=None if rows else 126_023,
        target=None if rows else Target("speedup", 30.0, "spark-tuned"),
    )


def _input_bound(data: Path | None, rows: int | None) -> Workload:
    count = rows or _INPUT_BOUND_ROWS
    peer_rows = None if rows else _INPUT_BOUND_ROWS // 10
    # A tuple meets 2 * rate tuples of the other side in its window, and one in 238 000 matches. So with 238 tuples a
    # second there is one match for 500 tuples of a side, that is for 1 000 rows.
    rate = 238
    return Workload(
        "input-bound",
        f"{count:,} tuples a side, two bands, 1 s window, 1 match in 1 000 rows",
        band2d(rate, "1s", rows=count, select=("r.x", "r.y", "s.a", "s.b")),
        max_rows_per_batch=4_000_000,
        slices=_slices(2 * (peer_rows or count)),
        cell_widths=8,
        micro_batch_us=10_000_000,
        matches=None if rows else _INPUT_BOUND_MATCHES,
        peer_rows=peer_rows,
        target=None if rows else Target("rows_per_second", 3e6),
    )


def _llhj(data: Path | None, rows: int | None) -> Workload:
    rate = 5_117
    count = rows or 1_000 * rate
    return Workload(
        "band2d-llhj",
        f"{rate:,} tuples/s a stream, 15 min windows; peers: at most {count:,} tuples a side, from empty windows on",
        band2d(rate, "15m", rows=count, select=("r.x", "r.y", "s.a", "s.b")),
        max_rows_per_batch=DEFAULT_MAX_ROWS,
        slices=_slices(2 * count),
        cell_widths=8,
        micro_batch_us=25_000_000,  # the best of 5, 25 and 98 s by measurement
        # Peers never take in all of it: the matches are counted of the part that they took in, not of the whole.
        peer_rows=count,
    )


def _flights(data: Path | None, rows: int | None) -> Workload | None:
    folder = None if data is None else data / "swiss_flights"
    if folder is None or not (folder / "eastbound.csv.gz").exists():
        return None
    join = StreamJoin(
        [Stream("e", str(folder / "eastbound.csv.gz")), Stream("w", str(folder / "westbound.csv.gz"))],
        on=[
            band("e.latitude", "w.latitude", 0.1),
            band("e.longitude", "w.longitude", 0.15),
            band("e.altitude", "w.altitude", 1000),
        ],
        window="15s",
    )
    summary = "recorded positions of aircraft, three bands, 15 s"
    return Workload("flights", summary, join, None, 8, 8, 60_000_000, matches=4_748)


def _air(data: Path | None, rows: int | None) -> Workload | None:
    folder = None if data is None else data / "beijing_air"
    if folder is None or not (folder / "urban.csv.gz").exists():
        return None
    join = StreamJoin(
        [Stream("u", str(folder / "urban.csv.gz")), Stream("s", str(folder / "suburban.csv.gz"))],
        on=[band("u.PM2.5", "s.PM2.5", 5), band("u.TEMP", "s.TEMP", 0.5), band("u.WSPM", "s.WSPM", 0.5)],
        window={"u": "6h", "s": "0s"},
        select=["u.ts", "u.station", "u.PM2.5", "u.TEMP", "u.WSPM", "s.ts", "s.station", "s.PM2.5", "s.TEMP", "s.WSPM"],
    )
    summary = "recorded air quality, three bands, 0 to 6 h"
    return Workload("air", summary, join, None, 8, 8, 86_400_000_000, matches=131_938)


# In the order of the report.
WORKLOADS: Mapping[str, Callable[[Path | None, int | None], Workload | None]] = {
    "band2d-small": _band2d_small,
    "flights": _flights,
    "air": _air,
    "input-bound": _input_bound,
}
# A workload for the peers of the suite of streams only: our side there takes in the same streams without an end.
_STREAMED: Mapping[str, Callable[[Path | None, int | None], Workload | None]] = {"band2d-llhj": _llhj}


def make_workload(name: str, data: Path | None, rows: int | None = None) -> Workload | None:
    """Return the workload of this name; None if it needs recorded data that is not there.

    Parameters
    ----------
    name : str
        A key of `WORKLOADS`, or "band2d-llhj".
    data : Path or None
        Folder of the recorded data.
    rows : int, optional
        Tuples of each stream in a generated workload, instead of its fixed size (it then has no target).

    Raises
    ------
    ArgumentError
        There is no workload of this name.
    """
    make = WORKLOADS.get(name) or _STREAMED.get(name)
    if make is None:
        msg = f"there is no workload '{name}'"
        raise ArgumentError(msg, name=name, hint=f"one of {', '.join(WORKLOADS)}")
    return make(data, rows)
