"""Samples of the streams' keys, by which ranges are chosen, and balanced anew while a join runs.

::

    part ──► SampledRows ──┐
    part ──► SampledRows ──┴─► joined, thinned ──► those of a window ──► KeySample of each stream ──► a layout

A tuple is in the sample if its number's hash is small enough. So samples of parts can be joined, the same input gives
the same sample, and what part of all tuples it is stays known.

A `KeySample` of one stream makes a curve: how many rows have a smaller key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from streamjoin_ds.plan.range_layout import Reach, band_attributes
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.columns import SEQ, TS, Float64
from streamjoin_ds.spec.key_values import nullable_key_values

__all__ = ["KeyCurve", "KeyHint", "KeySample", "SampledRows", "attributes_of", "sample_rows"]

# Most attributes that are looked at; further ones are left out.
_MOST_ATTRIBUTES = 4
# Sampled tuples of a stream: for each cell, and at least and at most in all. With 64 keys the fullest of a few cells is
# known to some percent.
_ROWS_FOR_CELL, _LEAST_ROWS, _MOST_ROWS = 64, 2_048, 16_384
# The column and the fact that `KeyHint.to_table` adds.
_STREAM, _THRESHOLDS = "stream", "thresholds"


class KeySample(Struct, frozen=True, eq=False):
    """Some keys of one stream, and how many rows have them or lie between them.

    Attributes
    ----------
    keys : ndarray of float64 or int64, shape (n,)
        Ascending, finite, each once; the smallest and the largest key are among them.
    at : ndarray of float64, shape (n,)
        Rows that have this very key: in a window, or in any stretch of time that is the same for all streams. Rows
        whose key matches nothing do not count.
    before : ndarray of float64, shape (n,)
        Rows whose key is between the key before and this one; 0 for the first.
    """

    keys: npt.NDArray[Any]
    at: Float64
    before: Float64

    @classmethod
    def of(cls, keys: npt.NDArray[Any], size: int) -> KeySample:
        """Return a sample of at most `size` + 2 of the keys, which may be in any order and not all finite.

        The sample is taken at equal distances of the sorted keys, and the rows at them and between them are counted: a
        histogram of equal depth. A random sample would have a larger error in the share of a range: one part in the
        root of `size`, instead of one in `size`.
        """
        ordered = np.sort(keys[np.isfinite(keys)])
        rows = len(ordered)
        places = np.linspace(0, rows - 1, min(size, rows) + 2).round().astype(np.int64) if rows else slice(0)
        values = np.unique(ordered if rows <= size else ordered[places])
        begins = np.searchsorted(ordered, values, side="left").astype(np.float64)
        ends = np.searchsorted(ordered, values, side="right").astype(np.float64)
        return cls(values, ends - begins, begins - np.concatenate(([0.0], ends[:-1]))[: len(values)])

    @property
    def total(self) -> float:
        """Rows of all keys."""
        return float(self.at.sum() + self.before.sum())

    @property
    def points(self) -> npt.NDArray[Any]:
        """The frequent keys: each has at least half of the rows that one sampled key stands for."""
        frequent: npt.NDArray[Any] = self.keys[2 * self.at * len(self.keys) >= self.total]
        return frequent

    def curve(self) -> KeyCurve:
        """Return the curve of the rows below each key."""
        return KeyCurve.of(self.keys.astype(np.float64), self.at, self.before)


class KeyCurve(Struct, frozen=True, eq=False):
    """Rows (or pairs) with a smaller key, as a function of the key: straight between its nodes.

    Attributes
    ----------
    places, below : ndarray of float64
        The nodes, both ascending. Before the first node there is nothing, after the last one `total`.
    total : float
    """

    places: Float64
    below: Float64
    total: float

    @classmethod
    def of(cls, keys: Float64, at: Float64, before: Float64) -> KeyCurve:
        """Return the curve of what lies at ascending keys, and evenly between each key and the one before."""
        upto = np.cumsum(at + before)
        places = np.column_stack((keys, np.nextafter(keys, np.inf))).ravel()
        below = np.column_stack((upto - at, upto)).ravel()
        return cls(np.maximum.accumulate(places), below, float(upto[-1]) if len(upto) else 0.0)

    def before(self, keys: Float64) -> Float64:
        """Return what lies below each key, the key itself not included."""
        if not len(self.places):
            return np.zeros(len(keys))
        found: Float64 = np.interp(keys, self.places, self.below, left=0.0, right=self.total)
        return found


def attributes_of(bound: BoundJoin) -> list[Reach]:
    """Return the attributes whose keys are sampled, at most four: those of `band_attributes`."""
    return [reach for _, reach in band_attributes(bound)[:_MOST_ATTRIBUTES]]


def sample_rows(cells: int) -> int:
    """Return how many tuples of each stream are sampled for so many cells."""
    return min(max(_ROWS_FOR_CELL * cells, _LEAST_ROWS), _MOST_ROWS)


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Some of a stream's tuples: all those of a stretch whose numbers have a hash below a threshold.

    Attributes
    ----------
    rows : pyarrow.Table
        The columns ``seq``, ``ts``, and ``key0``, ``key1``, ... for the attributes.
    threshold : float
        In (0, 1]: the share of all tuples that is sampled.
    """

    rows: pa.Table
    threshold: float = 1.0

    @classmethod
    def of(cls, bound: BoundJoin, attributes: Sequence[Reach], stream: int, tuples: pa.Table, most: int) -> SampledRows:
        """Return at most `most` of a stream's tuples, which have the columns of ``bound.tuple_schema(stream)``."""
        kept, threshold = _smallest(tuples.column(SEQ).to_numpy(), most)
        if kept is not None:
            tuples = tuples.take(pa.array(kept))
        columns = {"seq": tuples.column(SEQ), "ts": tuples.column(TS)}
        for number, reach in enumerate(attributes):
            key = reach.keys[stream]
            column = tuples.column(bound.key_name(stream, key)).combine_chunks()
            array = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
            values, has_key = nullable_key_values(array, key.kind)
            columns[f"key{number}"] = pa.array(values, mask=None if has_key is None else ~has_key)
        return cls(pa.table(columns), threshold)

    @classmethod
    def joined(cls, several: Sequence[SampledRows]) -> SampledRows:
        """Return one sample of what several samples are of; a tuple that is in more than one counts once."""
        threshold = min(sample.threshold for sample in several)
        table = pa.concat_tables([sample.rows for sample in several]).combine_chunks()
        seqs = table.column("seq").to_numpy()
        _, firsts = np.unique(seqs, return_index=True)
        return cls(table.take(pa.array(firsts[_hashes(seqs[firsts]) < threshold])), threshold)

    def thinned(self, most: int) -> SampledRows:
        """Return at most `most` of these tuples, with a lower threshold."""
        kept, threshold = _smallest(self.rows.column("seq").to_numpy(), most)
        return self if kept is None else SampledRows(self.rows.take(pa.array(kept)), threshold)

    def within(self, since_us: int, until_us: int) -> SampledRows:
        """Return the tuples with an event time from `since_us` to before `until_us`."""
        times = self.rows.column("ts").to_numpy()
        return SampledRows(self.rows.filter(pa.array((times >= since_us) & (times < until_us))), self.threshold)

    def newest(self, since_us: int, rows: int) -> SampledRows:
        """Return the tuples with an event time from `since_us` on, and older ones where these are fewer than `rows`."""
        times = self.rows.column("ts").to_numpy()
        oldest = int(np.sort(times)[-rows:][0]) if len(times) else since_us
        return SampledRows(self.rows.filter(pa.array(times >= min(since_us, oldest))), self.threshold)

    def since(self, seq: int) -> SampledRows:
        """Return the tuples with this number or a higher one."""
        return SampledRows(self.rows.filter(pa.array(self.rows.column("seq").to_numpy() >= seq)), self.threshold)

    def key_sample(self, attribute: int) -> KeySample:
        """Return the keys of an attribute, each standing for as many rows as the threshold says."""
        column = self.rows.column(f"key{attribute}").drop_null().to_numpy()
        sample = KeySample.of(column, len(column))
        return replace(sample, at=sample.at / self.threshold, before=sample.before / self.threshold)

    @property
    def next_seq(self) -> int:
        """The number after the last tuple; 0 where there is none."""
        seqs = self.rows.column("seq").to_numpy()
        return int(seqs.max()) + 1 if len(seqs) else 0

    @property
    def times(self) -> tuple[int, int] | None:
        """The smallest and the largest event time; None where there is no tuple."""
        times = self.rows.column("ts").to_numpy()
        return (int(times.min()), int(times.max())) if len(times) else None


