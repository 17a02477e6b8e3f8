"""Tables of the rows and pairs that any range of a band attribute would hold, estimated from samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.plan.key_sample import KeyCurve, KeySample
from streamjoin_ds.plan.reach import Difference, Reach

__all__ = ["KeyTables", "best_anchor"]

_Floats = npt.NDArray[np.float64]


def best_anchor(samples: Sequence[KeySample], reach: Reach) -> int:
    """Return the stream that is the best anchor: with it the others have the fewest copies, by their rows and reach.

    Of equal streams that with the most rows is taken, then the first.
    """
    streams = range(reach.streams)

    def copied(anchor: int) -> tuple[float, float]:
        widths = [reach.most_above(anchor, n) + reach.most_above(n, anchor) for n in streams]
        return sum(samples[n].total * float(widths[n]) for n in streams if n != anchor), -samples[anchor].total

    return min(streams, key=copied)


class KeyTables:
    """What a range from candidate boundary *a* to candidate boundary *b* holds, for all *a* < *b*.

    Candidates are the anchor's sampled keys, and the boundaries that cut out single frequent keys of any stream.

    Parameters
    ----------
    samples : sequence of KeySample
        One for each stream.
    reach : Reach
    anchor : int

    Attributes
    ----------
    boundaries : ndarray of float64 or int64, shape (m - 2,)
        The candidates between the first (minus infinity) and the last (infinity).
    arrived, left : ndarray of float64, shape (streams, m)
        The range holds ``arrived[i, b] - left[i, a]`` rows of stream *i*. For the anchor both tables are the same.
    pairs : ndarray of float64, shape (bands, m)
        The range holds about ``pairs[e, b] - pairs[e, a]`` pairs of band *e*. Each pair counts in one range: that of
        its anchor's tuple, or that where such a tuple would be.
    """

    def __init__(self, samples: Sequence[KeySample], reach: Reach, anchor: int) -> None:
        self._reach, self._anchor = reach, anchor
        self._curves = [sample.curve() for sample in samples]
        self._pair_curves = [_pair_curve(band, samples, self._curves, reach, anchor) for band in reach.bands]
        self._fill(_candidates(samples, reach, anchor))

    def refine(self, parts: npt.NDArray[np.int64]) -> None:
        """Cut each stretch between two candidates into some parts, as far as there are keys between them.

        Stretches of whole numbers of length 2^62 and more, and of floats of infinite length, stay whole.

        Parameters
        ----------
        parts : ndarray of int64, shape (m - 1,)
            The number of parts of each stretch, at least 1. The first and the last stretch have no end and stay whole.
        """
        inner = parts[1:-1]
        keys = self.boundaries.astype(np.float64)
        with np.errstate(over="ignore"):
            lengths = np.diff(keys)
        cut = np.flatnonzero((inner > 1) & (lengths < (1 << 62 if self._reach.is_whole else np.inf)))
        if not len(cut):
            return
        counts = inner[cut] - 1
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        share = (np.arange(int(counts.sum())) - begins + 1) / np.repeat(inner[cut], counts)
        low = np.repeat(self.boundaries[cut], counts)
        steps = np.repeat(lengths[cut], counts) * share
        self._fill(np.unique(np.concatenate((self.boundaries, low + steps.astype(self.boundaries.dtype)))))

    def cut_at(self, boundaries: npt.NDArray[Any]) -> None:
        """Take these boundaries as the candidates, and no others."""
        self._fill(boundaries, keeps_all=True)

    def _fill(self, boundaries: npt.NDArray[Any], *, keeps_all: bool = False) -> None:
        reach, anchor, keys = self._reach, self._anchor, boundaries.astype(np.float64)
        arrived, left = np.empty((2, reach.streams, len(keys) + 2))
        with np.errstate(over="ignore"):
            for stream, curve in enumerate(self._curves):
                # For an equality of floats this adds the smallest float, and so nothing.
                arrived[stream] = _with_ends(curve, keys + float(reach.most_above(stream, anchor)))
                left[stream] = _with_ends(curve, keys - float(reach.most_above(anchor, stream)))
        if (
            len(keys) and not keeps_all and not arrived[:, 1].any()
        ):  # no row is before the first candidate, so no range ends there
            boundaries, arrived, left = boundaries[1:], np.delete(arrived, 1, axis=1), np.delete(left, 1, axis=1)
        # Bands that contradict each other have a negative reach.
        self.boundaries, self.arrived, self.left = boundaries, np.maximum(arrived, left), left
        self.pairs = np.array([_with_ends(curve, boundaries.astype(np.float64)) for curve in self._pair_curves])


def _with_ends(curve: KeyCurve, keys: _Floats) -> _Floats:
    """Return what lies below each key, with 0 before the first key and the total after the last."""
    return np.concatenate(([0.0], curve.before(keys), [curve.total]))


def _candidates(samples: Sequence[KeySample], reach: Reach, anchor: int) -> npt.NDArray[Any]:
    """Return the anchor's sampled keys, and the boundaries that cut out single frequent keys of any stream."""
    found = [samples[anchor].keys]
    for stream, sample in enumerate(samples):
        points = sample.points
        if reach.is_whole:
            below, above = int(reach.most_above(stream, anchor)), int(reach.most_above(anchor, stream)) + 1
            if max(abs(below), abs(above)) < 1 << 62:  # with a longer reach no range cuts a key out
                near = points[np.abs(points) < 1 << 62]
                found += [near - below, near + above]
        else:
            with np.errstate(over="ignore"):
                found.append(points - reach.most_above(stream, anchor))
                found.append(np.nextafter(points + reach.most_above(anchor, stream), np.inf))
    every: npt.NDArray[Any] = np.unique(np.concatenate(found))
    finite: npt.NDArray[Any] = every[np.isfinite(every)]
    return finite


def _pair_curve(
    band: Difference, samples: Sequence[KeySample], curves: Sequence[KeyCurve], reach: Reach, anchor: int
) -> KeyCurve:
    """Return the band's pairs by the anchor's key; for a band of other streams by the key that an anchor would have."""
    own, other, lo, hi = band.left, band.right, float(band.lo), float(band.hi)
    if other == anchor:
        own, other, lo, hi = other, own, -hi, -lo
    keys = samples[own].keys.astype(np.float64)

    def partners(keys: _Floats) -> _Floats:
        after = keys - lo + 1 if reach.is_whole else np.nextafter(keys - lo, np.inf)
        return curves[other].before(after) - curves[other].before(keys - hi)

    with np.errstate(over="ignore"):
        at = samples[own].at * partners(keys)
        between = np.concatenate((keys[:1], keys[:-1] / 2 + keys[1:] / 2))
        before = samples[own].before * partners(np.floor(between) if reach.is_whole else between)
    middle = float(reach.most_above(anchor, own)) / 2 - float(reach.most_above(own, anchor)) / 2
    middle = middle if np.isfinite(middle) else 0.0
    return KeyCurve.of(keys + middle, at, before)
