"""A sample of a bucket grid's keys, from which the join order is estimated until enough new rows have come.

The grid itself changes with every push, so estimates from it would have to be made anew each time. Besides, a restored
grid has its rows in other places. A sample stays as it is, and is saved with the grid. So the order in which three
streams and more join is a function of the pushes alone, and with it the order of their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.arrays.keys import INT64_MAX, INT64_MIN
from streamjoin_ds.spec.key_values import is_float

__all__ = ["SAMPLED_KEYS", "GridSample"]

# Rows in a sample: as many as `probe.join_order` draws from a whole window, since a grid may be all of one.
SAMPLED_KEYS = 128

Keys = Sequence[npt.NDArray[Any]]


class GridSample:
    """Keys of evenly spaced rows; never changed.

    Parameters
    ----------
    keys : sequence of ndarray, float64 or int64
        One array for each key, all of one length.
    rows : int
        How many rows the grid had.
    """

    __slots__ = ("_keys", "rows")

    def __init__(self, keys: Keys, rows: int) -> None:
        self._keys, self.rows = tuple(keys), rows

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the sampled values of a key."""
        return self._keys[number]

    def to_facts(self) -> dict[str, Any]:
        """Return the sample as plain JSON values."""
        return {"rows": self.rows, "keys": [values.tolist() for values in self._keys]}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], kinds: Sequence[str]) -> GridSample:
        """Return the sample that `to_facts` described, of keys of these kinds.

        Raises
        ------
        KeyError, TypeError, ValueError
            The facts are not those of such a sample.
        """
        rows, keys = facts["rows"], facts["keys"]
        is_whole = type(rows) is int and len(keys) == len(kinds) and len({len(values) for values in keys}) == 1
        if not is_whole or not all(
            _fits(value, kind) for values, kind in zip(keys, kinds, strict=True) for value in values
        ):
            msg = "these are not the facts of a sample"
            raise ValueError(msg)
        dtypes = (np.float64 if is_float(kind) else np.int64 for kind in kinds)
        return cls([np.array(values, dtype=dtype) for values, dtype in zip(keys, dtypes, strict=True)], rows)


def _fits(value: Any, kind: str) -> bool:
    return type(value) is float if is_float(kind) else type(value) is int and INT64_MIN <= value <= INT64_MAX
