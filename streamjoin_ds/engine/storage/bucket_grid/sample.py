"""Some rows' keys of a bucket grid: what the order of joining is decided by, until enough other rows have come.

The grid itself changes with every push, so what is estimated of it would have to be worked out anew each time; and a
restored grid has its rows elsewhere. A sample stays as it is, and is saved with the grid: the order in which three
streams and more join, and so that of their results, is a function of the pushes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.arrays.keys import INT64_MAX, INT64_MIN

__all__ = ["SAMPLED_KEYS", "GridSample"]

# A window's whole sample, when a grid is all of it; `probe.join_order` draws as many of any window.
SAMPLED_KEYS = 128

Keys = Sequence[npt.NDArray[Any]]


class GridSample:
    """Keys of evenly spaced rows; never changed.

    Parameters
    ----------
    keys : sequence of ndarray, float64 or int64
        One array a key, all of one length.
    rows : int
        How many there were to choose from.
    """

    __slots__ = ("_keys", "rows")

    def __init__(self, keys: Keys, rows: int) -> None:
        self._keys, self.rows = tuple(keys), rows

    def key(self, number: int) -> npt.NDArray[Any]:
        """Sampled values of a key."""
        return self._keys[number]

    def to_facts(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"rows": self.rows, "keys": [values.tolist() for values in self._keys]}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], kinds: Sequence[str]) -> GridSample:
        """What `to_facts` gave, of keys of these kinds; KeyError, TypeError or ValueError where it did not."""
        rows, keys = facts["rows"], facts["keys"]
        is_whole = type(rows) is int and len(keys) == len(kinds) and len({len(values) for values in keys}) == 1
        if not is_whole or not all(
            _fits(value, kind) for values, kind in zip(keys, kinds, strict=True) for value in values
        ):
            msg = "these are not the facts of a sample"
            raise ValueError(msg)
        dtypes = (np.float64 if kind == "float" else np.int64 for kind in kinds)
        return cls([np.array(values, dtype=dtype) for values, dtype in zip(keys, dtypes, strict=True)], rows)


def _fits(value: Any, kind: str) -> bool:
    return type(value) is float if kind == "float" else type(value) is int and INT64_MIN <= value <= INT64_MAX