@dataclass(frozen=True, eq=False)
class KeyHint:
    """Samples of all streams, over about a window.

    Attributes
    ----------
    streams : tuple of SampledRows
    """

    streams: tuple[SampledRows, ...]

    @property
    def seqs(self) -> tuple[int, ...]:
        """For each stream the number after the last sampled tuple."""
        return tuple(sample.next_seq for sample in self.streams)

    def fits(self, attributes: Sequence[Reach]) -> bool:
        """Whether the samples have a column for each of these attributes, and for nothing else."""
        kinds = [pa.int64() if reach.is_whole else pa.float64() for reach in attributes]
        keys = [(f"key{number}", kind) for number, kind in enumerate(kinds)]
        schema = pa.schema([("seq", pa.int64()), ("ts", pa.int64()), *keys])
        is_whole = all(sample.rows.schema.equals(schema) for sample in self.streams)
        return is_whole and bool(attributes) and len(self.streams) == attributes[0].streams

    def shared(self) -> KeyHint:
        """Return what lies in the stretch of event time that all samples share, so that the streams' rates are right.

        Where they share none, or a sample is empty, all are empty.
        """
        spans = [sample.times or (0, -1) for sample in self.streams]
        return self._within(max(first for first, _ in spans), min(last for _, last in spans) + 1)

    def halves(self) -> tuple[KeyHint, KeyHint]:
        """Return the older and the newer half of the stretch of event time that all samples share."""
        shared = self.shared()
        spans = [sample.times or (0, -1) for sample in shared.streams]
        since, until = min(first for first, _ in spans), max(last for _, last in spans) + 1
        middle = (since + until) // 2
        return shared._within(since, middle), shared._within(middle, until)

    def _within(self, since_us: int, until_us: int) -> KeyHint:
        return KeyHint(tuple(sample.within(since_us, until_us) for sample in self.streams))

    @property
    def span_us(self) -> int:
        """The event time from the first to the last tuple, in microseconds."""
        spans = [span for sample in self.streams if (span := sample.times) is not None]
        return max((last for _, last in spans), default=0) - min((first for first, _ in spans), default=0)

    def key_samples(self, attribute: int) -> list[KeySample]:
        """Return each stream's keys of an attribute."""
        return [sample.key_sample(attribute) for sample in self.streams]

    @property
    def least_rows(self) -> int:
        """The rows of the smallest sample."""
        return min(int(sample.rows.num_rows) for sample in self.streams)

    def to_table(self) -> tuple[pa.Table, dict[str, str]]:
        """Return all samples as one table, and what else there is to know, as texts."""
        tables = [
            sample.rows.add_column(0, _STREAM, pa.array(np.full(sample.rows.num_rows, stream, np.int32)))
            for stream, sample in enumerate(self.streams)
        ]
        thresholds = [sample.threshold for sample in self.streams]
        return pa.concat_tables(tables), {_THRESHOLDS: json.dumps(thresholds)}

    @classmethod
    def from_table(cls, table: pa.Table, facts: Mapping[str, str]) -> KeyHint:
        """Return what `to_table` gave.

        Raises
        ------
        KeyError, TypeError, ValueError
            The table or the facts are anything else.
        """
        numbers, rows = table.column(_STREAM).to_numpy(), table.drop_columns([_STREAM])
        thresholds = json.loads(facts[_THRESHOLDS])
        columns = {field.name: field.type for field in rows.schema}
        kinds = {columns.pop("seq"), columns.pop("ts")}
        is_whole = kinds == {pa.int64()} and {*columns.values()} <= {pa.int64(), pa.float64()}
        is_whole = is_whole and not rows.column("seq").null_count and not rows.column("ts").null_count
        if not is_whole or not all(type(threshold) is float and 0 < threshold <= 1 for threshold in thresholds):
            msg = "this is not a sample of rows"
            raise ValueError(msg)
        return cls(
            tuple(
                SampledRows(rows.filter(pa.array(numbers == stream)), threshold)
                for stream, threshold in enumerate(thresholds)
            )
        )


def _smallest(seqs: npt.NDArray[np.int64], most: int) -> tuple[npt.NDArray[np.int64] | None, float]:
    """Return the places of the `most` numbers with the smallest hashes, and the least hash of the others.

    None, and 1.0, where there are no others.
    """
    if len(seqs) <= most:
        return None, 1.0
    hashes = _hashes(seqs)
    # Sorting is for a few: those below a hash that about twice as many numbers have.
    near = np.flatnonzero(hashes < 2 * (most + 8) / len(seqs))
    near = near if len(near) > most else np.arange(len(seqs))
    threshold = float(np.partition(hashes[near], most)[most])
    return near[hashes[near] < threshold], threshold


def _hashes(seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return a hash of each number in [0, 1), which numbers that lie regularly do not fool (Fibonacci, then mixed)."""
    x = seqs.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x >>= np.uint64(11)
    hashes: npt.NDArray[np.float64] = x * 2.0**-53
    return hashes
