"""Distances in two parts: they are in the order of the exact numbers, at the ends of 64 bits too."""

from __future__ import annotations

import warnings
from itertools import product

import pyarrow as pa

from streamjoin_ds.spec import Join, Nearest, Stream, bind

ENDS = [-(2**63), -(2**63) + 1, -(2**62), -513, -1, 0, 1, 2**53, 2**53 + 1, 2**62, 2**63 - 513, 2**63 - 512, 2**63 - 1]


def test_whole_numbers_are_in_order_at_the_ends_of_64_bits() -> None:
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    streams = [Stream(name, schema=schema) for name in "ew"]
    for text, values in {"w.x": ENDS, "e.x - w.x": [a - b for a, b in product(ENDS, ENDS)]}.items():
        bound = bind(Join(streams, "abs(e.x - w.x) <= 1", "9us", nearest=Nearest(1, text)), dict.fromkeys("ew", schema))
        pairs = [(0, value) for value in ENDS] if text == "w.x" else list(product(ENDS, ENDS))
        columns = {"e": pa.array([own for own, _ in pairs]), "w": pa.array([other for _, other in pairs])}
        assert bound.distance is not None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a float that int64 cannot hold becomes any number
            near, rest = bound.distance.values(len(pairs), lambda column: columns[column.stream])  # noqa: B023
        assert rest is not None
        found = sorted(range(len(pairs)), key=lambda n: (near[n], rest[n]))
        assert [values[n] for n in found] == sorted(values), text
        assert [float(value) for value in values] == near.tolist()
