"""The choice of a run's sort layout: by which two keys it is ordered, and how wide its buckets are.

A run is in *grid order*: by bucket of its first key, then by its second key. A small cost model makes the choice. It
goes by a sample of the run, which says for each key what share of the run lies within a probe's band. Time is one band
among them. The option `index` forces a choice.

::

    no key narrows                 order of arrival, scanned
    one key narrows                sorted by it                       (first = -1)
    two keys narrow                buckets of one, sorted by the other
    one of them is an equality     its buckets hold one value each
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from streamjoin_ds.engine.tuning import DEFAULT, LayoutTuning
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import names_hint

__all__ = [
    "ARRIVAL_ORDER",
    "Keys",
    "RunBand",
    "Sample",
    "SortLayout",
    "SortLayoutChooser",
    "bands_of",
    "forced_index",
    "sampled",
]

_log = logging.getLogger(__name__)

Keys = Sequence[npt.NDArray[np.float64] | npt.NDArray[np.int64]]

# Rows of a run: the layout of a smaller one is not worth a line in the log.
_LOGGED_ROWS = 4096

_WORDS = ("auto", "scan")
_MOST_COLUMNS = 2


def sampled(parts: Keys, rows: int) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
    """Return about `rows` values of a key, drawn from all parts that a run is to be made of."""
    share = rows / max(sum(len(part) for part in parts), 1)
    values: npt.NDArray[np.float64] | npt.NDArray[np.int64] = np.concatenate(
        [part[_drawn(len(part), math.ceil(len(part) * share))] for part in parts]
    )
    return values


@lru_cache(maxsize=64)
def _drawn(count: int, rows: int) -> slice | npt.NDArray[np.int64]:
    """Return which `rows` of `count` rows to look at: drawn at random, but always the same ones.

    Evenly spaced rows would not do, because runs are sorted: a value that occurs in fewer rows than the spacing would
    never be seen twice.
    """
    if count <= rows:
        return slice(None)
    # Raw bits, because NumPy keeps these the same in all versions and does not promise that of its distributions.
    return np.unique(np.random.SFC64(0).random_raw(rows) % np.uint64(count)).astype(np.int64)


class Sample:
    """A sorted sample of a key's values, which tells how dense they are.

    Parameters
    ----------
    values : ndarray, float64 or int64
    tuning : LayoutTuning
    rows : int or None
        Rows of the sample, at most; None: `LayoutTuning.sample_rows`.
    neighbours : int or None
        Where fewer sampled values than this lie within a band, the distance between values that are this many places
        apart tells the density. None: `LayoutTuning.neighbours`.
    """

    def __init__(
        self,
        values: npt.NDArray[np.float64] | npt.NDArray[np.int64],
        tuning: LayoutTuning,
        rows: int | None = None,
        neighbours: int | None = None,
    ) -> None:
        sample = values[_drawn(len(values), tuning.sample_rows if rows is None else rows)]
        self._neighbours = tuning.neighbours if neighbours is None else neighbours
        self._outlier_share, self._tested_per_bucket = tuning.outlier_share, tuning.tested_per_bucket
        self.is_int = values.dtype.kind == "i"
        numbers = sample.astype(np.float64)
        self._sorted = np.sort(numbers[np.isfinite(numbers)])

    @property
    def span(self) -> float:
        """The span of most values, scaled up to all of them; a few outliers, such as fill values, do not count."""
        left_out = self._outlier_share
        low, high = self._quantile(left_out), self._quantile(1.0 - left_out)
        # Where most values are equal, the others decide.
        return min((high - low) / (1.0 - 2 * left_out), sys.float_info.max) if high > low else self.full_span

    @property
    def full_span(self) -> float:
        """The distance between the smallest and the largest value; always finite."""
        return min(self._quantile(1.0) - self._quantile(0.0), sys.float_info.max)

    @property
    def largest(self) -> float:
        """An absolute value that most do not exceed by much."""
        low, high = self._quantile(2 * self._outlier_share), self._quantile(1.0 - 2 * self._outlier_share)
        return max(abs(low), abs(high))

    def _quantile(self, share: float) -> float:
        count = len(self._sorted)
        return float(self._sorted[min(int(share * count), count - 1)]) if count else 0.0

    def share(self, extent: int | float) -> float:
        """Return the share of the run within a band of this extent, averaged over bands around the run's own values."""
        values = self._sorted
        count = len(values)
        if count < 2:
            return 1.0
        reach = float(extent) / 2
        with np.errstate(over="ignore"):
            high, low = values + reach, values - reach
        inside = np.searchsorted(values, high, "right") - np.searchsorted(values, low, "left")
        counted = (inside - 1) / (count - 1)
        steps = min(self._neighbours, count - 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gaps = values[steps:] - values[:-steps]
            dense = np.minimum(float(extent) * steps / (count - 1) / gaps, steps / (count - 1))
        dense = np.where(gaps > 0, dense, steps / (count - 1))
        few = counted[: len(dense)] * (count - 1) < steps
        return float(min(1.0, np.where(few, np.maximum(dense, counted[: len(dense)]), counted[: len(dense)]).mean()))

    def width(self, extent: int | float, rows: int, second_rows: float) -> int | float:
        """Return the width of a bucket: the band, so that a probe visits two, or more where that adds few tested pairs.

        A visit to a bucket costs about as much as testing a few pairs. So a bucket may be so wide that
        `LayoutTuning.tested_per_bucket` of its rows lie within the band of the second key.
        """
        tested = self._tested_per_bucket
        wide = min(self.span * tested / max(second_rows, tested), 2.0**61)
        if extent > 0 and float(extent) < wide:
            # The band times a power of two: similar runs get the same width, so probes are sorted once for all of them.
            wide = extent * 2.0 ** math.floor(math.log2(wide / float(extent)))
        if self.is_int:
            return 1 if extent == 0 else max(1, min(max(int(extent), int(wide)), 1 << 62))
        # Below a float's resolution a bucket could not be told from the next.
        width = max(float(extent), wide, self.largest * 2.0**-40, 1e-290)
        return width if np.isfinite(width) else 1.0


class SortLayout(Struct, frozen=True):
    """The order of a run: numbers of its first and second key (-1: none) and the first key's bucket width."""

    first: int
    second: int
    width: int | float

    @property
    def is_sorted(self) -> bool:
        """Whether the run is in an order that a probe can use."""
        return self.first >= 0 or self.second >= 0

    def described(self, names: Sequence[str]) -> str:
        """Return the layout in words; `names` are the columns of the keys."""
        if self.first >= 0 and self.second >= 0:
            return f"buckets of {names[self.first]} (width {self.width}), sorted by {names[self.second]}"
        if self.second >= 0:
            return f"sorted by {names[self.second]}"
        return "scanned" if self.first < 0 else f"buckets of {names[self.first]} (width {self.width})"

    @classmethod
    def restored(cls, first: int, second: int, width: int | float, keys: int) -> SortLayout:
        """Return the layout that a saved state gives for a run with `keys` keys.

        Raises
        ------
        TypeError, ValueError
            The values are no layout of such a run.
        """
        numbers = (first, second)
        if any(type(number) is not int or not -1 <= number < keys for number in numbers) or not width > 0:
            msg = "this is not a sort layout of the run's keys"
            raise ValueError(msg)
        return cls(first, second, width)


ARRIVAL_ORDER = SortLayout(-1, -1, 1)


class RunBand(Struct, frozen=True):
    """A band on a key of a run: the other stream that it compares, and how far apart the band's ends are."""

    key: int
    partner: int
    kind: str
    extent: int | float


def bands_of(bound: BoundJoin, stream: int) -> tuple[RunBand, ...]:
    """Return all bands on the keys of one stream, whichever side of the condition the stream is on."""
    bands = []
    for condition in (*bound.conditions, *bound.finding):
        extent = condition.hi - condition.lo
        if extent == math.inf:
            continue
        if condition.left_stream == stream:
            bands.append(RunBand(condition.left_key, condition.right_stream, condition.kind, extent))
        elif condition.right_stream == stream:
            bands.append(RunBand(condition.right_key, condition.left_stream, condition.kind, extent))
    return tuple(bands)


class RunInterval(Struct, frozen=True):
    """An interval by whose key a run can be sorted: the other stream, and whether it has two ends."""

    key: int
    partner: int
    has_two_ends: bool


def intervals_of(bound: BoundJoin, stream: int) -> tuple[RunInterval, ...]:
    """Return the intervals on the limits of one stream, each by the limit that tells where a probe's rows begin.

    That is the upper one; of an interval with one end it is the only one.
    """
    found: dict[tuple[int, int], list[tuple[bool, int]]] = {}
    for condition in bound.finding:
        is_left = condition.left_stream == stream
        if condition.interval_number >= 0 and (is_left or condition.right_stream == stream):
            partner = condition.right_stream if is_left else condition.left_stream
            is_lower = is_left == (condition.lo == -math.inf)
            own = condition.left_key if is_left else condition.right_key
            found.setdefault((condition.interval_number, partner), []).append((is_lower, own))
    return tuple(RunInterval(min(ends)[1], partner, len(ends) > 1) for (_, partner), ends in found.items())


def compared_with(bound: BoundJoin, stream: int) -> dict[int, frozenset[int]]:
    """Return, for each stream that a condition compares with this one, the keys of this one that are compared with it.

    A stream that only the window's rules link to this one is left out. For the others, keys of these rules count too.
    """
    found: dict[int, set[int]] = {}
    near: set[int] = set()
    for number, condition in enumerate((*bound.conditions, *bound.finding)):
        sides = [(condition.left_stream, condition.left_key), (condition.right_stream, condition.right_key)]
        for (own, key), (partner, _) in (sides, sides[::-1]):
            if own == stream:
                found.setdefault(partner, set()).add(key)
                near |= {partner} if number >= bound.window_conditions else set()
    return {partner: frozenset(found[partner]) for partner in sorted(near)}


class SortLayoutChooser:
    """Chooses the sort layout of each run of one stream.

    Parameters
    ----------
    bound : BoundJoin
    stream : int
    forced : "auto", "scan" or sequence of str
        "scan" leaves every run in the order of arrival; a sequence of one or two key columns is the layout to use.
    tuning : LayoutTuning, keyword-only
    """

    def __init__(
        self,
        bound: BoundJoin,
        stream: int,
        forced: str | Sequence[str] = "auto",
        *,
        tuning: LayoutTuning = DEFAULT.layout,
    ) -> None:
        self.tuning = tuning
        compared = compared_with(bound, stream)
        # New tuples of a stream never come with a row of a table alone. So tables count where no stream asks.
        streams = range(len(bound.names))
        asking = [partner for partner in compared if partner in streams] or list(compared)
        counting = {*asking, *streams} if isinstance(forced, str) else {*range(len(bound.member_names))}
        self._compared = {partner: compared[partner] for partner in asking}
        self._bands = tuple(b for b in bands_of(bound, stream) if b.partner in counting)
        self._intervals = tuple(i for i in intervals_of(bound, stream) if i.partner in counting)
        self._banded = frozenset(band.key for band in self._bands)
        self._forced = forced
        # Whether two neighbours (streams that are compared with this one) ask by different keys. A run's order may then
        # serve one of them and not the other.
        self.has_rival_keys = forced == "auto" and len(set(self._compared.values())) > 1
        self._names, self._stream_name = (
            tuple(key.column for key in bound.index_keys[stream]),
            bound.member_names[stream],
        )

    def choose(self, keys: Keys, rows: int | None = None) -> SortLayout:
        """Return the sort layout for a run with these keys. It is a function of the parameters alone.

        Parameters
        ----------
        keys : sequence of ndarray, shape (n,), float64 or int64
            The rows may be in any order.
        rows : int, optional
            Rows of the run, where the keys are only a sample of it.
        """
        rows = len(keys[0]) if rows is None else rows
        if self._forced == "scan" or (self._forced == "auto" and rows < self.tuning.least_sorted_rows):
            return ARRIVAL_ORDER
        numbers = {*(band.key for band in self._bands), *(one.key for one in self._intervals)}
        samples = {number: Sample(keys[number], self.tuning) for number in sorted(numbers)}
        if not isinstance(self._forced, str):
            return self._forced_grid(samples, rows)
        shares = {
            (band.key, band.partner): max(samples[band.key].share(band.extent), 1.0 / rows) for band in self._tightest()
        }
        self._add_intervals(shares, [(of.key, of.partner, of.has_two_ends) for of in self._intervals], rows)
        narrow = {partner for (_, partner), share in shares.items() if share < self.tuning.narrow_share}
        shares = {place: share for place, share in shares.items() if not narrow or place[1] in narrow}
        best, cost = self._best(samples, shares, rows)
        if rows >= _LOGGED_ROWS and _log.isEnabledFor(logging.DEBUG):
            self._tell(best, cost, shares, rows)
        return best

    def _tell(self, grid: SortLayout, cost: float, shares: Mapping[tuple[int, int], float], rows: int) -> None:
        narrowest: dict[int, float] = {}
        for (key, _), share in shares.items():
            narrowest[key] = min(share, narrowest.get(key, share))
        found = ", ".join(f"{self._names[key]} {share:.2g}" for key, share in narrowest.items())
        what = "stream %s: a run of %d rows: %s; a probe costs %.0f tested rows; shares of it within a band: %s"
        _log.debug(what, self._stream_name, rows, grid.described(self._names), cost, found)

    def better(self, grid: SortLayout, partners: frozenset[int], keys: Keys, rows: int) -> SortLayout | None:
        """Return a layout in which a probe tests far fewer rows than in `grid`; None: there is none.

        Parameters
        ----------
        grid : SortLayout
        partners : frozenset of int
            Streams in the probe, whose bands on this stream are counted.
        keys : sequence of ndarray, float64 or int64
            Of the run, or of a sample of it.
        rows : int
            Of the run.
        """
        if self._forced != "auto" or rows < self.tuning.least_sorted_rows:
            return None
        samples, shares = self._asked(partners, dict(enumerate(keys)), rows)
        best, cost = self._best(samples, shares, rows)
        own_cost = self._cost(grid.first, grid.second, shares, rows, samples)
        return best if cost * self.tuning.far_better < own_cost else None

    def visits(
        self,
        grid: SortLayout,
        partners: frozenset[int],
        keys: Mapping[int, npt.NDArray[np.float64] | npt.NDArray[np.int64]],
        rows: int,
    ) -> tuple[float, float]:
        """Return how many buckets a probe visits, and which share of a run's rows it tests; 0 and 1.0 where it scans.

        Parameters
        ----------
        keys : mapping of number to ndarray
            The keys that the probe's conditions are on.
        grid, partners, rows
            As for `better`.
        """
        samples, shares = self._asked(partners, keys, rows)
        return self._visits(grid.first, grid.second, 0, shares, rows, samples) or (0.0, 1.0)

    def _asked(
        self,
        partners: frozenset[int],
        keys: Mapping[int, npt.NDArray[np.float64] | npt.NDArray[np.int64]],
        rows: int,
    ) -> tuple[dict[int, Sample], dict[tuple[int, int], float]]:
        """Return samples of the keys that some streams ask by, and for each the share of the rows in its tightest band.

        The streams count together as one, which has the number 0.
        """
        bands = [band for band in self._bands if band.partner in partners and band.key in keys]
        samples = {band.key: Sample(keys[band.key], self.tuning) for band in bands}
        extents = {key: min(band.extent for band in bands if band.key == key) for key in samples}
        shares = {(key, 0): max(samples[key].share(extent), 1.0 / rows) for key, extent in extents.items()}
        intervals = [of for of in self._intervals if of.partner in partners and of.key in keys]
        samples.update((of.key, Sample(keys[of.key], self.tuning)) for of in intervals if of.key not in samples)
        self._add_intervals(shares, [(of.key, 0, of.has_two_ends) for of in intervals], rows)
        return samples, shares

    def _add_intervals(
        self, shares: dict[tuple[int, int], float], intervals: Sequence[tuple[int, int, bool]], rows: int
    ) -> None:
        """Add the share that is tested of a run that is sorted by an interval's key, whose length is not known."""
        for key, partner, has_two_ends in intervals:
            share = max(self.tuning.interval_share if has_two_ends else self.tuning.half_interval_share, 1.0 / rows)
            shares[key, partner] = min(share, shares.get((key, partner), 1.0))

    def suits_all(self, numbers: Sequence[int], keys: Keys, rows: int) -> bool:
        """Whether grid cells of some keys serve every neighbour whose bands narrow the rows at all.

        Parameters
        ----------
        numbers : sequence of int
            Numbers of the keys that make a cell.
        keys, rows
            As for `better`.
        """
        return all(
            self.better(ARRIVAL_ORDER, frozenset((partner,)), keys, rows) is None for partner in self.unserved(numbers)
        )

    def serving_all(self, numbers: Sequence[int], keys: Keys, rows: int) -> list[int]:
        """Return these keys, or only one of them where no other layout would serve any neighbour far better."""
        for number in numbers if self.unserved(numbers) else ():
            grid = SortLayout(-1, number, 1)
            if all(self.better(grid, frozenset((partner,)), keys, rows) is None for partner in self._compared):
                return [number]
        return list(numbers)

    def unserved(self, numbers: Sequence[int]) -> list[int]:
        """Return the neighbours whose conditions are not on all of these keys; none if all ask by the same."""
        return [n for n, asked in self._compared.items() if self.has_rival_keys and not asked.issuperset(numbers)]

    def _best(
        self, samples: Mapping[int, Sample], shares: Mapping[tuple[int, int], float], rows: int
    ) -> tuple[SortLayout, float]:
        """Return the cheapest layout and its cost; a later candidate wins only below `gain_share` of the best cost."""
        usable = sorted({key for key, _ in shares})
        best, best_cost = ARRIVAL_ORDER, self._cost(-1, -1, shares, rows, samples)
        for first in (-1, *(key for key in usable if key in self._banded)):
            for second in usable:
                cost = self._cost(first, second, shares, rows, samples) if first != second else best_cost
                if cost < best_cost * self.tuning.gain_share:
                    second_rows = rows * min(
                        (share for (key, _), share in shares.items() if key == second), default=1.0
                    )
                    best, best_cost = SortLayout(first, second, self._width(first, samples, rows, second_rows)), cost
        return best, best_cost

    @property
    def has_intervals(self) -> bool:
        """Whether a run may be sorted by a key of an interval."""
        return bool(self._intervals)

    def is_banded(self, key: int) -> bool:
        """Whether a band is on this key, so that its values can be put into buckets."""
        return key in self._banded

    def extent(self, key: int) -> int | float:
        """Return how far apart the ends of a key's tightest band are."""
        return min(band.extent for band in self._bands if band.key == key)

    def _tightest(self) -> list[RunBand]:
        chosen: dict[tuple[int, int], RunBand] = {}
        for band in self._bands:
            place = (band.key, band.partner)
            if place not in chosen or band.extent < chosen[place].extent:
                chosen[place] = band
        return list(chosen.values())

    def _cost(
        self,
        first: int,
        second: int,
        shares: Mapping[tuple[int, int], float],
        rows: int,
        samples: Mapping[int, Sample],
    ) -> float:
        """Return the cost of one probe by each of the other streams, in tested pairs; other work counts as pairs."""
        total, probe_cost, bucket_cost = 0.0, self.tuning.probe_cost, self.tuning.bucket_cost
        for partner in sorted({partner for _, partner in shares}):
            found = self._visits(first, second, partner, shares, rows, samples)
            total += rows if found is None else probe_cost + bucket_cost * found[0] + rows * found[1]
        return total

    def _visits(
        self,
        first: int,
        second: int,
        partner: int,
        shares: Mapping[tuple[int, int], float],
        rows: int,
        samples: Mapping[int, Sample],
    ) -> tuple[float, float] | None:
        """Return how many buckets a stream's probe visits, and which share of the rows it tests; None: it scans."""
        first_share, second_share = shares.get((first, partner)), shares.get((second, partner))
        if first_share is None:
            return None if first >= 0 or second_share is None else (0.0, second_share)
        width = self._width(first, samples, rows, (second_share or 1.0) * rows)
        width_share = samples[first].share(width)
        equality = samples[first].is_int and first_share <= width_share
        visited = min(1.0, first_share if equality else first_share + width_share)
        buckets = 1.0 if equality else 1.0 + first_share / max(width_share, 1e-12)
        return buckets, visited * (second_share or 1.0)

    def _width(self, first: int, samples: Mapping[int, Sample], rows: int, second_rows: float) -> int | float:
        """Return the bucket width for the first key, where the second key leaves `second_rows` of the run's rows."""
        if first < 0:
            return 1
        return samples[first].width(self.extent(first), rows, second_rows)

    def _forced_grid(self, samples: Mapping[int, Sample], rows: int) -> SortLayout:
        numbers = [self._names.index(name) for name in self._forced]
        numbers = [number for number in numbers if number in samples]
        if not numbers:
            return ARRIVAL_ORDER
        first, second = numbers[:2] if len(numbers) > 1 else (-1, numbers[0])
        return SortLayout(first, second, self._width(first, samples, rows, rows))


def forced_index(bound: BoundJoin, index: str | Mapping[str, str | Sequence[str]]) -> list[str | tuple[str, ...]]:
    """Return `SortLayoutChooser`'s argument `forced` for each stream and table; "auto" where `index` names none.

    Raises
    ------
    ArgumentError
        `index` is not "auto", "scan", or a mapping of the join's streams to one of these or to one or two columns.
    ColumnError
        No predicate and no window compares the column, so no probe could use its order.
    """
    if isinstance(index, str):
        index = dict.fromkeys(bound.member_names, index)
    for name in index:
        if name not in bound.member_names:
            msg = f"the index names the stream '{name}', which is not in the join"
            raise ArgumentError(msg, name="index", hint=names_hint(name, bound.member_names, "the streams are"))
    return [_of_stream(bound, stream, index.get(name, "auto")) for stream, name in enumerate(bound.member_names)]


def _of_stream(bound: BoundJoin, stream: int, wanted: str | Sequence[str]) -> str | tuple[str, ...]:
    name = bound.member_names[stream]
    if isinstance(wanted, str):
        if wanted not in _WORDS:
            msg = f"the index of stream {name} is neither a known word nor columns"
            raise ArgumentError(msg, name="index", hint="auto, scan, or one or two columns of each stream")
        return wanted
    keys = [key.column for key in bound.keys[stream]]
    for column in wanted:
        if column not in keys:
            msg = f"the index of stream {name} has the column '{column}', which no predicate and no window compares"
            raise ColumnError(msg, name=column, hint=names_hint(column, keys, "the compared columns are"))
    if not 1 <= len(wanted) <= _MOST_COLUMNS or len(set(wanted)) < len(wanted):
        msg = f"the index of stream {name} must be one or two different columns"
        raise ArgumentError(msg, name="index", hint="the first makes buckets, the second sorts each of them")
    return tuple(wanted)
